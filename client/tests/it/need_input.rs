//! Running calls that ask a human.

use std::time::Duration;

use agentloop_client::{
    host::{AskError, CallContext, NoArguments, Question, Tool, ToolError, ToolHost},
    v1::{
        CallFailed, CallRequest, CallResult, Cancel, CancelOutcome, InputResponse, InputSelection, LeaseLost,
        NeedInput, Progress, ProgressAck, UrlOutcome, connect_request::Frame,
        connect_response::Frame as ServerFrame, input_response::Response,
    },
};
use futures_util::future::join_all;
use tonic::Status;

use crate::host::Running;
use agentloop_client_testing::{
    agent_loop::Script,
    server::{FakeServer, quick_backoff},
    tool_host::{Connection, Hosts, call},
};

async fn book(_: NoArguments, ctx: CallContext) -> Result<String, ToolError> {
    let minute = Duration::from_secs(60);
    let seat = ctx.ask(Question::new("Which seat?").name("seat").timeout(minute)).await?;
    let side = ctx.choose("Which side?", [("a", "aisle"), ("w", "window")]).await?;
    let meals = ctx.choose_several("Which meals?", [("1", "lunch"), ("2", "dinner")]).await?;
    Ok(format!("{seat} {side} {}", meals.join("+")))
}

/// Asks questions until one is refused, and returns the reason.
async fn curious(_: NoArguments, ctx: CallContext) -> Result<String, ToolError> {
    let none: [(&str, &str); 0] = [];
    let mut whys = Vec::new();
    for bad in [
        ctx.ask(Question::new("?").name("")).await,
        ctx.ask(Question::new("?").name("x".repeat(129))).await,
        ctx.ask("x".repeat(128 * 1024 + 1)).await,
        ctx.choose("?", none).await,
        ctx.ask(Question::new("?").timeout(Duration::ZERO)).await,
        ctx.ask(Question::new("?").timeout(Duration::MAX)).await,
    ] {
        whys.push(bad.expect_err("not asked").to_string());
    }
    for number in 7..=16 {
        ctx.ask(format!("number {number}")).await?;
    }
    whys.push(ctx.ask("one more").await.expect_err("not asked").to_string());
    Ok(whys.join("\n"))
}

/// Asks with a state, and goes on from it in a later attempt.
async fn order(_: NoArguments, ctx: CallContext) -> Result<String, ToolError> {
    let state = ctx.resume_state().map(|state| String::from_utf8_lossy(state).into_owned());
    let which = ctx.ask(Question::new("Which?").name("which").resume_state("ordered")).await?;
    Ok(format!("{state:?} {which}"))
}

/// Asks 16 questions with a name, then two without one, and one more with a name.
async fn shop(_: NoArguments, ctx: CallContext) -> Result<String, ToolError> {
    for number in 1..=16 {
        ctx.ask(Question::new("Your name?").name(format!("name-{number}"))).await?;
    }
    let (one, two) = (ctx.ask("Next item?").await?, ctx.ask("Next item?").await?);
    let buy = ctx.ask(Question::new("Buy them?").name("buy").resume_state("asked")).await?;
    Ok(format!("{one} {two} {buy}"))
}

async fn save(_: NoArguments, ctx: CallContext) -> Result<String, ToolError> {
    let large = ctx.save_resume_state(vec![0; 64 * 1024 + 1]).await;
    ctx.save_resume_state("one").await?;
    ctx.save_resume_state("two").await?;
    Ok(format!("{}", large.expect_err("too large")))
}

/// Saves two states at the same time.
async fn save_both(_: NoArguments, ctx: CallContext) -> Result<String, ToolError> {
    let (one, two) = tokio::join!(ctx.save_resume_state("one"), ctx.save_resume_state("two"));
    Ok(format!("{one:?} {two:?}"))
}

/// Saves one state more than an attempt may.
async fn save_many(_: NoArguments, ctx: CallContext) -> Result<String, ToolError> {
    let saved = join_all((0..257).map(|_| ctx.save_resume_state("one"))).await;
    let refused: Vec<String> = saved.into_iter().filter_map(|saved| Some(saved.err()?.to_string())).collect();
    Ok(refused.join("; "))
}

