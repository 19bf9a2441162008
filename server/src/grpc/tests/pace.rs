//! Messages for callers and hosts here and at another replica.

use agentloop_core::id::{Attempt, Seq, TenantId};
use agentloop_proto::v1::SubscribeRequest;
use agentloop_proto::v1::agent_loop_server::AgentLoop as _;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tonic::Request;
use tonic::codec::{Codec as _, EncodeBody};
use tonic_prost::ProstCodec;

use super::*;
use crate::engine::feed::LiveProgress;
use crate::grpc::edge::incoming::IncomingLink;
use crate::grpc::service::agent_loop::AgentLoopService;
use crate::store::conformance::fixture::Owner;
use crate::tool::tests::harness::Heard;

/// The items that come without a wait.
fn ready<T>(items: &mut (impl Stream<Item = T> + Unpin)) -> Vec<T> {
    std::iter::from_fn(|| items.next().now_or_never().flatten()).collect()
}

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
        assert!(ready(&mut events).is_empty());
        tokio::time::pause();
        // Timers count whole milliseconds, and the stream is younger than one.
        tokio::time::advance(Duration::from_millis(2)).await;
        let mut sent = 0;
        for chunk_seq in 1..=3 {
            let (slot, attempt, data) = ((1, 0).into(), Attempt(1), b"more".to_vec());
            let output = LiveProgress::Output { slot, attempt, chunk_seq, stderr: false, data };
            feed.publish_progress(NOW, output);
            sent += ready(&mut events).len();
        }
        assert_eq!(sent, at_once);
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(ready(&mut events).len(), 3 - at_once);
        tokio::time::resume();
    }
}

/// Number of acknowledgements among these messages to a host. Pings come at their own times.
fn acknowledged(frames: Vec<Result<ConnectResponse, Status>>) -> usize {
    let frames = frames.into_iter().map(|frame| frame.unwrap().frame.unwrap());
    frames.filter(|frame| matches!(frame, ServerFrame::ResultAck(_))).count()
}

#[tokio::test]
async fn acknowledgements_that_are_sent_on_leave_together_and_others_as_they_come() {
    use agentloop_proto::v1::tool_host_server::ToolHost as _;
    let calls = ["r/1.0", "r/1.1", "r/1.2"];
    for (link, at_once) in [(None, 3), (Some(IncomingLink::here()), 3), (Some(IncomingLink::default()), 1)] {
        let harness = Harness::new().await;
        let (say, said) = mpsc::unbounded_channel();
        let say = |frame| say.send(Ok::<_, Status>(ConnectRequest { frame: Some(frame) })).unwrap();
        let mut codec = ProstCodec::<ConnectRequest, ConnectRequest>::default();
        let body = EncodeBody::new_client(codec.encoder(), UnboundedReceiverStream::new(said), None, None);
        let mut request = Request::new(Streaming::new_request(codec.decoder(), body, None, None));
        if let Some(link) = link {
            request.extensions_mut().insert(link);
        }
        let service = ToolHostService::new(harness.tools.clone(), TaskTracker::new(), None);
        let mut frames = service.connect(request).await.unwrap().into_inner();
        say(Say::Hello(hello("h", &["weather"])));
        let mut next = async || loop {
            let frame = tokio::time::timeout(PATIENCE, frames.next()).await.unwrap().unwrap().unwrap();
            match frame.frame.unwrap() {
                ServerFrame::Ping(_) => {}
                frame => return frame,
            }
        };
        assert!(matches!(next().await, ServerFrame::Welcome(_)));
        for call in calls {
            harness.give(call, 1, "weather");
            assert!(matches!(next().await, ServerFrame::CallRequest(_)));
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_millis(2)).await;
        let mut sent = 0;
        for (done, call) in (1..).zip(calls) {
            say(result(call, 1));
            let finished = |heard: &Heard| matches!(heard, Heard::Finished(..));
            while harness.engine.all().into_iter().filter(finished).count() < done {
                tokio::task::yield_now().await;
            }
            // The verdict is on its way to the stream.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            sent += acknowledged(ready(&mut frames));
        }
        assert_eq!(sent, at_once);
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(acknowledged(ready(&mut frames)), calls.len() - at_once);
        tokio::time::resume();
    }
}
