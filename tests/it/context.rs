//! Compaction: a conversation of any length is kept within the model's context, by each strategy.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_invalid;
use agentloop_tests::events::{Events, names, text};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use serde_json::{Value, json};
use wire::run_event::Event;
use wire::{CompactionReason, ObserveDecision, RunErrorCode, RunStatus};

const OVERFLOW: &str =
    "This model's maximum context length is 8192 tokens. However, your messages resulted in more.";

/// Bytes of text that a request carries.
fn size(request: &Value) -> usize {
    request["messages"]
        .as_array()
        .map_or(0, |messages| messages.iter().map(|message| message.to_string().len()).sum())
}

fn messages(request: &Value) -> &[Value] {
    request["messages"].as_array().map_or(&[], Vec::as_slice)
}

fn is_summary(request: &Value) -> bool {
    messages(request)[0]["content"].as_str().is_some_and(|prompt| prompt.starts_with("You sum up"))
}

fn policy(strategy: &str) -> wire::ContextPolicy {
    wire::ContextPolicy { strategy: Some(strategy.to_owned()), keep_recent: Some(4), ..Default::default() }
}

fn overflows() -> Answer {
    Answer::Fails(400, None, OVERFLOW.to_owned())
}

/// A session with this many exchanges behind it.
async fn chatted(server: &TestServer, model: &Model, exchanges: usize) {
    for at in 0..exchanges {
        model.says(&format!("answer {at}"));
        let input = wire::RunInput {
            auto_create_session: Some(true),
            ..in_session("s", &format!("chat-{at}"), &format!("question {at}"))
        };
        assert_eq!(server.run(input).await.status(), RunStatus::Completed);
    }
}

async fn stream(server: &TestServer, input: wire::RunInput) -> Vec<wire::RunEvent> {
    let events: Events = server.stream(input).await;
    events.rest().await
}

fn compacted(events: &[wire::RunEvent]) -> Vec<wire::ContextCompacted> {
    let compaction = |event: &wire::RunEvent| match &event.event {
        Some(Event::ContextCompacted(compacted)) => Some(compacted.clone()),
        _ => None,
    };
    events.iter().filter_map(compaction).collect()
}

#[tokio::test]
async fn an_overflow_before_the_answer_is_summed_up_and_the_call_made_again() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    chatted(&server, &model, 6).await;
    model.then(overflows()).says("They counted from 0 to 5.").says("here you are");
    let input =
        wire::RunInput { context_policy: Some(policy("summarize")), ..in_session("s", "r", "and now?") };
    let events = stream(&server, input).await;
    let durable: Vec<&str> = names(&agentloop_tests::events::durable(&events));
    let call = |event: &wire::RunEvent| match &event.event {
        Some(Event::ModelCallStarted(call)) => Some((call.model_call, call.attempt)),
        _ => None,
    };
    assert_eq!(
        events.iter().filter_map(call).collect::<Vec<_>>(),
        [(1, 1), (2, 1)],
        "no other try, but a call"
    );
    assert_eq!(
        durable,
        [
            "run_started",
            "input_message",
            "model_call_started",
            "model_call_failed",
            "compaction_started",
            "context_compacted",
            "model_call_started",
            "assistant_message",
            "run_finished"
        ]
    );
    let [compaction] = &compacted(&events)[..] else { panic!("one compaction") };
    assert!(compaction.summary.ends_with("They counted from 0 to 5."), "{}", compaction.summary);
    assert_eq!((compaction.up_to_entry_no, compaction.entry_no), (9, 14));
    assert_eq!(compaction.usage.as_ref().map(|usage| usage.output_tokens), Some(5));
    assert!(compaction.tokens_after < compaction.tokens_before);

    let requests = model.requests();
    let (summary, last) = (&requests[requests.len() - 2], &requests[requests.len() - 1]);
    assert!(is_summary(summary) && summary.to_string().contains("question 3"));
    let shown: Vec<&str> = messages(last).iter().filter_map(|message| message["content"].as_str()).collect();
    assert_eq!(shown[1..], ["answer 4", "question 5", "answer 5", "and now?"]);
    assert!(shown[0].ends_with("They counted from 0 to 5."));

    // The originals stay, and the compaction stands among them.
    let entries = server.entries("s").await;
    assert_eq!(entries.len(), 15);
    assert_eq!(entries[0].message.as_ref().map(text).as_deref(), Some("question 0"));
    assert_eq!(entries[13].message, None);
    assert_eq!(entries[13].compaction.as_ref().map(|made| made.up_to_entry_no), Some(9));
}

