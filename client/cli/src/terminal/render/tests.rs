use std::sync::{Arc, Mutex};

use agentloop_client::v1::{
    AssistantMessage, Decision, Expired, HumanAnswer, HumanInput, HumanRequest, HumanRequestKind,
    HumanRequested, HumanResolved, Message, ModelCallFailed, ModelCallStarted, ModelDelta, Part,
    PartialMessage, Reasoning, RunError, RunErrorCode, RunFinished, RunStatus, SelectOption, Selection,
    ToolCall, ToolCallAccepted, ToolCallProposed, ToolCallResult, ToolResult, ToolStatus, Withdrawn,
    decision::Decision as Kind, human_input, model_delta::Delta, part::Content,
};

use super::*;

/// A buffer that both streams write to, as on a terminal.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn shown(events: Vec<Event>) -> String {
    shown_at(AnswerPace::AsItComes, events)
}

fn shown_at(pace: AnswerPace, events: Vec<Event>) -> String {
    let paper = Paper::default();
    let stream = || Stream { to: Output::new(paper.clone()), style: Style::plain() };
    let mut screen = Screen::new(stream(), stream(), pace);
    for event in events {
        let at = Some(prost_types::Timestamp { seconds: 58, nanos: 0 });
        screen.event(&RunEvent { event: Some(event), at, ..RunEvent::default() }).unwrap();
    }
    let bytes = paper.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

fn text(attempt: u32, text: &str) -> Event {
    let delta = Some(Delta::Text(text.into()));
    Event::ModelDelta(ModelDelta { model_call: 1, attempt, delta_seq: 0, delta })
}

fn reasoning(text: &str) -> Event {
    let delta = Some(Delta::Reasoning(text.into()));
    Event::ModelDelta(ModelDelta { model_call: 1, attempt: 1, delta_seq: 0, delta })
}

fn message(parts: Vec<Content>) -> Option<Message> {
    let parts = parts.into_iter().map(|content| Part { content: Some(content) }).collect();
    Some(Message { role: 3, parts })
}

fn finished(attempt: u32, parts: Vec<Content>) -> Event {
    Event::AssistantMessage(AssistantMessage {
        model_call: 1,
        attempt,
        message: message(parts),
        ..AssistantMessage::default()
    })
}

fn said(text: &str) -> Vec<Content> {
    vec![Content::Text(text.into())]
}

fn partial(text: &str) -> Event {
    Event::PartialMessage(PartialMessage {
        model_call: 1,
        attempt: 1,
        delta_seq: 9,
        message: message(said(text)),
    })
}

#[test]
fn deltas_become_one_line() {
    assert_eq!(shown(vec![text(1, "Hel"), text(1, "lo"), finished(1, said("Hello"))]), "Hello\n");
}

#[test]
fn a_message_without_deltas_is_shown_whole() {
    assert_eq!(shown(vec![finished(1, said("Hello"))]), "Hello\n");
}

#[test]
fn a_snapshot_adds_only_what_is_missing() {
    let events = vec![text(1, "Hel"), partial("Hello"), text(1, " you"), finished(1, said("Hello you"))];
    assert_eq!(shown(events), "Hello you\n");
}

#[test]
fn a_failed_attempt_voids_its_text() {
    let failed = Event::ModelCallFailed(ModelCallFailed {
        model_call: 1,
        attempt: 1,
        error: Some(RunError {
            code: RunErrorCode::ModelTimeout.into(),
            message: "too slow".into(),
            http_status: 0,
        }),
        retry_at: Some(prost_types::Timestamp { seconds: 60, nanos: 0 }),
    });
    assert_eq!(
        shown(vec![text(1, "Helo"), failed, text(2, "Hello"), finished(2, said("Hello"))]),
        "Helo\n\
         ✗ the model failed: too slow [model_timeout]\n  \
         the text above is void\n  \
         it is tried again in 2s, at 1970-01-01 00:01:00 UTC\n\
         Hello\n"
    );
}

#[test]
fn a_program_reads_whole_messages_alone() {
    let cut = vec![text(1, "Helo"), text(2, "Hel"), partial("Hel"), reasoning("hm"), text(2, "lo")];
    let shown = |events| shown_at(AnswerPace::WhenComplete, events);
    assert_eq!(shown(cut.clone()), "hm");
    assert_eq!(shown([cut, vec![finished(2, said("Hello"))]].concat()), "hm\nHello\n");
    assert_eq!(shown(vec![text(1, "Helo"), finished(1, said("Hello"))]), "Hello\n");
}

#[test]
fn an_output_without_a_reader_takes_the_rest() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let paper = Paper::default();
    let answer = Stream { to: Output::new(Closed), style: Style::plain() };
    let about = Stream { to: Output::new(paper.clone()), style: Style::plain() };
    let mut view = View::Text(Box::new(Screen::new(answer, about, AnswerPace::WhenComplete)));
    assert!(view.lost().is_none());
    view.event(&RunEvent { event: Some(finished(1, said("Hello"))), ..RunEvent::default() }).unwrap();
    assert_eq!(view.lost().map(io::Error::kind), Some(io::ErrorKind::BrokenPipe));
    view.note("left").unwrap();
    assert_eq!(paper.0.lock().unwrap().as_slice(), b"left\n");
}

