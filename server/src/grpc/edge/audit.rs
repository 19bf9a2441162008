//! Writes each call into the audit log, as the configuration wants it: what changes something with its first write, refusals
//! and reads in commits of their own.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentloop_proto::v1::ErrorReason;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::Status;
use tonic::codegen::http::{self, HeaderMap};

use crate::audit::{self, Act, AuditEntry, LateRefusals};
use crate::auth::Principal;
use crate::clock::Clock;
use crate::grpc::access::is_change;
use crate::grpc::edge::incoming::Peer;
use crate::grpc::status::{is_quota, retryable};
use crate::store::Store;

/// Rows that wait to be written. Further ones are only counted.
const QUEUED_MAX: usize = 4_096;
/// Rows of one commit.
const COMMIT_MAX: usize = 256;
/// Refusals of a tenant that are written before they are only counted.
const REFUSALS_BURST: u32 = 100;
/// Refusals a second that are written for good.
const REFUSALS_PER_SECOND: u32 = 10;
/// The time between two rows about refusals that were only counted.
const SUMMARY_EVERY: Duration = Duration::from_secs(5);

/// The parts of the configuration that say what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditScope {
    /// True if a call whose row cannot be written is refused.
    pub required: bool,
    /// True if calls that only read are written too.
    pub reads: bool,
}

/// The audit log of a server.
#[derive(Clone)]
pub struct AuditLog(Arc<Inner>);

struct Inner {
    scope: AuditScope,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    queue: mpsc::Sender<AuditEntry>,
    refusals: Mutex<Refusals>,
}

/// Causes that are counted apart from each other, and the length of their names in bytes. Other replicas name some.
const CAUSES_MAX: usize = 64;
const CAUSE_BYTES_MAX: usize = 64;
/// Tenants whose room is kept before that of tenants with all of it is dropped.
const ROOMS_MAX: usize = 1_024;

/// Room for refusals of each tenant, and those that had none. Callers whom nobody knows share a room.
#[derive(Default)]
struct Refusals {
    rooms: HashMap<String, Room>,
    counted: CountedRefusals,
}

/// Number of refusals that have no rows of their own, by the name of their cause.
pub(in crate::grpc) type CountedRefusals = BTreeMap<String, u64>;

/// Counts refusals of this cause. There are few causes.
pub(in crate::grpc) fn count(counted: &mut CountedRefusals, cause: &str, more: u64) {
    let is_new = counted.len() < CAUSES_MAX && cause.len() <= CAUSE_BYTES_MAX;
    let is_known = is_new || counted.contains_key(cause);
    let count = counted.entry(if is_known { cause } else { "other" }.to_owned()).or_default();
    *count = count.saturating_add(more);
}

/// A call that was refused before it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::grpc) struct RefusedCall {
    /// Name of the cause, as metrics have it.
    pub(in crate::grpc) cause: String,
    /// The row that the audit log gets.
    pub(in crate::grpc) entry: AuditEntry,
}

/// Refusals that may be written.
#[derive(Clone, Copy)]
struct Room {
    left: u32,
    at: Instant,
}

impl Room {
    /// The room as it is now.
    fn filled(self, now: Instant) -> Self {
        let seconds = u32::try_from(now.duration_since(self.at).as_secs()).unwrap_or(u32::MAX);
        if seconds == 0 {
            return self;
        }
        let left = self.left.saturating_add(seconds.saturating_mul(REFUSALS_PER_SECOND));
        Self { left: left.min(REFUSALS_BURST), at: now }
    }
}

/// A call before its caller is known.
pub(in crate::grpc) struct Call {
    path: String,
    from: String,
}

impl Call {
    /// Takes the path and the address of the caller from a request.
    pub(in crate::grpc) fn of<B>(request: &http::Request<B>) -> Self {
        let peer = request.extensions().get::<Peer>().and_then(|peer| peer.address);
        Self {
            path: request.uri().path().to_owned(),
            from: peer.map(|address| address.to_string()).unwrap_or_default(),
        }
    }

    /// The refusal of the call. `why` is the real cause, for the audit log alone.
    pub(in crate::grpc) fn refused(
        &self,
        clock: &dyn Clock,
        principal: Option<&Principal>,
        cause: &'static str,
        why: String,
    ) -> RefusedCall {
        let entry = AuditEntry { why, ..self.entry(clock, principal) };
        RefusedCall { cause: cause.to_owned(), entry: entry.cut() }
    }

    fn entry(&self, clock: &dyn Clock, principal: Option<&Principal>) -> AuditEntry {
        let what = self.path.trim_start_matches('/').trim_start_matches("agentloop.v1.").to_owned();
        AuditEntry {
            at_ms: clock.now().0,
            who: principal.map(|principal| principal.name.clone()).unwrap_or_default(),
            tenant: principal.map(|principal| principal.tenant.to_string()).unwrap_or_default(),
            from: self.from.clone(),
            what,
            ..AuditEntry::default()
        }
    }
}

impl Debug for AuditLog {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog").field("scope", &self.0.scope).finish_non_exhaustive()
    }
}

