//! `[quotas]`: what a principal and a tenant may use, and what they read of it.

use std::sync::atomic::{AtomicUsize, Ordering};

use agentloop_client::{Client, Error, v1 as wire};
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named, prompt};
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use tonic::Code;
use wire::{ErrorReason, RunStatus};

/// A server with quotas, and the tokens of its callers.
struct Setup {
    server: TestServer,
    tokens: [String; 3],
    _files: SecurityFiles,
}

impl Setup {
    /// Clients of two callers of one tenant, and of one of another.
    fn clients(&self) -> [Client; 3] {
        self.tokens.each_ref().map(|token| self.server.as_caller(token))
    }
}

/// A server with these quotas.
async fn with(model: &Model, quotas: &str) -> Setup {
    let files = SecurityFiles::new();
    let tokens = [("ada", "red"), ("bob", "red"), ("zoe", "blue")]
        .map(|(name, tenant)| files.token(name, tenant, &["caller"]));
    let metrics = "[metrics]\nlisten = \"127.0.0.1:0\"\n";
    let server = TestServer::with(model, &format!("{}[quotas]\n{quotas}\n{metrics}", files.auth())).await;
    Setup { server, tokens, _files: files }
}

/// Checks that a call was refused because of this quota, and is told when to try again.
#[track_caller]
fn assert_exceeded<T: std::fmt::Debug>(result: Result<T, Error>, quota: &str) {
    let error = result.expect_err("the quota is used up");
    let status = error.status().expect("a status");
    let found = (status.code, status.reason, status.metadata.get("quota").map(String::as_str));
    assert_eq!(found, (Code::ResourceExhausted, Some(ErrorReason::QuotaExceeded), Some(quota)), "{error}");
    assert!(status.retry_after.is_some_and(|after| !after.is_zero()), "{error}");
}

/// The quotas of a caller as it reads them: name, holder, used, limit.
async fn quotas(client: &Client) -> Vec<(String, String, u64, u64)> {
    let answer = soon(client.get_usage(wire::GetUsageRequest::default())).await.expect("it is told");
    let quotas = answer.quotas.into_iter();
    quotas.map(|quota| (quota.name, quota.holder, quota.used, quota.limit)).collect()
}

fn row(name: &str, holder: &str, used: u64, limit: u64) -> (String, String, u64, u64) {
    (name.to_owned(), holder.to_owned(), used, limit)
}

async fn session(client: &Client, id: &str) -> Result<wire::Session, Error> {
    let request = wire::CreateSessionRequest { session_id: Some(id.to_owned()), ..Default::default() };
    soon(client.create_session(request)).await
}

#[tokio::test]
async fn live_runs_count_until_they_end() {
    let model = Model::start().await;
    let setup = with(&model, "live_runs = 1\ntenant_live_runs = 2").await;
    let [ada, bob, zoe] = setup.clients();
    let [mut first, mut second] = [model.speaks(), model.speaks()];
    let mut under_way = Box::pin(soon(ada.run_stream(named("a1", "go")))).await.expect("it starts");
    soon(first.asked()).await;
    assert_exceeded(soon(ada.run(named("a2", "go"))).await, "live_runs");
    assert_exceeded(soon(ada.run(in_session("refused", "a3", "go"))).await, "live_runs");
    let left = soon(ada.get_session("refused")).await.expect_err("a refused run leaves no session behind");
    assert_eq!(left.reason(), Some(ErrorReason::SessionNotFound));
    let _also =
        Box::pin(soon(bob.run_stream(named("b1", "go")))).await.expect("another caller's do not count");
    soon(second.asked()).await;
    let used = [row("live_runs", "ada", 1, 1), row("tenant_live_runs", "tenant", 2, 2)];
    assert_eq!(quotas(&ada).await, used);
    model.says("hello");
    soon(zoe.run(named("z1", "go"))).await.expect("another tenant's do not count");
    // A repetition joins the run, and adds none.
    let joined = Box::pin(soon(ada.run_stream(named("a1", "go")))).await.expect("it is there already");
    drop(joined);
    let scraped = setup.server.scrape().await;
    assert_eq!(scraped.get("quota_refusals_total{quota=\"live_runs\"}"), 2.0);
    assert_eq!(scraped.get("quota_used_ratio{quota=\"tenant_live_runs\"}"), 1.0);
    first.say("done");
    first.end();
    while let Some(event) = soon(under_way.next()).await {
        event.expect("an event");
    }
    model.says("again");
    // The task ends a little after the run's last event.
    let result = loop {
        match soon(ada.run(named("a2", "go"))).await {
            Err(error) if error.reason() == Some(ErrorReason::QuotaExceeded) => {
                tokio::task::yield_now().await
            }
            result => break result.expect("there is room"),
        }
    };
    assert_eq!(result.status(), RunStatus::Completed);
}

