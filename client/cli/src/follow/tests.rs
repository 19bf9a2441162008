use agentloop_client::v1::{
    ApproveWithEdits, Deny, HumanAnswer, HumanRequested, HumanResolved, RunFinished, RunPaused, RunStarted,
    agent_loop_server::AgentLoopServer,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;

use super::*;
use agentloop_client_testing::agent_loop::{End, ReceivedCall, Script};

fn event(seq: u64, status: RunStatus, event: Event) -> RunEvent {
    RunEvent { seq, status: status.into(), event: Some(event), ..RunEvent::default() }
}

fn started() -> RunEvent {
    event(1, RunStatus::Preparing, Event::RunStarted(RunStarted::default()))
}

fn asked(seq: u64, kind: HumanRequestKind) -> RunEvent {
    let request = HumanRequest {
        request_id: format!("q{seq}"),
        kind: kind.into(),
        digest: format!("digest-{seq}"),
        ..HumanRequest::default()
    };
    let requested = HumanRequested { request: Some(request) };
    event(seq, RunStatus::AwaitingHuman, Event::HumanRequested(requested))
}

fn resolved(seq: u64, question: u64) -> RunEvent {
    let answer = Some(HumanAnswer::default());
    let resolved = HumanResolved { request_id: format!("q{question}"), call_id: String::new(), answer };
    event(seq, RunStatus::ToolRunning, Event::HumanResolved(resolved))
}

fn finished(seq: u64, status: RunStatus) -> RunEvent {
    let finished = RunFinished { status: status.into(), ..RunFinished::default() };
    event(seq, status, Event::RunFinished(finished))
}

/// Follows the scripted run until the command would end.
async fn followed(script: &Script, set_up: impl FnOnce(&mut FollowOptions)) -> Result<Exit, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let service = AgentLoopServer::new(script.clone());
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let client = Client::connect(url).expect("a good address");
    let stream = client.subscribe("r", 0).await.expect("the run is there");
    let mut follow = FollowOptions {
        client,
        view: View::new(true),
        approve: None,
        person: None,
        wait: false,
        abort: true,
        decided_by: "tester".into(),
        signals: EndSignals::listen(),
        server_option: String::new(),
        says_next: false,
    };
    set_up(&mut follow);
    follow.until_end(stream).await
}

fn decisions(script: &Script) -> Vec<(String, String, Kind)> {
    let submitted = script.calls().into_iter().filter_map(|call| match call {
        ReceivedCall::SubmitApproval(request) => {
            let kind = request.decision.and_then(|decision| decision.decision).expect("a decision");
            Some((request.request_id, request.digest, kind))
        }
        _ => None,
    });
    submitted.collect()
}

#[tokio::test]
async fn a_run_ends_with_its_status() {
    for (status, exit) in [
        (RunStatus::Completed, Exit::Completed),
        (RunStatus::Failed, Exit::Failed),
        (RunStatus::Aborted, Exit::Aborted),
    ] {
        let script = Script::default().scene(vec![started(), finished(2, status)], End::Ok);
        assert_eq!(followed(&script, |_| ()).await.expect("followed"), exit);
    }
}

#[tokio::test]
async fn a_question_without_a_person_ends_the_command() {
    let script = Script::default().scene(vec![started(), asked(2, HumanRequestKind::Approve)], End::Hang);
    assert_eq!(followed(&script, |_| ()).await.expect("followed"), Exit::Awaiting);
}

#[tokio::test]
async fn a_paused_run_is_left_waiting() {
    let paused = event(2, RunStatus::Paused, Event::RunPaused(RunPaused::default()));
    let script = Script::default().scene(vec![started(), paused], End::Hang);
    assert_eq!(followed(&script, |_| ()).await.expect("followed"), Exit::Awaiting);
}

#[tokio::test]
async fn a_run_that_waited_once_and_went_on_is_followed_to_its_end() {
    let events = vec![
        started(),
        event(2, RunStatus::Paused, Event::RunPaused(RunPaused::default())),
        asked(3, HumanRequestKind::Approve),
        resolved(4, 3),
        finished(5, RunStatus::Completed),
    ];
    let script = Script::default().scene(events, End::Ok).last_seq(5);
    assert_eq!(followed(&script, |_| ()).await.expect("followed"), Exit::Completed);
}