impl LateRefusals for AuditLog {
    fn refused(&self, entry: AuditEntry) {
        // The call may have begun long ago.
        let entry = AuditEntry { at_ms: self.0.clock.now().0, ..entry };
        self.refused(RefusedCall { cause: "host".to_owned(), entry: entry.cut() });
    }
}

impl AuditLog {
    /// A log that writes to this store, and the task that writes what can wait.
    pub fn new(
        scope: AuditScope,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        calls_ended: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, waiting) = mpsc::channel(QUEUED_MAX);
        let refusals = Mutex::default();
        let log = Self(Arc::new(Inner { scope, store, clock, queue, refusals }));
        let writing = write_queue(log.clone(), waiting, calls_ended);
        (log, writing)
    }

    /// Writes that a call was refused. Beyond a rate, refusals are only counted: a flood must not fill the disk.
    pub(in crate::grpc) fn refused(&self, RefusedCall { cause, entry }: RefusedCall) {
        if self.has_room(&entry.tenant, &cause) && self.0.queue.try_send(entry).is_err() {
            count(&mut self.refusals().counted, &cause, 1);
        }
    }

    /// Counts refusals that another replica has counted.
    pub(in crate::grpc) fn add_counted(&self, counted: CountedRefusals) {
        let mut refusals = self.refusals();
        for (cause, more) in counted {
            count(&mut refusals.counted, &cause, more);
        }
    }

    /// Writes an act of the server itself, such as reading the tokens again, or why it failed.
    pub fn noted(&self, what: &str, failure: Option<String>) {
        let (what, allowed, why) = (what.to_owned(), failure.is_none(), failure.unwrap_or_default());
        let entry = AuditEntry { at_ms: self.0.clock.now().0, what, allowed, why, ..AuditEntry::default() };
        if self.0.queue.try_send(entry).is_err() {
            tracing::warn!("the audit log is behind; a row of the server itself is lost");
        }
    }

    /// The act of a call that may begin.
    pub(in crate::grpc) fn begins(&self, call: &Call, principal: Option<&Principal>) -> Arc<Act> {
        let mut entry = call.entry(&*self.0.clock, principal);
        if principal.is_none() {
            "local".clone_into(&mut entry.tenant);
        }
        entry.allowed = true;
        Act::new(entry, is_change(&call.path), Some(Arc::new(self.clone())))
    }

    /// Writes how a call went, unless its own write did. `headers` are those of its response.
    ///
    /// # Errors
    /// UNAVAILABLE if the row is required and cannot be written.
    pub(in crate::grpc) async fn ended(
        &self,
        call: &Call,
        act: &Act,
        headers: &HeaderMap,
    ) -> Result<(), Status> {
        let refused = Status::from_header_map(headers).filter(|status| status.code() != Code::Ok);
        let is_denied = |status: &&Status| status.code() == Code::PermissionDenied || is_quota(status);
        let denied = refused.as_ref().filter(is_denied);
        let why =
            act.denied().map(str::to_owned).or_else(|| denied.map(|status| status.message().to_owned()));
        if let Some(why) = why {
            let entry = AuditEntry { allowed: false, why, ..act.entry() };
            let cause = if refused.as_ref().is_some_and(is_quota) { "quota" } else { "denied" };
            if self.has_room(&entry.tenant, cause) {
                return self.write(entry).await;
            }
            return Ok(());
        }
        let is_wanted = is_change(&call.path) || self.0.scope.reads;
        if refused.is_some() || act.is_recorded() || !is_wanted {
            return Ok(());
        }
        self.write(act.entry()).await
    }

    async fn write(&self, entry: AuditEntry) -> Result<(), Status> {
        let Err(error) = self.0.store.write_audit(vec![entry]).await else { return Ok(()) };
        tracing::error!(%error, "the audit log cannot be written");
        if self.0.scope.required {
            let message = "the call cannot be recorded in the audit log, so it is refused; try again";
            return Err(retryable(Code::Unavailable, ErrorReason::StoreUnavailable, message));
        }
        Ok(())
    }

    /// True if a refusal of a caller of this tenant may be written now. Otherwise it is counted.
    fn has_room(&self, tenant: &str, cause: &str) -> bool {
        let mut refusals = self.refusals();
        let now = Instant::now();
        if refusals.rooms.len() >= ROOMS_MAX && !refusals.rooms.contains_key(tenant) {
            refusals.rooms.retain(|_, room| room.filled(now).left < REFUSALS_BURST);
        }
        let room = refusals.rooms.get(tenant).copied().unwrap_or(Room { left: REFUSALS_BURST, at: now });
        let mut room = room.filled(now);
        let has_room = room.left > 0;
        room.left = room.left.saturating_sub(1);
        refusals.rooms.insert(tenant.to_owned(), room);
        if !has_room {
            count(&mut refusals.counted, cause, 1);
        }
        has_room
    }

    /// The row about refusals that were only counted; `None` if there were none.
    fn summary(&self) -> Option<AuditEntry> {
        let counted = std::mem::take(&mut self.refusals().counted);
        let all: u64 = counted.values().sum();
        let causes: Vec<String> = counted.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        (all > 0).then(|| AuditEntry {
            at_ms: self.0.clock.now().0,
            what: "refused calls".to_owned(),
            why: format!("{all} more refused calls: {}", causes.join(", ")),
            ..AuditEntry::default()
        })
    }

    fn refusals(&self) -> std::sync::MutexGuard<'_, Refusals> {
        self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes what waits, many rows in one commit, until the last call has ended; then what is left.
