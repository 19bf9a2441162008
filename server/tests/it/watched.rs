//! A run with several subscribers: each event is encoded once for all of them.

use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::message::FinishReason;
use agentloop_core::model::delta::Delta;
use agentloop_core::time::Timestamp;
use agentloop_proto::EventFrame;
use agentloop_proto::v1::agent_loop_server::AgentLoop as _;
use agentloop_proto::v1::{RunEvent, RunInput, RunStreamRequest, SubscribeRequest, run_event::Event};
use agentloop_server::engine::EngineParts;
use agentloop_server::grpc::agent_loop::AgentLoopService;
use agentloop_server::model::{Model, ModelError, ModelRequest};
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::tool::{RemoteTools, RemoteToolsOptions};
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use prost::Message as _;
use tokio::sync::Semaphore;
use tonic::{Request, Status};

use crate::support::one_model::one_model;

/// A model that answers once the test allows it.
struct Shy(Arc<Semaphore>);

impl Model for Shy {
    fn stream(&self, _request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let leave = self.0.clone();
        let text = stream::once(async move {
            leave.acquire().await.expect("open").forget();
            Ok(Delta::Text { text: "Hello.".to_owned() })
        });
        text.chain(stream::iter([Ok(Delta::Finish { reason: FinishReason::Stop })])).boxed()
    }
}

async fn service(model: Shy) -> AgentLoopService {
    let store = Arc::new(SqliteStore::in_memory().await.expect("a store"));
    let models = one_model(model);
    let tools = RemoteTools::new(RemoteToolsOptions::default(), Timestamp(0), Vec::new());
    let engine = EngineParts::default().start(store, models.clone(), tools);
    let agent = RunSpec { agent: "default".into(), model: "any/shy".into(), ..RunSpec::default() };
    AgentLoopService::new(engine, models, Arc::new([("default".to_owned(), agent)].into()))
}

type Frames = dyn Stream<Item = Result<EventFrame, Status>> + Send + Unpin;

fn event(frame: &EventFrame) -> Event {
    let event = RunEvent::decode(&frame.event[..]).expect("an event");
    event.event.expect("a kind")
}

/// Reads the events up to the start of the model call.
async fn until_asked(frames: &mut Frames) -> Vec<EventFrame> {
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|frame| matches!(event(frame), Event::ModelCallStarted(_))) {
        seen.push(frames.next().await.expect("the stream goes on").expect("an event"));
    }
    seen
}

fn subscription() -> Request<SubscribeRequest> {
    let request = SubscribeRequest { run_id: "watched".to_owned(), ..SubscribeRequest::default() };
    Request::new(request)
}

#[tokio::test]
async fn all_who_watch_a_run_are_sent_the_same_bytes() {
    let leave = Arc::new(Semaphore::new(0));
    let service = service(Shy(leave.clone())).await;
    let input = RunInput {
        run_id: Some("watched".to_owned()),
        prompt: "Say hello.".to_owned(),
        ..RunInput::default()
    };
    let request = RunStreamRequest { input: Some(input), after_seq: 0 };
    let started = service.run_stream(Request::new(request)).await.expect("a run").into_inner();
    let mut watching: Vec<Box<Frames>> = vec![Box::new(started)];
    for _ in 0..2 {
        watching.push(Box::new(service.subscribe(subscription()).await.expect("it is there").into_inner()));
    }
    let mut seen = Vec::new();
    for frames in &mut watching {
        seen.push(until_asked(frames).await);
    }
    leave.add_permits(1);
    for (seen, frames) in seen.iter_mut().zip(&mut watching) {
        while let Some(frame) = frames.next().await {
            seen.push(frame.expect("an event"));
        }
    }

    let events: Vec<Event> = seen[0].iter().map(event).collect();
    assert!(events.iter().any(|event| matches!(event, Event::ModelDelta(_))), "{events:?}");
    assert!(matches!(events.last(), Some(Event::RunFinished(_))), "{events:?}");
    let place = |frame: &EventFrame| (frame.event.as_ptr(), frame.event.len());
    let places = seen.iter().map(|frames| frames.iter().map(place).collect::<Vec<_>>()).collect::<Vec<_>>();
    assert_eq!(places[0], places[1]);
    assert_eq!(places[0], places[2]);
}