#[tokio::test]
async fn sessions_count_as_stored_and_those_that_are_there_are_confirmed() {
    let model = Model::start().await;
    let setup = with(&model, "sessions = 2\ntenant_sessions = 3").await;
    let [ada, bob, zoe] = setup.clients();
    session(&ada, "a1").await.expect("there is room");
    model.says("hello");
    soon(ada.run(in_session("a2", "r1", "hi"))).await.expect("a run may make a session");
    assert_exceeded(session(&ada, "a3").await, "sessions");
    assert_exceeded(soon(ada.run(in_session("a3", "r2", "hi"))).await, "sessions");
    assert_exceeded(soon(ada.run(prompt("a session without a name"))).await, "sessions");
    let fork = wire::ForkSessionRequest {
        session_id: "a2".to_owned(),
        new_session_id: Some("a4".to_owned()),
        ..Default::default()
    };
    assert_exceeded(soon(ada.fork_session(fork)).await, "sessions");
    session(&ada, "a1").await.expect("it is there already");
    model.says("hello");
    soon(ada.run(in_session("a2", "r3", "hi"))).await.expect("no session is made");
    let of_user = || wire::GetOrCreateSessionRequest { user: "u".to_owned(), ..Default::default() };
    assert_exceeded(soon(ada.get_or_create_session(of_user())).await, "sessions");
    let made = soon(bob.get_or_create_session(of_user())).await.expect("another caller's do not count");
    assert!(made.created);
    assert_exceeded(session(&bob, "b2").await, "tenant_sessions");
    let found = soon(bob.get_or_create_session(of_user())).await.expect("it is there already");
    assert!(
        !found.created && found.session.map(|row| row.session_id) == made.session.map(|row| row.session_id)
    );
    session(&zoe, "z1").await.expect("another tenant's do not count");
    let used = [row("sessions", "ada", 2, 2), row("tenant_sessions", "tenant", 3, 3)];
    assert_eq!(quotas(&ada).await, used);
    assert!(soon(ada.delete_session("a1")).await.expect("it is deleted"));
    session(&ada, "a3").await.expect("there is room again");
}

#[tokio::test]
async fn sessions_that_are_made_at_once_do_not_pass_the_bound() {
    let model = Model::start().await;
    let setup = with(&model, "sessions = 5").await;
    let [ada, ..] = setup.clients();
    let all = (0..20).map(|number| {
        let ada = &ada;
        async move { session(ada, &format!("s{number}")).await }
    });
    let made = futures_util::future::join_all(all).await;
    let refused = made.iter().filter(|made| made.is_err()).count();
    assert_eq!(made.len() - refused, 5, "{made:?}");
}

