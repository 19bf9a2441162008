//! A minimal owner of a run for tests: it tracks the sequence and entry numbers, and appends the events that it is given.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{
    Attempt, CallId, CallSlot, EntryNo, Epoch, RequestId, RuleId, RunId, RunKey, Seq, SessionId, TenantId,
};
use agentloop_core::message::{FinishReason, Message, Role, Usage};
use agentloop_core::policy::{Approvers, PolicyAction, PolicyRule};
use agentloop_core::run::event::{Event, Observation, Outcome, Record};
use agentloop_core::run::human::{Answer, Decision, Question, QuestionKind, RememberScope, Remembered};
use agentloop_core::run::state::CallCounts;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::Digest;

use crate::store::{Append, CreateRun, EntryRow, NewFork, NewSession, RunSummary, Store, StoreError};

/// Time of the first event of a run in milliseconds, unless [`Owner::at`] changes it.
pub const START: u64 = 1_000;

pub fn tenant() -> TenantId {
    TenantId::local()
}

pub fn key(name: &str) -> RunKey {
    RunKey::new(tenant(), run(name))
}

pub fn labelled(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A text that a store cannot make shorter.
pub fn incompressible(bytes: usize) -> String {
    let mut state = 1_u64;
    let letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + u8::try_from((state >> 40) % 90).unwrap())
    };
    std::iter::repeat_with(letter).take(bytes).collect()
}

