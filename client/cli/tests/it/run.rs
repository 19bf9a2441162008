//! `agentloop run`, `watch` and `approve`, with their exit codes.

use agentloop_client::v1::{
    AssistantMessage, HumanRequest, HumanRequestKind, HumanRequested, Message, ModelCallFailed, ModelDelta,
    Part, Reasoning, RunEvent, RunFinished, RunPaused, RunStarted, RunStatus, Selection, SubmitInputRequest,
    decision::Decision as Kind, model_delta::Delta, part::Content, run_event::Event,
    submit_input_request::Input,
};

use crate::process::{Running, agentloop, ended};
use agentloop_client_testing::{
    agent_loop::{End, ReceivedCall, Script},
    server::FakeServer,
    timeout::soon,
    tool_host::Hosts,
};

fn event(seq: u64, status: RunStatus, event: Event) -> RunEvent {
    RunEvent { seq, status: status.into(), event: Some(event), ..RunEvent::default() }
}

fn started() -> RunEvent {
    event(1, RunStatus::Preparing, Event::RunStarted(RunStarted::default()))
}

fn says(delta_seq: u64, text: &str) -> RunEvent {
    let delta = Some(Delta::Text(text.into()));
    let delta = ModelDelta { model_call: 1, attempt: 1, delta_seq, delta };
    event(0, RunStatus::ModelRunning, Event::ModelDelta(delta))
}

fn has_said(seq: u64, text: &str) -> RunEvent {
    let parts = vec![Part { content: Some(Content::Text(text.into())) }];
    let message = Some(Message { parts, ..Message::default() });
    let message = AssistantMessage { model_call: 1, attempt: 2, message, ..AssistantMessage::default() };
    event(seq, RunStatus::ModelRunning, Event::AssistantMessage(message))
}

fn asked(seq: u64) -> RunEvent {
    let request = HumanRequest {
        request_id: "q".into(),
        kind: HumanRequestKind::Approve.into(),
        tool: "send_email".into(),
        ..HumanRequest::default()
    };
    let requested = HumanRequested { request: Some(request) };
    event(seq, RunStatus::AwaitingHuman, Event::HumanRequested(requested))
}

fn finished(seq: u64, status: RunStatus) -> RunEvent {
    let finished = RunFinished { status: status.into(), ..RunFinished::default() };
    event(seq, status, Event::RunFinished(finished))
}

async fn server(script: &Script) -> FakeServer {
    FakeServer::start(script.clone(), Hosts::default()).await
}

#[tokio::test]
async fn the_answer_is_on_standard_output_and_nothing_else() {
    // The first attempt is cut off, such as by a restart.
    let (whole, end) = (has_said(2, "Hello"), finished(3, RunStatus::Completed));
    let events = vec![started(), says(1, "Hel"), says(2, "p"), whole, end];
    let script = Script::default().scene(events, End::Ok);
    let fake = server(&script).await;
    let (code, stdout, stderr) = ended(&fake.url(), &["run", "hi", "--run-id", "r-1"]).await;
    assert_eq!((code, stdout.as_str()), (0, "Hello\n"), "{stderr}");
    assert!(stderr.contains("run r-1") && stderr.contains("completed"), "{stderr}");
    assert_eq!(script.calls(), [ReceivedCall::RunStream { run_id: "r-1".into(), after_seq: 0 }]);
}

