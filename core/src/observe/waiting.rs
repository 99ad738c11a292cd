//! What a rank that has waited for long waits for: for its launcher, in a form that can be put
//! together with what the other ranks say.

use std::fmt;

/// One operation that a rank waits for.
///
/// Local ranks have been translated: what is said of one rank can be compared with what is said of
/// another.
///
/// ```
/// use portolan_core::{WaitKind, Waiting};
///
/// let receive = Waiting {
///     kind: WaitKind::Receive,
///     peer: Some(1),
///     context: 0,
///     tag: Some(7),
///     bytes: 8,
/// };
/// assert_eq!(receive.to_string(), "receive from rank 1 (context 0, tag 7, up to 8 bytes)");
/// let text = Waiting::encode(&[receive]);
/// assert_eq!(Waiting::decode(&text), Some((vec![receive], 0)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What sort of operation.
    pub kind: WaitKind,
    /// World rank that can end the wait; `None`: any rank of the communicator.
    pub peer: Option<u32>,
    /// Context id of the communicator; 0 where there is none.
    pub context: u32,
    /// Tag; `None`: any.
    pub tag: Option<u32>,
    /// Bytes of the message, or of the buffer that waits for one.
    pub bytes: u64,
}

/// What sort of operation somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitKind {
    /// Something that names nobody: an active message, a completion of another crate's.
    Event,
    /// The others, at the end of the job.
    End,
    /// A one-sided operation with an answer.
    Fetch,
    /// A message that has not come, of whatever length.
    Probe,
    /// A message that has not come.
    Receive,
    /// The receiver of a message.
    Send,
    /// The data of a long message that has been matched.
    Transfer,
}

/// The kinds with their names in the text between rank and launcher.
const KINDS: [(WaitKind, &str); 7] = [
    (WaitKind::Event, "event"),
    (WaitKind::End, "end"),
    (WaitKind::Fetch, "fetch"),
    (WaitKind::Probe, "probe"),
    (WaitKind::Receive, "recv"),
    (WaitKind::Send, "send"),
    (WaitKind::Transfer, "transfer"),
];

impl Waiting {
    /// Entries that a text holds at most, so that it fits into one line of every protocol.
    pub const MOST: usize = 12;

    /// Some operations as a text without blanks; of more than [`MOST`](Self::MOST) only the number
    /// is told.
    #[must_use]
    pub fn encode(list: &[Self]) -> String {
        let mut words: Vec<_> = list.iter().take(Self::MOST).map(Self::word).collect();
        if list.len() > Self::MOST {
            words.push(format!("+{}", list.len() - Self::MOST));
        }
        words.join("/")
    }

    /// The operations of a text, and how many more there were; `None` if
    /// [`encode`](Self::encode) has not written it.
    #[must_use]
    pub fn decode(text: &str) -> Option<(Vec<Self>, usize)> {
        if text.is_empty() {
            return Some((Vec::new(), 0));
        }
        let (text, more) = match text.rsplit_once("/+") {
            Some((text, more)) => (text, more.parse().ok()?),
            None => (text, 0),
        };
        // A peer's text must not make the reader allocate without end.
        let words = text.split('/').take(Self::MOST + 1);
        let list: Vec<_> = words.map(Self::parse).collect::<Option<_>>()?;
        (list.len() <= Self::MOST).then_some((list, more))
    }

    fn word(&self) -> String {
        let any = |part: Option<u32>| part.map_or("any".to_owned(), |n| n.to_string());
        let name = KINDS
            .iter()
            .find(|(kind, _)| *kind == self.kind)
            .map_or("event", |(_, name)| name);
        let (peer, tag) = (any(self.peer), any(self.tag));
        format!("{name},{peer},{},{tag},{}", self.context, self.bytes)
    }

    fn parse(word: &str) -> Option<Self> {
        let any = |part: &str| match part {
            "any" => Some(None),
            number => number.parse().ok().map(Some),
        };
        let parts: Vec<_> = word.splitn(6, ',').collect();
        let [name, peer, context, tag, bytes] = parts[..] else {
            return None;
        };
        Some(Self {
            kind: KINDS.iter().find(|(_, known)| *known == name)?.0,
            peer: any(peer)?,
            context: context.parse().ok()?,
            tag: any(tag)?,
            bytes: bytes.parse().ok()?,
        })
    }
}

impl fmt::Display for Waiting {
    /// For people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = |none: &str| self.peer.map_or(none.to_owned(), |n| format!("rank {n}"));
        let tag = self
            .tag
            .map_or("any tag".to_owned(), |n| format!("tag {n}"));
        let Self { context, bytes, .. } = self;
        match self.kind {
            WaitKind::Event => f.write_str("an active message or another event"),
            WaitKind::End => write!(f, "the end of {}", who("the other ranks")),
            WaitKind::Fetch => write!(f, "one-sided fetch of {bytes} bytes from {}", who("a rank")),
            WaitKind::Probe => {
                let who = who("any rank");
                write!(f, "message from {who} (context {context}, {tag})")
            }
            WaitKind::Receive => {
                let who = who("any rank");
                write!(
                    f,
                    "receive from {who} (context {context}, {tag}, up to {bytes} bytes)"
                )
            }
            WaitKind::Send => {
                let who = who("a rank");
                write!(f, "send to {who} (context {context}, {tag}, {bytes} bytes)")
            }
            WaitKind::Transfer => {
                let who = who("a rank");
                write!(
                    f,
                    "data of {bytes} bytes from {who} (context {context}, {tag})"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn waiting() -> impl Strategy<Value = Waiting> {
        let kind = prop::sample::select(KINDS.map(|(kind, _)| kind).to_vec());
        (
            kind,
            any::<Option<u32>>(),
            any::<u32>(),
            any::<Option<u32>>(),
            any::<u64>(),
        )
            .prop_map(|(kind, peer, context, tag, bytes)| Waiting {
                kind,
                peer,
                context,
                tag,
                bytes,
            })
    }

    proptest! {
        #[test]
        fn lists_survive_the_journey(list in prop::collection::vec(waiting(), 0..30)) {
            let text = Waiting::encode(&list);
            prop_assert!(text.len() < 900, "{} bytes", text.len());
            let (back, more) = Waiting::decode(&text).unwrap();
            prop_assert_eq!(&back[..], &list[..list.len().min(Waiting::MOST)]);
            prop_assert_eq!(back.len() + more, list.len());
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[a-z0-9,/+]{0,60}|.{0,60}") {
            let _ = Waiting::decode(&text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "recv",
            "recv,1,0,7",
            "recv,1,0,7,8,9",
            "nap,1,0,7,8",
            "recv,x,0,7,8",
            "/+3",
        ] {
            assert_eq!(Waiting::decode(bad), None, "{bad}");
        }
        assert_eq!(Waiting::decode(&["end,1,0,any,1"; 13].join("/")), None);
    }
}
