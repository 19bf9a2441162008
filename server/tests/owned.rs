//! A server that owns a part of all sessions: those that it makes are among them.

#[path = "support/intercepted.rs"]
mod intercepted;

use std::sync::Arc;

use agentloop_core::id::SessionId;
use agentloop_core::time::Timestamp;
use agentloop_proto::v1::GetOrCreateSessionRequest;
use agentloop_proto::v1::sessions_server::Sessions as _;
use agentloop_server::engine::EngineParts;
use agentloop_server::grpc::sessions::SessionsService;
use agentloop_server::ids::RandomIds;
use agentloop_server::model::{Model, Models, UnknownModel};
use agentloop_server::tool::{HostOptions, RemoteTools};
use tonic::Request;

use intercepted::{Intercept, Intercepted};

/// One of four sessions is this server's.
struct Part;

impl Intercept for Part {
    fn owns(&self, session: &SessionId) -> bool {
        session.as_str().ends_with(['0', '1', '2', '3'])
    }
}

struct NoModels;

impl Models for NoModels {
    fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel> {
        panic!("no run asks for {reference}")
    }
}

#[tokio::test]
async fn the_session_of_a_user_is_one_of_its_own() {
    let store = Arc::new(Intercepted::new(Part).await);
    let tools = RemoteTools::new(HostOptions::default(), Timestamp(0), Vec::new());
    let engine = EngineParts::default().start(store, Arc::new(NoModels), tools);
    let sessions = SessionsService::new(engine, Arc::new(RandomIds));
    for number in 0..32 {
        let asked = GetOrCreateSessionRequest { user: format!("user-{number}"), ..Default::default() };
        let made = sessions.get_or_create_session(Request::new(asked)).await.expect("made").into_inner();
        let id = SessionId::parse(made.session.expect("a session").session_id).expect("an id");
        assert!(made.created && Part.owns(&id), "{id}");
    }
}