/// Deltas are seen by those who listen early enough. All others have the finished message alone.
#[tokio::test]
async fn reasoning_is_shown_once_with_or_without_deltas() {
    let thought = Content::Reasoning(Reasoning { text: "Mails need leave.".into(), redacted: false });
    let parts = [thought, Content::Text("Hello".into())].map(|content| Part { content: Some(content) });
    let message = Some(Message { parts: parts.into(), ..Message::default() });
    let message = AssistantMessage { model_call: 1, attempt: 1, message, ..AssistantMessage::default() };
    let end = [
        event(2, RunStatus::ModelRunning, Event::AssistantMessage(message)),
        finished(3, RunStatus::Completed),
    ];
    let thinks = |delta_seq, text: &str| {
        let delta = Some(Delta::Reasoning(text.into()));
        let delta = ModelDelta { model_call: 1, attempt: 1, delta_seq, delta };
        event(0, RunStatus::ModelRunning, Event::ModelDelta(delta))
    };
    for deltas in [vec![], vec![thinks(1, "Mails ")], vec![thinks(1, "Mails need leave."), says(2, "Hel")]] {
        for args in [&["run", "hi", "--run-id", "r-1"][..], &["watch", "r-1"]] {
            let events = [&[started()], &deltas[..], &end].concat();
            let fake = server(&Script::default().scene(events, End::Ok)).await;
            let (code, stdout, stderr) = ended(&fake.url(), args).await;
            assert_eq!((code, stderr.matches("Mails need leave.").count()), (0, 1), "{deltas:?}: {stderr}");
            assert_eq!(format!("{stdout}{stderr}").matches("Hello").count(), 1, "{stdout}{stderr}");
        }
    }
}

#[tokio::test]
async fn programs_get_one_event_a_line() {
    let script = Script::default().scene(vec![started(), finished(2, RunStatus::Failed)], End::Ok);
    let fake = server(&script).await;
    let (code, stdout, _) = ended(&fake.url(), &["run", "hi", "--output", "jsonl"]).await;
    assert_eq!(code, 1);
    let lines: Vec<serde_json::Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["runFinished"]["status"], "RUN_STATUS_FAILED");
}

#[tokio::test]
async fn without_a_terminal_a_retry_has_one_line() {
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let failed =
        ModelCallFailed { model_call: 1, attempt: 1, retry_at: at(60), ..ModelCallFailed::default() };
    let failed = RunEvent { at: at(55), ..event(2, RunStatus::BackingOff, Event::ModelCallFailed(failed)) };
    let script = Script::default().scene(vec![started(), failed, finished(3, RunStatus::Completed)], End::Ok);
    let fake = server(&script).await;
    let (code, _, stderr) = ended(&fake.url(), &["run", "hi"]).await;
    assert_eq!(code, 0, "{stderr}");
    let about_it: Vec<&str> = stderr.lines().filter(|line| line.contains(" tr")).collect();
    assert_eq!(about_it, ["  it is tried again in 5s, at 1970-01-01 00:01:00 UTC"], "{stderr}");
    assert!(!stderr.contains(['\r', '\x1b']), "{stderr:?}");
}

#[tokio::test]
async fn a_paused_run_is_left_with_its_session() {
    let paused = event(2, RunStatus::Paused, Event::RunPaused(RunPaused::default()));
    let paused = RunEvent { session_id: "s-1".into(), ..paused };
    let script = Script::default().scene(vec![started(), paused], End::Hang);
    let fake = server(&script).await;
    let (code, _, stderr) = ended(&fake.url(), &["run", "hi", "--run-id", "r-1"]).await;
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains("agentloop resume"), "{stderr}");
    assert!(
        stderr.contains("session s-1; after its end, to go on:\n  agentloop run --session s-1"),
        "{stderr}"
    );
}