#[tokio::test]
async fn a_watcher_sees_the_decisions_of_others() {
    let events = vec![
        started(),
        asked(2, HumanRequestKind::Approve),
        resolved(3, 2),
        finished(4, RunStatus::Completed),
    ];
    let script = Script::default().scene(events, End::Ok);
    let exit = followed(&script, |follow| follow.wait = true).await;
    assert_eq!(exit.expect("followed"), Exit::Completed);
}

#[tokio::test]
async fn with_yes_calls_are_approved_but_none_in_doubt() {
    let approved = vec![resolved(3, 2), asked(4, HumanRequestKind::InDoubt)];
    let script = Script::default()
        .scene(vec![started(), asked(2, HumanRequestKind::Approve)], End::AfterDecision(approved));
    // The stream ends after the last event, and the script has no further scene.
    let exit = followed(&script, |follow| follow.approve = Some("told to")).await;
    assert_eq!(exit.expect("followed"), Exit::Awaiting);
    assert_eq!(decisions(&script), [("q2".into(), "digest-2".into(), Kind::Approve(Approve {}))]);
}

#[tokio::test]
async fn a_person_is_asked_until_the_answer_is_clear() {
    let script = Script::default().scene(
        vec![started(), asked(2, HumanRequestKind::Approve)],
        End::AfterDecision(vec![resolved(3, 2), finished(4, RunStatus::Completed)]),
    );
    let exit = followed(&script, |follow| {
        follow.person = Some(InputLines::given(&["what?", "e", r#"{"to":"me"}"#]));
    });
    assert_eq!(exit.await.expect("followed"), Exit::Completed);
    let edited = Kind::ApproveWithEdits(ApproveWithEdits { arguments_json: r#"{"to":"me"}"#.into() });
    assert_eq!(decisions(&script), [("q2".into(), "digest-2".into(), edited)]);
}

#[tokio::test]
async fn a_person_answers_a_prompt() {
    let script = Script::default().scene(
        vec![started(), asked(2, HumanRequestKind::Prompt)],
        End::AfterDecision(vec![resolved(3, 2), finished(4, RunStatus::Completed)]),
    );
    let exit = followed(&script, |follow| follow.person = Some(InputLines::given(&["yes, blue"])));
    assert_eq!(exit.await.expect("followed"), Exit::Completed);
    let given = SubmitInputRequest {
        request_id: "q2".into(),
        input: Some(Input::Text("yes, blue".into())),
        answered_by: "tester".into(),
    };
    assert_eq!(script.calls()[1], ReceivedCall::SubmitInput(Box::new(given)));
}

#[tokio::test]
async fn with_yes_no_text_is_invented() {
    let script = Script::default().scene(vec![started(), asked(2, HumanRequestKind::Prompt)], End::Hang);
    let exit = followed(&script, |follow| follow.approve = Some("told to")).await;
    assert_eq!(exit.expect("followed"), Exit::Awaiting);
    let is_answer =
        |call: &ReceivedCall| matches!(call, ReceivedCall::SubmitApproval(_) | ReceivedCall::SubmitInput(_));
    assert!(!script.calls().iter().any(is_answer), "{:?}", script.calls());
}

#[tokio::test]
async fn two_questions_are_answered_in_turn() {
    let first = vec![resolved(4, 2)];
    let script = Script::default()
        .scene(
            vec![started(), asked(2, HumanRequestKind::Approve), asked(3, HumanRequestKind::Approve)],
            End::AfterDecision(first),
        )
        .scene(vec![], End::AfterDecision(vec![resolved(5, 3), finished(6, RunStatus::Completed)]));
    let exit = followed(&script, |follow| follow.person = Some(InputLines::given(&["n no", "y"])));
    assert_eq!(exit.await.expect("followed"), Exit::Completed);
    let ids: Vec<_> = decisions(&script).into_iter().map(|(id, _, kind)| (id, kind)).collect();
    let denied = Kind::Deny(Deny { message: "no".into() });
    assert_eq!(ids, [("q2".to_owned(), denied), ("q3".to_owned(), Kind::Approve(Approve {}))]);
}

#[tokio::test]
async fn the_end_of_the_input_leaves_the_run_waiting() {
    let script = Script::default().scene(vec![started(), asked(2, HumanRequestKind::Approve)], End::Hang);
    let exit = followed(&script, |follow| follow.person = Some(InputLines::given(&[])));
    assert_eq!(exit.await.expect("followed"), Exit::Awaiting);
}