#[tokio::test]
async fn the_next_run_and_a_restart_go_on_from_the_summary() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    chatted(&server, &model, 6).await;
    model.then(overflows()).says("They counted.").says("one");
    let input =
        wire::RunInput { context_policy: Some(policy("summarize")), ..in_session("s", "r1", "and now?") };
    server.run(input).await;
    model.says("two");
    server.run(in_session("s", "r2", "go on")).await;
    let before = model.last_request();
    server.restart().await;
    model.says("three");
    server.run(in_session("s", "r3", "and on")).await;
    let after = model.last_request();
    assert_eq!(messages(&after)[..messages(&before).len()], messages(&before)[..], "the prefix only grows");
    assert!(messages(&before)[0]["content"].as_str().is_some_and(|text| text.contains("They counted.")));
}

#[tokio::test]
async fn a_bound_on_messages_compacts_before_the_call_and_says_why() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    chatted(&server, &model, 5).await;
    model.says("short again");
    let bounded = wire::ContextPolicy { max_messages: Some(8), ..policy("truncate") };
    let input = wire::RunInput { context_policy: Some(bounded), ..in_session("s", "r", "and now?") };
    let events = stream(&server, input).await;
    let reason = events.iter().find_map(|event| match &event.event {
        Some(Event::CompactionStarted(started)) => Some(started.reason()),
        _ => None,
    });
    assert_eq!(reason, Some(CompactionReason::Messages));
    let sent = model.last_request();
    assert!(messages(&sent).len() <= 8, "{}", messages(&sent).len());
    assert_eq!(model.requests().len(), 6, "nothing was sent that is too long");
}

#[tokio::test]
async fn a_bound_on_tokens_is_seen_after_the_answer_and_kept_before_the_next_call() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("echo", json!({ "text": "a".repeat(4_000) })).says("done");
    let bounded = wire::ContextPolicy { max_tokens: Some(14), ..policy("extract") };
    let input = wire::RunInput { context_policy: Some(bounded), ..named("r", "echo it") };
    let events = stream(&server, input).await;
    let decisions: Vec<ObserveDecision> = events
        .iter()
        .filter_map(|event| match &event.event {
            Some(Event::AssistantMessage(said)) => Some(said.decision()),
            _ => None,
        })
        .collect();
    assert_eq!(decisions, [ObserveDecision::Compact, ObserveDecision::Stop]);
    // The tools alone pass so small a bound: the first call is preceded by a compaction too.
    assert_eq!(compacted(&events).len(), 2);
    assert!(size(&model.last_request()) < 6_000, "{}", size(&model.last_request()));
}

#[tokio::test]
async fn a_count_that_lacks_the_request_does_not_switch_compaction_off() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let chunk = |json: Value| format!("data: {json}\n\n");
    let said = json!({ "choices": [{ "index": 0, "delta": { "content": "ok" }, "finish_reason": "stop" }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 0, "completion_tokens": 2 } });
    let answer = format!("{}{}data: [DONE]\n\n", chunk(said), chunk(usage));
    model.answers(move |_| Answer::Raw(answer.clone().into_bytes()));
    let mut compactions = 0;
    for turn in 0..6 {
        let bounded = wire::ContextPolicy { max_tokens: Some(1_000), ..policy("trim") };
        let input = wire::RunInput {
            auto_create_session: Some(true),
            context_policy: Some(bounded),
            ..in_session("s", &format!("r{turn}"), &"lorem ".repeat(200))
        };
        compactions += compacted(&stream(&server, input).await).len();
    }
    assert!(compactions > 0, "the conversation has grown to {} bytes", size(&model.last_request()));
}

