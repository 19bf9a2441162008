//! Before a run's first step: hooks have their say, then context is gathered.

use agentloop_tests::events::{assert_dense, durable, name, names};
use agentloop_tests::input::in_session;
use agentloop_tests::raw_host::{context, failure};
use wire::HookPoint::{PostTool, PreTool};
use wire::{RunErrorCode, RunStatus};

use super::*;

async fn world() -> (Model, TestServer) {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    (model, server)
}

/// A server on which calls wait only briefly for a host.
async fn impatient() -> (Model, TestServer) {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[hosts]\nhost_wait = \"100ms\"").await;
    (model, server)
}

/// The run failed for what an extension did, in these words.
fn assert_failed(events: &[wire::RunEvent], words: &str) {
    let Some(Event::RunFinished(end)) = events.last().and_then(|event| event.event.clone()) else {
        panic!("not over: {:?}", names(events))
    };
    let error = end.error.clone().expect("an error");
    assert_eq!((end.status(), error.code()), (RunStatus::Failed, RunErrorCode::ExtensionFailed));
    assert!(error.message.contains(words), "{}", error.message);
}

#[tokio::test]
async fn context_of_all_sources_enters_before_the_prompt() {
    let (model, server) = world().await;
    let mut host = RawHost::extending(&server, "h", vec![source("b", 900), source("a", 900)]).await;
    model.says("Ulm");
    let events = server.stream(extended(&[], &["b", "a", "b"])).await;
    // Both are asked before either has answered; the later answer stands first, as its name does.
    let (first, second) = (host.asked().await, host.asked().await);
    let (a, b) = if first.name == "a" { (first, second) } else { (second, first) };
    assert_eq!((a.name.as_str(), b.name.as_str()), ("a", "b"));
    let Some(wire::extension_request::Request::Context(asked)) = &b.request else { panic!("{b:?}") };
    assert_eq!((asked.query.as_str(), asked.max_bytes), ("which city?", 64 * 1024));
    assert_eq!(b.run.as_ref().expect("the run").status(), RunStatus::Preparing);
    host.answers(&a, context(&[("They live in Ulm.", "")]));
    host.answers(&b, context(&[("Ulm is a city.", "wiki"), ("So is Bonn.", "wiki")]));
    let seen = all(events).await;
    assert_dense(&seen, 1);
    let expected = [
        "run_started",
        "input_message",
        "extension_applied",
        "extension_applied",
        "context_added",
        "context_added",
        "input_entered",
        "model_call_started",
        "assistant_message",
        "run_finished",
    ];
    assert_eq!(names(&durable(&seen)), expected);
    assert_eq!(applied(&seen), [told("b", "gave 2", ""), told("a", "gave 1", "")]);
    let b = "<context source=\"b\">\n[wiki]\nUlm is a city.\n\n[wiki]\nSo is Bonn.\n</context>";
    let a = "<context source=\"a\">\nThey live in Ulm.\n</context>";
    let user = |text: &str| ("user".to_owned(), text.to_owned());
    assert_eq!(read(&model.last_request()), [user(b), user(a), user("which city?")]);

    let session = &seen[0].session_id;
    let entries = server.entries(session).await;
    assert_eq!(entries.iter().map(|entry| entry.entry_no).collect::<Vec<_>>(), [1, 2, 3, 4]);
    model.says("still Ulm");
    server.run(in_session(session, "next", "sure?")).await;
    assert_eq!(read(&model.last_request()).len(), 5, "the next run reads the context too");
}

