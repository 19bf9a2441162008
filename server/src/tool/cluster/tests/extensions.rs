//! Extensions of hosts that are connected to another replica.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::extension::{ExtensionDeclaration, HookDeclaration, HookPoint};
use agentloop_core::host::frame::{Capability, HostFrame, ServerFrame};
use agentloop_core::id::RunId;
use agentloop_core::run::plan::{Instruction, Situation};
use agentloop_core::run::state::RunState;
use agentloop_core::time::{Millis, Timestamp};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::harness::*;
use crate::extension::remote::{ExtensionResponse, ForwardedRequest, Remote, ResponseBody};
use crate::extension::{ExtensionError, Extensions as _, PlanView, RunContext};
use crate::tool::tests::harness::*;
use crate::tool::{FrameError, Inbound, Outbound, OutboundFrames};

/// A host with extensions.
struct ExtensionHost {
    frames: mpsc::UnboundedSender<Result<Inbound, FrameError>>,
    sending: OutboundFrames,
}

impl ExtensionHost {
    async fn connect(hub: &Replica, name: &str) -> Self {
        hub.ready().await;
        tokio::task::yield_now().await;
        let (connection, sending) = hub.tools.own().accept(tenant()).unwrap();
        let (frames, receiver) = mpsc::unbounded_channel();
        tokio::spawn(connection.run(UnboundedReceiverStream::new(receiver)));
        let mut host = Self { frames, sending };
        let mut said = hello(name, &[]);
        let planner = ExtensionDeclaration::Planner { timeout: Millis::secs(30) };
        let hook = ExtensionDeclaration::Hook(HookDeclaration {
            points: [HookPoint::PreRun].into(),
            required: true,
            timeout: Millis::secs(3),
        });
        said.capabilities = vec![
            Capability::Extension { name: "plan".to_owned(), declaration: planner },
            Capability::Extension { name: "audit".to_owned(), declaration: hook },
        ];
        host.frames.send(Ok(HostFrame::Hello(said).into())).unwrap();
        assert!(matches!(host.next().await, Outbound::Frame(ServerFrame::Welcome(_))));
        host
    }

    async fn next(&mut self) -> Outbound {
        loop {
            match self.sending.next().await.expect("the stream goes on") {
                Outbound::Frame(ServerFrame::Ping { .. }) => {}
                outbound => return outbound,
            }
        }
    }

    async fn forwarded(&mut self) -> ForwardedRequest {
        match self.next().await {
            Outbound::Forward(request) => request,
            other => panic!("{other:?}"),
        }
    }

    fn reply(&self, id: String, result: Result<ResponseBody, ExtensionError>) {
        let response = ExtensionResponse { id, result };
        self.frames.send(Ok(Inbound::Reply(Box::new(response)))).unwrap();
    }
}

fn view() -> PlanView {
    let state = Arc::new(RunState::new(RunId::parse("r").unwrap()));
    PlanView {
        run: RunContext { tenant: tenant(), state },
        deadline: Timestamp(NOW.0 + 1_000),
        decision: 1,
        situation: Situation::Prompted,
        messages: Vec::new(),
        calls: Vec::new(),
        answer: None,
    }
}

fn extensions(replica: &Replica) -> Remote {
    Remote(replica.tools.own().extensions().clone())
}

#[tokio::test(start_paused = true)]
async fn a_planner_is_called_over_the_link() {
    let (_net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let mut host = ExtensionHost::connect(hub, "h").await;
    other.ready().await;
    let found = extensions(other);
    let planner = found.planner(&tenant(), "plan").await.unwrap();
    assert!(found.knows_planner(&tenant(), "plan"));
    assert_eq!(planner.timeout(), Millis::secs(30));
    let planned = tokio::spawn(async move { planner.plan(view()).await });
    let request = host.forwarded().await;
    assert_eq!(request.encoded, b"plan", "as the other replica has encoded it");
    host.reply(request.id, Ok(ResponseBody::Instruction(Instruction::CallTools)));
    assert_eq!(planned.await.unwrap(), Ok(Instruction::CallTools));
    let hook = found.hook(&tenant(), "audit").await.unwrap();
    assert_eq!(hook.declaration().points, [HookPoint::PreRun].into());
}

#[tokio::test(start_paused = true)]
async fn an_invalid_response_leads_to_another_host() {
    let (_net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let mut first = ExtensionHost::connect(hub, "h").await;
    let mut second = ExtensionHost::connect(hub, "i").await;
    other.ready().await;
    let planner = extensions(other).planner(&tenant(), "plan").await.unwrap();
    let planned = tokio::spawn(async move { planner.plan(view()).await });
    let mut replies = 0;
    while replies < 2 {
        let (host, request) = tokio::select! {
            request = first.forwarded() => (&first, request),
            request = second.forwarded() => (&second, request),
        };
        let said = [ResponseBody::Remembered, ResponseBody::Instruction(Instruction::CallModel)];
        host.reply(request.id, Ok(said[replies].clone()));
        replies += 1;
    }
    assert_eq!(planned.await.unwrap(), Ok(Instruction::CallModel));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_a_broken_link_loses_is_sent_again() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let mut host = ExtensionHost::connect(hub, "h").await;
    other.ready().await;
    let planner = extensions(other).planner(&tenant(), "plan").await.unwrap();
    let planned = tokio::spawn(async move { planner.plan(view()).await });
    let lost = host.forwarded().await;
    net.cut();
    let request = host.forwarded().await;
    host.reply(lost.id, Ok(ResponseBody::Instruction(Instruction::CallTools)));
    host.reply(request.id, Ok(ResponseBody::Instruction(Instruction::CallModel)));
    assert_eq!(planned.await.unwrap(), Ok(Instruction::CallModel));
}

#[tokio::test(start_paused = true)]
async fn a_planner_stays_known_and_its_host_is_waited_for() {
    let (_net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    drop(ExtensionHost::connect(hub, "h").await);
    other.ready().await;
    let found = extensions(other);
    while !found.knows_planner(&tenant(), "plan") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let planner = found.planner(&tenant(), "plan").await.unwrap();
    let planned = tokio::spawn(async move { planner.plan(view()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut host = ExtensionHost::connect(hub, "i").await;
    let request = host.forwarded().await;
    let failed = ExtensionError::Failed { message: "no".to_owned(), retryable: false };
    host.reply(request.id, Err(failed.clone()));
    assert_eq!(planned.await.unwrap(), Err(failed));
}
