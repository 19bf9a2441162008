//! Inputs and plain data in few words.

use std::sync::Arc;

use agentloop_core::agent::{LoopLimits, RetryPolicy, RunSpec, ToolPolicy};
use agentloop_core::entry::{Compaction, CompactionReason};
use agentloop_core::extension::{ExtensionCall, ExtensionKind};
use agentloop_core::id::{Attempt, CallSlot, EntryNo, HostId, InstanceId, RequestId, RunId};
use agentloop_core::message::{FinishReason, Message, Part, Role, SharedMessage, ToolCall, Usage};
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::policy::PolicyRule;
use agentloop_core::question::QuestionContent;
use agentloop_core::run::event::{Ran, Steer};
use agentloop_core::run::human::{Decision, Remember, RememberScope};
use agentloop_core::run::input::{
    AbortCause, CallFacts, CallOutcome, Compacted, Input, ModelFailure, ModelFinished, NotOffered,
    PlanFailure, Prepared, ReadyCall, SourcedMessage, Start,
};
use agentloop_core::run::plan::Instruction;
use agentloop_core::run::status::{RunError, RunErrorCode};
use agentloop_core::time::Millis;
use agentloop_core::tool::{Digest, EffectClass, ToolTerms};

use super::{Script, run_id, session_id};

/// The chance of every script.
pub(crate) const SEED: u64 = 0x5eed_0001;

/// Two calls at a time, three retries after 1, 2 and 4 s, no limit, no expiry.
pub(crate) fn spec() -> RunSpec {
    RunSpec {
        agent: "agent".to_owned(),
        model: "fake/model".to_owned(),
        tool_policy: ToolPolicy { max_parallel: 2, ..ToolPolicy::default() },
        limits: LoopLimits { max_iterations: 1_000, ..LoopLimits::default() },
        retry: RetryPolicy { jitter: false, ..RetryPolicy::default() },
        ..RunSpec::default()
    }
}

/// [`spec`] with other limits.
pub(crate) fn limited(limits: impl FnOnce(&mut LoopLimits)) -> RunSpec {
    let mut spec = spec();
    limits(&mut spec.limits);
    spec
}

/// [`spec`], step by step.
pub(crate) fn stepped() -> RunSpec {
    RunSpec { stepped: true, ..spec() }
}

/// [`spec`] with a planner.
pub(crate) fn directed() -> RunSpec {
    RunSpec { planner: Some("ada".to_owned()), ..spec() }
}

/// [`spec`] with so many calls at a time.
pub(crate) fn parallel(max_parallel: u32) -> RunSpec {
    let mut spec = spec();
    spec.tool_policy.max_parallel = max_parallel;
    spec
}

pub(crate) fn start(spec: RunSpec) -> Input {
    start_after(0, spec)
}

/// A run on a session that has entries already.
pub(crate) fn start_after(entries: u64, spec: RunSpec) -> Input {
    Input::Start(Box::new(Start {
        run: run_id(),
        session: session_id(),
        last_entry: EntryNo(entries),
        spec: Arc::new(spec),
        seed: SEED,
        messages: vec![user("what is the weather?")],
        queued: false,
        traceparent: None,
        caller_groups: Vec::new(),
        not_offered: NotOffered::default(),
    }))
}

/// A run that waits for its session.
pub(crate) fn start_queued(spec: RunSpec) -> Input {
    let Input::Start(start) = start_after(0, spec) else { unreachable!("a start") };
    Input::Start(Box::new(Start { queued: true, ..*start }))
}

/// Its session is free, and nothing is remembered for it.
pub(crate) fn enter(script: &Script) -> Input {
    enter_after(script.state().last_entry().0, Vec::new())
}

/// Its session is free, with so many entries by now, and these rules are remembered.
pub(crate) fn enter_after(entries: u64, rules: Vec<PolicyRule>) -> Input {
    Input::Enter { last_entry: EntryNo(entries), rules, withdrawn_tools: Vec::new() }
}

/// More to say, by a request of this id.
pub(crate) fn steer(id: &str, text: &str) -> Input {
    let id = RunId::parse(id).expect("a good id");
    let steer = Steer { id, digest: Digest::of(&[text.as_bytes()]) };
    Input::Steer { steer, messages: vec![user(text)] }
}

pub(crate) fn user(text: &str) -> SharedMessage {
    Arc::new(Message::text(Role::User, text))
}

