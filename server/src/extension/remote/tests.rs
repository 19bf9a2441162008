//! The choice of the host for a request, invalid responses, lost hosts.

use std::collections::BTreeSet;
use std::time::Duration;

use agentloop_core::extension::{HookDeclaration, HookPoint, SourceDeclaration};
use agentloop_core::id::RunId;
use agentloop_core::run::state::RunState;
use agentloop_core::time::{Millis, Timestamp};
use tokio::sync::mpsc;

use super::*;
use crate::extension::{ContextItem, ContextRequest, HookRequest, HookVerdict, Occasion, RunContext};

struct FakeSender(mpsc::UnboundedSender<ExtensionRequest>);

impl RequestSender for FakeSender {
    fn send(&self, request: Box<ExtensionRequest>) -> bool {
        self.0.send(*request).is_ok()
    }
}

/// A host that answers as the test says.
struct Host {
    extensions: Arc<RemoteExtensions>,
    connection: ConnectionId,
    requests: mpsc::UnboundedReceiver<ExtensionRequest>,
}

impl Host {
    fn join(extensions: &Arc<RemoteExtensions>, number: u64, offered: &[ExtensionOffer]) -> Self {
        let host = Self::greet(extensions, number, offered, usize::MAX);
        extensions.activate(host.connection);
        host
    }

    fn greet(
        extensions: &Arc<RemoteExtensions>,
        number: u64,
        offered: &[ExtensionOffer],
        max_frame_bytes: usize,
    ) -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        let connection = ConnectionId(number);
        let new = NewConnection {
            tenant: TenantId::local(),
            connection,
            host: HostId::parse(format!("h{number}")).unwrap(),
            max_frame_bytes,
            sender: Arc::new(FakeSender(sender)),
        };
        let refused = extensions.offer(new, offered);
        assert!(refused.iter().all(Option::is_none), "{refused:?}");
        Self { extensions: extensions.clone(), connection, requests }
    }

    async fn request(&mut self) -> ExtensionRequest {
        self.requests.recv().await.expect("the registry lives")
    }

    fn answers(&self, request: &ExtensionRequest, result: Result<ResponseBody, ExtensionError>) {
        self.extensions.respond(self.connection, ExtensionResponse { id: request.id.clone(), result });
    }
}

fn registry() -> Arc<RemoteExtensions> {
    RemoteExtensions::new(Duration::from_secs(10))
}

fn hook(required: bool) -> ExtensionOffer {
    let points = BTreeSet::from([HookPoint::PreRun]);
    let declaration =
        ExtensionDeclaration::Hook(HookDeclaration { points, required, timeout: Millis::secs(5) });
    ExtensionOffer { name: "audit".to_owned(), declaration }
}

fn source() -> ExtensionOffer {
    let declaration = SourceDeclaration { timeout: Millis::secs(2), remembers: false };
    ExtensionOffer {
        name: "memory".to_owned(),
        declaration: ExtensionDeclaration::ContextSource(declaration),
    }
}

fn run() -> RunContext {
    let state = Arc::new(RunState::new(RunId::parse("r").unwrap()));
    RunContext { tenant: TenantId::local(), state }
}

fn request() -> HookRequest {
    let occasion = Occasion::PreRun { messages: Vec::new() };
    HookRequest { run: run(), deadline: Timestamp(1), occasion }
}

fn noted(text: &str) -> HookVerdict {
    HookVerdict { annotation: text.to_owned(), ..HookVerdict::default() }
}

async fn say(extensions: &Arc<RemoteExtensions>) -> Result<HookVerdict, ExtensionError> {
    let hook = Remote(extensions.clone()).hook(&TenantId::local(), "audit").await?;
    hook.call(request()).await
}

