//! The rank's side of the protocol.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::super::{Bootstrap, JobError};
use super::keys::{check_key, first_part, part_key, split};
use super::{Lines, Message};

/// Longest line that MPICH's launchers and clients handle, including its end.
const LINE_LIMIT: usize = 1024;

/// Longest reason of an abort, escaped: what the rest of its line leaves.
const REASON_LIMIT: usize =
    LINE_LIMIT - "cmd=abort exitcode=-2147483648 failed=4294967295 reason=\n\0".len();

/// A stream to the launcher.
pub(super) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// What the environment says about this rank, before the launcher is asked.
pub(super) struct Place {
    pub(super) rank: u32,
    pub(super) size: u32,
    /// `PORTOLAN_JOB_ID`. It belongs to this job only if the launcher uses the same name.
    pub(super) claimed_job: Option<String>,
    /// Descriptors that `portolan run` has left for this rank, by name.
    pub(super) inherited: Vec<(&'static str, OwnedFd)>,
    /// The launcher, if the environment shows that it is not `portolan run`.
    pub(super) other_launcher: Option<&'static str>,
}

/// The connection of one rank to a PMI-1 launcher.
pub(super) struct Client {
    stream: Box<dyn Stream>,
    lines: Lines,
    rank: u32,
    size: u32,
    /// Name of the job's key-value space, which is also the job's name.
    kvsname: String,
    /// Longest value of one entry, in bytes.
    value_limit: usize,
    inherited: Vec<(&'static str, OwnedFd)>,
    kind: &'static str,
    /// Whether the launcher understands [`Bootstrap::report`], a Portolan extension.
    takes_reports: bool,
    finalized: bool,
}

impl Client {
    /// Introduces this rank to the launcher.
    pub(super) fn start(stream: Box<dyn Stream>, place: Place) -> Result<Self, JobError> {
        let Place {
            rank,
            size,
            claimed_job,
            inherited,
            other_launcher,
        } = place;
        let lines = Lines::new();
        let mut client = Self {
            stream,
            lines,
            rank,
            size,
            kvsname: String::new(),
            value_limit: 0,
            inherited,
            kind: "pmi-1",
            takes_reports: false,
            finalized: false,
        };
        client.agree_on_version()?;
        let value_max = client.ask_value_limit()?;
        client.kvsname = client.ask_kvsname()?;
        // Room for the rest of the line, rounded up: `cmd=get_result rc=0 msg=success value=` or
        // `cmd=put kvsname= key= value=`, a key, the name, the end of line and its zero.
        let around = 112 + client.kvsname.len();
        client.value_limit = value_max
            .saturating_sub(1)
            .min(LINE_LIMIT.saturating_sub(around));
        if client.value_limit < 32 {
            let why = format!(
                "it leaves {} bytes for a value, 32 are needed",
                client.value_limit
            );
            return Err(client.protocol("asking for limits", why));
        }
        if claimed_job.as_deref() == Some(&client.kvsname) {
            client.kind = "pmi-1 (portolan run)";
        } else {
            // The variable and the descriptors belong to an outer job.
            client.inherited.clear();
            client.kind = match other_launcher {
                Some(kind) => kind,
                None if client.kvsname.starts_with("kvs_") => "pmi-1 (hydra)",
                None => "pmi-1",
            };
        }
        crate::log!(DEBUG, rank, size, job = %client.kvsname, kind = client.kind, "joined the job");
        Ok(client)
    }

    fn agree_on_version(&mut self) -> Result<(), JobError> {
        let doing = "agreeing on the protocol's version";
        let request = Message::new("init")
            .with("pmi_version", 1)
            .with("pmi_subversion", 1);
        let answer = self.ask(doing, &request, "response_to_init")?;
        self.check_rc(doing, &answer)?;
        self.takes_reports = answer.field("reports") == Some("1");
        match answer.field("pmi_version") {
            Some("1") => Ok(()),
            other => {
                let why = format!(
                    "it offers version {}, 1 is needed",
                    other.unwrap_or("(none)")
                );
                Err(self.protocol(doing, why))
            }
        }
    }