#[test]
fn a_countdown_has_one_line_of_a_terminal_and_none_elsewhere() {
    let written = |style: Style| {
        let paper = Paper::default();
        let stream = || Stream { to: Output::new(paper.clone()), style };
        let mut screen = Screen::new(stream(), stream(), AnswerPace::AsItComes);
        for seconds in [2, 1] {
            screen.countdown(Duration::from_secs(seconds)).unwrap();
        }
        // The call begins again, and the answer comes.
        let started = Event::ModelCallStarted(ModelCallStarted::default());
        for event in [started, text(2, "Hello")] {
            screen.event(&RunEvent { event: Some(event), ..RunEvent::default() }).unwrap();
        }
        screen.countdown(Duration::from_secs(3)).unwrap();
        let bytes = paper.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(
        written(Style::of_terminal()),
        "\r\x1b[K  next try in 2s\r\x1b[K  next try in 1s\r\x1b[KHello",
        "text that still comes keeps its line"
    );
    assert_eq!(written(Style::plain()), "Hello");
}

#[test]
fn another_attempt_or_another_text_replaces_the_shown_text() {
    let void = "✗ the text above is void; this is what holds:\n";
    let next_attempt = shown(vec![text(1, "Helo"), text(2, "Hello"), finished(2, said("Hello"))]);
    assert_eq!(next_attempt, format!("Helo\n{void}Hello\n"));
    let other_text = shown(vec![text(1, "Helo"), finished(1, said("Hello"))]);
    assert_eq!(other_text, format!("Helo\n{void}Hello\n"));
}

#[test]
fn reasoning_and_text_have_lines_of_their_own() {
    let events = vec![reasoning("hm"), reasoning("m"), text(1, "Hello"), finished(1, said("Hello"))];
    assert_eq!(shown(events), "hmm\nHello\n");
}

/// Deltas are only seen by those who listen early enough.
#[test]
fn reasoning_is_shown_once_with_or_without_deltas() {
    let thought = |text: &str| Content::Reasoning(Reasoning { text: text.into(), redacted: false });
    let end = || finished(1, vec![thought("hmm"), Content::Text("Hello".into())]);
    for deltas in
        [vec![], vec![reasoning("h")], vec![reasoning("hmm")], vec![reasoning("hmm"), text(1, "Hel")]]
    {
        assert_eq!(shown([deltas.clone(), vec![end()]].concat()), "hmm\nHello\n", "{deltas:?}");
    }
    assert_eq!(shown(vec![text(1, "Hel"), end()]), "Hello\n", "not within the answer");
    assert_eq!(shown(vec![reasoning("hmm"), finished(1, said("Hello"))]), "hmm\nHello\n");
}

#[test]
fn a_tool_call_shows_its_arguments_and_its_result() {
    let (call_id, name, arguments_json) = ("r/1.0".into(), "add".into(), r#"{"a":1}"#.into());
    let call = ToolCall { call_id, name, arguments_json, ..ToolCall::default() };
    let proposed =
        ToolCallProposed { call_id: "r/1.0".into(), tool: "add".into(), ..ToolCallProposed::default() };
    let result = ToolResult {
        call_id: "r/1.0".into(),
        name: "add".into(),
        status: ToolStatus::Failed.into(),
        output: "no b".into(),
        ..ToolResult::default()
    };
    let result = ToolCallResult { result: Some(result), ..ToolCallResult::default() };
    let events = vec![
        text(1, "Let me see"),
        finished(1, vec![Content::Text("Let me see".into()), Content::ToolCall(call)]),
        Event::ToolCallProposed(proposed),
        Event::ToolCallResult(result),
    ];
    assert_eq!(shown(events), "Let me see\n→ add {\"a\":1}\n✗ add failed: no b\n");
}

#[test]
fn a_title_is_shown_wherever_the_call_is() {
    let proposed = ToolCallProposed {
        call_id: "c".into(),
        tool: "get_weather".into(),
        title: "Weather in Beijing\nand more".into(),
        ..ToolCallProposed::default()
    };
    let accepted = ToolCallAccepted { call_id: "c".into(), attempt: 1, host_id: "h".into() };
    let result = ToolResult {
        call_id: "c".into(),
        name: "get_weather".into(),
        status: ToolStatus::Succeeded.into(),
        output: "mild".into(),
        ..ToolResult::default()
    };
    let result = ToolCallResult { result: Some(result), ..ToolCallResult::default() };
    let events = vec![
        Event::ToolCallProposed(proposed),
        Event::ToolCallAccepted(accepted),
        Event::ToolCallResult(result),
    ];
    assert_eq!(
        shown(events),
        "→ Weather in Beijing …  get_weather \n  Weather in Beijing … runs on h\n\
         ← Weather in Beijing … succeeded: mild\n"
    );
}

#[test]
fn a_choice_is_told_by_its_label() {
    let option = |id: &str, label: &str| SelectOption { id: id.into(), label: label.into() };
    let request = HumanRequest {
        request_id: "q".into(),
        kind: HumanRequestKind::Select.into(),
        question: "Which?".into(),
        options: vec![option("1", "red"), option("2", "green"), option("blue", "")],
        ..HumanRequest::default()
    };
    let told = |ids: &[&str]| {
        let option_ids = ids.iter().map(|id| (*id).to_owned()).collect();
        let input = Some(human_input::Input::Selection(Selection { option_ids }));
        let answer = HumanAnswer { input: Some(HumanInput { input }), ..HumanAnswer::default() };
        let resolved =
            HumanResolved { request_id: "q".into(), answer: Some(answer), ..HumanResolved::default() };
        let requested = HumanRequested { request: Some(request.clone()) };
        let text = shown(vec![Event::HumanRequested(requested), Event::HumanResolved(resolved)]);
        text.lines().last().map(str::to_owned)
    };
    assert_eq!(told(&["2", "blue"]).as_deref(), Some("  chosen: green, blue"));
    assert_eq!(told(&[]).as_deref(), Some("  chosen: none"));
}

#[test]
fn a_question_without_an_answer_is_told_by_its_kind() {
    let told = |kind: HumanRequestKind, decision: Kind| {
        let request = HumanRequest { request_id: "q".into(), kind: kind.into(), ..HumanRequest::default() };
        let decision = Some(Decision { decision: Some(decision) });
        let answer = Some(HumanAnswer { decision, ..HumanAnswer::default() });
        let resolved = HumanResolved { request_id: "q".into(), answer, ..HumanResolved::default() };
        let requested = HumanRequested { request: Some(request) };
        let text = shown(vec![Event::HumanRequested(requested), Event::HumanResolved(resolved)]);
        text.lines().last().expect("a line").to_owned()
    };
    let expired = |kind| told(kind, Kind::Expired(Expired {}));
    assert_eq!(expired(HumanRequestKind::Approve), "  nobody answered in time: denied");
    assert_eq!(expired(HumanRequestKind::InDoubt), "  nobody answered in time: the outcome stays unknown");
    assert_eq!(expired(HumanRequestKind::Prompt), "  nobody answered in time");
    // The run goes on where a late result answers a question in doubt.
    let withdrawn = told(HumanRequestKind::InDoubt, Kind::Withdrawn(Withdrawn {}));
    assert_eq!(withdrawn, "  withdrawn: no answer is needed any more");
}

#[test]
fn the_end_says_how_it_went() {
    let end = |status: RunStatus, error| {
        Event::RunFinished(RunFinished {
            status: status.into(),
            error,
            iterations: 2,
            ..RunFinished::default()
        })
    };
    let line = shown(vec![end(RunStatus::Completed, None)]);
    assert!(line.starts_with("✓ completed: 2 model calls"), "{line}");
    let error =
        RunError { code: RunErrorCode::AbortedByCaller.into(), message: "enough".into(), http_status: 0 };
    let line = shown(vec![end(RunStatus::Aborted, Some(error))]);
    assert!(line.starts_with("✗ aborted: enough [aborted_by_caller]"), "{line}");
    let error = RunError { code: RunErrorCode::AbortedByCaller.into(), ..RunError::default() };
    let line = shown(vec![end(RunStatus::Aborted, Some(error))]);
    assert!(line.starts_with("✗ aborted: [aborted_by_caller]"), "{line}");
}