#[tokio::test]
async fn a_source_that_fails_is_an_event_and_no_more() {
    let (model, server) = impatient().await;
    let offered =
        vec![source("fails", 900), source("sleeps", 100), source("lies", 900), source("works", 900)];
    let mut host = RawHost::extending(&server, "h", offered).await;
    model.says("Ulm");
    let events = server.stream(extended(&[], &["fails", "sleeps", "lies", "nobody", "works"])).await;
    for _ in 0..4 {
        let asked = host.asked().await;
        match asked.name.as_str() {
            "fails" => host.answers(&asked, failure("the index is gone", false)),
            "lies" => host.answers(&asked, Response::Remembered(wire::Remembered {})),
            "works" => host.answers(&asked, context(&[("It is Ulm.", "")])),
            _ => {}
        }
    }
    let seen = all(events).await;
    assert_eq!(
        applied(&seen),
        [
            told("fails", "", "it failed: the index is gone"),
            told("sleeps", "", "no response in time"),
            told("lies", "", "its response is invalid: a context source must respond with context items"),
            told("nobody", "", "it is not registered"),
            told("works", "gave 1", ""),
        ]
    );
    let last = seen.last().expect("an end");
    assert_eq!(last.status(), RunStatus::Completed);
    assert_eq!(seen.iter().filter(|event| name(event) == "context_added").count(), 1);
}

#[tokio::test]
async fn hooks_have_their_say_in_order() {
    let (model, server) = world().await;
    let elsewhere = hook("elsewhere", &[PreTool, PostTool], true);
    let offered = vec![hook("first", &[PreRun], true), hook("second", &[PreRun], false), elsewhere];
    let mut host = RawHost::extending(&server, "h", offered).await;
    model.says("Ulm");
    let input = wire::RunInput {
        system_prompt_override: Some("Be brief.".to_owned()),
        ..extended(&["first", "elsewhere", "second"], &[])
    };
    let events = server.stream(input).await;
    let asked = host.asked().await;
    let Some(wire::extension_request::Request::Hook(request)) = &asked.request else { panic!("{asked:?}") };
    assert_eq!((asked.name.as_str(), request.point()), ("first", PreRun));
    assert_eq!(text(&request.input_messages[0]), "which city?");
    let part = wire::Part { content: Some(wire::part::Content::Text("which town?".to_owned())) };
    let other = wire::Message { role: wire::Role::User.into(), parts: vec![part] };
    host.answers(
        &asked,
        Response::Hook(wire::HookVerdict {
            input_messages: vec![other],
            system_prompt_addition: "Be polite.".to_owned(),
            annotation: "reworded".to_owned(),
            ..Default::default()
        }),
    );
    let asked = host.asked().await;
    let Some(wire::extension_request::Request::Hook(request)) = &asked.request else { panic!("{asked:?}") };
    assert_eq!((asked.name.as_str(), text(&request.input_messages[0]).as_str()), ("second", "which town?"));
    host.answers(&asked, failure("out of order", false));
    let seen = all(events).await;
    let outcome = "pre_run: changed the messages; added to the system prompt; reworded";
    let failed = told("second", "pre_run: failed", "it failed: out of order");
    assert_eq!(applied(&seen), [told("first", outcome, ""), failed]);
    let message = |role: &str, text: &str| (role.to_owned(), text.to_owned());
    let expected = [message("system", "Be brief.\n\nBe polite."), message("user", "which town?")];
    assert_eq!(read(&model.last_request()), expected);
    assert_eq!(server.entries(&seen[0].session_id).await.len(), 2, "the caller's own words did not enter");
}

#[tokio::test]
async fn a_veto_fails_the_run_and_the_session_takes_the_next_message() {
    let (model, server) = world().await;
    let mut host = RawHost::extending(&server, "h", vec![hook("guard", &[PreRun], false)]).await;
    let input = wire::RunInput { hooks: extended(&["guard"], &[]).hooks, ..in_session("s", "r1", "do evil") };
    let events = server.stream(input).await;
    let asked = host.asked().await;
    host.answers(&asked, vetoed("not here"));
    let seen = all(events).await;
    assert_failed(&seen, "vetoed by the hook guard: not here");
    assert_eq!(model.requests(), [] as [Value; 0]);
    model.says("hello");
    server.run(in_session("s", "r2", "hi")).await;
    assert_eq!(
        read(&model.last_request()),
        [("user".to_owned(), "hi".to_owned())],
        "what was vetoed is not read"
    );
}

