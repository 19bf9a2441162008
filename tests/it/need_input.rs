//! A tool asks a human from inside a running call.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_invalid;
use agentloop_tests::events::{names, results};
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, hello, result_of};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::input_response::Response;
use wire::submit_input_request::Input;
use wire::{EffectClass, HumanRequestKind, RunStatus, ToolStatus, WaitKind};

fn tools() -> Vec<wire::ToolDeclaration> {
    vec![declared("book", EffectClass::Unsafe)]
}

fn question(call: &wire::CallRequest, input: &str) -> wire::NeedInput {
    wire::NeedInput {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        input_id: input.to_owned(),
        question: "Which seat?".to_owned(),
        ..Default::default()
    }
}

fn choice(call: &wire::CallRequest, input: &str) -> wire::NeedInput {
    let option = |id: &str, label: &str| wire::SelectOption { id: id.to_owned(), label: label.to_owned() };
    wire::NeedInput { options: vec![option("a", "aisle"), option("w", "window")], ..question(call, input) }
}

fn text(text: &str) -> Input {
    Input::Text(text.to_owned())
}

async fn submit(server: &TestServer, request: &str, input: Input) {
    let request = wire::SubmitInputRequest {
        request_id: request.to_owned(),
        input: Some(input),
        answered_by: "ada".to_owned(),
    };
    soon(server.agent_loop().submit_input(request)).await.expect("answered");
}

/// The response to a question that the host receives.
async fn heard(host: &mut RawHost, input: &str) -> Response {
    let frame = host.wait_for(|frame| matches!(frame, ServerFrame::InputResponse(_))).await;
    let ServerFrame::InputResponse(heard) = frame else { unreachable!("it was waited for") };
    assert_eq!(heard.input_id, input);
    heard.response.expect("a response")
}

/// Comes back with the call.
async fn comes_back(server: &TestServer, call: &wire::CallRequest) -> RawHost {
    let mut host = RawHost::open(server).await;
    let in_hand = wire::CallInHand {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        lease_token: call.lease_token.clone(),
        finished: false,
    };
    host.send(Frame::Hello(wire::Hello { calls_in_hand: vec![in_hand], ..hello("h1", tools()) }));
    let ServerFrame::Welcome(welcome) = host.wait_for(|_| true).await else { panic!("welcome comes first") };
    assert_eq!(welcome.calls[0].disposition(), wire::CallDisposition::Continue);
    host
}

/// Waits with one question.
async fn pending(server: &TestServer) -> wire::HumanRequest {
    let waits = Box::pin(server.run(named("r1", "go"))).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    let [question] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    assert_eq!(server.pending().await, std::slice::from_ref(question));
    question.clone()
}

#[tokio::test]
async fn a_running_call_asks_and_goes_on_with_the_answer() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("book", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    host.send(Frame::NeedInput(question(&call, "seat")));
    events.wait_for_name("human_requested").await;
    let asked = pending(&server).await;
    assert_eq!((asked.kind(), asked.question.as_str()), (HumanRequestKind::Prompt, "Which seat?"));
    assert_eq!((asked.tool.as_str(), asked.call_id.as_str()), ("book", "r1/1.0"));
    let run = server.get_run("r1").await;
    assert_eq!(run.waiting_on.map(|on| on.kind()), Some(WaitKind::Human));
    submit(&server, &asked.request_id, text("12A")).await;
    assert_eq!(heard(&mut host, "seat").await, Response::Text("12A".to_owned()));
    assert_eq!(server.get_run("r1").await.status(), RunStatus::ToolRunning);

    host.send(Frame::NeedInput(choice(&call, "side")));
    events.wait_for_name("human_requested").await;
    let second = pending(&server).await;
    assert_eq!((second.kind(), second.options.len()), (HumanRequestKind::Select, 2));
    assert_ne!(second.request_id, asked.request_id);
    submit(&server, &second.request_id, Input::Selection(wire::Selection { option_ids: vec!["w".into()] }))
        .await;
    let chosen = wire::InputSelection { option_ids: vec!["w".to_owned()] };
    assert_eq!(heard(&mut host, "side").await, Response::Selection(chosen));
    host.send(Frame::CallResult(result_of(&call, "booked")));
    let events = events.rest().await;
    assert_eq!(results(&events)[0].output, "booked");
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
}

