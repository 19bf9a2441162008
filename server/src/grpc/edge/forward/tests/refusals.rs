//! Calls that a replica refuses while it stands by, and the audit log of the owner.

use tower::ServiceExt as _;

use super::*;
use crate::audit::{AuditEntry, AuditRow};
use crate::clock::SystemClock;
use crate::grpc::edge::audit::{AuditLog, AuditScope, RefusedCall};
use crate::grpc::edge::forward::refusals::Refusals;
use crate::store::Store as _;
use crate::store::sqlite::SqliteStore;

/// An owner with an audit log.
struct Audited {
    peer: Peer,
    store: Arc<SqliteStore>,
    calls_ended: CancellationToken,
    writing: tokio::task::JoinHandle<()>,
    _tasks: Tasks,
    _standing: watch::Sender<Standing>,
}

impl Audited {
    async fn start() -> Self {
        let store = Arc::new(SqliteStore::in_memory().await.unwrap());
        let (scope, calls_ended) = (AuditScope { required: false, reads: false }, CancellationToken::new());
        let (log, writing) = AuditLog::new(scope, store.clone(), Arc::new(SystemClock), calls_ended.clone());
        let local = LocalServices::none();
        local.open(Routes::default(), Some(log));
        let (standing, standings) = watch::channel(Standing::Owner);
        let (listener, address) = loopback().await;
        let tasks = Tasks::new();
        let port = PeerPort::new(1, standings, local, true);
        drop(tasks.spawn("peers", async move {
            port.serve(listener, None, std::future::pending()).await.unwrap();
        }));
        let peer = Peer { number: 1, address };
        let writing = tokio::spawn(writing);
        Self { peer, store, calls_ended, writing, _tasks: tasks, _standing: standing }
    }

    fn owns(&self) -> Standing {
        Standing::Standby { owner: Some(self.peer.clone()) }
    }

    /// The rows, once everything that it was told is written.
    async fn rows(self) -> Vec<AuditRow> {
        self.calls_ended.cancel();
        soon(self.writing).await.unwrap();
        self.store.audit_after(0).await.unwrap()
    }
}

/// A replica that takes refusals, and the task that tells of them.
fn standby(
    standing: Standing,
) -> (Refusals, impl Future<Output = ()> + Send, watch::Sender<Standing>, CancellationToken) {
    let (standing, standings) = watch::channel(standing);
    let (links, local, stop) = (Links::new(None), LocalServices::none(), CancellationToken::new());
    let ids = Arc::new(CountingIds::default());
    let front = Front::new(standings, links, local, ids, BYTES_MAX, stop.clone());
    let (refusals, telling) = front.refusals();
    (refusals, telling, standing, stop)
}

fn refused(what: &str) -> RefusedCall {
    let entry = AuditEntry {
        at_ms: 7,
        who: "ada".to_owned(),
        tenant: "acme".to_owned(),
        from: "192.0.2.1:4000".to_owned(),
        what: what.to_owned(),
        why: "the roles of the caller do not allow it".to_owned(),
        ..AuditEntry::default()
    };
    RefusedCall { cause: "role".to_owned(), entry }
}

#[tokio::test]
async fn the_owner_writes_what_a_replica_that_stands_by_refuses() {
    let owner = Audited::start().await;
    let (refusals, telling, _standing, _stop) = standby(owner.owns());
    refusals.tell(refused("AgentLoop/Run"));
    drop(refusals);
    soon(telling).await;
    let rows = owner.rows().await;
    assert_eq!(rows.iter().map(|row| &row.entry).collect::<Vec<_>>(), [&refused("AgentLoop/Run").entry]);
}

#[tokio::test]
async fn refusals_wait_for_an_owner() {
    let owner = Audited::start().await;
    // This one takes connections, and ends each at once.
    let (listener, address) = loopback().await;
    let (refusals, telling, standing, _stop) =
        standby(Standing::Standby { owner: Some(Peer { number: 9, address }) });
    let telling = tokio::spawn(telling);
    refusals.tell(refused("AgentLoop/Run"));
    drop(soon(listener.accept()).await.unwrap());
    drop(listener);
    standing.send_replace(Standing::Standby { owner: None });
    refusals.tell(refused("AgentLoop/Abort"));
    drop(refusals);
    tokio::task::yield_now().await;
    standing.send_replace(owner.owns());
    soon(telling).await.unwrap();
    let rows = owner.rows().await;
    let told: Vec<&str> = rows.iter().map(|row| row.entry.what.as_str()).collect();
    assert_eq!(told, ["AgentLoop/Run", "AgentLoop/Abort"]);
}

#[tokio::test]
async fn a_flood_is_counted_to_the_last_one() {
    const FLOOD: u64 = 6_000;
    let owner = Audited::start().await;
    let (refusals, telling, _standing, _stop) = standby(owner.owns());
    for _ in 0..FLOOD {
        refusals.tell(refused("AgentLoop/Run"));
    }
    drop(refusals);
    soon(telling).await;
    let rows = owner.rows().await;
    let (single, summaries): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.entry.what == "AgentLoop/Run");
    let counted = summaries.iter().map(|row| {
        let why = &row.entry.why;
        why.split(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{why}"))
    });
    assert_eq!(single.len() as u64 + counted.sum::<u64>(), FLOOD);
    assert!(single.len() < 1_000, "a flood does not fill the disk: {}", single.len());
}

#[tokio::test]
async fn a_replica_that_stops_waits_for_no_owner() {
    let (refusals, telling, _standing, stop) = standby(Standing::Standby { owner: None });
    refusals.tell(refused("AgentLoop/Run"));
    let telling = tokio::spawn(telling);
    stop.cancel();
    drop(refusals);
    soon(telling).await.unwrap();
}

#[tokio::test]
async fn a_report_that_makes_no_sense_is_refused_and_writes_nothing() {
    let owner = Audited::start().await;
    let channel = Endpoint::from_shared(format!("http://{}", owner.peer.address)).unwrap().connect_lazy();
    for body in [b"{".to_vec(), b"{\"refused\":3}".to_vec(), vec![b' '; 3 * 1024 * 1024]] {
        let mut request =
            http::Request::new(of_frames(futures_util::stream::iter([Ok(Frame::data(Bytes::from(body)))])));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static("/agentloop.replica/Refused");
        request.headers_mut().insert("agentloop-replica", http::HeaderValue::from_static("1"));
        let response = soon(channel.clone().oneshot(request)).await.unwrap();
        let refused = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    assert_eq!(owner.rows().await, []);
}
