//! The state of a job's key exchange, and the answers to requests.

use std::collections::HashMap;

use portolan_core::Waiting;
use portolan_core::job::pmi1::{Message, WireError};

use super::spawn_block::{Progress, SpawnBlock};
use crate::run::stuck::Report;

/// Longest value of one key, which is told to the clients. MPICH's own launcher says the same.
const VALUE_MAX: usize = 1024;
/// Longest key.
const KEY_MAX: usize = 64;

/// What the launcher must do in response to a line.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Reaction {
    /// Send this message to that rank.
    Reply(u32, Message),
    /// That rank is about to join the job.
    Joins(u32),
    /// That rank asks to end the job with this code.
    Abort {
        /// The rank.
        rank: u32,
        /// The exit code for the job.
        code: i32,
        /// The rank whose failure is the reason, if it says so.
        failed: Option<u32>,
        /// The reason, if the rank gave one.
        reason: Option<String>,
    },
    /// That rank reports what it has waited for too long, or, with an empty list, that it
    /// continues.
    Waits {
        /// The rank.
        rank: u32,
        /// The operations that it waits for.
        report: Report,
    },
    /// That rank violates the protocol.
    Violation {
        /// The rank.
        rank: u32,
        /// A description of the violation.
        why: String,
    },
}

/// A fence that can never complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct StuckFence {
    /// A rank that will never enter the fence.
    pub(in super::super) missing: u32,
    /// Whether that rank has said that it leaves the job.
    pub(in super::super) has_left: bool,
    /// A rank that waits in the fence.
    pub(in super::super) waiting: u32,
}

#[derive(Debug, Default)]
struct Rank {
    /// Whether it has sent `init`.
    joined: bool,
    /// Whether it has sent `finalize`.
    left: bool,
    in_fence: bool,
    /// A request of several lines that is being read.
    block: Option<SpawnBlock>,
}

/// The exchange of one job.
#[derive(Debug)]
pub(in super::super) struct Server {
    /// The name of the job and of its key-value space.
    job_id: String,
    keys: HashMap<String, String>,
    /// Published service names (`MPI_Publish_name`).
    services: HashMap<String, String>,
    ranks: Vec<Rank>,
    /// Ranks whose processes have ended, in that order: later ranks may have ended because of the
    /// first.
    gone: Vec<u32>,
}

impl Server {
    pub(in super::super) fn new(job_id: &str, size: u32) -> Self {
        // Tells MPICH which ranks share a node: one node with all of them.
        let mapping = format!("(vector,(0,1,{size}))");
        Self {
            job_id: job_id.to_owned(),
            keys: HashMap::from([("PMI_process_mapping".to_owned(), mapping)]),
            services: HashMap::new(),
            ranks: (0..size).map(|_| Rank::default()).collect(),
            gone: Vec::new(),
        }
    }

    /// Handles one line from a rank, without its newline.
    pub(in super::super) fn line(
        &mut self,
        rank: u32,
        line: Result<Vec<u8>, WireError>,
    ) -> Vec<Reaction> {
        let line = match line {
            Ok(line) => line,
            Err(error) => return vec![violation(rank, error.to_string())],
        };
        if let Some(block) = &mut self.rank(rank).block {
            return match block.line(&line) {
                Progress::Within => Vec::new(),
                Progress::BlockEnded => {
                    self.rank(rank).block = None;
                    Vec::new()
                }
                Progress::RequestEnded => {
                    self.rank(rank).block = None;
                    let answer = Message::new("spawn_result").with("rc", -1);
                    let why = Message::escape("portolan_run_starts_no_processes_later");
                    vec![Reaction::Reply(rank, answer.with("errmsg", why))]
                }
            };
        }
        match Message::parse(&line) {
            Ok(message) => self.message(rank, &message),
            Err(error) => vec![violation(rank, error.to_string())],
        }
    }

