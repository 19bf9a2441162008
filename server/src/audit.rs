//! The audit log: who did what, from where, and whether it was allowed. Each row has the hash of the one before it.
//!
//! An RPC that may change something is an [`Act`], which the tasks that work on it know. The store's first write for it takes
//! its row along, so that both are durable together or neither is.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agentloop_core::time::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The hash before the first row.
pub const FIRST_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// Longest text of a row, in bytes. Longer texts are cut.
const TEXT_BYTES_MAX: usize = 512;

tokio::task_local! {
    static ACT: Option<Arc<Act>>;
}

/// A row before it has its place in the chain. It never has prompts, arguments or secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The time of the RPC, in milliseconds since 1970.
    pub at_ms: u64,
    /// Name of the caller; empty where nobody is known.
    pub who: String,
    /// The caller's tenant; empty where nobody is known.
    pub tenant: String,
    /// Address that the RPC came from.
    pub from: String,
    /// The RPC, as `Service/Rpc`, or an act of the server itself.
    pub what: String,
    /// The session that it was about.
    pub session: String,
    /// The run that it was about.
    pub run: String,
    /// The question, rule or step that it was about.
    pub request: String,
    /// The tool that it was about.
    pub tool: String,
    /// False for an RPC that was refused.
    pub allowed: bool,
    /// The reason of a refusal.
    pub why: String,
}

/// A row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// Its number, dense from 1.
    pub no: u64,
    /// The act that it records.
    #[serde(flatten)]
    pub entry: AuditEntry,
    /// Hash of the row before it.
    pub prev_hash: String,
    /// Hash of this row, in hex.
    pub hash: String,
}

impl AuditEntry {
    /// The texts of the row in their order.
    fn texts(&self) -> [&str; 9] {
        let Self { who, tenant, from, what, session, run, request, tool, why, .. } = self;
        [who, tenant, from, what, session, run, request, tool, why]
    }

    /// Cuts texts that are too long for a row.
    #[must_use]
    pub fn cut(mut self) -> Self {
        let Self { who, tenant, from, what, session, run, request, tool, why, .. } = &mut self;
        for text in [who, tenant, from, what, session, run, request, tool, why] {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        }
        self
    }

    /// Puts the row behind the one with this number and hash.
    #[must_use]
    pub fn after(self, no: u64, prev_hash: &str) -> AuditRow {
        let entry = self.cut();
        let (no, prev_hash) = (no + 1, prev_hash.to_owned());
        let hash = hash(no, &entry, &prev_hash);
        AuditRow { no, entry, prev_hash, hash }
    }
}

/// SHA-256 over the row: numbers as 8 bytes, least significant first; each text after its length.
fn hash(no: u64, entry: &AuditEntry, prev_hash: &str) -> String {
    let mut sum = Sha256::new();
    for number in [no, entry.at_ms, u64::from(entry.allowed)] {
        sum.update(number.to_le_bytes());
    }
    for text in entry.texts().into_iter().chain([prev_hash]) {
        sum.update((text.len() as u64).to_le_bytes());
        sum.update(text);
    }
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    sum.finalize().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The first row at which the chain is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("row {no}: {problem}")]
pub struct BrokenLink {
    /// Number of the first row that does not fit.
    pub no: u64,
    /// The fault of that row, for people.
    pub problem: String,
}

/// Checks rows one after the other, oldest first. The first row may be any: older ones may have been archived.
#[derive(Debug, Default)]
pub struct ChainCheck {
    last: Option<(u64, String)>,
    first: u64,
    rows: u64,
    /// The hash that one of the rows must have; empty if none must.
    known: String,
    is_known: bool,
}

impl ChainCheck {
    /// A check of a chain that once ended with this hash. Cutting off rows at the end breaks no link, and neither does writing
    /// all of them anew; a hash that was kept elsewhere shows both. Empty checks the links alone.
    #[must_use]
    pub fn knowing(hash: &str) -> Self {
        Self { known: hash.to_owned(), ..Self::default() }
    }