/// `extract` keeps every word of users and models, so what leaves messages out has another name.
#[tokio::test]
async fn an_extract_that_leaves_messages_out_is_told_as_a_trim() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("big", json!({ "bytes": 8_000 })).says("that is big");
    server.run(in_session("s", "r1", "look")).await;
    chatted(&server, &model, 3).await;
    model.then(overflows()).says("here you are");
    let enough =
        wire::RunInput { context_policy: Some(policy("extract")), ..in_session("s", "r2", "and now?") };
    let [made] = &compacted(&stream(&server, enough).await)[..] else { panic!("one compaction") };
    assert_eq!((made.strategy.as_str(), made.up_to_entry_no), ("extract", 0), "no message is left out");
    assert!(made.cut_up_to_entry_no > 0 && size(&model.last_request()) < 8_000);

    model.says("and here");
    let bounded = wire::ContextPolicy { max_messages: Some(8), ..policy("extract") };
    let input = wire::RunInput { context_policy: Some(bounded), ..in_session("s", "r3", "and then?") };
    let events = stream(&server, input).await;
    let asked_for = events.iter().find_map(|event| match &event.event {
        Some(Event::CompactionStarted(started)) => Some(started.strategy.as_str()),
        _ => None,
    });
    assert_eq!(asked_for, Some("extract"));
    let [made] = &compacted(&events)[..] else { panic!("one compaction") };
    assert_eq!(made.strategy, "trim");
    assert!(made.up_to_entry_no > 0 && messages(&model.last_request()).len() <= 8, "{made:?}");
    let kept = server.entries("s").await.into_iter().filter_map(|entry| entry.compaction);
    let names: Vec<String> = kept.map(|made| made.strategy).collect();
    assert_eq!(names, ["extract", "trim"], "the session has the same names");
}