#[tokio::test]
async fn a_run_is_told_where_it_was_asked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join(".git")).expect("made");
    std::fs::create_dir(dir.path().join("src")).expect("made");
    std::fs::write(dir.path().join("AGENTS.md"), "be brief").expect("written");
    let told = async |args: &[&str]| {
        let script = Script::default().scene(vec![started(), finished(2, RunStatus::Completed)], End::Ok);
        let fake = server(&script).await;
        let mut command = agentloop(&fake.url(), args);
        let output = soon(command.current_dir(dir.path().join("src")).output()).await.expect("it runs");
        (script.inputs().remove(0), String::from_utf8(output.stderr).expect("text"))
    };
    let (input, stderr) = told(&["run", "hi"]).await;
    assert_eq!(input.instruction_files.len(), 1);
    assert_eq!(input.instruction_files[0].content, "be brief");
    assert!(stderr.contains("instructions: ") && stderr.contains("AGENTS.md"), "{stderr}");
    let facts: Vec<&str> = input.environment.keys().map(String::as_str).collect();
    assert_eq!(facts, ["date", "git_repository", "os", "working_directory"]);

    let (input, _) = told(&["run", "hi", "--run-id", "r-1"]).await;
    assert!(!input.environment.contains_key("date"), "the same command is the same run tomorrow");

    let (input, stderr) = told(&["run", "hi", "--no-instructions"]).await;
    assert!(input.instruction_files.is_empty() && input.environment.is_empty(), "{input:?}");
    assert!(!stderr.contains("instructions"), "{stderr}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_exit_code_5() {
    let fake = server(&Script::default()).await;
    let url = fake.url();
    drop(fake);
    for args in [&["run", "hi"][..], &["watch", "r"], &["runs"], &["tools"]] {
        let (code, _, stderr) = ended(&url, args).await;
        assert_eq!(code, 5, "{args:?}: {stderr}");
        assert!(stderr.contains("cannot reach the server"), "{stderr}");
        let next = format!("asked at {url}: `agentloop serve` starts a server");
        assert!(stderr.lines().count() == 1 && stderr.contains(&next), "{stderr}");
    }
}

#[tokio::test]
async fn wrong_usage_is_exit_code_2() {
    for args in [&["run"][..], &["abort"], &["nonsense"], &["approve", "--deny"]] {
        assert_eq!(ended("http://127.0.0.1:1", args).await.0, 2, "{args:?}");
    }
    assert_eq!(ended("no address", &["runs"]).await.0, 2);
}

#[tokio::test]
async fn without_a_terminal_a_question_is_left_waiting() {
    let script = Script::default().scene(vec![started(), asked(2)], End::Hang);
    let fake = server(&script).await;
    let (code, _, stderr) = ended(&fake.url(), &["run", "hi", "--run-id", "r-1"]).await;
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains("agentloop watch r-1 --after 2"), "{stderr}");
}