    /// Checks the next row.
    ///
    /// # Errors
    /// [`BrokenLink`]: the row was changed, or a row before it was changed, inserted or taken out.
    pub fn check(&mut self, row: &AuditRow) -> Result<(), BrokenLink> {
        let broken = |no: u64, problem: String| Err(BrokenLink { no, problem });
        match &self.last {
            Some((no, _)) if row.no <= *no => return broken(row.no, format!("it comes after row {no}")),
            Some((no, _)) if row.no > no + 1 => return broken(no + 1, "it is missing".to_owned()),
            Some((_, last)) if *last != row.prev_hash => {
                return broken(row.no, "it does not follow the row before it".to_owned());
            }
            None if row.no == 1 && row.prev_hash != FIRST_HASH => {
                return broken(1, "it is not the first row that was written".to_owned());
            }
            Some(_) => {}
            None => self.first = row.no,
        }
        if hash(row.no, &row.entry, &row.prev_hash) != row.hash {
            return broken(row.no, "it was changed after it was written".to_owned());
        }
        self.is_known |= row.hash == self.known;
        self.last = Some((row.no, row.hash.clone()));
        self.rows += 1;
        Ok(())
    }

    /// The result after the last row.
    ///
    /// # Errors
    /// [`BrokenLink`]: no row has the known hash.
    pub fn verdict(self) -> Result<ChainVerdict, BrokenLink> {
        let (last, hash) = self.last.unwrap_or_default();
        if !self.known.is_empty() && !self.is_known {
            let problem = "no row has the known hash: rows were cut off at the end, or all were written anew";
            return Err(BrokenLink { no: last + 1, problem: problem.to_owned() });
        }
        Ok(ChainVerdict { rows: self.rows, first: self.first, last, hash })
    }
}

/// A chain without a broken link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChainVerdict {
    /// Rows that were checked.
    pub rows: u64,
    /// Number of the first row; 0 without rows.
    pub first: u64,
    /// Number of the last row.
    pub last: u64,
    /// Hash of the last row. Kept elsewhere, and given to [`ChainCheck::knowing`] later, it shows whether rows were cut off at
    /// the end.
    pub hash: String,
}

/// The outcome of a check of the whole chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainOutcome {
    /// Every row follows from the one before.
    Whole(ChainVerdict),
    /// A row does not.
    Broken(BrokenLink),
}

impl From<Result<ChainVerdict, BrokenLink>> for ChainOutcome {
    fn from(checked: Result<ChainVerdict, BrokenLink>) -> Self {
        checked.map_or_else(Self::Broken, Self::Whole)
    }
}

/// Conditions on rows of the audit log. All of them must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// The tenant that reads. `local` also reads rows without a tenant.
    pub tenant: String,
    /// Name of the caller; empty means any.
    pub who: String,
    /// The RPC, or a part of its name; empty means any.
    pub what: String,
    /// The run; empty means any.
    pub run: String,
    /// The session; empty means any.
    pub session: String,
    /// Only rows of this time or later.
    pub from: Option<Timestamp>,
    /// Only rows before this time.
    pub before: Option<Timestamp>,
    /// Only RPCs that were refused.
    pub denied: bool,
}

/// The log, as an act tells it what happens after the act's RPC has begun.
pub trait ActLog: Debug + Send + Sync {
    /// Counts the row of the act: it is durable, with the write that took it along.
    fn count_recorded(&self);

    /// Has this row written: the RPC is a stream, and something of it is refused after its own row. Beyond a rate, rows are
    /// only counted.
    fn refused_late(&self, entry: AuditEntry);
}

/// Rows of the audit log since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuditCounts {
    /// Rows that are durable.
    pub written: u64,
    /// Rows that are lost, because they could not be written.
    pub failed: u64,
}

/// An RPC under way, as the audit log will name it.
#[derive(Debug)]
pub struct Act {
    entry: Mutex<AuditEntry>,
    /// True if the RPC may change something, so that its first write takes the row along.
    is_change: bool,
    is_recorded: AtomicBool,
    /// The real cause, if the RPC was refused in the words of another.
    denied: Mutex<Option<&'static str>>,
    log: Option<Arc<dyn ActLog>>,
}

impl Act {
    /// An RPC that has not changed anything yet. `log` is told what happens after its beginning.
    #[must_use]
    pub fn new(entry: AuditEntry, is_change: bool, log: Option<Arc<dyn ActLog>>) -> Arc<Self> {
        Arc::new(Self {
            entry: Mutex::new(entry),
            is_change,
            is_recorded: AtomicBool::new(false),
            denied: Mutex::default(),
            log,
        })
    }