async fn write_queue(log: AuditLog, mut waiting: mpsc::Receiver<AuditEntry>, calls_ended: CancellationToken) {
    let mut summaries = tokio::time::interval(SUMMARY_EVERY);
    let mut rows = Vec::new();
    let mut stopping = false;
    while !stopping || !waiting.is_empty() {
        tokio::select! {
            biased;
            _ = waiting.recv_many(&mut rows, COMMIT_MAX) => {}
            _ = summaries.tick() => rows.extend(log.summary()),
            () = calls_ended.cancelled(), if !stopping => {
                stopping = true;
                rows.extend(log.summary());
            }
        }
        if rows.is_empty() {
            continue;
        }
        let count = rows.len();
        if let Err(error) = log.0.store.write_audit(std::mem::take(&mut rows)).await {
            tracing::error!(%error, count, "rows of the audit log are lost");
        }
    }
}

/// Does the work of a call, and writes how it went.
pub(in crate::grpc) async fn recorded<B, E>(
    log: AuditLog,
    call: Call,
    act: Arc<Act>,
    work: impl Future<Output = Result<http::Response<B>, E>>,
) -> Result<http::Response<B>, E>
where
    B: Default,
{
    let response = audit::within(Some(act.clone()), work).await?;
    match log.ended(&call, &act, response.headers()).await {
        Ok(()) => Ok(response),
        Err(refused) => Ok(refused.into_http()),
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::time::{Millis, Timestamp};

    use super::*;
    use crate::clock::{SystemClock, TestClock};
    use crate::store::sqlite::SqliteStore;

    /// The end of a call that wrote nothing, where the log cannot be written.
    async fn ends(path: &str, required: bool) -> Result<(), Code> {
        let store = SqliteStore::in_memory().await.unwrap();
        store.close().await;
        let (scope, stop) = (AuditScope { required, reads: false }, CancellationToken::new());
        let (log, _writing) = AuditLog::new(scope, Arc::new(store), Arc::new(SystemClock), stop);
        let call = Call { path: path.to_owned(), from: String::new() };
        let act = log.begins(&call, None);
        log.ended(&call, &act, &HeaderMap::new()).await.map_err(|status| status.code())
    }

    #[tokio::test]
    async fn a_flood_of_one_tenants_refusals_leaves_room_for_anothers() {
        let store = SqliteStore::in_memory().await.unwrap();
        let (scope, stop) = (AuditScope { required: false, reads: false }, CancellationToken::new());
        let (log, _writing) = AuditLog::new(scope, Arc::new(store), Arc::new(SystemClock), stop);
        let written = (0..10_000).filter(|_| log.has_room("noisy", "denied")).count();
        assert!(written < 10_000 && log.has_room("quiet", "denied"));
        assert!(!log.has_room("noisy", "denied") && log.summary().is_some());
    }

    #[test]
    fn names_of_causes_are_few_and_short() {
        let mut counted = CountedRefusals::new();
        count(&mut counted, &"x".repeat(65), 2);
        for cause in 0..1_000 {
            count(&mut counted, &cause.to_string(), 1);
        }
        count(&mut counted, "7", 5);
        assert!(counted.len() <= CAUSES_MAX + 1, "{}", counted.len());
        assert_eq!((counted["7"], counted.values().sum::<u64>()), (6, 1_007));
    }

    #[tokio::test]
    async fn what_is_refused_on_a_stream_has_its_own_time() {
        let store = Arc::new(SqliteStore::in_memory().await.unwrap());
        let (scope, stop) = (AuditScope { required: false, reads: false }, CancellationToken::new());
        let clock = Arc::new(TestClock::at(Timestamp(1_000)));
        let (log, writing) = AuditLog::new(scope, store.clone(), clock.clone(), stop.clone());
        let call = Call { path: "/agentloop.v1.ToolHost/Connect".to_owned(), from: String::new() };
        let act = log.begins(&call, None);
        clock.advance(Millis::secs(60));
        act.refused_on_stream("host-1", "pay", "the name is reserved for another principal");
        stop.cancel();
        writing.await;
        let rows = store.audit_after(0).await.unwrap();
        let told: Vec<_> =
            rows.iter().map(|row| (row.entry.at_ms, row.entry.tool.as_str(), row.entry.allowed)).collect();
        assert_eq!(told, [(61_000, "pay", false)]);
    }

    #[tokio::test]
    async fn a_change_that_cannot_be_recorded_is_refused_where_that_is_required() {
        let (change, read) = ("/agentloop.v1.AgentLoop/Abort", "/agentloop.v1.AgentLoop/GetRun");
        assert_eq!(ends(change, true).await, Err(Code::Unavailable));
        assert_eq!(ends(change, false).await, Ok(()));
        assert_eq!(ends(read, true).await, Ok(()), "it has no row");
    }
}