    fn ask_value_limit(&mut self) -> Result<usize, JobError> {
        let doing = "asking for limits";
        let answer = self.ask(doing, &Message::new("get_maxes"), "maxes")?;
        let limit = answer
            .field("vallen_max")
            .and_then(|text| text.parse().ok());
        limit.ok_or_else(|| self.protocol(doing, format!("no vallen_max in `{answer}`")))
    }

    fn ask_kvsname(&mut self) -> Result<String, JobError> {
        let doing = "asking for the job's name";
        let answer = self.ask(doing, &Message::new("get_my_kvsname"), "my_kvsname")?;
        match answer.field("kvsname") {
            Some(name) if !name.is_empty() => Ok(name.to_owned()),
            _ => Err(self.protocol(doing, format!("no kvsname in `{answer}`"))),
        }
    }

    /// Sends a request and waits for its answer.
    fn ask(
        &mut self,
        doing: &'static str,
        request: &Message,
        answer: &str,
    ) -> Result<Message, JobError> {
        self.say(request)
            .map_err(|source| self.connection(doing, source))?;
        let message = self.listen(doing)?;
        if message.command() == answer {
            return Ok(message);
        }
        Err(self.protocol(doing, format!("`{message}` where `{answer}` was expected")))
    }

    fn say(&mut self, message: &Message) -> io::Result<()> {
        crate::log!(TRACE, rank = self.rank, line = %message, "to the launcher");
        self.stream.write_all(format!("{message}\n").as_bytes())?;
        self.stream.flush()
    }

    fn listen(&mut self, doing: &'static str) -> Result<Message, JobError> {
        loop {
            if let Some(message) = self.lines.next_message() {
                let message = message.map_err(|why| self.protocol(doing, why.to_string()))?;
                crate::log!(TRACE, rank = self.rank, line = %message, "from the launcher");
                return Ok(message);
            }
            let mut bytes = [0; 2048];
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    let ended = io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended");
                    return Err(self.connection(doing, ended));
                }
                Ok(n) => self.lines.push(&bytes[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.connection(doing, error)),
            }
        }
    }

    fn put_entry(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        let doing = "publishing a key";
        let request = Message::new("put")
            .with("kvsname", &self.kvsname)
            .with("key", key)
            .with("value", value);
        let answer = self.ask(doing, &request, "put_result")?;
        if answer.field("rc").is_some_and(|rc| rc != "0")
            && answer
                .field("msg")
                .is_some_and(|why| why.contains("duplicate"))
        {
            return Err(JobError::DuplicateKey {
                rank: self.rank,
                key: key.to_owned(),
            });
        }
        self.check_rc(doing, &answer)
    }

    fn get_entry(&mut self, key: &str) -> Result<String, JobError> {
        let request = Message::new("get")
            .with("kvsname", &self.kvsname)
            .with("key", key);
        let answer = self.ask("asking for a key", &request, "get_result")?;
        match (answer.field("rc"), answer.field("value")) {
            (None | Some("0"), Some(value)) => Ok(value.to_owned()),
            // Launchers have no common error code here, and a missing key is the only reason to
            // refuse.
            _ => Err(JobError::KeyMissing {
                rank: self.rank,
                key: key.to_owned(),
            }),
        }
    }

    fn check_rc(&self, doing: &'static str, answer: &Message) -> Result<(), JobError> {
        match answer.field("rc") {
            None | Some("0") => Ok(()),
            Some(_) => Err(JobError::Refused {
                rank: self.rank,
                doing,
                reason: answer
                    .field("msg")
                    .unwrap_or("it gave no reason")
                    .to_owned(),
            }),
        }
    }

    fn check_open(&self) -> Result<(), JobError> {
        if self.finalized {
            Err(JobError::Finalized { rank: self.rank })
        } else {
            Ok(())
        }
    }

    fn connection(&self, doing: &'static str, source: io::Error) -> JobError {
        JobError::Connection {
            rank: self.rank,
            doing,
            source,
        }
    }