pub fn session(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

pub fn run(name: &str) -> RunId {
    RunId::parse(name).unwrap()
}

/// A session without a title, of an unauthenticated caller.
pub fn new_session(name: &str, labels: &BTreeMap<String, String>, created_at: Timestamp) -> NewSession {
    let (session, labels) = (session(name), labels.clone());
    NewSession { tenant: tenant(), session, title: String::new(), labels, created_at, created_by: None }
}

/// A fork of the entries up to `at`, of an unauthenticated caller.
pub fn new_fork(source: &str, at: u64, name: &str, created_at: Timestamp) -> NewFork {
    let (source, session) = (session(source), session(name));
    let (at, created_by, source_of) = (EntryNo(at), None, None);
    NewFork { tenant: tenant(), source, at, session, created_at, created_by, source_of }
}

/// The owner of one run, as the engine would be.
#[derive(Clone)]
pub struct Owner {
    pub store: Arc<dyn Store>,
    pub tenant: TenantId,
    pub run: RunId,
    pub session: SessionId,
    pub epoch: Epoch,
    pub seq: Seq,
    /// The session's last entry, as far as this owner knows.
    pub entry: EntryNo,
    /// Time of the next event.
    pub now: Timestamp,
    pub wake_at: Option<Timestamp>,
}

impl Owner {
    pub fn new(store: &Arc<dyn Store>, session_name: &str, run_name: &str) -> Self {
        Self {
            store: store.clone(),
            tenant: tenant(),
            run: run(run_name),
            session: session(session_name),
            epoch: store.epoch(),
            seq: Seq(0),
            entry: EntryNo(0),
            now: Timestamp(START),
            wake_at: None,
        }
    }

    /// An owner that has created its run, and its session if there was none.
    pub async fn started(store: &Arc<dyn Store>, session_name: &str, run_name: &str) -> Self {
        let mut owner = Self::new(store, session_name, run_name);
        if let Some(row) = store.session(&owner.tenant, &owner.session).await.unwrap() {
            owner.entry = row.last_entry;
        }
        owner.create().await.unwrap();
        owner
    }

    pub fn at(mut self, now: u64) -> Self {
        self.now = Timestamp(now);
        self
    }

    pub fn of(mut self, tenant: &str) -> Self {
        self.tenant = TenantId::parse(tenant).unwrap();
        self
    }

    /// Creates the run, which enters its session.
    pub async fn create(&mut self) -> Result<(), StoreError> {
        let append = self.creation();
        self.write(append).await
    }

    /// The append that creates the run.
    pub fn creation(&self) -> Append {
        let started = Event::Started {
            session: self.session.clone(),
            last_entry: self.entry,
            spec: Arc::new(RunSpec { agent: "default".to_owned(), ..RunSpec::default() }),
            seed: 7,
            queued: false,
            traceparent: None,
            unknown_tools: vec!["wether".to_owned()],
            withdrawn_tools: vec!["mail".to_owned()],
            caller_groups: vec!["sre".to_owned()],
            hidden_seed: true,
        };
        let mut append = self.append(RunStatus::Preparing, vec![started]);
        append.create = Some(CreateRun {
            request_digest: Digest::of(&[self.run.as_str().as_bytes()]),
            create_session: true,
            made_ids: false,
            is_blind: false,
            agent: "default".to_owned(),
            model: "openai/gpt-5".to_owned(),
            labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
            preview: format!("Preview of {}", self.run),
            created_by: None,
            interrupts: false,
        });
        append.enter = Some(self.entry);
        append
    }

    /// An owner that has created its run, which waits in its session's queue.
    pub async fn queued(store: &Arc<dyn Store>, session_name: &str, run_name: &str) -> Self {
        let mut owner = Self::new(store, session_name, run_name);
        let append = owner.queueing();
        owner.write(append).await.unwrap();
        owner
    }

    /// The append that creates the run and queues it.
    pub fn queueing(&self) -> Append {
        let mut append = self.creation();
        append.enter = None;
        append.summary.status = RunStatus::Queued;
        append.records.iter_mut().for_each(|record| record.status = RunStatus::Queued);
        append
    }

    /// Makes the run the session's live run, if the session's last entry is [`Self::entry`].
    pub async fn enters(&mut self) -> Result<(), StoreError> {
        let append = self.entering();
        self.write(append).await
    }

    /// The append that makes the run the session's live run.
    pub fn entering(&self) -> Append {
        let mut append = self.append(RunStatus::Preparing, vec![plain(1)]);
        append.enter = Some(self.entry);
        append
    }

    /// Appends these events, after which the run has this status.
    pub async fn tell(&mut self, status: RunStatus, events: Vec<Event>) -> Result<(), StoreError> {
        let append = self.append(status, events);
        self.write(append).await
    }

    /// The append of these events.
    pub fn append(&self, status: RunStatus, events: Vec<Event>) -> Append {
        let record = |(event, seq)| Record { seq: Seq(self.seq.0 + seq), at: self.now, status, event };
        Append {
            tenant: self.tenant.clone(),
            run: self.run.clone(),
            session: self.session.clone(),
            epoch: self.epoch,
            after: self.seq,
            records: events.into_iter().zip(1..).map(record).collect(),
            summary: summary(status, self.wake_at),
            create: None,
            enter: None,
            jobs: Vec::new(),
        }
    }

    /// Writes an append, and tracks its numbers if that succeeds.
    pub async fn write(&mut self, append: Append) -> Result<(), StoreError> {
        let last = append.records.last().expect("an append has a record").seq;
        let entry =
            append.records.iter().rev().find_map(|record| record.event.entry()).map(|(entry, _)| entry);
        self.store.append(append).await?;
        self.seq = last;
        self.entry = entry.unwrap_or(self.entry);
        Ok(())
    }

    /// Adds a message of the user.
    pub async fn says(&mut self, text: &str) -> Result<(), StoreError> {
        let event = input(self.entry.next(), text);
        self.tell(RunStatus::Preparing, vec![event]).await
    }

    /// Adds a message of the model.
    pub async fn hears(&mut self, text: &str) -> Result<(), StoreError> {
        let event = assistant(self.entry.next(), text);
        self.tell(RunStatus::ModelRunning, vec![event]).await
    }

    /// Asks a human about the call at this index.
    pub async fn asks(&mut self, index: u32) -> RequestId {
        let question = self.question(index);
        let request = question.request.clone();
        self.tell(RunStatus::AwaitingHuman, vec![Event::HumanRequested { question, resume_state: None }])
            .await
            .unwrap();
        request
    }

    pub fn question(&self, index: u32) -> Question {
        let slot = CallSlot::from((1, index));
        Question {
            request: CallId { run: self.run.clone(), slot }.request(Attempt(1)),
            kind: QuestionKind::Approve,
            slot: Some(slot),
            tool: "weather".to_owned(),
            content: None,
            arguments: "{}".to_owned(),
            digest: Digest::of(&[b"weather", b"{}"]),
            why: String::new(),
            terms: None,
            asked_at: self.now,
            expires_at: None,
            approvers: Approvers::default(),
        }
    }

    /// Asks a question whose answer leaves a rule that denies a tool. Returns the rule's id.
    pub async fn remembers_deny(&mut self, index: u32, scope: RememberScope) -> RuleId {
        self.remembers_deny_by(index, scope, "ada").await
    }

    pub async fn remembers_deny_by(&mut self, index: u32, scope: RememberScope, by: &str) -> RuleId {
        let rule = PolicyRule {
            name: String::new(),
            action: PolicyAction::Deny,
            tool: "weather".to_owned(),
            arguments: Vec::new(),
            origin: scope.origin(),
            terms: None,
            approvers: Approvers::default(),
            made_under: None,
        };
        let question = self.question(index);
        let remembered = Some(Box::new(Remembered { scope, rule }));
        let answer = Answer { by: by.to_owned(), remembered, ..answer() };
        let id = question.request.rule(answer.at);
        let resolved =
            Event::HumanResolved { request: question.request.clone(), slot: question.slot, answer };
        self.tell(
            RunStatus::ToolRunning,
            vec![Event::HumanRequested { question, resume_state: None }, resolved],
        )
        .await
        .unwrap();
        id
    }

    pub async fn ends(&mut self) -> Result<(), StoreError> {
        self.tell(RunStatus::Completed, vec![finished()]).await
    }

    /// The run's journal, as stored.
    pub async fn stored(&self) -> Vec<Record> {
        self.store.records(&self.tenant, &self.run, Seq(0), u32::MAX).await.unwrap()
    }
}

pub fn summary(status: RunStatus, wake_at: Option<Timestamp>) -> RunSummary {
    let usage = Usage { input_tokens: 10, ..Usage::default() };
    let calls = CallCounts::default();
    RunSummary { status, wake_at, at_hosts: false, error: None, usage, iterations: 1, tool_calls: 0, calls }
}

pub fn input(entry: EntryNo, text: &str) -> Event {
    Event::MessageAdded { entry, message: Arc::new(Message::text(Role::User, text)) }
}

pub fn assistant(entry: EntryNo, text: &str) -> Event {
    Event::AssistantMessage {
        model_call: 1,
        attempt: Attempt(1),
        entry,
        message: Arc::new(Message::text(Role::Assistant, text)),
        finish: FinishReason::Stop,
        usage: Usage::default(),
        first_token: Millis(1),
        duration: Millis(2),
        tools: Digest::of(&[]),
        decision: Observation::Stop,
        full: None,
    }
}

/// The text of an entry.
pub fn plain_text(row: &EntryRow) -> String {
    row.content.message().expect("the entry is a message").plain_text()
}

/// An event that no table but the journal depends on.
pub fn plain(model_call: u32) -> Event {
    Event::ModelCallStarted {
        model_call,
        attempt: Attempt(1),
        first_counted: Attempt(1),
        last_entry: EntryNo(1),
    }
}

pub fn finished() -> Event {
    Event::Finished { outcome: Outcome::Completed, error: None, totals: Default::default() }
}

pub fn resolved(question: &Question) -> Event {
    Event::HumanResolved { request: question.request.clone(), slot: question.slot, answer: answer() }
}

pub fn answer() -> Answer {
    Answer::new(Decision::Deny { message: "no".to_owned() }, "ada".to_owned(), Timestamp(5_000))
}