#[tokio::test]
async fn stored_bytes_are_those_of_journals_and_blobs() {
    let model = Model::start().await;
    let setup = with(&model, "stored_bytes = 100000\ntenant_stored_bytes = 150000").await;
    let [ada, bob, zoe] = setup.clients();
    let put_as = async |client: &Client, digest: String, announced: usize, size: usize| {
        let header = wire::BlobHeader { digest, size_bytes: announced as u64, ..Default::default() };
        let part = |part| wire::PutBlobRequest { part: Some(part) };
        let header = part(wire::put_blob_request::Part::Header(header));
        let chunk = part(wire::put_blob_request::Part::Chunk(vec![b'x'; size]));
        let mut blobs = client.blobs();
        let stored = soon(blobs.put_blob(tokio_stream::iter([header, chunk]))).await;
        stored.map(|stored| stored.into_inner().header.unwrap_or_default().digest).map_err(Error::from)
    };
    let put = async |client: &Client, announced: usize, size: usize| {
        put_as(client, String::new(), announced, size).await
    };
    let digest = put(&ada, 60_000, 60_000).await.expect("there is room");
    assert_exceeded(put(&ada, 60_001, 60_001).await, "stored_bytes");
    // The same blob counts once.
    for announced in [60_000, 0] {
        put_as(&ada, digest.clone(), announced, 60_000).await.expect("it is there");
    }
    assert_exceeded(put_as(&bob, digest, 0, 95_000).await, "tenant_stored_bytes");
    // The size of this one is not known before its end.
    assert_exceeded(put(&ada, 0, 70_000).await, "stored_bytes");
    put(&bob, 0, 70_000).await.expect("another caller's do not count");
    assert_exceeded(put(&bob, 25_000, 25_000).await, "tenant_stored_bytes");
    put(&zoe, 90_000, 90_000).await.expect("another tenant's do not count");
    model.answers(|_| Answer::Says("noted".to_owned()));
    // Journals are looked at after a while.
    for number in 0.. {
        match soon(ada.run(named(&format!("r{number}"), &"word ".repeat(1_000)))).await {
            Ok(_) => assert!(number < 1_000, "a run of 5,000 bytes counts at last"),
            Err(error) => {
                // By the time of the look, both may be used up; then the caller's own comes first.
                let quota = error.status().and_then(|status| status.metadata.get("quota").cloned());
                let quota = quota.expect("it is named");
                assert!(["stored_bytes", "tenant_stored_bytes"].contains(&quota.as_str()), "{quota}");
                assert_exceeded(Err::<(), _>(error), &quota);
                break;
            }
        }
    }
    let [own, tenant] = &quotas(&ada).await[..] else { panic!("two quotas") };
    assert!(own.2 >= 60_000 && tenant.2 >= 130_000, "the blobs count: {own:?} {tenant:?}");
    assert!(own.2 >= 100_000 || tenant.2 >= 150_000, "one of them is used up: {own:?} {tenant:?}");
}

#[tokio::test]
async fn hosts_count_while_they_are_connected() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let [own, other] = ["tools", "more"].map(|name| files.token(name, "red", &["host", "operator"]));
    let config = format!("{}[quotas]\nhosts = 1\ntenant_hosts = 2\n", files.auth());
    let server = TestServer::with(&model, &config).await;
    let first = Host::presenting(&server, "h1", Some(&own), |name| name == "weather").await;
    let connect = async |token: &str| {
        let mut client = server.tool_host();
        let mut request = tonic::Request::new(tokio_stream::pending::<wire::ConnectRequest>());
        let bearer = format!("Bearer {token}").parse().expect("a header");
        request.metadata_mut().insert("authorization", bearer);
        soon(client.connect(request)).await.map(drop).map_err(Error::from)
    };
    assert_exceeded(connect(&own).await, "hosts");
    let second = Host::presenting(&server, "h2", Some(&other), |name| name == "mail").await;
    let used = [row("hosts", "tools", 1, 1), row("tenant_hosts", "tenant", 2, 2)];
    assert_eq!(quotas(&server.as_caller(&own)).await, used);
    first.leave().await;
    second.leave().await;
    // The stream's task ends a little after the goodbye. The library tries again until it is let in.
    let _again = Host::presenting(&server, "h1", Some(&own), |name| name == "weather").await;
}