    /// Notes what a tool host is refused on its stream: a tool of this name, or, if it is empty, the host itself.
    pub fn refused_on_stream(&self, host: &str, tool: &str, why: &str) {
        if let Some(log) = &self.log {
            let why = format!("host {host}: {why}");
            log.refused_late(AuditEntry { allowed: false, tool: tool.to_owned(), why, ..self.entry() });
        }
    }

    /// The row as far as it is known.
    #[must_use]
    pub fn entry(&self) -> AuditEntry {
        self.entry.lock().clone()
    }

    /// The row is durable.
    pub fn set_recorded(&self) {
        let was_recorded = self.is_recorded.swap(true, Ordering::AcqRel);
        if let (false, Some(log)) = (was_recorded, &self.log) {
            log.count_recorded();
        }
    }

    /// True if the row is durable.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.is_recorded.load(Ordering::Acquire)
    }

    /// The cause of a refusal that the caller was not told.
    #[must_use]
    pub fn denied(&self) -> Option<&'static str> {
        *self.denied.lock()
    }
}

/// Does work for an act. Without one it is the work alone.
pub async fn within<T>(act: Option<Arc<Act>>, work: impl Future<Output = T>) -> T {
    match act {
        Some(act) => ACT.scope(Some(act), work).await,
        None => work.await,
    }
}

/// Does work that belongs to no act, whoever wants it.
pub async fn apart<T>(work: impl Future<Output = T>) -> T {
    ACT.scope(None, work).await
}

/// The acts of one commit. An act has one row, however many of its writes are in the commit.
#[derive(Debug, Default)]
pub struct ActsOfCommit(HashSet<*const Act>);

impl ActsOfCommit {
    /// True if this is the first write of its act here. A write without an act always is.
    pub fn is_first(&mut self, act: Option<&Arc<Act>>) -> bool {
        act.is_none_or(|act| self.0.insert(Arc::as_ptr(act)))
    }
}

/// The act that this task works for.
#[must_use]
pub fn current() -> Option<Arc<Act>> {
    ACT.try_with(Option::clone).ok().flatten()
}

/// The act that the next write of this task takes along, if it has neither been recorded nor refused.
#[must_use]
pub fn unrecorded() -> Option<Arc<Act>> {
    current().filter(|act| act.is_change && !act.is_recorded() && act.denied().is_none())
}

/// Notes what the RPC of this task is about, by the name of the field that says so.
pub fn about(field: &str, id: &str) {
    let noted = |act: &Option<Arc<Act>>| {
        let Some(act) = act else { return };
        let mut entry = act.entry.lock();
        let name = field.rsplit('.').next().unwrap_or(field);
        match name {
            "run_id" => id.clone_into(&mut entry.run),
            "session_id" | "source_session_id" => id.clone_into(&mut entry.session),
            "request_id" | "rule_id" | "approve_request_id" => id.clone_into(&mut entry.request),
            "name" | "tool" => id.clone_into(&mut entry.tool),
            _ => {}
        }
    };
    // Without an act, nobody asks.
    let _unasked = ACT.try_with(noted);
}

/// The cause where a caller names a run of another one.
pub const OTHERS_RUN: &str = "the run is another caller's";
/// The cause where a caller names a session of another one.
pub const OTHERS_SESSION: &str = "the session is another caller's";