    fn protocol(&self, doing: &'static str, why: String) -> JobError {
        JobError::Protocol {
            rank: self.rank,
            doing,
            why,
        }
    }
}

impl Bootstrap for Client {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job_id(&self) -> &str {
        &self.kvsname
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        self.check_open()?;
        check_key(self.rank, key)?;
        for (key, text) in split(key, &Message::escape(value), self.value_limit) {
            self.put_entry(&key, &text)?;
        }
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<String, JobError> {
        self.check_open()?;
        check_key(self.rank, key)?;
        let doing = "asking for a key";
        let garbled = |text: &str| format!("key `{key}` has `{text}`, which no rank has put");
        let first = self.get_entry(key)?;
        let Some((count, part)) = first_part(&first) else {
            return Err(self.protocol(doing, garbled(&first)));
        };
        let mut escaped = part.to_owned();
        for index in 1..count {
            escaped.push_str(&self.get_entry(&part_key(key, index))?);
        }
        Message::unescape(&escaped).ok_or_else(|| self.protocol(doing, garbled(&escaped)))
    }

    fn fence(&mut self) -> Result<(), JobError> {
        self.check_open()?;
        let doing = "waiting for the other ranks";
        let answer = self.ask(doing, &Message::new("barrier_in"), "barrier_out")?;
        // `portolan run --on-failure return` names the rank that will not come.
        match answer.field("gone").and_then(|rank| rank.parse().ok()) {
            Some(gone) => Err(JobError::RankGone {
                rank: self.rank,
                gone,
            }),
            None => self.check_rc(doing, &answer),
        }
    }

    fn abort(&mut self, code: i32, message: &str) {
        self.ask_to_end(None, code, message);
    }

    fn abort_because_of(&mut self, failed: u32, code: i32, message: &str) {
        self.ask_to_end(Some(failed), code, message);
    }

    fn report(&mut self, what: &str, text: &str) {
        let escaped = Message::escape(text);
        if !self.takes_reports || self.finalized || escaped.len() > LINE_LIMIT {
            return;
        }
        let request = Message::new("report").with("what", what);
        if let Err(error) = self.say(&request.with("text", escaped)) {
            crate::log!(DEBUG, rank = self.rank, %error, "cannot report to the launcher");
        }
    }

    fn finalize(&mut self) -> Result<(), JobError> {
        if self.finalized {
            return Ok(());
        }
        self.finalized = true;
        self.ask("leaving the job", &Message::new("finalize"), "finalize_ack")
            .map(drop)
    }

    fn inherited(&self, what: &str) -> Option<RawFd> {
        let found = self.inherited.iter().find(|(name, _)| *name == what);
        found.map(|(_, descriptor)| descriptor.as_raw_fd())
    }

    fn kind(&self) -> &'static str {
        self.kind
    }
}

impl Client {
    /// Asks the launcher to end the job, perhaps because a rank has failed.
    fn ask_to_end(&mut self, failed: Option<u32>, code: i32, message: &str) {
        let mut request = Message::new("abort").with("exitcode", code);
        if self.kind == "pmi-1 (portolan run)" {
            // Portolan's extensions.
            if let Some(failed) = failed {
                request = request.with("failed", failed);
            }
            request = request.with("reason", escaped_beginning(message, REASON_LIMIT));
        }
        if let Err(error) = self.say(&request) {
            crate::log!(ERROR, rank = self.rank, %error, "cannot tell the launcher to abort");
        }
    }
}

/// As much of a text as fits into this many bytes, escaped. A sign shows that something is missing.
fn escaped_beginning(text: &str, limit: usize) -> String {
    let whole = Message::escape(text);
    if whole.len() <= limit {
        return whole;
    }
    let sign = Message::escape("…");
    let (mut beginning, room) = (String::new(), limit - sign.len());
    for letter in text.chars() {
        let escaped = Message::escape(letter.encode_utf8(&mut [0; 4]));
        if beginning.len() + escaped.len() > room {
            break;
        }
        beginning.push_str(&escaped);
    }
    beginning + &sign
}