#[tokio::test]
async fn a_running_call_asks_for_a_form_a_visit_and_maybe_nothing() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("book", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    let form_schema_json = r#"{"type":"object","properties":{"seat":{"type":"string"}}}"#.to_owned();
    let metadata_json = r#"{"plan":"a380"}"#.to_owned();
    let form = wire::NeedInput { form_schema_json, metadata_json, ..question(&call, "form") };
    host.send(Frame::NeedInput(form.clone()));
    events.wait_for_name("human_requested").await;
    let asked = pending(&server).await;
    assert_eq!(asked.kind(), HumanRequestKind::Form);
    assert_eq!((asked.form_schema_json, asked.metadata_json), (form.form_schema_json, form.metadata_json));
    let fields = r#"{"seat":"12A"}"#.to_owned();
    submit(&server, &asked.request_id, Input::FormJson(fields.clone())).await;
    assert_eq!(heard(&mut host, "form").await, Response::FormJson(fields));

    let url = "https://pay.example/1".to_owned();
    host.send(Frame::NeedInput(wire::NeedInput { url: url.clone(), ..question(&call, "pay") }));
    events.wait_for_name("human_requested").await;
    let asked = pending(&server).await;
    assert_eq!((asked.kind(), asked.url), (HumanRequestKind::Url, url));
    let unset = wire::SubmitInputRequest {
        request_id: asked.request_id.clone(),
        input: Some(Input::Url(wire::UrlOutcome::Unspecified.into())),
        ..Default::default()
    };
    assert_invalid(soon(server.agent_loop().submit_input(unset)).await, &["url"]);
    submit(&server, &asked.request_id, Input::Url(wire::UrlOutcome::Done.into())).await;
    assert_eq!(heard(&mut host, "pay").await, Response::Url(wire::UrlOutcome::Done.into()));

    host.send(Frame::NeedInput(wire::NeedInput { allow_empty: true, ..question(&call, "more") }));
    events.wait_for_name("human_requested").await;
    let asked = pending(&server).await;
    assert!(asked.allow_empty);
    submit(&server, &asked.request_id, text("")).await;
    assert_eq!(heard(&mut host, "more").await, Response::Text(String::new()));

    for (bad, told) in [
        (
            wire::NeedInput { form_schema_json: "{}".to_owned(), ..question(&call, "b1") },
            "form_schema_json: ",
        ),
        (wire::NeedInput { url: "file:///etc/passwd".to_owned(), ..question(&call, "b2") }, "url: "),
        (
            wire::NeedInput { url: "https://x.example".to_owned(), ..choice(&call, "b3") },
            "question: takes one of",
        ),
        (wire::NeedInput { metadata_json: "[]".to_owned(), ..question(&call, "b4") }, "metadata_json: "),
    ] {
        let input = bad.input_id.clone();
        host.send(Frame::NeedInput(bad));
        let Response::Refused(why) = heard(&mut host, &input).await else { panic!("{input} is refused") };
        assert!(why.starts_with(told), "{why}");
    }
    host.send(Frame::CallResult(result_of(&call, "booked")));
    assert_eq!(results(&events.rest().await)[0].output, "booked");
}

#[tokio::test]
async fn nobody_answers_in_time() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("book", json!({})).says("done");
    let events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    let timeout = Some(prost_types::Duration { seconds: 0, nanos: 20_000_000 });
    host.send(Frame::NeedInput(wire::NeedInput { timeout, ..question(&call, "seat") }));
    let refused = Response::Refused("nobody answered in time".to_owned());
    assert_eq!(heard(&mut host, "seat").await, refused);
    host.send(Frame::NeedInput(question(&call, "seat")));
    assert_eq!(heard(&mut host, "seat").await, refused, "it is not asked anew");
    host.send(Frame::CallResult(result_of(&call, "any seat")));
    assert_eq!(results(&events.rest().await)[0].status(), ToolStatus::Succeeded);
}

#[tokio::test]
async fn an_invalid_question_is_refused_and_the_call_goes_on() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("book", json!({})).says("done");
    let events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    let long = "x".repeat(4_097);
    host.send(Frame::NeedInput(wire::NeedInput { question: long, ..question(&call, "long") }));
    let Response::Refused(reason) = heard(&mut host, "long").await else { panic!("it is refused") };
    assert!(reason.contains("4096 bytes"), "{reason}");
    for number in 0..16 {
        host.send(Frame::NeedInput(question(&call, &format!("q{number}"))));
    }
    host.send(Frame::NeedInput(question(&call, "q16")));
    let Response::Refused(reason) = heard(&mut host, "q16").await else { panic!("it is refused") };
    assert!(reason.contains("16 questions"), "{reason}");
    assert_eq!(server.pending().await.len(), 16);
    host.send(Frame::CallResult(result_of(&call, "booked")));
    assert_eq!(results(&events.rest().await)[0].output, "booked");
    assert_eq!(server.pending().await, [], "questions of a call go with it");
}