pub(crate) fn host() -> HostId {
    HostId::parse("host-1").expect("a good id")
}

// ---- extensions

/// [`spec`] with a hook and a context source.
pub(crate) fn hooked() -> RunSpec {
    RunSpec { hooks: vec!["audit".to_owned()], context_sources: vec!["memory".to_owned()], ..spec() }
}

pub(crate) fn prepared(prepared: Prepared) -> Input {
    Input::Prepared(Box::new(prepared))
}

/// A hook had something to say.
pub(crate) fn applied(outcome: &str) -> ExtensionCall {
    ExtensionCall {
        extension: ExtensionKind::Hook,
        name: "audit".to_owned(),
        outcome: outcome.to_owned(),
        error: None,
        duration: Millis(5),
        system_prompt: String::new(),
    }
}

// ---- the model

/// A tool call as the model writes it, and what is known about it.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    name: &'static str,
    arguments: String,
    facts: CallFacts,
}

/// A call that can run: unsafe, without approval, a minute's time.
pub(crate) fn tool(name: &'static str) -> Tool {
    let facts = CallFacts::Ready(ReadyCall {
        effect: EffectClass::Unsafe,
        requires_approval: false,
        timeout: Millis::secs(60),
        requires_runtime: false,
        deadline_is_outcome: false,
        title: String::new(),
        terms: None,
    });
    Tool { name, arguments: "{}".to_owned(), facts }
}

