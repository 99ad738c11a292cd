//! What a rank that has waited for long is waiting for. The rank tells its launcher, in a form that
//! can be combined with what other ranks say.

use std::fmt;

/// One operation that a rank waits for.
///
/// Peers are world ranks, so that the reports of different ranks can be compared.
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
    /// The kind of operation.
    pub kind: WaitKind,
    /// World rank of the only peer that can end the wait; `None` if any rank of the communicator
    /// can.
    pub peer: Option<u32>,
    /// Context id of the communicator; 0 if there is none.
    pub context: u32,
    /// Tag; `None` if any.
    pub tag: Option<u32>,
    /// Bytes of the message, or of the buffer that waits for one.
    pub bytes: u64,
}

/// The kind of operation that a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitKind {
    /// An event that concerns no particular rank: an active message, or a completion of another
    /// crate's.
    Event,
    /// The other ranks, at the end of the job.
    End,
    /// A one-sided operation that has an answer.
    Fetch,
    /// A message that has not arrived, of any length.
    Probe,
    /// A message that has not arrived, for a posted receive.
    Receive,
    /// The receiver of a message that this rank sends.
    Send,
    /// The data of a long message that has been matched.
    Transfer,
}

/// The kinds and their names in the text that a rank sends its launcher.
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
    /// Most entries in one text, so that it fits into one line of every protocol.
    pub const MOST: usize = 12;

    /// Encodes operations as a text without blanks. Of those beyond [`MOST`](Self::MOST) it
    /// contains only the number.
    #[must_use]
    pub fn encode(list: &[Self]) -> String {
        let mut words: Vec<_> = list.iter().take(Self::MOST).map(Self::word).collect();
        if list.len() > Self::MOST {
            words.push(format!("+{}", list.len() - Self::MOST));
        }
        words.join("/")
    }

    /// The operations in a text, and the number of those left out; `None` if the text is not from
    /// [`encode`](Self::encode).
    #[must_use]
    pub fn decode(text: &str) -> Option<(Vec<Self>, usize)> {
        if text.is_empty() {
            return Some((Vec::new(), 0));
        }
        let (text, more) = match text.rsplit_once("/+") {
            Some((text, more)) => (text, more.parse().ok()?),
            None => (text, 0),
        };
        // A peer's text must not make the reader allocate without bound.
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
    /// Formats the operation for people.
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