#[tokio::test]
async fn an_abort_withdraws_the_question() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("book", json!({}));
    let mut events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    host.send(Frame::NeedInput(question(&call, "seat")));
    events.wait_for_name("human_requested").await;
    server.abort("r1").await;
    host.wait_for(|frame| matches!(frame, ServerFrame::Cancel(_))).await;
    let events = events.rest().await;
    assert!(names(&events).contains(&"human_resolved"), "{:?}", names(&events));
    assert_eq!(results(&events)[0].status(), ToolStatus::Aborted);
    assert_eq!(server.pending().await, []);
}

#[tokio::test]
async fn a_host_that_comes_back_asks_again_and_hears_the_answer() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("book", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    host.send(Frame::NeedInput(question(&call, "seat")));
    events.wait_for_name("human_requested").await;
    drop(host);
    let asked = pending(&server).await;
    let mut host = comes_back(&server, &call).await;
    host.send(Frame::NeedInput(question(&call, "seat")));
    submit(&server, &asked.request_id, text("12A")).await;
    assert_eq!(heard(&mut host, "seat").await, Response::Text("12A".to_owned()));
    drop(host);
    let mut host = comes_back(&server, &call).await;
    host.send(Frame::NeedInput(question(&call, "seat")));
    assert_eq!(heard(&mut host, "seat").await, Response::Text("12A".to_owned()));
    host.send(Frame::CallResult(result_of(&call, "booked")));
    let events = events.rest().await;
    let asked = names(&events).into_iter().filter(|name| *name == "human_requested").count();
    assert_eq!((asked, results(&events)[0].output.as_str()), (1, "booked"));
}

#[tokio::test]
async fn a_question_outlives_the_server() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("book", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    host.send(Frame::NeedInput(question(&call, "seat")));
    events.wait_for_name("human_requested").await;
    drop(host);
    server.restart().await;
    let mut host = comes_back(&server, &call).await;
    host.send(Frame::NeedInput(question(&call, "seat")));
    let asked = pending(&server).await;
    submit(&server, &asked.request_id, text("12A")).await;
    assert_eq!(heard(&mut host, "seat").await, Response::Text("12A".to_owned()));
    host.send(Frame::CallResult(result_of(&call, "booked")));
    let events = server.subscribe("r1", 0).await.rest().await;
    let asked = names(&events).into_iter().filter(|name| *name == "human_requested").count();
    assert_eq!((asked, results(&events)[0].output.as_str()), (1, "booked"));
}

/// A question with a state to go on from.
fn leaving(call: &wire::CallRequest, input: &str, state: &[u8]) -> wire::NeedInput {
    wire::NeedInput { resume_state: Some(state.to_vec()), ..question(call, input) }
}

#[tokio::test]
async fn the_answer_comes_with_the_next_attempt_at_any_host() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("book", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    assert_eq!((call.resume_state.clone(), call.answers.len()), (None, 0));
    host.send(Frame::NeedInput(leaving(&call, "seat", b"booked")));
    events.wait_for_name("human_requested").await;
    let released = host.wait_for(|frame| matches!(frame, ServerFrame::LeaseLost(_))).await;
    let ServerFrame::LeaseLost(released) = released else { unreachable!("it was waited for") };
    assert_eq!((released.call_id, released.attempt), (call.call_id.clone(), 1));
    let asked = pending(&server).await;
    drop(host);
    server.restart().await;

    let mut other = RawHost::welcomed(&server, "h2", tools()).await;
    submit(&server, &asked.request_id, text("12A")).await;
    let again = other.take_call().await;
    assert_eq!((again.call_id.as_str(), again.attempt), (call.call_id.as_str(), 2));
    assert_eq!(again.idempotency_key, call.idempotency_key);
    assert_ne!(again.lease_token, call.lease_token);
    assert_eq!(again.resume_state.as_deref(), Some(&b"booked"[..]));
    let [answer] = &again.answers[..] else { panic!("one answer: {again:?}") };
    assert_eq!(answer.input_id, "seat");
    assert_eq!(answer.response, Some(Response::Text("12A".to_owned())));
    other.send(Frame::NeedInput(question(&again, "seat")));
    assert_eq!(
        heard(&mut other, "seat").await,
        Response::Text("12A".to_owned()),
        "asked again, it is told again"
    );
    other.send(Frame::CallResult(result_of(&again, "booked 12A")));
    let events = server.subscribe("r1", 0).await.rest().await;
    let asked = names(&events).into_iter().filter(|name| *name == "human_requested").count();
    assert_eq!(
        (asked, results(&events)[0].output.as_str()),
        (1, "booked 12A"),
        "nobody is asked about a doubt"
    );
}