#[tokio::test]
async fn bad_answers_and_lost_hosts_lead_to_the_next_host() {
    let extensions = registry();
    let mut hosts = [1, 2, 3, 4].map(|number| Host::join(&extensions, number, &[hook(true)]));
    let said = tokio::spawn({
        let extensions = extensions.clone();
        async move { say(&extensions).await }
    });
    let first = hosts[0].request().await;
    assert_eq!(first.name, "audit");
    hosts[0].answers(&first, Ok(ResponseBody::Remembered));
    let second = hosts[1].request().await;
    let misplaced = HookVerdict { output: Some("x".to_owned()), ..HookVerdict::default() };
    hosts[1].answers(&second, Ok(ResponseBody::Hook(misplaced)));
    let _third = hosts[2].request().await;
    extensions.leave(hosts[2].connection);
    let fourth = hosts[3].request().await;
    // A response to a request of another host is ignored.
    hosts[0].answers(&fourth, Ok(ResponseBody::Hook(noted("forged"))));
    hosts[3].answers(&fourth, Ok(ResponseBody::Hook(noted("fine"))));
    assert_eq!(said.await.unwrap(), Ok(noted("fine")));
}

#[tokio::test]
async fn a_failure_that_stays_is_not_tried_elsewhere_and_the_last_one_is_told() {
    let extensions = registry();
    let mut only = Host::join(&extensions, 1, &[hook(false)]);
    let failed = |retryable| ExtensionError::Failed { message: "no".to_owned(), retryable };
    for retryable in [false, true] {
        let (said, ask) = tokio::join!(say(&extensions), async {
            let ask = only.request().await;
            only.answers(&ask, Err(failed(retryable)));
            ask
        });
        assert_eq!(said, Err(failed(retryable)), "{}", ask.id);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_comes_late_is_waited_for() {
    let extensions = registry();
    let remote = Remote(extensions.clone());
    assert!(matches!(remote.hook(&TenantId::local(), "audit").await, Err(ExtensionError::Unknown)));
    let (said, ()) = tokio::join!(say(&extensions), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let gone = Host::join(&extensions, 1, &[hook(true)]);
        extensions.leave(gone.connection);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let mut back = Host::greet(&extensions, 2, &[hook(true)], usize::MAX);
        tokio::task::yield_now().await;
        assert!(back.requests.is_empty(), "the host gets no request before it is welcomed");
        extensions.activate(back.connection);
        let ask = back.request().await;
        back.answers(&ask, Ok(ResponseBody::Hook(noted("back"))));
    });
    assert_eq!(said, Ok(noted("back")));
}

/// A required hook has its whole time once its host is back.
#[tokio::test(start_paused = true)]
async fn a_hook_whose_host_begins_anew_is_ready_when_it_is_back() {
    let extensions = registry();
    let gone = Host::join(&extensions, 1, &[hook(true)]);
    extensions.leave(gone.connection);
    let known = Remote(extensions.clone()).hook(&TenantId::local(), "audit").await.unwrap();
    let began = tokio::time::Instant::now();
    let ((), back) = tokio::join!(known.ready(), async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        Host::join(&extensions, 2, &[hook(true)])
    });
    assert_eq!(began.elapsed().as_secs(), 8);
    known.ready().await;
    assert_eq!(began.elapsed().as_secs(), 8, "it is there");
    extensions.leave(back.connection);
    known.ready().await;
    assert_eq!(began.elapsed().as_secs(), 18, "as long as for one that was never known");
}

#[tokio::test(start_paused = true)]
async fn each_host_is_told_the_time_that_is_left() {
    let extensions = registry();
    let mut hosts = [1, 2].map(|number| Host::join(&extensions, number, &[hook(true)]));
    let (said, ()) = tokio::join!(say(&extensions), async {
        assert_eq!(hosts[0].request().await.time_left, Millis::secs(5));
        tokio::time::sleep(Duration::from_secs(2)).await;
        extensions.leave(hosts[0].connection);
        let second = hosts[1].request().await;
        // The timer rounds up to its ticks.
        assert!((Millis(2_990)..=Millis::secs(3)).contains(&second.time_left), "{:?}", second.time_left);
        hosts[1].answers(&second, Ok(ResponseBody::Hook(noted("in time"))));
    });
    assert_eq!(said, Ok(noted("in time")));
}

