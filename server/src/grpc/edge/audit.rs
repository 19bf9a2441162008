//! Writes each RPC into the audit log, as the configuration wants it: what changes something with its first write, refusals
//! and reads in commits of their own.

use std::fmt::{self, Debug, Formatter};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentloop_proto::v1::ErrorReason;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::Status;
use tonic::codegen::http::{self, HeaderMap};

use crate::audit::{self, Act, ActLog, AuditCounts, AuditEntry};
use crate::auth::Principal;
use crate::clock::Clock;
use crate::cluster::Ownerships;
use crate::grpc::edge::incoming::RemoteEnd;
use crate::grpc::edge::refusal_rate::RefusalBuckets;
pub(in crate::grpc) use crate::grpc::edge::refusal_rate::{CountedRefusals, count};
use crate::grpc::rpc::Rpc;
use crate::grpc::status::{is_quota, retryable};
use crate::store::{Store, StoreError};

/// Rows that wait to be written. Further ones are only counted.
const QUEUED_MAX: usize = 4_096;
/// Rows of one commit.
const COMMIT_MAX: usize = 256;
/// The time between two rows about refusals that were only counted.
const SUMMARY_EVERY: Duration = Duration::from_secs(5);
/// A connection that was not accepted, as its row says. The text is also the name of their bucket: no tenant has a name with a
/// space, and a flood of them must not hide RPCs without credentials.
const HANDSHAKE: &str = "TLS handshake";

/// The parts of the configuration that say what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditScope {
    /// True if an RPC whose row cannot be written is refused.
    pub required: bool,
    /// True if RPCs that only read are written too.
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
    refusals: Mutex<RefusalBuckets>,
    /// Tells which replicas write refusals, if there are several.
    replicas: Option<Ownerships>,
    /// Rows that are durable, and rows that are lost, since the start.
    written: AtomicU64,
    failed: AtomicU64,
}

/// An RPC that was refused before it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::grpc) struct RefusedRpc {
    /// Name of the cause, as metrics have it.
    pub(in crate::grpc) cause: String,
    /// The row that the audit log gets.
    pub(in crate::grpc) entry: AuditEntry,
}

impl RefusedRpc {
    /// A connection from this address that was not accepted.
    pub(in crate::grpc) fn handshake(clock: &dyn Clock, from: Option<SocketAddr>, why: String) -> Self {
        let from = from.map(|address| address.to_string()).unwrap_or_default();
        let entry = AuditEntry {
            at_ms: clock.now().0,
            from,
            what: HANDSHAKE.to_owned(),
            why,
            ..AuditEntry::default()
        };
        Self { cause: "handshake".to_owned(), entry: entry.cut() }
    }

    /// The name of the bucket that it takes from. Callers whom nobody knows share one, and so do connections that were not
    /// accepted.
    fn bucket(&self) -> &str {
        let AuditEntry { tenant, what, .. } = &self.entry;
        if tenant.is_empty() && what == HANDSHAKE { HANDSHAKE } else { tenant }
    }
}

/// An RPC before its caller is known.
pub(in crate::grpc) struct AuditedRpc {
    path: String,
    from: String,
}

impl AuditedRpc {
    /// Takes the path and the address of the caller from a request.
    pub(in crate::grpc) fn of<B>(request: &http::Request<B>) -> Self {
        let peer = request.extensions().get::<RemoteEnd>().and_then(|peer| peer.address);
        Self {
            path: request.uri().path().to_owned(),
            from: peer.map(|address| address.to_string()).unwrap_or_default(),
        }
    }