    fn message(&mut self, rank: u32, message: &Message) -> Vec<Reaction> {
        if message.opens_block() {
            self.rank(rank).block = Some(SpawnBlock::default());
            return Vec::new();
        }
        let reply = |answer| vec![Reaction::Reply(rank, answer)];
        match message.command() {
            "init" => {
                let answer = self.init(rank, message);
                let joins = answer.field("rc") == Some("0");
                let joins = joins.then_some(Reaction::Joins(rank));
                joins.into_iter().chain(reply(answer)).collect()
            }
            "get_maxes" => reply(
                Message::new("maxes")
                    .with("rc", 0)
                    .with("kvsname_max", 256)
                    .with("keylen_max", KEY_MAX)
                    .with("vallen_max", VALUE_MAX),
            ),
            "get_appnum" => reply(Message::new("appnum").with("rc", 0).with("appnum", 0)),
            "get_my_kvsname" => reply(
                Message::new("my_kvsname")
                    .with("rc", 0)
                    .with("kvsname", &self.job_id),
            ),
            "get_universe_size" => {
                let size = self.ranks.len();
                reply(
                    Message::new("universe_size")
                        .with("rc", 0)
                        .with("size", size),
                )
            }
            "get_ranks2hosts" => reply(Message::new("get_ranks2hosts_result").with("rc", -1)),
            "put" => reply(self.put(message)),
            "get" => reply(self.get(message)),
            "barrier_in" => self.barrier_in(rank),
            "finalize" => {
                self.rank(rank).left = true;
                reply(Message::new("finalize_ack").with("rc", 0))
            }
            "abort" => vec![abort(rank, message)],
            "report" => report(rank, message),
            "publish_name" | "unpublish_name" | "lookup_name" => reply(self.service(message)),
            other => vec![violation(rank, format!("unknown command `{other}`"))],
        }
    }

    fn init(&mut self, rank: u32, message: &Message) -> Message {
        let answer = Message::new("response_to_init");
        if message.field("pmi_version") != Some("1") {
            let answer = answer.with("pmi_version", 1).with("pmi_subversion", 1);
            return answer
                .with("rc", -1)
                .with("msg", "only_version_1_is_served");
        }
        if self.rank(rank).joined {
            return answer
                .with("rc", -1)
                .with("msg", "this_rank_has_joined_its_job_before");
        }
        self.rank(rank).joined = true;
        answer
            .with("pmi_version", 1)
            .with("pmi_subversion", 1)
            .with("rc", 0)
            // An extension of Portolan, which other clients ignore.
            .with("reports", 1)
    }

    fn put(&mut self, message: &Message) -> Message {
        let answer = Message::new("put_result");
        let refuse = |why| Message::new("put_result").with("rc", -1).with("msg", why);
        if message.field("kvsname") != Some(&self.job_id) {
            return refuse("there_is_no_such_kvs");
        }
        let (Some(key), Some(value)) = (message.field("key"), message.field("value")) else {
            return refuse("key_or_value_is_missing");
        };
        if key.len() > KEY_MAX || value.len() > VALUE_MAX {
            return refuse("key_or_value_is_too_long");
        }
        // Hydra refuses this as well. If it were allowed here, a program could rely on overwriting
        // that works with no other launcher.
        if self.keys.contains_key(key) {
            return refuse("duplicate_key");
        }
        self.keys.insert(key.to_owned(), value.to_owned());
        answer.with("rc", 0).with("msg", "success")
    }

    fn get(&self, message: &Message) -> Message {
        let found = message.field("key").and_then(|key| self.keys.get(key));
        let known = message.field("kvsname") == Some(&self.job_id);
        let answer = Message::new("get_result");
        match found.filter(|_| known) {
            Some(value) => answer
                .with("rc", 0)
                .with("msg", "success")
                .with("value", value),
            None => answer
                .with("rc", -1)
                .with("msg", "key_not_found")
                .with("value", "unknown"),
        }
    }

    fn barrier_in(&mut self, rank: u32) -> Vec<Reaction> {
        self.rank(rank).in_fence = true;
        if !self.ranks.iter().all(|rank| rank.in_fence) {
            return Vec::new();
        }
        self.release(&Message::new("barrier_out").with("rc", 0))
    }

