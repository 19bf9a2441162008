//! The run of a user's agent in its thirteen steps: hooks, context from several sources, streamed answers with parallel
//! tools, and the work that follows the answer.

use agentloop_client::v1 as wire;
use agentloop_tests::events::{name, names, results, text};
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{Offer, RawHost, context, hook, memory, source};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use wire::HookPoint::{PostRun, PreRun};
use wire::extension_request::Request;
use wire::extension_response::Response;
use wire::run_event::Event;
use wire::{RunErrorCode, RunStatus, ToolStatus};

use super::{read, said};

const SUMMARY: &str = "[agents.default.background]\nsummary = true\nmodel = \"fake/notes\"";

fn extensions() -> Vec<Offer> {
    vec![hook("guard", &[PreRun, PostRun], false), memory("memory"), source("knowledge", 900)]
}

fn prepared(session: &str, run: &str, prompt: &str) -> wire::RunInput {
    let names = |names: &[&str]| wire::Names { names: names.iter().map(|name| (*name).to_owned()).collect() };
    wire::RunInput {
        hooks: Some(names(&["guard"])),
        context_sources: Some(names(&["memory", "knowledge"])),
        tool_policy: Some(wire::ToolPolicy { max_parallel: Some(2), ..Default::default() }),
        ..in_session(session, run, prompt)
    }
}

/// Answers the questions before a run: the hook first, then both sources, which are asked together.
async fn prepare(extending: &mut RawHost) {
    let asked = extending.asked().await;
    let Some(Request::Hook(request)) = &asked.request else { panic!("{asked:?}") };
    assert_eq!(request.point(), PreRun);
    extending.answers(&asked, Response::Hook(wire::HookVerdict::default()));
    let both = [extending.asked().await, extending.asked().await];
    for asked in both {
        let text = if asked.name == "memory" { "They like the sea." } else { "Ulm is a city." };
        extending.answers(&asked, context(&[(text, "")]));
    }
}

/// The end of the run of this prompt, as its hook is told it. The source that remembers is handed the run before or after it.
async fn followed(extending: &mut RawHost, prompt: &str) -> wire::RunResult {
    let (mut result, mut remembered) = (None, false);
    while result.is_none() || !remembered {
        let asked = extending.asked().await;
        match asked.request.clone() {
            Some(Request::Hook(request)) => {
                assert_eq!(request.point(), PostRun);
                result = request.run_result;
                extending.answers(&asked, Response::Hook(wire::HookVerdict::default()));
            }
            Some(Request::Remember(run)) => {
                assert_eq!(run.messages.first().map(text).as_deref(), Some(prompt));
                remembered = true;
                extending.answers(&asked, Response::Remembered(wire::Remembered {}));
            }
            other => panic!("{other:?}"),
        }
    }
    result.expect("it was waited for")
}

async fn session_of_ada(server: &TestServer) -> (wire::Session, bool) {
    let request = wire::GetOrCreateSessionRequest { user: "ada".to_owned(), ..Default::default() };
    let response = soon(server.sessions().get_or_create_session(request)).await.expect("there").into_inner();
    (response.session.expect("a session"), response.created)
}