    /// Makes the refusal of the RPC. `why` is the real cause, for the audit log alone.
    pub(in crate::grpc) fn refusal(
        &self,
        clock: &dyn Clock,
        principal: Option<&Principal>,
        cause: &'static str,
        why: String,
    ) -> RefusedRpc {
        let entry = AuditEntry { why, ..self.entry(clock, principal) };
        RefusedRpc { cause: cause.to_owned(), entry: entry.cut() }
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

impl ActLog for AuditLog {
    fn count_recorded(&self) {
        self.0.written.fetch_add(1, Ordering::Relaxed);
    }

    fn refused_late(&self, entry: AuditEntry) {
        // The RPC may have begun long ago.
        let entry = AuditEntry { at_ms: self.0.clock.now().0, ..entry };
        self.record_refusal(RefusedRpc { cause: "host".to_owned(), entry: entry.cut() });
    }
}

impl AuditLog {
    /// A log that writes to this store, and the task that writes what can wait. `replicas` tells who else writes to the store.
    pub fn new(
        scope: AuditScope,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        replicas: Option<Ownerships>,
        rpcs_ended: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, waiting) = mpsc::channel(QUEUED_MAX);
        let inner = Inner {
            scope,
            store,
            clock,
            queue,
            refusals: Mutex::default(),
            replicas,
            written: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        let log = Self(Arc::new(inner));
        let writing = write_queue(log.clone(), waiting, rpcs_ended);
        (log, writing)
    }

    /// Writes that an RPC was refused. Beyond a rate, refusals are only counted: a flood must not fill the disk.
    pub(in crate::grpc) fn record_refusal(&self, refused: RefusedRpc) {
        let may_write = self.may_write(refused.bucket(), &refused.cause);
        let RefusedRpc { cause, entry } = refused;
        if may_write && self.0.queue.try_send(entry).is_err() {
            count(&mut self.0.refusals.lock().counted, &cause, 1);
        }
    }

    /// Writes that a connection from this address was not accepted.
    pub(in crate::grpc) fn handshake_failed(&self, from: Option<SocketAddr>, why: String) {
        self.record_refusal(RefusedRpc::handshake(&*self.0.clock, from, why));
    }

    /// The rows since the start.
    #[must_use]
    pub fn counts(&self) -> AuditCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        AuditCounts { written: read(&self.0.written), failed: read(&self.0.failed) }
    }

    /// Counts refusals that another replica has counted.
    pub(in crate::grpc) fn add_counted(&self, counted: CountedRefusals) {
        let mut refusals = self.0.refusals.lock();
        for (cause, more) in counted {
            count(&mut refusals.counted, &cause, more);
        }
    }

    /// Writes an act of the server itself, such as reading the tokens again, or why it failed.
    pub fn record_server_act(&self, what: &str, failure: Option<String>) {
        let (what, allowed, why) = (what.to_owned(), failure.is_none(), failure.unwrap_or_default());
        let entry = AuditEntry { at_ms: self.0.clock.now().0, what, allowed, why, ..AuditEntry::default() };
        if self.0.queue.try_send(entry).is_err() {
            self.0.failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("the audit log is behind; a row of the server itself is lost");
        }
    }

    /// Begins the act of an RPC that is allowed.
    pub(in crate::grpc) fn begin_act(&self, rpc: &AuditedRpc, principal: Option<&Principal>) -> Arc<Act> {
        let mut entry = rpc.entry(&*self.0.clock, principal);
        if principal.is_none() {
            "local".clone_into(&mut entry.tenant);
        }
        entry.allowed = true;
        Act::new(entry, Rpc::of(&rpc.path).changes, Some(Arc::new(self.clone())))
    }

    /// Writes how an RPC went, unless its own write did. `headers` are those of its response.
    ///
    /// # Errors
    /// UNAVAILABLE if the row is required and cannot be written.
    pub(in crate::grpc) async fn record_end(
        &self,
        rpc: &AuditedRpc,
        act: &Act,
        headers: &HeaderMap,
    ) -> Result<(), Status> {
        let refused = Status::from_header_map(headers).filter(|status| status.code() != Code::Ok);
        let is_wanted = Rpc::of(&rpc.path).changes || self.0.scope.reads;
        if let Some((cause, why)) = refusal(act, refused.as_ref(), is_wanted && !act.is_recorded()) {
            let entry = AuditEntry { allowed: false, why, ..act.entry() };
            let may_write = self.may_write(&entry.tenant, cause);
            return if may_write { self.write(entry).await } else { Ok(()) };
        }
        if refused.is_some() || act.is_recorded() || !is_wanted {
            return Ok(());
        }
        self.write(act.entry()).await
    }

    /// Writes rows, and counts them.
    async fn write_rows(&self, rows: Vec<AuditEntry>) -> Result<(), StoreError> {
        let count = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        let done = self.0.store.write_audit(rows).await;
        let counter = if done.is_ok() { &self.0.written } else { &self.0.failed };
        counter.fetch_add(count, Ordering::Relaxed);
        done
    }

    async fn write(&self, entry: AuditEntry) -> Result<(), Status> {
        let Err(error) = self.write_rows(vec![entry]).await else { return Ok(()) };
        tracing::error!(%error, "the audit log cannot be written");
        if self.0.scope.required {
            let message = "the RPC cannot be recorded in the audit log, so it is refused; try again";
            return Err(retryable(Code::Unavailable, ErrorReason::StoreUnavailable, message));
        }
        Ok(())
    }

    /// The row about refusals that were only counted; `None` if there were none.
    fn summary(&self) -> Option<AuditEntry> {
        let counted = std::mem::take(&mut self.0.refusals.lock().counted);
        let all: u64 = counted.values().sum();
        let causes: Vec<String> = counted.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        (all > 0).then(|| AuditEntry {
            at_ms: self.0.clock.now().0,
            what: "refused calls".to_owned(),
            why: format!("{all} more refused calls: {}", causes.join(", ")),
            ..AuditEntry::default()
        })
    }

    /// True if a refusal may be written now. The bound is that of all replicas together.
    fn may_write(&self, bucket: &str, cause: &str) -> bool {
        let others = self.0.replicas.as_ref().map_or(0, |replicas| replicas.borrow().peers().count());
        let replicas = u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1);
        self.0.refusals.lock().take(bucket, cause, replicas)
    }
}