#[tokio::test]
async fn what_a_host_cannot_take_it_is_not_sent() {
    let extensions = registry();
    let small = Host::greet(&extensions, 1, &[hook(true)], 64);
    extensions.activate(small.connection);
    let Err(ExtensionError::Failed { message, .. }) = say(&extensions).await else { panic!("too large") };
    assert!(message.contains("64 bytes"), "{message}");
}

#[tokio::test]
async fn whoever_declares_it_differently_is_refused_as_long_as_it_is_offered() {
    let extensions = registry();
    let first = Host::join(&extensions, 1, &[hook(true), source()]);
    let second = Host::join(&extensions, 2, &[source()]);
    let said = extensions.replace(second.connection, &[hook(false), source()]);
    assert_eq!(said, [Some("host h1 declares the hook differently".to_owned()), None]);
    let shown = extensions.snapshot(&TenantId::local());
    let of = |host: &str| shown[&HostId::parse(host).unwrap()].clone();
    assert_eq!(of("h1"), ["hook audit", "context source memory"]);
    assert_eq!(of("h2"), ["context source memory"]);
    extensions.drain(first.connection);
    assert_eq!(extensions.replace(second.connection, &[hook(false)]), [None]);
    let hook = Remote(extensions).hook(&TenantId::local(), "audit").await.expect("it is offered");
    assert!(!hook.declaration().required);
}

#[tokio::test]
async fn a_host_that_comes_back_may_declare_it_differently() {
    let extensions = registry();
    let _before = Host::join(&extensions, 1, &[hook(true), source()]);
    let (sender, _requests) = mpsc::unbounded_channel();
    let again = NewConnection {
        tenant: TenantId::local(),
        connection: ConnectionId(2),
        host: HostId::parse("h1").unwrap(),
        max_frame_bytes: usize::MAX,
        sender: Arc::new(FakeSender(sender)),
    };
    assert_eq!(extensions.offer(again, &[hook(false), source()]), [None, None]);
    let hook = Remote(extensions).hook(&TenantId::local(), "audit").await.expect("it is offered");
    assert!(!hook.declaration().required);
}

#[tokio::test]
async fn names_are_bounded_and_what_nobody_offers_gives_way() {
    let extensions = registry();
    let named = |index: usize| ExtensionOffer { name: format!("s{index}"), ..source() };
    let max = agentloop_core::limits::EXTENSIONS_PER_TENANT_MAX;
    let many: Vec<ExtensionOffer> = (0..max).map(named).collect();
    let full = Host::join(&extensions, 1, &many);
    let other = Host::join(&extensions, 2, &[]);
    let refused = extensions.replace(other.connection, &[named(max), hook(true)]);
    assert!(
        refused[0].as_ref().is_some_and(|why| why.contains("256")) && refused[1].is_none(),
        "{refused:?}"
    );
    extensions.leave(full.connection);
    assert_eq!(extensions.replace(other.connection, &[named(max)]), [None]);
}

#[tokio::test]
async fn who_gives_up_waiting_leaves_nothing_behind() {
    let extensions = registry();
    let mut host = Host::join(&extensions, 1, &[source()]);
    let remote = Remote(extensions.clone());
    let source = remote.context_source(&TenantId::local(), "memory").await.expect("it is offered");
    let request =
        || ContextRequest { run: run(), deadline: Timestamp(1), query: "q".to_owned(), max_bytes: 10 };
    let late = tokio::select! {
        biased;
        _ = source.context(request()) => panic!("nobody answered"),
        ask = host.request() => ask,
    };
    host.answers(&late, Ok(ResponseBody::Context(Vec::new())));
    let item = ContextItem { text: "t".to_owned(), origin: String::new() };
    let (said, ()) = tokio::join!(source.context(request()), async {
        let ask = host.request().await;
        assert_ne!(ask.id, late.id);
        host.answers(&late, Ok(ResponseBody::Context(Vec::new())));
        host.answers(&ask, Ok(ResponseBody::Context(vec![item.clone()])));
    });
    assert_eq!(said, Ok(vec![item.clone()]));
}