#[tokio::test]
async fn a_run_goes_through_its_thirteen_steps() {
    let model = Model::start().await;
    let server = TestServer::with(&model, SUMMARY).await;
    let host = Host::start(&server).await;
    let mut extending = RawHost::extending(&server, "x", extensions()).await;

    // The session of the user, and the run.
    let (session, is_new) = session_of_ada(&server).await;
    assert!(is_new);
    let session = session.session_id;
    let speech = model.speaks();
    let mut events = server.stream(prepared(&session, "r1", "Where shall I go?")).await;

    // Hooks, then the context of all sources at a time.
    prepare(&mut extending).await;

    // Text streams on while the calls are collected.
    speech.say("Let me look.");
    events.wait_for_speech().await;
    speech.ask(0, "hold", &json!({ "x": "sea" }));
    speech.ask(1, "hold", &json!({ "x": "hills" }));
    model.asks("fail", json!({ "why": "no such town" })).says("Go to Ulm.");
    let mut summary = model.speaks();
    speech.end_with_calls();

    // Both calls run at a time; a failure is an output that the model reads.
    assert_eq!(host.gate.began(2).await.most, 2);
    host.gate.open(2);
    events.wait_for_name("run_finished").await;
    let seen = events.seen;
    let results = results(&seen);
    let statuses: Vec<ToolStatus> = results.iter().map(wire::ToolResult::status).collect();
    assert_eq!(statuses, [ToolStatus::Succeeded, ToolStatus::Succeeded, ToolStatus::Failed]);

    // The model read prompt, context and results.
    summary.asked().await;
    let requests = model.requests();
    let last = read(&requests[2]);
    let user = said(&[
        ("user", "<context source=\"memory\">\nThey like the sea.\n</context>"),
        ("user", "<context source=\"knowledge\">\nUlm is a city.\n</context>"),
        ("user", "Where shall I go?"),
        ("assistant", "Let me look."),
    ]);
    assert_eq!(last[..4], user, "{last:?}");
    assert!(last.last().expect("messages").1.contains("no such town"));

    // Tokens and durations of each step, and of the run.
    for event in &seen {
        if let Some(Event::AssistantMessage(message)) = &event.event {
            assert!(message.duration.is_some() && message.time_to_first_token.is_some());
            assert_eq!(message.usage.map(|usage| (usage.input_tokens, usage.output_tokens)), Some((10, 5)));
        }
    }
    let Some(Event::RunFinished(end)) = seen.last().and_then(|event| event.event.clone()) else {
        panic!("{:?}", names(&seen))
    };
    assert_eq!((end.status(), end.iterations, end.tool_calls), (RunStatus::Completed, 3, 3));
    assert_eq!(end.usage.map(|usage| (usage.input_tokens, usage.output_tokens)), Some((30, 15)));
    assert!(end.durations.is_some_and(|spent| spent.model.is_some() && spent.tools.is_some()));

    // The answer was there before the summary; hook and memory are told of the end.
    assert_eq!(server.get_run("r1").await.status(), RunStatus::Completed);
    assert_eq!(session_of_ada(&server).await.0.summary, "");
    assert_eq!(followed(&mut extending, "Where shall I go?").await.status(), RunStatus::Completed);
    summary.say("Ada looks for a town by the sea.");
    summary.end();
    let summed_up = soon(async {
        loop {
            let (session, is_new) = session_of_ada(&server).await;
            assert!(!is_new, "the user has one session");
            if !session.summary.is_empty() {
                return session;
            }
        }
    });
    let summed_up = summed_up.await;
    assert_eq!(
        (summed_up.session_id, summed_up.summary.as_str()),
        (session, "Ada looks for a town by the sea.")
    );

    let request = wire::ListRunsRequest::default();
    let runs = soon(server.agent_loop().list_runs(request)).await.expect("listed").into_inner().runs;
    let rows: Vec<_> = runs.iter().map(|run| (run.run_id.as_str(), run.status())).collect();
    assert_eq!(rows, [("r1", RunStatus::Completed)]);
}

#[tokio::test]
async fn however_it_ends_it_is_saved_and_followed_up() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut extending = RawHost::extending(&server, "x", extensions()).await;

    // The user goes away.
    let mut speech = model.speaks();
    let input = wire::RunInput {
        on_disconnect: wire::DisconnectPolicy::Cancel.into(),
        ..prepared("s1", "gone", "Where shall I go?")
    };
    let mut events = server.stream(input).await;
    prepare(&mut extending).await;
    speech.asked().await;
    speech.say("To the sea");
    events.wait_for_speech().await;
    drop(events);
    speech.hung_up().await;
    let seen = server.subscribe("gone", 0).await.rest().await;
    assert_eq!(seen.last().map(name), Some("run_finished"));
    let run = server.get_run("gone").await;
    let code = run.last_error.as_ref().map(wire::RunError::code);
    assert_eq!((run.status(), code), (RunStatus::Aborted, Some(RunErrorCode::AbortedByDisconnect)));
    assert_eq!(followed(&mut extending, "Where shall I go?").await.status(), RunStatus::Aborted);

    // The model fails.
    model.fails(401);
    let running = server.run(prepared("s1", "failed", "Hello?"));
    let (failed, ()) = tokio::join!(Box::pin(running), prepare(&mut extending));
    assert_eq!(failed.status(), RunStatus::Failed);
    assert_eq!(followed(&mut extending, "Hello?").await.status(), RunStatus::Failed);
}
