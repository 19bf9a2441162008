//! RPCs that are refused at a replica, and the audit logs.

use tower::ServiceExt as _;

use super::*;
use crate::audit::{AuditEntry, AuditRow};
use crate::clock::SystemClock;
use crate::grpc::edge::audit::{AuditLog, AuditScope};
use crate::grpc::edge::identity::IdentityLayer;
use crate::store::AuditStore as _;
use crate::store::sqlite::SqliteStore;

/// A replica with an audit log.
struct Audited {
    peer: Peer,
    local: LocalServices,
    store: Arc<SqliteStore>,
    rpcs_ended: CancellationToken,
    writing: tokio::task::JoinHandle<()>,
    _tasks: Tasks,
    _ownership: watch::Sender<Ownership>,
}

impl Audited {
    async fn start() -> Self {
        let store = Arc::new(SqliteStore::in_memory().await.unwrap());
        let (scope, rpcs_ended) = (AuditScope { required: false, reads: false }, CancellationToken::new());
        let (log, writing) =
            AuditLog::new(scope, store.clone(), Arc::new(SystemClock), None, rpcs_ended.clone());
        let local = LocalServices::none();
        local.open(Routes::default(), Some(log));
        let (ownership, ownerships) = watch::channel(ownership(1, &[], |_| 1));
        let (listener, address) = loopback().await;
        let tasks = Tasks::new();
        let port = PeerListener::new(forward_layer(ownerships, local.clone()), Authentication::Required);
        drop(tasks.spawn("peers", async move {
            port.serve(listener, None, std::future::pending()).await.unwrap();
        }));
        let (peer, writing) = (Peer { number: OwnerNo(1), address }, tokio::spawn(writing));
        Self { peer, local, store, rpcs_ended, writing, _tasks: tasks, _ownership: ownership }
    }

    /// A replica of an earlier version tells of refusals.
    async fn is_told(&self, report: Vec<u8>) -> Status {
        let channel = Endpoint::from_shared(format!("http://{}", self.peer.address)).unwrap().connect_lazy();
        let report = [Ok(Frame::data(Bytes::from(report)))];
        let mut request = http::Request::new(of_frames(futures_util::stream::iter(report)));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static("/agentloop.replica/Refused");
        request.headers_mut().insert("agentloop-replica", http::HeaderValue::from_static("1"));
        let response = soon(channel.oneshot(request)).await.unwrap();
        Status::from_header_map(response.headers()).unwrap()
    }

    /// The rows, once everything that it was told is written.
    async fn rows(self) -> Vec<AuditRow> {
        self.rpcs_ended.cancel();
        soon(self.writing).await.unwrap();
        self.store.audit_after(0).await.unwrap()
    }
}

#[tokio::test]
async fn a_connection_that_is_refused_is_written_to_the_log_of_this_replica() {
    let replica = Audited::start().await;
    let failed = IdentityLayer::of_replica(None, replica.local.clone()).failed_handshakes();
    failed(Some("192.0.2.1:4000".parse().unwrap()), "the peer sent no certificates".to_owned());
    let rows = replica.rows().await;
    let told: Vec<_> = rows.iter().map(|row| (row.entry.from.as_str(), row.entry.why.as_str())).collect();
    assert_eq!(told, [("192.0.2.1:4000", "the peer sent no certificates")]);
}

#[tokio::test]
async fn what_a_replica_of_an_earlier_version_has_refused_is_written() {
    let replica = Audited::start().await;
    let entry = AuditEntry {
        at_ms: 7,
        who: "ada".to_owned(),
        tenant: "acme".to_owned(),
        from: "192.0.2.1:4000".to_owned(),
        what: "AgentLoop/Run".to_owned(),
        why: "the roles of the caller do not allow it".to_owned(),
        ..AuditEntry::default()
    };
    let report = serde_json::json!({
        "refused": [{ "cause": "role", "entry": &entry }],
        "counted": { "role": 3 },
    });
    assert_eq!(replica.is_told(report.to_string().into_bytes()).await.code(), Code::Ok);
    let rows = replica.rows().await;
    assert_eq!(rows[0].entry, entry);
    assert_eq!(rows[1].entry.why, "3 more refused calls: role 3");
}

#[tokio::test]
async fn a_report_that_makes_no_sense_is_refused_and_writes_nothing() {
    let replica = Audited::start().await;
    for body in [b"{".to_vec(), b"{\"refused\":3}".to_vec(), vec![b' '; 3 * 1024 * 1024]] {
        assert_eq!(replica.is_told(body).await.code(), Code::InvalidArgument);
    }
    assert_eq!(replica.rows().await, []);
}
