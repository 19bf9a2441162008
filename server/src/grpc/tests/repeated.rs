//! RPCs that a replica sends again although an owner may have done them.

use agentloop_core::id::{SessionId, TenantId};
use agentloop_core::time::Timestamp;
use agentloop_proto::v1::DeleteSessionRequest;
use agentloop_proto::v1::sessions_server::Sessions as _;
use tonic::Request;

use super::*;
use crate::grpc::repetition::RepeatedRpc;
use crate::grpc::service::sessions::SessionsService;
use crate::ids::CountingIds;
use crate::store::NewSession;

const FIRST: Timestamp = Timestamp(1_000);
const SECOND: Timestamp = Timestamp(2_000);

/// The second session of the id is somebody else's, made after the first try had deleted the first one.
#[tokio::test]
async fn a_deletion_that_is_repeated_spares_a_later_session_of_the_same_id() {
    let tools = RemoteTools::new(RemoteToolsOptions::default(), NOW, Vec::new());
    let engine = idle_engine(tools).await;
    let service = SessionsService::new(engine.clone(), Arc::new(CountingIds::default()));
    let (tenant, session) = (TenantId::local(), SessionId::parse("s").unwrap());
    let create = async |created_at| {
        let new = NewSession {
            tenant: tenant.clone(),
            session: session.clone(),
            title: String::new(),
            labels: Default::default(),
            created_at,
            created_by: None,
        };
        engine.store().create_session(new).await.unwrap();
    };
    let delete = async |mark: Option<RepeatedRpc>| {
        let mut request = Request::new(DeleteSessionRequest { session_id: "s".to_owned() });
        if let Some(mark) = mark {
            request.extensions_mut().insert(mark);
        }
        service.delete_session(request).await.unwrap().into_inner().existed
    };
    let meant = |created_at| Some(RepeatedRpc { created_at });
    create(SECOND).await;
    for spared in [meant(Some(FIRST)), meant(None)] {
        assert!(!delete(spared).await, "{spared:?}");
        assert!(engine.store().session(&tenant, &session).await.unwrap().is_some(), "{spared:?}");
    }
    assert!(delete(meant(Some(SECOND))).await, "the first try had not been done");
    assert!(!delete(meant(Some(SECOND))).await, "it had been done");
    create(SECOND).await;
    assert!(delete(None).await, "a first try deletes what is there");
}