#[tokio::test]
async fn streams_count_while_they_are_open() {
    let model = Model::start().await;
    let setup = with(&model, "streams = 2\ntenant_streams = 3").await;
    let [ada, bob, zoe] = setup.clients();
    let watch = async |client: &Client| {
        soon(client.agent_loop().watch_runs(wire::WatchRunsRequest::default())).await.map_err(Error::from)
    };
    let (first, _second) =
        (watch(&ada).await.expect("there is room"), watch(&ada).await.expect("there is room"));
    assert_exceeded(watch(&ada).await, "streams");
    let _third = watch(&bob).await.expect("another caller's do not count");
    assert_exceeded(watch(&bob).await, "tenant_streams");
    let _other = watch(&zoe).await.expect("another tenant's do not count");
    let used = [row("streams", "ada", 2, 2), row("tenant_streams", "tenant", 3, 3)];
    assert_eq!(quotas(&ada).await, used, "calls without a stream do not count");
    drop(first);
    // The server hears of it a little later.
    loop {
        match watch(&ada).await {
            Err(error) if error.reason() == Some(ErrorReason::QuotaExceeded) => {
                tokio::task::yield_now().await
            }
            result => break drop(result.expect("there is room")),
        }
    }
}

#[tokio::test]
async fn tokens_and_cost_of_a_window_are_those_of_the_store() {
    let prices = "[providers.fake.models.m]\nprices = { input = 1.0, output = 2.0 }\n";
    for quota in ["tokens", "cost_micros", "tenant_tokens", "tenant_cost_micros"] {
        let model = Model::start().await;
        let bound = format!("{quota} = 100\nwindow = \"366d\"\n{prices}");
        let mut setup = with(&model, &bound).await;
        let [ada, bob, zoe] = setup.clients();
        model.answers(|_| Answer::Says("noted".to_owned()));
        let mut runs = 0;
        loop {
            // Use of a moment ago counts at the latest after fifty times the time that the store takes to answer.
            let mut events = match Box::pin(soon(ada.run_stream(prompt("go")))).await {
                Ok(events) => events,
                Err(error) => break assert_exceeded(Err::<(), _>(error), quota),
            };
            let mut status = RunStatus::Unspecified;
            // A run waits if the look before its model call is the first one that finds nothing left.
            while status != RunStatus::BackingOff
                && let Some(event) = soon(events.next()).await
            {
                status = event.expect("an event").status();
            }
            assert!([RunStatus::Completed, RunStatus::BackingOff].contains(&status), "{quota}: {status:?}");
            runs += 1;
            assert!(runs < 10_000, "{quota} is never used up");
        }
        assert!(runs >= 3, "{quota}: not before it is used up");
        let bobs = soon(bob.run(prompt("go"))).await;
        match quota.starts_with("tenant") {
            true => assert_exceeded(bobs, quota),
            false => assert_eq!(bobs.expect("another caller's do not count").status(), RunStatus::Completed),
        }
        soon(zoe.run(prompt("go"))).await.expect("another tenant's do not count");
        setup.server.restart().await;
        let [ada, ..] = setup.clients();
        let [used] = &quotas(&ada).await[..] else { panic!("one quota") };
        assert!(used.0 == quota && used.2 >= 100 && used.3 == 100, "{used:?}");
    }
}

#[tokio::test]
async fn a_run_at_work_waits_when_its_tokens_are_used_up() {
    let model = Model::start().await;
    let setup = with(&model, "tokens = 1\nwindow = \"366d\"").await;
    let [ada, ..] = setup.clients();
    let calls = AtomicUsize::new(0);
    model.answers(move |_| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        Answer::Asks(vec![("nothing".to_owned(), serde_json::json!({ "call": call }))])
    });
    let input = wire::RunInput {
        loop_limits: Some(wire::LoopLimits { max_iterations: Some(1_000), ..Default::default() }),
        ..named("r1", "go")
    };
    let mut events = Box::pin(soon(ada.run_stream(input))).await.expect("something is left");
    let error = loop {
        soon(events.next()).await.expect("the run goes on").expect("an event");
        let run = soon(ada.get_run("r1")).await.expect("it is there");
        if run.status() == RunStatus::BackingOff {
            break run.waiting_on.and_then(|waiting| waiting.last_error).expect("the reason");
        }
    };
    assert!(error.message.contains("the quota tokens is used up"), "{error:?}");
    let asked = model.requests().len();
    assert_exceeded(soon(ada.run(prompt("another"))).await, "tokens");
    assert_eq!(model.requests().len(), asked, "the provider is not asked");
}