/// The name and the text of the cause, if the RPC was refused and the log is to say so. `tells_missing` is true if it also has
/// RPCs on what is not there: an id that nobody has, one of another tenant, or one of another caller.
fn refusal(act: &Act, refused: Option<&Status>, tells_missing: bool) -> Option<(&'static str, String)> {
    let text = |status: &Status| status.message().to_owned();
    let (cause, told) = match refused {
        Some(status) if is_quota(status) => ("quota", Some(text(status))),
        Some(status) if status.code() == Code::PermissionDenied => ("denied", Some(text(status))),
        Some(status) if status.code() == Code::NotFound && tells_missing => {
            ("missing_id", Some(text(status)))
        }
        Some(_) | None => ("denied", None),
    };
    // The real cause, where the caller was told another.
    let why = act.denied().map(str::to_owned).or(told)?;
    Some((cause, why))
}

/// Writes what waits, many rows in one commit, until the last RPC has ended; then what is left.
async fn write_queue(log: AuditLog, mut waiting: mpsc::Receiver<AuditEntry>, rpcs_ended: CancellationToken) {
    let mut summaries = tokio::time::interval(SUMMARY_EVERY);
    let mut rows = Vec::new();
    let mut stopping = false;
    while !stopping || !waiting.is_empty() {
        tokio::select! {
            biased;
            _ = waiting.recv_many(&mut rows, COMMIT_MAX) => {}
            _ = summaries.tick() => rows.extend(log.summary()),
            () = rpcs_ended.cancelled(), if !stopping => {
                stopping = true;
                rows.extend(log.summary());
            }
        }
        if rows.is_empty() {
            continue;
        }
        let count = rows.len();
        if let Err(error) = log.write_rows(std::mem::take(&mut rows)).await {
            tracing::error!(%error, count, "rows of the audit log are lost");
        }
    }
}