#[tokio::test]
async fn told_to_approve_it_does() {
    let after = End::AfterDecision(vec![finished(3, RunStatus::Completed)]);
    let script = Script::default().scene(vec![started(), asked(2)], after);
    let fake = server(&script).await;
    let (code, _, stderr) = ended(&fake.url(), &["run", "hi", "--yes"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(matches!(&script.calls()[1], ReceivedCall::SubmitApproval(answer) if answer.request_id == "q"));
}

#[tokio::test]
async fn a_question_is_answered_by_its_id() {
    let script = Script::default();
    let fake = server(&script).await;
    let (code, stdout, _) = ended(&fake.url(), &["approve", "q", "--deny", "not today", "--as", "me"]).await;
    assert_eq!((code, stdout.as_str()), (0, "send_email q: denied (not today)\n"));
    let [ReceivedCall::SubmitApproval(answer)] = &script.calls()[..] else { panic!("{:?}", script.calls()) };
    assert_eq!(answer.decided_by, "me");
    let decision = answer.decision.clone().and_then(|decision| decision.decision);
    assert!(matches!(decision, Some(Kind::Deny(deny)) if deny.message == "not today"));
    assert_eq!(ended(&fake.url(), &["approve", "unknown"]).await.0, 1);
}

#[tokio::test]
async fn what_is_asked_for_is_given_by_its_id() {
    for (args, input) in [
        (&["--text", "blue"][..], Input::Text("blue".into())),
        (
            &["--choose", "a", "--choose", "b"],
            Input::Selection(Selection { option_ids: vec!["a".into(), "b".into()] }),
        ),
    ] {
        let script = Script::default();
        let fake = server(&script).await;
        let args = [&["approve", "q", "--as", "me"], args].concat();
        let (code, _, stderr) = ended(&fake.url(), &args).await;
        assert_eq!(code, 0, "{stderr}");
        let given =
            SubmitInputRequest { request_id: "q".into(), input: Some(input), answered_by: "me".into() };
        assert_eq!(script.calls(), [ReceivedCall::SubmitInput(Box::new(given))]);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn ctrl_c_aborts_the_run_and_waits_for_its_end() {
    let after = End::AfterDecision(vec![finished(2, RunStatus::Aborted)]);
    let script = Script::default().scene(vec![started()], after);
    let fake = server(&script).await;
    let mut running = Running::start(agentloop(&fake.url(), &["run", "hi", "--run-id", "r-1", "-o", "json"]));
    running.line().await;
    running.signal("INT").await;
    assert!(running.line().await.contains("RUN_STATUS_ABORTED"));
    assert_eq!(running.code().await, 3);
    assert_eq!(script.calls()[1], ReceivedCall::Abort { run_id: "r-1".into() });
}

#[cfg(unix)]
#[tokio::test]
async fn ctrl_c_leaves_a_watched_run_alone() {
    let script = Script::default().scene(vec![started()], End::Hang);
    let fake = server(&script).await;
    let mut running = Running::start(agentloop(&fake.url(), &["watch", "r-1", "-o", "json"]));
    running.line().await;
    running.signal("INT").await;
    assert_eq!(running.code().await, 130);
    assert_eq!(script.calls(), [ReceivedCall::Subscribe { run_id: "r-1".into(), after_seq: 0 }]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_signal_leaves_the_run_and_says_so() {
    for signal in ["TERM", "QUIT"] {
        let script = Script::default().scene(vec![started()], End::Hang);
        let fake = server(&script).await;
        let args = ["run", "hi", "--run-id", "r-1", "-o", "json"];
        let mut running = Running::start(agentloop(&fake.url(), &args));
        running.line().await;
        running.signal(signal).await;
        assert_eq!(running.code().await, 130, "{signal}");
        assert_eq!(script.calls().len(), 1, "it is not aborted: {:?}", script.calls());
    }
}

/// As with `agentloop run PROMPT | head -1`.
#[tokio::test]
async fn a_run_whose_reader_has_enough_is_no_success() {
    let script = Script::default().scene(vec![started(), says(1, "Hel")], End::Hang);
    let fake = server(&script).await;
    let mut child =
        agentloop(&fake.url(), &["run", "hi", "--run-id", "r-1", "--json"]).spawn().expect("built");
    drop(child.stdout.take());
    let output = soon(child.wait_with_output()).await.expect("it ran");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("the run goes on: agentloop watch r-1"), "{told}");
}

#[tokio::test]
async fn told_to_approve_it_does_without_a_reader() {
    for last in [RunStatus::Completed, RunStatus::Failed] {
        let after = End::AfterDecision(vec![finished(3, last)]);
        let script = Script::default().scene(vec![started(), asked(2)], after);
        let fake = server(&script).await;
        let mut child = agentloop(&fake.url(), &["run", "hi", "--yes", "--json"]).spawn().expect("built");
        drop(child.stdout.take());
        let output = soon(child.wait_with_output()).await.expect("it ran");
        let expected = if last == RunStatus::Completed { 0 } else { 1 };
        assert_eq!(output.status.code(), Some(expected), "{output:?}");
        assert!(matches!(&script.calls()[1], ReceivedCall::SubmitApproval(_)), "{:?}", script.calls());
    }
}

#[tokio::test]
async fn a_run_begins_with_a_prompt() {
    for prompt in ["", "-"] {
        let (code, _, stderr) = ended("http://127.0.0.1:1", &["run", "--no-instructions", prompt]).await;
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains("the prompt is empty"), "{stderr}");
    }
}

/// As with `agentloop watch RUN --json | head`, whose run may go on.
#[tokio::test]
async fn a_reader_that_has_enough_ends_the_command_quietly() {
    let script = Script::default().scene(vec![started(), says(1, "Hel")], End::Hang);
    let fake = server(&script).await;
    let mut child =
        agentloop(&fake.url(), &["watch", "r-1", "--json"]).spawn().expect("the command was built");
    drop(child.stdout.take());
    let output = soon(child.wait_with_output()).await.expect("it ran");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr)), (Some(130), "".into()));
}