#[tokio::test]
async fn a_summary_that_fails_is_replaced_by_trimming() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    chatted(&server, &model, 6).await;
    model.then(overflows()).fails(401).says("here you are");
    let input =
        wire::RunInput { context_policy: Some(policy("summarize")), ..in_session("s", "r", "and now?") };
    let events = stream(&server, input).await;
    let failed = events.iter().find_map(|event| match &event.event {
        Some(Event::CompactionFailed(failed)) => failed.error.as_ref().map(wire::RunError::code),
        _ => None,
    });
    assert_eq!(failed, Some(RunErrorCode::ModelUnauthorized));
    assert_eq!(compacted(&events).iter().map(|made| made.strategy.as_str()).collect::<Vec<_>>(), ["trim"]);
    assert_eq!(names(&events).last(), Some(&"run_finished"));
    assert_eq!(server.get_run("r").await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn the_summary_has_a_model_of_its_own_and_its_tokens_count() {
    let (model, small) = (Model::start().await, Model::start().await);
    let more = format!("[providers.small]\nkind = \"openai\"\nbase_url = \"{}\"\n", small.base_url());
    let server = TestServer::with(&model, &more).await;
    chatted(&server, &model, 6).await;
    model.then(overflows()).says("here you are");
    small.says("They counted.");
    let with_small = wire::ContextPolicy { summary_model: Some("small/s".to_owned()), ..policy("summarize") };
    let input = wire::RunInput { context_policy: Some(with_small), ..in_session("s", "r", "and now?") };
    let result = server.run(input).await;
    assert_eq!(small.last_request()["model"], "s");
    let usage = result.usage.expect("usage");
    assert_eq!((usage.input_tokens, usage.output_tokens), (20, 10), "summary and answer");
}

#[tokio::test]
async fn a_message_larger_than_the_context_is_cut_and_the_session_takes_the_next() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.answers(|request| if size(request) > 3_000 { overflows() } else { Answer::Says("ok".to_owned()) });
    let input =
        wire::RunInput { auto_create_session: Some(true), ..in_session("s", "r1", &"long ".repeat(20_000)) };
    assert_eq!(server.run(input).await.status(), RunStatus::Completed);
    assert!(model.last_request().to_string().contains("of 100000 bytes]"));
    assert_eq!(server.run(in_session("s", "r2", "short")).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_request_that_never_fits_fails_and_the_session_goes_on() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.answers(|_| overflows());
    let input = wire::RunInput {
        auto_create_session: Some(true),
        context_policy: Some(policy("truncate")),
        ..in_session("s", "r1", "hello")
    };
    let events = stream(&server, input).await;
    let told: Vec<&str> = names(&events).into_iter().skip(2).collect();
    let expected = [
        "model_call_started",
        "model_call_failed",
        "compaction_started",
        "compaction_failed",
        "run_finished",
    ];
    assert_eq!(told, expected, "what nothing helps ends at once");
    assert_eq!(model.requests().len(), 1);
    let row = server.get_run("r1").await;
    assert_eq!((row.status(), row.iterations), (RunStatus::Failed, 1));
    assert_eq!(row.last_error.map(|error| error.code()), Some(RunErrorCode::ContextOverflow));
    assert_eq!(server.entries("s").await.len(), 1, "it left nothing in the session");
    model.answers(|_| Answer::Says("back".to_owned()));
    assert_eq!(server.run(in_session("s", "r2", "again")).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_strategy_that_nobody_knows_is_refused() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let input = wire::RunInput { context_policy: Some(policy("forget")), ..named("r", "hi") };
    assert_invalid(server.try_run(input).await, &["input.context_policy.strategy"]);
}

/// With any strategy, a session goes on in a small context window, and the store grows only with the messages.
#[tokio::test]
async fn a_session_of_a_thousand_calls_in_a_small_window() {
    const WINDOW: usize = 12_000;
    const ROUNDS: usize = 39;
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.answers(|request| {
        if size(request) > WINDOW {
            return overflows();
        }
        if is_summary(request) {
            return Answer::Says("They looked at many things.".to_owned());
        }
        let since = messages(request).iter().rev().take_while(|message| message["role"] != "user");
        let rounds = since.filter(|message| message["role"] == "tool").count();
        // A round hidden by a compaction is counted by what its arguments say.
        let last = messages(request).iter().rev().find_map(|message| {
            let arguments = message["tool_calls"][0]["function"]["arguments"].as_str()?;
            serde_json::from_str::<Value>(arguments).ok()?["round"].as_u64()
        });
        let begun = messages(request).last().is_some_and(|message| message["role"] == "user" && rounds == 0);
        let next = if begun { 1 } else { last.unwrap_or(0) + 1 };
        if next > ROUNDS as u64 {
            return Answer::Says("all looked at".to_owned());
        }
        Answer::Asks(vec![("echo".to_owned(), json!({ "round": next, "text": "x".repeat(300) }))])
    });
    let (mut calls, mut stored) = (0, Vec::new());
    let strategies = ["truncate", "summarize", "extract"];
    for run in 0..26 {
        let strategy = strategies[run % strategies.len()];
        let input = wire::RunInput {
            auto_create_session: Some(true),
            context_policy: Some(policy(strategy)),
            loop_limits: Some(wire::LoopLimits { max_iterations: Some(60), ..Default::default() }),
            ..in_session("s", &format!("r{run}"), "look at everything")
        };
        let result = server.run(input).await;
        assert_eq!(result.status(), RunStatus::Completed, "run {run}, {strategy}: {:?}", result.last_error);
        calls += server.get_run(&format!("r{run}")).await.iterations;
        stored.push(server.stored().bytes().await);
    }
    assert!(calls >= 1_000, "{calls}");
    let grown = |from: usize, to: usize| stored[to] - stored[from];
    let (first, last) = (grown(2, 11), grown(16, 25));
    assert!(last * 10 < first * 13, "nine runs at first: {first} bytes, at last: {last}");
}

#[tokio::test]
async fn the_system_prompt_is_put_into_the_template_of_the_agent_the_model_or_the_provider() {
    let model = Model::start().await;
    let template =
        |name: &str| format!("prompt_template = \"{name}\\n{{{{environment}}}}\\n{{{{system_prompt}}}}\"\n");
    let more = format!(
        "[providers.other]\nkind = \"openai\"\nbase_url = \"{url}\"\n{provider}\
         [providers.other.models.special]\n{model}\
         [agents.plain]\nsystem_prompt = \"Be brief.\"\n\
         [agents.own]\nsystem_prompt = \"Be brief.\"\n{agent}",
        url = model.base_url(),
        provider = template("provider"),
        model = template("model"),
        agent = template("agent"),
    );
    let server = TestServer::with(&model, &more).await;
    let facts = "<environment>\nos: linux\n</environment>";
    for (at, (agent, name, prompt)) in [
        ("plain", "fake/m", format!("Be brief.\n\n{facts}")),
        ("plain", "other/m", format!("provider\n{facts}\nBe brief.")),
        ("plain", "other/special", format!("model\n{facts}\nBe brief.")),
        ("own", "other/special", format!("agent\n{facts}\nBe brief.")),
        ("own", "fake/m", format!("agent\n{facts}\nBe brief.")),
    ]
    .into_iter()
    .enumerate()
    {
        model.says("hello");
        let input = wire::RunInput {
            agent: Some(agent.to_owned()),
            model: Some(name.to_owned()),
            environment: [("os".to_owned(), "linux".to_owned())].into(),
            ..named(&format!("r{at}"), "hi")
        };
        assert_eq!(server.run(input).await.status(), RunStatus::Completed);
        assert_eq!(messages(&model.last_request())[0]["content"], prompt, "{agent} with {name}");
    }
}