/// Does the work of an RPC, and writes how it went.
pub(in crate::grpc) async fn record_rpc<B, E>(
    log: AuditLog,
    rpc: AuditedRpc,
    act: Arc<Act>,
    work: impl Future<Output = Result<http::Response<B>, E>>,
) -> Result<http::Response<B>, E>
where
    B: Default,
{
    let response = audit::within(Some(act.clone()), work).await?;
    match log.record_end(&rpc, &act, response.headers()).await {
        Ok(()) => Ok(response),
        Err(refused) => Ok(refused.into_http()),
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::time::{Millis, Timestamp};

    use super::*;
    use crate::clock::{SystemClock, TestClock};
    use crate::grpc::status::status;
    use crate::store::AuditStore as _;
    use crate::store::sqlite::SqliteStore;

    /// The end of an RPC that wrote nothing, where the log cannot be written.
    async fn ends(path: &str, required: bool) -> Result<(), Code> {
        let store = SqliteStore::in_memory().await.unwrap();
        store.close().await;
        let (scope, stop) = (AuditScope { required, reads: false }, CancellationToken::new());
        let (log, _writing) = AuditLog::new(scope, Arc::new(store), Arc::new(SystemClock), None, stop);
        let rpc = AuditedRpc { path: path.to_owned(), from: String::new() };
        let act = log.begin_act(&rpc, None);
        log.record_end(&rpc, &act, &HeaderMap::new()).await.map_err(|status| status.code())
    }

    /// A log over a store in memory, with what stops it.
    async fn log() -> (AuditLog, impl Future<Output = ()> + Send, Arc<SqliteStore>, CancellationToken) {
        let store = Arc::new(SqliteStore::in_memory().await.unwrap());
        let (scope, stop) = (AuditScope { required: false, reads: false }, CancellationToken::new());
        let (log, writing) = AuditLog::new(scope, store.clone(), Arc::new(SystemClock), None, stop.clone());
        (log, writing, store, stop)
    }

    #[tokio::test]
    async fn a_flood_of_bad_handshakes_is_counted_and_hides_no_call() {
        let (log, writing, store, stop) = log().await;
        let from = Some("192.0.2.7:5555".parse().unwrap());
        for _ in 0..10_000 {
            log.handshake_failed(from, "the peer sent no certificates".to_owned());
        }
        let rpc = AuditedRpc { path: "/agentloop.v1.AgentLoop/Run".to_owned(), from: String::new() };
        log.record_refusal(rpc.refusal(&SystemClock, None, "missing", "no credentials".to_owned()));
        stop.cancel();
        writing.await;
        let rows = store.audit_after(0).await.unwrap();
        assert!(rows.len() < 200, "{}", rows.len());
        let AuditEntry { who, from, what, why, allowed, .. } = &rows[0].entry;
        assert_eq!((who.as_str(), from.as_str(), what.as_str()), ("", "192.0.2.7:5555", HANDSHAKE));
        assert_eq!((why.as_str(), *allowed), ("the peer sent no certificates", false));
        assert!(rows.iter().any(|row| row.entry.why == "no credentials"), "the RPC has its row");
        let summary = rows.iter().find(|row| row.entry.what == "refused calls").expect("the rest is counted");
        assert!(summary.entry.why.contains("more refused calls: handshake 9"), "{}", summary.entry.why);
        assert_eq!(log.counts(), AuditCounts { written: rows.len() as u64, failed: 0 });
    }

    #[tokio::test]
    async fn a_change_of_what_is_not_there_is_written_as_refused() {
        let (log, writing, store, stop) = log().await;
        for (path, code, rows) in [
            ("/agentloop.v1.AgentLoop/SubmitApproval", Code::NotFound, 1),
            ("/agentloop.v1.AgentLoop/SubmitApproval", Code::InvalidArgument, 1),
            ("/agentloop.v1.AgentLoop/GetRun", Code::NotFound, 1),
            ("/agentloop.v1.AgentLoop/ResumeRun", Code::NotFound, 2),
        ] {
            let rpc = AuditedRpc { path: path.to_owned(), from: String::new() };
            let act = log.begin_act(&rpc, None);
            audit::within(Some(act.clone()), async { audit::about("run_id", "r1") }).await;
            let response = status(code, ErrorReason::RunNotFound, "no such run", []);
            let response = response.into_http::<tonic::body::Body>();
            log.record_end(&rpc, &act, response.headers()).await.unwrap();
            let written = store.audit_after(0).await.unwrap();
            assert_eq!(written.len(), rows, "{path} {code:?}");
            let entry = &written[rows - 1].entry;
            assert_eq!((entry.allowed, entry.why.as_str(), entry.run.as_str()), (false, "no such run", "r1"));
        }
        stop.cancel();
        writing.await;
    }

    #[tokio::test]
    async fn rows_that_are_lost_are_counted() {
        let (log, writing, store, stop) = log().await;
        log.record_server_act("reload tokens", None);
        store.close().await;
        stop.cancel();
        writing.await;
        assert_eq!(log.counts(), AuditCounts { written: 0, failed: 1 });
    }

    #[tokio::test]
    async fn what_is_refused_on_a_stream_has_its_own_time() {
        let store = Arc::new(SqliteStore::in_memory().await.unwrap());
        let (scope, stop) = (AuditScope { required: false, reads: false }, CancellationToken::new());
        let clock = Arc::new(TestClock::at(Timestamp(1_000)));
        let (log, writing) = AuditLog::new(scope, store.clone(), clock.clone(), None, stop.clone());
        let rpc = AuditedRpc { path: "/agentloop.v1.ToolHost/Connect".to_owned(), from: String::new() };
        let act = log.begin_act(&rpc, None);
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