/// A call that a human answers.
pub(crate) fn question(text: &str) -> Tool {
    let arguments = format!(r#"{{"question":"{text}"}}"#);
    Tool { name: "ask_human", arguments, facts: CallFacts::AsksHuman }
}

/// A call that writes a to-do list of these items, all pending.
pub(crate) fn todos(contents: &[&str]) -> Tool {
    let item =
        |(id, content): (u32, &&str)| format!(r#"{{"id":"{id}","content":"{content}","status":"pending"}}"#);
    let items: Vec<String> = (1..).zip(contents).map(item).collect();
    let arguments = format!(r#"{{"todos":[{}]}}"#, items.join(","));
    Tool { name: "update_todos", arguments, facts: CallFacts::UpdatesTodos }
}

/// A call that cannot run.
pub(crate) fn bad_tool(name: &'static str) -> Tool {
    let facts = CallFacts::Rejected { message: format!("no tool named {name}") };
    Tool { name, arguments: "{}".to_owned(), facts }
}

impl Tool {
    pub(crate) fn with(self, arguments: &str) -> Self {
        Self { arguments: arguments.to_owned(), ..self }
    }

    pub(crate) fn class(mut self, class: EffectClass) -> Self {
        if let CallFacts::Ready(ReadyCall { effect, .. }) = &mut self.facts {
            *effect = class;
        }
        self
    }

    pub(crate) fn approval(mut self) -> Self {
        if let CallFacts::Ready(ReadyCall { requires_approval, .. }) = &mut self.facts {
            *requires_approval = true;
        }
        self
    }

    /// Proposed under these terms.
    pub(crate) fn under(mut self, under: &ToolTerms) -> Self {
        if let CallFacts::Ready(ReadyCall { effect, requires_approval, terms, .. }) = &mut self.facts {
            *effect = under.effect;
            *requires_approval = under.requires_approval;
            *terms = Some(under.digest.clone());
        }
        self
    }

    pub(crate) fn in_runtime(mut self) -> Self {
        if let CallFacts::Ready(ReadyCall { requires_runtime, .. }) = &mut self.facts {
            *requires_runtime = true;
        }
        self
    }

    pub(crate) fn deadline_is_outcome(mut self) -> Self {
        if let CallFacts::Ready(ReadyCall { deadline_is_outcome, .. }) = &mut self.facts {
            *deadline_is_outcome = true;
        }
        self
    }

    pub(crate) fn within(mut self, limit: Millis) -> Self {
        if let CallFacts::Ready(ReadyCall { timeout, .. }) = &mut self.facts {
            *timeout = limit;
        }
        self
    }
}

pub(crate) fn model_says(number: u32, attempt: u32, text: &str) -> Input {
    let message = Arc::new(Message::text(Role::Assistant, text));
    finished(number, attempt, message, FinishReason::Stop, Vec::new())
}

pub(crate) fn model_asks(number: u32, attempt: u32, tools: &[Tool], finish: FinishReason) -> Input {
    let parts = (0..).zip(tools).map(|(index, tool)| {
        let slot = CallSlot::from((number, index));
        Part::ToolCall(ToolCall {
            slot,
            provider_id: format!("p-{slot}"),
            name: tool.name.to_owned(),
            arguments: tool.arguments.clone(),
            state: None,
        })
    });
    let message = Arc::new(Message { role: Role::Assistant, parts: parts.collect() });
    finished(number, attempt, message, finish, tools.iter().map(|tool| tool.facts.clone()).collect())
}

fn finished(
    model_call: u32,
    attempt: u32,
    message: SharedMessage,
    finish: FinishReason,
    facts: Vec<CallFacts>,
) -> Input {
    Input::ModelFinished(Box::new(ModelFinished {
        model_call,
        attempt: Attempt(attempt),
        message,
        finish,
        usage: Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() },
        first_token: Millis(300),
        duration: Millis(900),
        tools: Digest::of(&[b"tools"]),
        facts,
        hooked: Vec::new(),
        full: None,
    }))
}

pub(crate) fn failure(kind: ModelErrorKind) -> ModelFailure {
    ModelFailure { kind, message: format!("it failed: {kind}"), status: None, retry_after: None }
}

// ---- hosts

pub(crate) fn granted(slot: CallSlot) -> Input {
    Input::HostGranted { slot, host: host(), instance: None, terms: None }
}

pub(crate) fn granted_by(slot: CallSlot, host: &str) -> Input {
    let instance = InstanceId::parse(format!("{host}.0")).ok();
    Input::HostGranted { slot, host: HostId::parse(host).expect("a good id"), instance, terms: None }
}

/// A host that declares the tool under these terms has room.
pub(crate) fn granted_under(slot: CallSlot, terms: &Arc<ToolTerms>) -> Input {
    Input::HostGranted { slot, host: host(), instance: None, terms: Some(terms.clone()) }
}

/// Terms that are told apart by their version too.
pub(crate) fn terms(effect: EffectClass, requires_approval: bool, version: &str) -> Arc<ToolTerms> {
    let flags = [effect as u8, u8::from(requires_approval)];
    Arc::new(ToolTerms {
        effect,
        requires_approval,
        digest: Digest::of(&[&flags, version.as_bytes()]),
        output_schema: None,
    })
}

pub(crate) fn denied(slot: CallSlot) -> Input {
    Input::HostDenied { slot, message: "nobody serves it".to_owned() }
}

pub(crate) fn accepted(slot: CallSlot, attempt: u32) -> Input {
    Input::CallAccepted { slot, attempt: Attempt(attempt), host: host() }
}

pub(crate) fn checkpoint(slot: CallSlot, attempt: u32, checkpoint: &[u8]) -> Input {
    Input::CallCheckpoint { slot, attempt: Attempt(attempt), checkpoint: checkpoint.to_vec() }
}

/// A running call asks for text, by this name of the question.
pub(crate) fn needs(slot: CallSlot, attempt: u32, input: &str) -> Input {
    let question = QuestionContent {
        text: "which?".to_owned(),
        input: Some(input.to_owned()),
        ..QuestionContent::default()
    };
    Input::InputNeeded { slot, attempt: Attempt(attempt), question, timeout: None, resume_state: None }
}

/// A running call asks for text, and leaves a state to go on from.
pub(crate) fn leaves(slot: CallSlot, attempt: u32, input: &str, state: &[u8]) -> Input {
    let Input::InputNeeded { question, timeout, .. } = needs(slot, attempt, input) else {
        unreachable!("a question")
    };
    Input::InputNeeded {
        slot,
        attempt: Attempt(attempt),
        question,
        timeout,
        resume_state: Some(state.to_vec()),
    }
}

/// A running call leaves a state to go on from, without a question.
pub(crate) fn resumable(slot: CallSlot, attempt: u32, resume_no: u64, state: &[u8]) -> Input {
    Input::CallResumable { slot, attempt: Attempt(attempt), resume_no, state: state.to_vec() }
}

pub(crate) fn lost(slot: CallSlot, attempt: u32, ran: Ran) -> Input {
    Input::CallLost {
        slot,
        attempt: Attempt(attempt),
        message: "the host is gone".to_owned(),
        ran,
        busy: false,
    }
}

/// A host had no room for a call that it gave credit for.
pub(crate) fn busy(slot: CallSlot, attempt: u32) -> Input {
    Input::CallLost { slot, attempt: Attempt(attempt), message: "busy".to_owned(), ran: Ran::No, busy: true }
}

pub(crate) fn ok(output: &str) -> CallOutcome {
    CallOutcome::Succeeded { output: output.to_owned(), images: Vec::new(), attachments: Default::default() }
}

/// A failure that another try may mend.
pub(crate) fn passing(ran: Ran, delay: Millis) -> CallOutcome {
    CallOutcome::Failed { message: "not now".to_owned(), retryable: true, delay, ran }
}

/// A failure that stays.
pub(crate) fn lasting(ran: Ran) -> CallOutcome {
    CallOutcome::Failed { message: "no such city".to_owned(), retryable: false, delay: Millis(0), ran }
}

pub(crate) fn turned_down() -> CallOutcome {
    CallOutcome::Rejected { message: "too large for this host".to_owned() }
}

// ---- people

pub(crate) fn edits(arguments: &str) -> Decision {
    Decision::ApproveWithEdits { arguments: arguments.to_owned() }
}

/// A decision that is remembered.
pub(crate) fn remembering(input: Input, scope: RememberScope, rule: Option<PolicyRule>) -> Input {
    match input {
        Input::Decided { request, decision, digest, by, .. } => {
            let remember = Some(Box::new(Remember { scope, rule }));
            Input::Decided { request, decision, digest, by, remember }
        }
        other => other,
    }
}

pub(crate) fn deny() -> Decision {
    Decision::Deny { message: "too dear".to_owned() }
}

pub(crate) fn deny_and_stop() -> Decision {
    Decision::DenyAndStop { message: "stop it".to_owned() }
}

pub(crate) fn answer() -> Decision {
    Decision::AnswerInPlace { output: "say that it rains".to_owned() }
}

pub(crate) fn abort(cause: AbortCause) -> Input {
    Input::Abort { cause, reason: "enough".to_owned() }
}

pub(crate) fn resume(request: &str) -> Input {
    Input::Resume { request: request.to_owned(), by: "ops".to_owned() }
}

pub(crate) fn too_large(model_call: u32, attempt: u32) -> Input {
    Input::ContextTooLarge {
        model_call,
        attempt: Attempt(attempt),
        reason: CompactionReason::Tokens,
        tokens: 9_000,
    }
}

/// Hides the session's first entry.
pub(crate) fn compacted(number: u32) -> Input {
    Input::Compacted(Box::new(Compacted {
        number,
        compaction: Arc::new(Compaction {
            strategy: "truncate".to_owned(),
            up_to: EntryNo(1),
            ..Compaction::default()
        }),
        usage: Usage { input_tokens: 50, output_tokens: 5, ..Usage::default() },
        tokens_before: 9_000,
        tokens_after: 100,
    }))
}

pub(crate) fn compaction_failed(number: u32) -> Input {
    let error = RunError::new(RunErrorCode::Model(ModelErrorKind::Unavailable), "no summary");
    Input::CompactionFailed { number, error }
}

/// The model's message, when the context has passed a bound with it.
pub(crate) fn full(input: Input) -> Input {
    match input {
        Input::ModelFinished(mut done) => {
            done.full = Some(CompactionReason::Tokens);
            Input::ModelFinished(done)
        }
        other => other,
    }
}

// ---- what comes next

pub(crate) fn step_on(request: &str) -> Input {
    Input::Step { request: request.to_owned(), approve: None, by: "ann".to_owned().into() }
}

pub(crate) fn step_by(request: &str, question: RequestId) -> Input {
    Input::Step { request: request.to_owned(), approve: Some(question), by: "ann".to_owned().into() }
}

pub(crate) fn planned(decision: u32, instruction: Instruction) -> Input {
    Input::Planned { decision, result: Ok(instruction) }
}

pub(crate) fn planner_fails(decision: u32) -> Input {
    Input::Planned { decision, result: Err(PlanFailure { message: "no answer in 10 s".to_owned() }) }
}

/// A message of the context source `memory`.
pub(crate) fn from_memory(text: &str) -> SourcedMessage {
    SourcedMessage { source: "memory".to_owned(), message: user(text) }
}