#[tokio::test]
async fn a_host_that_comes_back_with_a_released_call_is_told_to_stop() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("book", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    host.send(Frame::NeedInput(leaving(&call, "seat", b"booked")));
    events.wait_for_name("human_requested").await;
    drop(host);
    server.restart().await;
    let mut host = RawHost::open(&server).await;
    let in_hand = wire::CallInHand {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        lease_token: call.lease_token.clone(),
        finished: false,
    };
    host.send(Frame::Hello(wire::Hello { calls_in_hand: vec![in_hand], ..hello("h1", tools()) }));
    let ServerFrame::Welcome(welcome) = host.wait_for(|_| true).await else { panic!("welcome comes first") };
    assert_eq!(welcome.calls[0].disposition(), wire::CallDisposition::Stop);
    let asked = pending(&server).await;
    submit(&server, &asked.request_id, text("12A")).await;
    assert_eq!(host.take_call().await.attempt, 2);
}

#[tokio::test]
async fn a_state_is_acknowledged_once_it_is_recorded_and_outlives_its_host() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[hosts]\ngrace_period = \"50ms\"").await;
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("book", json!({})).says("done");
    let events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    let state = |no: u64, state: &[u8]| wire::Progress {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        resume_state: Some(state.to_vec()),
        resume_no: no,
        ..Default::default()
    };
    for (sent, recorded) in [(1, 1), (2, 2), (1, 2)] {
        host.send(Frame::Progress(state(sent, &[u8::try_from(sent).expect("small")])));
        let frame = host.wait_for(|frame| matches!(frame, ServerFrame::ProgressAck(_))).await;
        let ServerFrame::ProgressAck(ack) = frame else { unreachable!("it was waited for") };
        assert_eq!((ack.call_id.as_str(), ack.attempt, ack.resume_no), (&*call.call_id, 1, recorded));
    }
    drop(host);
    let mut other = RawHost::welcomed(&server, "h2", tools()).await;
    let again = other.take_call().await;
    assert_eq!((again.attempt, again.resume_state.as_deref()), (2, Some(&[2][..])));
    other.send(Frame::CallResult(result_of(&again, "booked")));
    let events = events.rest().await;
    assert!(!names(&events).contains(&"human_requested"), "an UNSAFE call went on without a doubt");
    assert_eq!(results(&events)[0].output, "booked");
}

#[tokio::test]
async fn a_state_without_a_number_or_too_large_breaks_the_protocol() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.asks("book", json!({})).says("done");
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    let _events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    let bad: [fn(&wire::CallRequest) -> Frame; 3] = [
        |call| {
            Frame::Progress(wire::Progress {
                call_id: call.call_id.clone(),
                attempt: call.attempt,
                resume_state: Some(vec![1]),
                ..Default::default()
            })
        },
        |call| {
            Frame::Progress(wire::Progress {
                call_id: call.call_id.clone(),
                attempt: call.attempt,
                resume_state: Some(vec![1; 64 * 1024 + 1]),
                resume_no: 1,
                ..Default::default()
            })
        },
        |call| Frame::NeedInput(leaving(call, "seat", &[1; 64 * 1024 + 1])),
    ];
    for (at, frame) in bad.into_iter().enumerate() {
        if at > 0 {
            host = comes_back(&server, &call).await;
        }
        host.send(frame(&call));
        let (told, _) = host.failure().await;
        assert!(told.is_some_and(|told| told.message.contains("resume_")), "{at}");
    }
}

/// Only a run that a start goes on with notices that the host is gone.
#[tokio::test]
async fn a_run_that_waits_goes_on_after_a_restart_by_itself() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, "[hosts]\ngrace_period = \"50ms\"").await;
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("book", json!({}));
    let mut events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    host.send(Frame::NeedInput(question(&call, "seat")));
    events.wait_for_name("human_requested").await;
    server.stop().await;
    drop(host);
    server.restart().await;
    let mut events = server.subscribe("r1", 0).await;
    events.wait_for_name("tool_call_attempt_failed").await;
    let asked = pending(&server).await;
    assert_eq!(asked.kind(), HumanRequestKind::InDoubt, "the call's own question is withdrawn");
}