/// Notes why the RPC of this task is refused, where the caller is told something else. The first cause counts.
pub fn denied(why: &'static str) {
    let noted = |act: &Option<Arc<Act>>| {
        let Some(act) = act else { return };
        act.denied.lock().get_or_insert(why);
    };
    // Without an act, nobody asks.
    let _unasked = ACT.try_with(noted);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(length: u64) -> Vec<AuditRow> {
        let mut rows: Vec<AuditRow> = Vec::new();
        for at_ms in 1..=length {
            let entry = AuditEntry { at_ms, who: "ada".to_owned(), allowed: true, ..Default::default() };
            let last = rows.last().map_or((0, FIRST_HASH), |row| (row.no, row.hash.as_str()));
            let row = entry.after(last.0, last.1);
            rows.push(row);
        }
        rows
    }

    fn checked(rows: &[AuditRow]) -> Result<ChainVerdict, BrokenLink> {
        checked_knowing("", rows)
    }

    fn checked_knowing(hash: &str, rows: &[AuditRow]) -> Result<ChainVerdict, BrokenLink> {
        let mut check = ChainCheck::knowing(hash);
        rows.iter().try_for_each(|row| check.check(row))?;
        check.verdict()
    }

    #[test]
    fn a_whole_chain_passes_and_may_begin_late() {
        let rows = chain(4);
        let verdict = checked(&rows).expect("it is whole");
        assert_eq!((verdict.rows, verdict.first, verdict.last), (4, 1, 4));
        assert_eq!(verdict.hash, rows[3].hash);
        assert_eq!(checked(&rows[2..]).expect("it begins late").first, 3);
        assert_eq!(checked(&[]).expect("it is empty"), ChainVerdict::default());
    }

    #[test]
    fn the_first_broken_link_is_named() {
        let mut changed = chain(4);
        changed[1].entry.who = "eve".to_owned();
        assert_eq!(checked(&changed).expect_err("it is changed").no, 2);
        let mut allowed = chain(4);
        allowed[3].entry.allowed = false;
        assert_eq!(checked(&allowed).expect_err("it is changed").no, 4);
        let mut cut = chain(4);
        cut.remove(1);
        assert_eq!(checked(&cut).expect_err("one is missing").no, 2);
        let mut swapped = chain(4);
        swapped.swap(1, 2);
        assert!(checked(&swapped).is_err());
        let mut rehashed = chain(4);
        rehashed[1] = AuditEntry { at_ms: 9, ..Default::default() }.after(1, &rehashed[0].hash);
        assert_eq!(checked(&rehashed).expect_err("the next one does not follow").no, 3);
        let foreign = vec![AuditEntry::default().after(0, "other")];
        assert_eq!(checked(&foreign).expect_err("it has no beginning").no, 1);
    }

    #[test]
    fn a_kept_hash_shows_what_breaks_no_link() {
        let rows = chain(4);
        for row in &rows {
            assert_eq!(checked_knowing(&row.hash, &rows).expect("it is whole").rows, 4);
        }
        let kept = rows[3].hash.as_str();
        let cut = checked_knowing(kept, &rows[..3]).expect_err("the last row is cut off");
        assert_eq!(cut.no, 4);
        assert!(checked_knowing(kept, &[]).is_err(), "every row is cut off");
        let mut anew: Vec<AuditRow> = Vec::new();
        for row in &rows {
            let entry = AuditEntry { who: "eve".to_owned(), ..row.entry.clone() };
            let last = anew.last().map_or((0, FIRST_HASH), |row| (row.no, row.hash.as_str()));
            let row = entry.after(last.0, last.1);
            anew.push(row);
        }
        assert!(checked(&anew).is_ok(), "each row follows the one before it");
        assert!(checked_knowing(kept, &anew).is_err());
    }

    #[test]
    fn long_texts_are_cut() {
        let long = || "x".repeat(TEXT_BYTES_MAX + 1);
        let entry = AuditEntry { run: long(), request: long(), why: long(), ..Default::default() };
        let row = entry.after(0, FIRST_HASH);
        assert!(row.entry.texts().iter().all(|text| text.len() <= TEXT_BYTES_MAX));
        assert_eq!(checked(&[row]).expect("it is whole").rows, 1);
    }

    #[tokio::test]
    async fn an_act_is_known_to_its_task_alone() {
        assert!(current().is_none());
        let act = Act::new(AuditEntry::default(), true, None);
        within(Some(act.clone()), async {
            about("input.run_id", "r1");
            about("request_id", "step-1");
            about("approve_request_id", "r1:1.0:0");
            about("prompt", "secret");
            assert!(unrecorded().is_some());
            denied("not the caller's own");
            denied("not there");
            assert!(unrecorded().is_none(), "it changes nothing");
        })
        .await;
        assert_eq!((act.entry().run.as_str(), act.denied()), ("r1", Some("not the caller's own")));
        assert_eq!(act.entry().request, "r1:1.0:0", "the question that a step approves");
        act.set_recorded();
        within(Some(act), async { assert!(unrecorded().is_none()) }).await;
    }
}