async fn fill_in(_: NoArguments, ctx: CallContext) -> Result<String, ToolError> {
    let unnamed = ctx.ask(Question::new("?").resume_state("x")).await.expect_err("it has no name");
    let form = ctx.fill_in(Question::new("Who?").metadata_json("{}"), r#"{"type":"object"}"#).await?;
    let done = ctx.visit("Pay", "https://pay.example").await?;
    let more = ctx.ask(Question::new("More?").allow_empty()).await?;
    Ok(format!("{unnamed}; {form}, {done}, {more:?}"))
}

/// Asks one question, and returns the answer or the error as text.
async fn wonder(_: NoArguments, ctx: CallContext) -> Result<String, ToolError> {
    match ctx.ask("Well?").await {
        Err(AskError::Stopped) => Ok("stopped".into()),
        other => Ok(format!("{other:?}")),
    }
}

struct Bench {
    hosts: Hosts,
    running: Running,
    _fake: FakeServer,
}

impl Bench {
    async fn new() -> Bench {
        let hosts = Hosts::default();
        let fake = FakeServer::start(Script::default(), hosts.clone()).await;
        let host = ToolHost::builder(fake.url())
            .host_id("host-1")
            .backoff(quick_backoff())
            .tool(Tool::new("book", "Books").handler(book))
            .tool(Tool::new("curious", "Asks").handler(curious))
            .tool(Tool::new("order", "Orders").handler(order))
            .tool(Tool::new("shop", "Shops").handler(shop))
            .tool(Tool::new("save", "Saves").handler(save))
            .tool(Tool::new("save_both", "Saves").handler(save_both))
            .tool(Tool::new("save_many", "Saves").handler(save_many))
            .tool(Tool::new("fill_in", "Asks").handler(fill_in))
            .tool(Tool::new("wonder", "Asks").handler(wonder));
        Bench { hosts, running: Running::start(host), _fake: fake }
    }

    /// Waits for a connection, and starts a call of this tool on it.
    async fn calls(&self, tool: &str) -> Connection {
        let mut connection = self.hosts.welcome().await;
        connection.send_call(call("c1", tool, "{}")).await;
        connection
    }
}

async fn asked(connection: &mut Connection) -> NeedInput {
    match connection.reply().await {
        Frame::NeedInput(question) => question,
        other => panic!("no question: {other:?}"),
    }
}

async fn answer(connection: &Connection, question: &NeedInput, response: Response) {
    let (call_id, input_id) = (question.call_id.clone(), question.input_id.clone());
    let heard = InputResponse { call_id, input_id, response: Some(response) };
    connection.send(ServerFrame::InputResponse(heard)).await;
}

fn text(text: &str) -> Response {
    Response::Text(text.into())
}

fn chosen(ids: &[&str]) -> Response {
    Response::Selection(InputSelection { option_ids: ids.iter().map(ToString::to_string).collect() })
}

fn output(frame: Frame) -> String {
    match frame {
        Frame::CallResult(CallResult { output, .. }) => output,
        other => panic!("no result: {other:?}"),
    }
}

#[tokio::test]
async fn a_call_asks_for_text_and_choices_and_goes_on_with_the_answers() {
    let bench = Bench::new().await;
    let mut connection = bench.calls("book").await;
    let seat = asked(&mut connection).await;
    assert_eq!((seat.call_id.as_str(), seat.attempt, seat.input_id.as_str()), ("c1", 1, "seat"));
    assert_eq!((seat.question.as_str(), seat.options.len()), ("Which seat?", 0));
    assert_eq!(seat.timeout.map(|timeout| timeout.seconds), Some(60));
    answer(&connection, &seat, text("12A")).await;

    let side = asked(&mut connection).await;
    assert_eq!((side.input_id.as_str(), side.multiple, side.timeout), ("question-2", false, None));
    assert_eq!((side.options[1].id.as_str(), side.options[1].label.as_str()), ("w", "window"));
    answer(&connection, &side, chosen(&["w"])).await;

    let meals = asked(&mut connection).await;
    assert_eq!((meals.input_id.as_str(), meals.multiple), ("question-3", true));
    answer(&connection, &meals, chosen(&["1", "2"])).await;
    assert_eq!(output(connection.reply().await), "12A w 1+2");
}

#[tokio::test]
async fn a_call_that_leaves_a_state_goes_on_with_the_answer_in_its_next_attempt() {
    let bench = Bench::new().await;
    let mut connection = bench.calls("order").await;
    let which = asked(&mut connection).await;
    assert_eq!(which.resume_state.as_deref(), Some(&b"ordered"[..]));
    connection.send(ServerFrame::LeaseLost(LeaseLost { call_id: "c1".into(), attempt: 1 })).await;
    let heard = InputResponse { call_id: "c1".into(), input_id: "which".into(), response: Some(text("red")) };
    let again = CallRequest {
        attempt: 2,
        resume_state: which.resume_state,
        answers: vec![heard],
        ..call("c1", "order", "{}")
    };
    connection.send_call(again).await;
    assert_eq!(output(connection.reply().await), r#"Some("ordered") red"#, "nobody is asked again");
}

#[tokio::test]
async fn an_unnamed_question_has_the_same_number_in_each_attempt() {
    let bench = Bench::new().await;
    let mut connection = bench.hosts.welcome().await;
    let known =
        |name: String| InputResponse { call_id: "c1".into(), input_id: name, response: Some(text("Ada")) };
    // As many answers are known as an attempt may ask questions: they count for the numbers alone.
    let names = (1..=16).map(|number| format!("name-{number}")).chain(["buy".to_owned()]);
    let again = CallRequest { attempt: 2, answers: names.map(known).collect(), ..call("c1", "shop", "{}") };
    connection.send_call(again).await;
    for (input_id, item) in [("question-17", "milk"), ("question-18", "bread")] {
        let question = asked(&mut connection).await;
        assert_eq!(question.input_id, input_id);
        answer(&connection, &question, text(item)).await;
    }
    assert_eq!(output(connection.reply().await), "milk bread Ada");
}

async fn saved(connection: &mut Connection) -> Progress {
    match connection.reply().await {
        Frame::Progress(progress) => progress,
        other => panic!("no progress: {other:?}"),
    }
}

#[tokio::test]
async fn a_state_is_repeated_until_it_is_acknowledged() {
    let bench = Bench::new().await;
    let mut first = bench.calls("save").await;
    let one = saved(&mut first).await;
    assert_eq!((one.resume_state.as_deref(), one.resume_no), (Some(&b"one"[..]), 1));
    first.fail(Status::unavailable("restarting")).await;
    let mut second = bench.hosts.welcome().await;
    assert_eq!(saved(&mut second).await, one);
    let ack =
        |resume_no| ServerFrame::ProgressAck(ProgressAck { call_id: "c1".into(), attempt: 1, resume_no });
    second.send(ack(1)).await;
    let two = saved(&mut second).await;
    assert_eq!((two.resume_state.as_deref(), two.resume_no), (Some(&b"two"[..]), 2));
    second.send(ack(1)).await;
    second.send(ack(2)).await;
    assert!(output(second.reply().await).contains("at most 65536 bytes"));
}

#[tokio::test]
async fn states_that_are_saved_at_the_same_time_are_acknowledged_together() {
    let bench = Bench::new().await;
    let mut first = bench.calls("save_both").await;
    assert_eq!((saved(&mut first).await.resume_no, saved(&mut first).await.resume_no), (1, 2));
    first.fail(Status::unavailable("restarting")).await;
    let mut second = bench.hosts.welcome().await;
    assert_eq!(saved(&mut second).await.resume_no, 2, "only the last one is repeated");
    let ack = ProgressAck { call_id: "c1".into(), attempt: 1, resume_no: 2 };
    second.send(ServerFrame::ProgressAck(ack)).await;
    assert_eq!(output(second.reply().await), "Ok(()) Ok(())");
}

#[tokio::test]
async fn one_attempt_saves_a_bounded_number_of_states() {
    let bench = Bench::new().await;
    let mut connection = bench.calls("save_many").await;
    for _ in 1..=256 {
        saved(&mut connection).await; // states that are saved at the same time come in any order
    }
    let ack = ProgressAck { call_id: "c1".into(), attempt: 1, resume_no: 256 };
    connection.send(ServerFrame::ProgressAck(ack)).await;
    let said = output(connection.reply().await);
    assert_eq!(said, "no answer: one attempt of a call saves 256 resume states at most");
}

#[tokio::test]
async fn forms_visits_and_empty_texts_are_asked_for() {
    let bench = Bench::new().await;
    let mut connection = bench.calls("fill_in").await;
    let form = asked(&mut connection).await;
    assert_eq!((form.form_schema_json.as_str(), form.metadata_json.as_str()), (r#"{"type":"object"}"#, "{}"));
    answer(&connection, &form, Response::FormJson("{}".into())).await;
    let visit = asked(&mut connection).await;
    assert_eq!(visit.url, "https://pay.example");
    answer(&connection, &visit, Response::Url(UrlOutcome::Done.into())).await;
    let more = asked(&mut connection).await;
    assert!(more.allow_empty);
    answer(&connection, &more, text("")).await;
    let said = output(connection.reply().await);
    assert_eq!(said, "no answer: a question with a resume state needs a name; {}, true, \"\"");
}

#[tokio::test]
async fn an_open_question_is_asked_again_after_a_reconnect() {
    let bench = Bench::new().await;
    let mut first = bench.calls("book").await;
    let seat = asked(&mut first).await;
    answer(&first, &seat, text("12A")).await;
    let side = asked(&mut first).await;
    first.fail(Status::unavailable("restarting")).await;

    let (mut second, hello) = bench.hosts.accept().await;
    assert_eq!(hello.calls_in_hand.len(), 1);
    second.send(ServerFrame::Welcome(agentloop_client_testing::tool_host::welcome())).await;
    assert_eq!(asked(&mut second).await, side, "the one that is open, and as it was");
    answer(&second, &side, chosen(&["a"])).await;
    let meals = asked(&mut second).await;
    // A second answer to the same question is ignored.
    answer(&second, &side, chosen(&["w"])).await;
    answer(&second, &meals, chosen(&[])).await;
    assert_eq!(output(second.reply().await), "12A a ");
}

#[tokio::test]
async fn a_refusal_ends_the_call_with_its_reason_where_it_is_passed_on() {
    let bench = Bench::new().await;
    let mut connection = bench.calls("book").await;
    let seat = asked(&mut connection).await;
    answer(&connection, &seat, Response::Refused("nobody answered in time".into())).await;
    match connection.reply().await {
        Frame::CallFailed(CallFailed { message, retryable, .. }) => {
            assert_eq!((message.as_str(), retryable), ("no answer: nobody answered in time", false));
        }
        other => panic!("no failure: {other:?}"),
    }
}

#[tokio::test]
async fn an_invalid_question_is_not_sent() {
    let bench = Bench::new().await;
    let mut connection = bench.calls("curious").await;
    for number in 7..=16 {
        let question = asked(&mut connection).await;
        assert_eq!(question.question, format!("number {number}"));
        answer(&connection, &question, text("yes")).await;
    }
    let said = output(connection.reply().await);
    let whys: Vec<&str> = said.lines().collect();
    let expected = [
        "1 to 128 bytes",
        "1 to 128 bytes",
        "131072 bytes",
        "nothing to choose",
        "a timeout",
        "a timeout",
        "16 questions",
    ];
    assert_eq!(whys.len(), expected.len(), "{whys:?}");
    for (why, part) in whys.iter().zip(expected) {
        assert!(why.contains(part), "{why} without {part}");
    }
}

#[tokio::test]
async fn a_cancel_ends_the_wait() {
    let bench = Bench::new().await;
    let mut connection = bench.calls("book").await;
    asked(&mut connection).await;
    let cancel = Cancel { call_id: "c1".into(), attempt: 1, ..Cancel::default() };
    connection.send(ServerFrame::Cancel(cancel)).await;
    match connection.reply().await {
        Frame::CancelAck(ack) => assert_eq!(ack.outcome(), CancelOutcome::Stopped),
        other => panic!("not stopped: {other:?}"),
    }
}

#[tokio::test]
async fn a_host_that_drains_still_waits_for_the_answer() {
    let bench = Bench::new().await;
    let mut connection = bench.calls("wonder").await;
    let question = asked(&mut connection).await;
    bench.running.stop.cancel();
    assert!(matches!(connection.reply().await, Frame::Draining(_)));
    answer(&connection, &question, text("yes")).await;
    assert_eq!(output(connection.reply().await), "Ok(\"yes\")");
    connection.acknowledge("c1").await;
    assert!(matches!(connection.reply().await, Frame::Goodbye(_)));
    drop(connection);
    bench.running.ended().await.expect("a clean end");
}

#[tokio::test]
async fn a_host_whose_time_is_up_stops_the_wait() {
    let bench = Bench::new().await;
    let mut connection = bench.calls("wonder").await;
    asked(&mut connection).await;
    bench.running.stop.cancel();
    assert!(matches!(connection.reply().await, Frame::Draining(_)));
    // From here on the test waits only for timers, so the clock can jump.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    assert_eq!(output(connection.reply().await), "stopped");
}
