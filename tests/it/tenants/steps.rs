//! Steps of a tenant, chosen by chance: what it does, with ids that the other tenant uses, too.

use std::time::{Duration, Instant};

use agentloop_client::{Client, Error, v1 as wire};
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::load::dice::Dice;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use sha2::{Digest as _, Sha256};
use wire::decision::Decision;
use wire::{BusySessionPolicy as Busy, RememberScope as Remember, RunStatus};

use super::WORDS;
use super::answers::{Answers, runs};

pub(super) const SESSIONS: [&str; 3] = ["s1", "s2", "s3"];
pub(super) const RUNS: [&str; 8] = ["r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"];
/// Contents of blobs: one that both tenants store, and one of each.
pub(super) const BLOBS: [&str; 3] = ["of both", "the blob of apple", "the blob of banana"];

/// The kinds of [`Step`]. Every script has each of them.
const KINDS: u64 = 18;
/// Steps of a script beyond one of each kind.
const MORE: u64 = 18;
/// Two changes in one millisecond have no order, so a step takes longer.
const STEP_LEAST: Duration = Duration::from_millis(2);

/// The digest of a blob with this content.
pub(super) fn digest(content: &str) -> String {
    let digits: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// A thing that a tenant does. Numbers choose among what there is then.
#[derive(Debug, Clone)]
pub(super) enum Step {
    CreateSession(&'static str),
    UpdateSession(&'static str),
    GetOrCreateSession(&'static str),
    DeleteSession(&'static str),
    Fork(&'static str, &'static str),
    Import(&'static str),
    Run {
        session: &'static str,
        run: &'static str,
        about: &'static str,
        busy: Busy,
        is_stepped: bool,
        /// The model is given what fits from other sessions.
        recalls: bool,
    },
    /// The request of an earlier step once more.
    RunAgain(usize),
    Decide(usize, Decision, Remember),
    Answer(usize),
    AbortRun(&'static str),
    AbortSession(&'static str),
    Resume(&'static str),
    Advance(&'static str),
    PutBlob,
    CompleteCall(&'static str),
    /// The host leaves, or comes back.
    Host,
    /// A remembered rule, and the terms of a tool, are forgotten.
    Forget(usize),
}

/// The steps of one tenant.
pub(super) fn script(dice: &mut Dice) -> Vec<Step> {
    let more = (0..MORE).map(|_| if dice.percent(50) { 6 } else { dice.below(KINDS) });
    let mut kinds: Vec<u64> = more.collect();
    kinds.extend(0..KINDS);
    for at in (1..kinds.len()).rev() {
        let other = dice.below(at as u64 + 1);
        kinds.swap(at, usize::try_from(other).expect("an index"));
    }
    kinds.into_iter().map(|kind| step(kind, dice)).collect()
}

fn word(dice: &mut Dice, words: &[&'static str]) -> &'static str {
    let picked: &&str = dice.one_of(words);
    picked
}

fn step(kind: u64, dice: &mut Dice) -> Step {
    let session = *dice.one_of(&SESSIONS);
    let run = *dice.one_of(&RUNS);
    let nth = usize::try_from(dice.below(100)).expect("a small number");
    match kind {
        0 => Step::CreateSession(session),
        1 => Step::UpdateSession(session),
        2 => Step::GetOrCreateSession(session),
        3 => Step::DeleteSession(session),
        4 => Step::Fork(session, word(dice, &SESSIONS)),
        5 => Step::Import(session),
        6 => Step::Run {
            session,
            run,
            about: word(dice, &["remember", "mail", "weather", "ask", "break", "fail"]),
            busy: *dice.one_of(&[Busy::Reject, Busy::Reject, Busy::Enqueue, Busy::Interrupt, Busy::Steer]),
            is_stepped: dice.percent(15),
            recalls: dice.percent(40),
        },
        7 => Step::RunAgain(nth),
        8 => {
            let approve = Decision::Approve(wire::Approve {});
            let deny = Decision::Deny(wire::Deny { message: String::new() });
            let remember = *dice.one_of(&[Remember::Once, Remember::Session, Remember::Rule]);
            Step::Decide(nth, if dice.percent(70) { approve } else { deny }, remember)
        }
        9 => Step::Answer(nth),
        10 => Step::AbortRun(run),
        11 => Step::AbortSession(session),
        12 => Step::Resume(run),
        13 => Step::Advance(run),
        14 => Step::PutBlob,
        15 => Step::CompleteCall(run),
        16 => Step::Host,
        _ => Step::Forget(nth),
    }
}

/// A tenant that carries out its steps.
pub(super) struct Party {
    pub(super) word: &'static str,
    pub(super) operator: Client,
    as_host: Client,
    host_token: String,
    host: Option<Host>,
    /// The calls that it made, to be repeated.
    started: Vec<wire::RunInput>,
    steps: usize,
}

/// The tokens of a tenant: of its operator, and of its tool hosts.
pub(super) struct Tokens(String, String);

impl Tokens {
    pub(super) fn new(files: &SecurityFiles, word: &str) -> Self {
        let tenant = format!("tenant-of-{word}");
        Self(files.token("ada", &tenant, &["operator"]), files.token("a-host", &tenant, &["host"]))
    }
}

impl Party {
    pub(super) async fn new(server: &TestServer, word: &'static str, tokens: &Tokens) -> Self {
        let Tokens(operator, host_token) = tokens;
        let mut party = Self {
            word,
            operator: server.as_caller(operator),
            as_host: server.as_caller(host_token),
            host_token: host_token.clone(),
            host: None,
            started: Vec::new(),
            steps: 0,
        };
        party.host_comes(server).await;
        party.settled(server).await;
        party
    }

    /// The word of the other tenant.
    pub(super) fn stranger(&self) -> &'static str {
        WORDS.into_iter().find(|word| *word != self.word).expect("there are two")
    }

    async fn host_comes(&mut self, server: &TestServer) {
        let wanted = |tool: &str| matches!(tool, "mail" | "weather" | "fail");
        self.host = Some(Host::presenting(server, "host-1", Some(&self.host_token), wanted).await);
    }

    /// Carries out a step, and waits until nothing is at work any more.
    pub(super) async fn act(&mut self, server: &TestServer, step: &Step, answers: &mut Answers) {
        let began = Instant::now();
        self.steps += 1;
        match step {
            Step::CreateSession(_)
            | Step::UpdateSession(_)
            | Step::GetOrCreateSession(_)
            | Step::DeleteSession(_)
            | Step::Fork(..)
            | Step::Import(_) => Box::pin(self.act_on_session(step, answers)).await,
            Step::Run { session, run, about, busy, is_stepped, recalls } => {
                let recall = wire::Names { names: vec!["recall".to_owned()] };
                let input = wire::RunInput {
                    stepped: *is_stepped,
                    context_sources: recalls.then_some(recall),
                    ..self.input(session, run, about, *busy)
                };
                self.started.push(input.clone());
                Box::pin(self.start(input, answers)).await;
            }
            Step::RunAgain(nth) => {
                if let Some(input) = self.started.get(nth % self.started.len().max(1)).cloned() {
                    Box::pin(self.start(input, answers)).await;
                }
            }
            Step::Host => match self.host.take() {
                Some(host) => {
                    answers.note_text("ToolHost/Connect", &format!("{:?}", host.gate.calls()));
                    host.leave().await;
                }
                None => self.host_comes(server).await,
            },
            Step::Decide(..)
            | Step::Answer(_)
            | Step::AbortRun(_)
            | Step::AbortSession(_)
            | Step::Resume(_)
            | Step::Advance(_)
            | Step::PutBlob
            | Step::CompleteCall(_)
            | Step::Forget(_) => Box::pin(self.act_on_run(step, answers)).await,
        }
        self.settled(server).await;
        while began.elapsed() < STEP_LEAST {
            tokio::task::yield_now().await;
        }
    }

    async fn act_on_session(&self, step: &Step, answers: &mut Answers) {
        let c = &self.operator;
        let text = self.text("a title");
        match step {
            Step::CreateSession(id) => {
                let request = wire::CreateSessionRequest {
                    session_id: Some((*id).to_owned()),
                    title: text,
                    labels: self.labels(),
                };
                answers.note("Sessions/CreateSession", &soon(c.create_session(request)).await);
            }
            Step::UpdateSession(id) => {
                let request = wire::UpdateSessionRequest {
                    session_id: (*id).to_owned(),
                    title: Some(text),
                    ..Default::default()
                };
                answers.note("Sessions/UpdateSession", &soon(c.update_session(request)).await);
            }
            Step::GetOrCreateSession(project) => {
                let request = wire::GetOrCreateSessionRequest {
                    user: "ada".to_owned(),
                    project: (*project).to_owned(),
                    title: text,
                    labels: self.labels(),
                };
                answers.note("Sessions/GetOrCreateSession", &soon(c.get_or_create_session(request)).await);
            }
            Step::DeleteSession(id) => {
                answers.note("Sessions/DeleteSession", &soon(c.delete_session(*id)).await);
            }
            Step::Fork(of, id) => {
                let request = wire::ForkSessionRequest {
                    session_id: (*of).to_owned(),
                    new_session_id: Some((*id).to_owned()),
                    ..Default::default()
                };
                answers.note("Sessions/ForkSession", &soon(c.fork_session(request)).await);
            }
            Step::Import(id) => {
                let message = wire::Message {
                    role: wire::Role::User.into(),
                    parts: vec![wire::Part { content: Some(wire::part::Content::Text(text)) }],
                };
                let request = wire::ImportEntriesRequest {
                    session_id: Some((*id).to_owned()),
                    run_id: Some(format!("imported-{}", self.steps)),
                    auto_create_session: true,
                    messages: vec![message],
                    labels: self.labels(),
                    ..Default::default()
                };
                let imported =
                    soon(c.sessions().import_entries(request)).await.map(tonic::Response::into_inner);
                answers.note("Sessions/ImportEntries", &imported.map_err(Error::from));
            }
            other => unreachable!("no step on a session: {other:?}"),
        }
    }

    async fn act_on_run(&self, step: &Step, answers: &mut Answers) {
        let c = &self.operator;
        match step {
            Step::Decide(nth, decision, remember) => {
                let request = wire::SubmitApprovalRequest {
                    request_id: self.question(*nth, wire::HumanRequestKind::Approve).await,
                    decision: Some(wire::Decision { decision: Some(decision.clone()) }),
                    remember: (*remember).into(),
                    ..Default::default()
                };
                answers.note("AgentLoop/SubmitApproval", &soon(c.submit_approval(request)).await);
            }
            Step::Answer(nth) => {
                let request = wire::SubmitInputRequest {
                    request_id: self.question(*nth, wire::HumanRequestKind::Prompt).await,
                    input: Some(wire::submit_input_request::Input::Text(self.text("an answer"))),
                    ..Default::default()
                };
                answers.note("AgentLoop/SubmitInput", &soon(c.submit_input(request)).await);
            }
            Step::AbortRun(id) => {
                answers.note("AgentLoop/Abort", &soon(c.abort_run(*id, self.word)).await);
            }
            Step::AbortSession(id) => {
                answers.note("AgentLoop/Abort", &soon(c.abort_session(*id, self.word)).await);
            }
            Step::Resume(id) => {
                let request = wire::ResumeRunRequest {
                    run_id: (*id).to_owned(),
                    request_id: format!("resume-{}", self.steps),
                    resumed_by: self.word.to_owned(),
                };
                answers.note("AgentLoop/ResumeRun", &soon(c.resume_run(request)).await);
            }
            Step::Advance(id) => {
                let request = wire::StepRequest {
                    run_id: (*id).to_owned(),
                    request_id: format!("step-{}", self.steps),
                    ..Default::default()
                };
                let stepped = soon(c.agent_loop().step(request)).await.map(tonic::Response::into_inner);
                answers.note("AgentLoop/Step", &stepped.map_err(Error::from));
            }
            Step::PutBlob => {
                for content in BLOBS.into_iter().filter(|content| !content.contains(self.stranger())) {
                    let stored = soon(c.put_blob(content.as_bytes(), "text/plain")).await;
                    answers.note("Blobs/PutBlob", &stored);
                }
            }
            Step::CompleteCall(id) => {
                let result = wire::CallResult {
                    call_id: format!("{id}/1.0"),
                    attempt: 1,
                    lease_token: "none".to_owned(),
                    output: self.word.to_owned(),
                    ..Default::default()
                };
                let outcome = Some(wire::complete_call_request::Outcome::Result(result));
                let mut hosts = self.as_host.tool_host();
                let completed = soon(hosts.complete_call(wire::CompleteCallRequest { outcome })).await;
                let completed = completed.map(tonic::Response::into_inner).map_err(Error::from);
                answers.note("ToolHost/CompleteCall", &completed);
            }
            Step::Forget(nth) => {
                let mut rules = soon(c.list_rules("")).await.expect("they are listed");
                rules.sort_by(|a, b| a.request_id.cmp(&b.request_id));
                let rule = rules.get(nth % rules.len().max(1)).map_or("none", |rule| rule.rule_id.as_str());
                answers.note("Tools/DeleteRule", &soon(c.delete_rule(rule)).await);
                answers.note("Tools/AcceptTool", &soon(c.accept_tool("mail", "")).await);
                answers.note("Tools/ForgetTool", &soon(c.forget_tool("fail")).await);
            }
            other => unreachable!("no step on a run: {other:?}"),
        }
    }

    async fn start(&self, input: wire::RunInput, answers: &mut Answers) {
        if input.on_busy_session() == Busy::Reject {
            answers.note("AgentLoop/Run", &soon(self.operator.run(input)).await);
        } else {
            // A queued run would be waited for, so nobody reads on.
            let streamed = Box::pin(soon(self.operator.run_stream(input))).await.map(|_| "it streams");
            answers.note("AgentLoop/RunStream", &streamed);
        }
    }

    fn input(&self, session: &str, run: &str, about: &str, busy: Busy) -> wire::RunInput {
        let policy = wire::ToolPolicy { ask_human: Some(true), ..Default::default() };
        wire::RunInput {
            labels: self.labels(),
            tool_policy: Some(policy),
            on_busy_session: busy.into(),
            ..in_session(session, run, &self.text(about))
        }
    }

    fn labels(&self) -> std::collections::BTreeMap<String, String> {
        [("fruit".to_owned(), self.word.to_owned())].into()
    }

    /// A text of this tenant, and of this step alone.
    fn text(&self, about: &str) -> String {
        format!("{about} {} {}", self.word, self.steps)
    }

    /// The id of an open question of this kind.
    async fn question(&self, nth: usize, kind: wire::HumanRequestKind) -> String {
        let pending = soon(self.operator.list_pending(wire::ListPendingRequest::default())).await;
        let pending = pending.expect("they are listed").requests.into_iter();
        let mut ids: Vec<String> =
            pending.filter(|request| request.kind() == kind).map(|request| request.request_id).collect();
        ids.sort_unstable();
        ids.get(nth % ids.len().max(1)).cloned().unwrap_or_else(|| "r0/1.0/1".to_owned())
    }

    /// Waits until no run is at work or about to begin, and the server knows if there is a host.
    async fn settled(&self, server: &TestServer) {
        let is_still = async || {
            let (runs, hosts) = (runs(&self.operator).await, self.operator.list_hosts().await);
            let (runs, hosts) = (runs.expect("they are listed"), hosts.expect("they are listed"));
            let begins = runs.iter().any(|run| {
                let holds = |other: &wire::Run| other.session_id == run.session_id && is_open(other);
                run.status() == RunStatus::Queued && !runs.iter().any(holds)
            });
            !begins && hosts.is_empty() == self.host.is_none()
        };
        let settled = async {
            while server.engine().live_runs() > 0 || !is_still().await || server.engine().live_runs() > 0 {
                tokio::task::yield_now().await;
            }
        };
        soon(settled).await;
    }
}

fn is_open(run: &wire::Run) -> bool {
    let ended = [RunStatus::Completed, RunStatus::Failed, RunStatus::Aborted, RunStatus::Queued];
    !ended.contains(&run.status())
}