    /// Answers all ranks that wait in the fence.
    fn release(&mut self, answer: &Message) -> Vec<Reaction> {
        let mut reactions = Vec::new();
        for (number, rank) in (0..).zip(&mut self.ranks) {
            if std::mem::take(&mut rank.in_fence) {
                reactions.push(Reaction::Reply(number, answer.clone()));
            }
        }
        reactions
    }

    fn service(&mut self, message: &Message) -> Message {
        let result = message.command().replace("_name", "_result");
        let answer = Message::new(&result);
        let name = message.field("service").unwrap_or_default();
        let port = match message.command() {
            "publish_name" => {
                let port = message.field("port").unwrap_or_default().to_owned();
                let free = !self.services.contains_key(name);
                free.then(|| {
                    self.services
                        .insert(name.to_owned(), port.clone())
                        .unwrap_or(port)
                })
            }
            "unpublish_name" => self.services.remove(name),
            _ => self.services.get(name).cloned(),
        };
        match port {
            Some(port) => answer.with("rc", 0).with("info", "ok").with("port", port),
            None => answer.with("rc", -1).with("msg", "no_such_service"),
        }
    }

    /// Whether a rank waits in a fence.
    pub(in super::super) fn is_in_fence(&self, rank: u32) -> bool {
        self.ranks[rank as usize].in_fence
    }

    /// How many ranks wait in a fence.
    pub(in super::super) fn in_fence(&self) -> u32 {
        self.ranks.iter().map(|rank| u32::from(rank.in_fence)).sum()
    }

    /// Notes that a rank's process has ended.
    pub(in super::super) fn gone(&mut self, rank: u32) {
        self.gone.push(rank);
        let rank = self.rank(rank);
        rank.in_fence = false;
    }

    /// The fence in which some rank waits although another will never enter it.
    pub(in super::super) fn stuck_fence(&self) -> Option<StuckFence> {
        let find = |test: fn(&Rank) -> bool| (0..).zip(&self.ranks).find(|(_, rank)| test(rank));
        let (waiting, _) = find(|rank| rank.in_fence)?;
        // The rank to name is the one that died, not one that has left because of that.
        let gone = self.gone.iter().copied();
        let died = gone.map(|rank| (rank, &self.ranks[rank as usize]));
        let (missing, rank) = died
            .into_iter()
            .find(|(_, rank)| !rank.left)
            .or_else(|| find(|rank| rank.left))?;
        Some(StuckFence {
            missing,
            has_left: rank.left,
            waiting,
        })
    }

    /// Releases the ranks that wait in a fence that can never complete, and tells them which rank
    /// is missing.
    pub(in super::super) fn fail_fence(&mut self, missing: u32) -> Vec<Reaction> {
        let answer = Message::new("barrier_out")
            .with("rc", -1)
            .with("gone", missing);
        self.release(&answer.with("msg", format!("rank_{missing}_has_ended")))
    }

    fn rank(&mut self, rank: u32) -> &mut Rank {
        &mut self.ranks[rank as usize]
    }
}

fn abort(rank: u32, message: &Message) -> Reaction {
    let code = message
        .field("exitcode")
        .and_then(|code| code.parse().ok())
        .unwrap_or(1);
    let failed = message
        .field("failed")
        .and_then(|failed| failed.parse().ok());
    let reason = message.field("reason").and_then(Message::unescape);
    Reaction::Abort {
        rank,
        code,
        failed,
        reason: reason.filter(|text| !text.is_empty()),
    }
}

/// A report, which is not answered. Subjects that only later versions know are ignored.
fn report(rank: u32, message: &Message) -> Vec<Reaction> {
    if message.field("what") != Some("waiting") {
        return Vec::new();
    }
    let text = message.field("text").and_then(Message::unescape);
    match text.as_deref().and_then(Waiting::decode) {
        Some((waits, more)) => vec![Reaction::Waits {
            rank,
            report: Report { waits, more },
        }],
        None => vec![violation(rank, format!("`{message}` reports no waits"))],
    }
}

fn violation(rank: u32, why: String) -> Reaction {
    Reaction::Violation { rank, why }
}
