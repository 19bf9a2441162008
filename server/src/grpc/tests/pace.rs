//! Work in progress for callers here and at another replica.

use agentloop_core::id::{Attempt, Seq, TenantId};
use agentloop_proto::v1::SubscribeRequest;
use agentloop_proto::v1::agent_loop_server::AgentLoop as _;
use futures_util::{FutureExt as _, StreamExt as _};
use tonic::Request;

use super::*;
use crate::engine::feed::LiveProgress;
use crate::grpc::edge::incoming::IncomingLink;
use crate::grpc::service::agent_loop::AgentLoopService;
use crate::store::conformance::fixture::Owner;

#[tokio::test]
async fn pieces_that_are_sent_on_leave_together_and_others_as_they_come() {
    let engine = idle_engine(RemoteTools::new(RemoteToolsOptions::default(), NOW, Vec::new())).await;
    let owner = Owner::started(engine.store(), "s", "r").await;
    let feed = engine.subscribe(&TenantId::local(), &owner.run, Seq(0)).await.unwrap().feed;
    let service =
        AgentLoopService::new(engine.clone(), Arc::new(ProviderRegistry::default()), Arc::default());
    for (link, at_once) in [(None, 3), (Some(IncomingLink::here()), 3), (Some(IncomingLink::default()), 1)] {
        let mut request = Request::new(SubscribeRequest { run_id: "r".to_owned(), ..Default::default() });
        if let Some(link) = link {
            request.extensions_mut().insert(link);
        }
        let mut events = service.subscribe(request).await.unwrap().into_inner();
        let journal = tokio::time::timeout(PATIENCE, events.next()).await.unwrap();
        assert!(journal.unwrap().is_ok(), "it has begun");
        let mut ready = async || std::iter::from_fn(|| events.next().now_or_never().flatten()).count();
        assert_eq!(ready().await, 0);
        tokio::time::pause();
        // Timers count whole milliseconds, and the stream is younger than one.
        tokio::time::advance(Duration::from_millis(2)).await;
        let mut sent = 0;
        for chunk_seq in 1..=3 {
            let (slot, attempt, data) = ((1, 0).into(), Attempt(1), b"more".to_vec());
            let output = LiveProgress::Output { slot, attempt, chunk_seq, stderr: false, data };
            feed.publish_progress(NOW, output);
            sent += ready().await;
        }
        assert_eq!(sent, at_once);
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(ready().await, 3 - at_once);
        tokio::time::resume();
    }
}