#[tokio::test]
async fn a_required_hook_that_fails_or_that_nobody_offers_fails_the_run() {
    let (_model, server) = impatient().await;
    let mut host = RawHost::extending(&server, "h", vec![hook("guard", &[PreRun], true)]).await;
    let events = server.stream(extended(&["guard"], &[])).await;
    let asked = host.asked().await;
    host.answers(&asked, failure("no rules", false));
    assert_failed(&all(events).await, "the required hook guard gave no verdict: it failed: no rules");
    let events = server.stream(extended(&["nobody"], &[])).await;
    assert_failed(&all(events).await, "the required hook nobody gave no verdict: it is not registered");
}

#[tokio::test]
async fn a_host_that_is_lost_is_followed_by_the_next() {
    let (model, server) = world().await;
    let offered = || vec![hook("guard", &[PreRun], true)];
    let mut first = RawHost::extending(&server, "a", offered()).await;
    model.says("Ulm");
    let events = server.stream(extended(&["guard"], &[])).await;
    let lost = first.asked().await;
    let mut second = RawHost::extending(&server, "b", offered()).await;
    drop(first);
    let asked = second.asked().await;
    assert_eq!(asked.run.as_ref().map(|run| &run.run_id), lost.run.as_ref().map(|run| &run.run_id));
    second.answers(&asked, noted("fine"));
    assert_eq!(applied(&all(events).await), [told("guard", "pre_run: fine", "")]);
}

#[tokio::test]
async fn after_a_restart_everybody_is_asked_again() {
    let (model, mut server) = world().await;
    let offered = || vec![hook("guard", &[PreRun], true), source("memory", 900)];
    let mut host = RawHost::extending(&server, "h", offered()).await;
    let input = wire::RunInput { run_id: Some("r1".to_owned()), ..extended(&["guard"], &["memory"]) };
    let mut events = server.stream(input).await;
    events.wait_for_name("input_message").await;
    let guard = host_asked(&mut host, "guard").await;
    host.answers(&guard, noted("fine"));
    host_asked(&mut host, "memory").await;
    drop((host, events));
    server.restart().await;
    let mut host = RawHost::extending(&server, "h", offered()).await;
    model.says("Ulm");
    let guard = host_asked(&mut host, "guard").await;
    host.answers(&guard, noted("fine again"));
    let memory = host_asked(&mut host, "memory").await;
    host.answers(&memory, context(&[]));
    let seen = all(server.subscribe("r1", 0).await).await;
    assert_dense(&seen, 1);
    let told = [told("guard", "pre_run: fine again", ""), told("memory", "gave nothing", "")];
    assert_eq!(applied(&seen), told);
}

async fn host_asked(host: &mut RawHost, name: &str) -> wire::ExtensionRequest {
    let asked = host.asked().await;
    assert_eq!(asked.name, name);
    asked
}

#[tokio::test]
async fn a_run_that_waits_for_them_says_so_and_can_be_aborted() {
    let (model, server) = world().await;
    let mut host = RawHost::extending(&server, "h", vec![hook("guard", &[PreRun], true)]).await;
    let input = wire::RunInput { run_id: Some("r1".to_owned()), ..extended(&["guard"], &[]) };
    let events = server.stream(input).await;
    let asked = host.asked().await;
    let waiting = server.get_run("r1").await.waiting_on.expect("it waits");
    assert_eq!((waiting.kind(), waiting.what.as_str()), (wire::WaitKind::Extension, "guard"));
    assert_eq!(server.abort("r1").await.status(), RunStatus::Aborted);
    host.answers(&asked, noted("too late"));
    assert_eq!(names(&all(events).await), ["run_started", "input_message", "run_finished"]);
    assert_eq!(model.requests().len(), 0);
}
