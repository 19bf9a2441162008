//! One value per golden file, every field filled at least once.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::{
    BackgroundPolicy, ContextPolicy, LoopLimits, ModelOptions, ModelTimeouts, ReasoningEffort,
    ResponseSchema, RetryPolicy, RunSpec, ToolChoice, ToolPolicy,
};
use agentloop_core::blob::BlobDigest;
use agentloop_core::entry::{Compaction, CompactionReason, Cut};
use agentloop_core::error::ModelErrorKind;
use agentloop_core::extension::{ExtensionCall, ExtensionKind};
use agentloop_core::id::{CallId, CallSlot, EntryNo, HostId, InstanceId, RequestId, RunId, Seq, SessionId};
use agentloop_core::message::{
    Attachments, File, FileSource, FinishReason, Image, Link, Message, Part, ProviderState, Reasoning, Role,
    ToolCall, ToolResult, ToolStatus, Usage,
};
use agentloop_core::policy::{Approvers, ArgumentPattern, PolicyAction, PolicyRule, RuleOrigin, Widening};
use agentloop_core::run::event::{AfterAttempt, Event, Observation, Outcome, Ran, Steer, Totals};
use agentloop_core::run::human::{
    Answer, Decision, Question, QuestionContent, QuestionKind, RememberScope, Remembered, SelectOption,
};
use agentloop_core::run::plan::Instruction;
use agentloop_core::run::status::{RunError, RunErrorCode};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::todo::{TodoItem, TodoPriority, TodoStatus};
use agentloop_core::tool::{Digest, EffectClass};

const SLOT: CallSlot = CallSlot(1, 0);

/// Names of golden files and what they say.
pub(crate) fn examples() -> Vec<(&'static str, Event)> {
    [
        starts(),
        inputs(),
        extensions(),
        compactions(),
        model_calls(),
        decisions(),
        tool_calls(),
        questions(),
        answers(),
        ends(),
    ]
    .concat()
}

fn starts() -> Vec<(&'static str, Event)> {
    vec![
        ("started", started(unlimited(full_spec()), u64::MAX)),
        ("started.plain", started(unlimited(RunSpec::default()), 0)),
        ("started.extended", started(unlimited(extended_spec()), 1)),
        ("started.limited", started(RunSpec::default(), 0)),
        (
            "started.ends_with_its_caller",
            started(RunSpec { cancel_on_disconnect: true, ..RunSpec::default() }, 0),
        ),
        ("started.deadline_is_outcome", started(outcome_at_the_deadline(), 0)),
        ("started.todos", started(keeps_todos(), 0)),
        ("started.approvers", started(asks_two(), 0)),
        ("started.queued", queued()),
        ("started.not_offered", not_offered()),
        ("session_entered", entered(Vec::new())),
        ("session_entered.rules", entered(vec![no_weather(RuleOrigin::Session)])),
        ("session_entered.withdrawn", withdrawn()),
        ("input_added", Event::InputAdded { entry: EntryNo(4), message: Arc::new(prompt()) }),
        ("paused", Event::Paused { error: model_error() }),
        ("resumed", Event::Resumed { by: "ops@example.org".to_owned(), request: "resume-1".to_owned() }),
    ]
}

fn entered(rules: Vec<PolicyRule>) -> Event {
    Event::SessionEntered { last_entry: EntryNo(41), rules, withdrawn_tools: Vec::new() }
}

fn withdrawn() -> Event {
    let withdrawn_tools = vec!["mail".to_owned(), "weather".to_owned()];
    Event::SessionEntered { last_entry: EntryNo(41), rules: Vec::new(), withdrawn_tools }
}

fn inputs() -> Vec<(&'static str, Event)> {
    let message = Arc::new(Message::text(Role::User, "one more thing"));
    let steer = Steer { id: RunId::parse("more").expect("an id"), digest: Digest::of(&[b"more"]) };
    let remembered = Arc::new(Message::text(Role::User, "The user likes short answers."));
    vec![
        ("input_held", Event::InputHeld { message: message.clone(), steer: None }),
        ("input_held.steer", Event::InputHeld { message, steer: Some(steer) }),
        ("input_entered", Event::InputEntered { entry: EntryNo(9), held: Seq(7) }),
        (
            "todos_updated",
            Event::TodosUpdated {
                slot: SLOT,
                result: EntryNo(3),
                items: Arc::new(vec![
                    TodoItem {
                        id: "1".to_owned(),
                        content: "Book the ferry".to_owned(),
                        status: TodoStatus::InProgress,
                        priority: TodoPriority::High,
                    },
                    TodoItem {
                        id: "2".to_owned(),
                        content: "Pack".to_owned(),
                        status: TodoStatus::Pending,
                        priority: TodoPriority::Medium,
                    },
                ]),
            },
        ),
        (
            "imported",
            Event::Imported {
                entry: EntryNo(4),
                message: Arc::new(Message::text(Role::Assistant, "Take the ferry.")),
            },
        ),
        (
            "context_added",
            Event::ContextAdded { source: "memory".to_owned(), entry: EntryNo(4), message: remembered },
        ),
    ]
}

fn extensions() -> Vec<(&'static str, Event)> {
    let hook = ExtensionCall {
        extension: ExtensionKind::Hook,
        name: "audit".to_owned(),
        outcome: "annotated: looks fine".to_owned(),
        error: None,
        duration: Millis(12),
        system_prompt: "Be polite.".to_owned(),
    };
    let source = ExtensionCall {
        extension: ExtensionKind::ContextSource,
        name: "memory".to_owned(),
        outcome: String::new(),
        error: Some("no answer in time".to_owned()),
        duration: Millis(2_000),
        system_prompt: String::new(),
    };
    let changed = Event::CallProposed {
        asks_human: false,
        slot: SLOT,
        tool: "weather".to_owned(),
        effect: EffectClass::Keyed,
        timeout: Millis::secs(30),
        needs_approval: false,
        arguments: Some(r#"{"city":"Bonn"}"#.to_owned()),
        needs_runtime: false,
        title: String::new(),
        deadline_is_outcome: false,
        terms: None,
    };
    let in_runtime = Event::CallProposed {
        asks_human: false,
        slot: SLOT,
        tool: "browse".to_owned(),
        effect: EffectClass::Unsafe,
        timeout: Millis::secs(30),
        needs_approval: false,
        arguments: None,
        needs_runtime: true,
        title: String::new(),
        deadline_is_outcome: false,
        terms: None,
    };
    let titled = Event::CallProposed {
        asks_human: false,
        slot: SLOT,
        tool: "read".to_owned(),
        effect: EffectClass::ReadOnly,
        timeout: Millis::secs(30),
        needs_approval: false,
        arguments: None,
        needs_runtime: false,
        deadline_is_outcome: false,
        title: "Read src/main.rs".to_owned(),
        terms: None,
    };
    vec![
        ("extension_applied", Event::ExtensionApplied { slot: None, applied: hook.clone() }),
        ("extension_applied.call", Event::ExtensionApplied { slot: Some(SLOT), applied: hook }),
        ("extension_applied.failed", Event::ExtensionApplied { slot: None, applied: source }),
        ("call_proposed.changed", changed),
        ("call_proposed.runtime", in_runtime),
        ("call_proposed.titled", titled),
    ]
}

fn compactions() -> Vec<(&'static str, Event)> {
    let compacted = |compaction, usage| Event::Compacted {
        entry: EntryNo(41),
        compaction: Arc::new(compaction),
        usage,
        tokens_before: 9_000,
        tokens_after: 1_200,
    };
    let full = Compaction {
        strategy: "summarize".to_owned(),
        up_to: EntryNo(32),
        summary: "They talked about the weather.".to_owned(),
        keep_system: true,
        cut: Some(Cut { up_to: EntryNo(36), output_bytes: 2_048, text_bytes: Some(65_536) }),
    };
    let plain = Compaction { strategy: "truncate".to_owned(), up_to: EntryNo(32), ..Compaction::default() };
    let usage = Usage { input_tokens: 8_000, output_tokens: 90, ..Usage::default() };
    let started = |reason, level, tokens| Event::CompactionStarted {
        number: 2,
        strategy: "summarize".to_owned(),
        reason,
        level,
        tokens,
    };
    let failed = |usage| Event::CompactionFailed {
        number: 2,
        strategy: "summarize".to_owned(),
        error: model_error(),
        usage,
    };
    vec![
        ("compaction_started", started(CompactionReason::Tokens, 0, 9_000)),
        ("compaction_started.messages", started(CompactionReason::Messages, 0, 0)),
        ("compaction_started.overflow", started(CompactionReason::Overflow, 3, 0)),
        ("compaction_started.planned", started(CompactionReason::Planned, 0, 0)),
        ("compaction_failed", failed(Usage::default())),
        ("compaction_failed.usage", failed(usage)),
        ("compacted", compacted(full, usage)),
        ("compacted.plain", compacted(plain, Usage::default())),
    ]
}

fn decisions() -> Vec<(&'static str, Event)> {
    let plain = |instruction| Event::Planned {
        instruction,
        planner: "careful".to_owned(),
        step: None,
        approved: None,
        named: None,
    };
    let select = Instruction::RequestSelect {
        question: "Which city?".to_owned(),
        options: vec![SelectOption { id: "rome".to_owned(), label: "Rome, Italy".to_owned() }],
        multiple: true,
    };
    let question = CallId { run: RunId::parse("run-1").expect("a good id"), slot: SLOT }.request(0);
    let step = |approved, named| Event::Planned {
        instruction: Instruction::CallTools,
        planner: String::new(),
        step: Some("step-2".to_owned()),
        approved,
        named,
    };
    vec![
        ("planned", plain(Instruction::CallModel)),
        ("planned.step", step(Some(question.clone()), None)),
        ("planned.step.named", step(None, Some(question))),
        ("planned.approve", plain(Instruction::RequestApproval)),
        ("planned.prompt", plain(Instruction::RequestPrompt { question: "When?".to_owned() })),
        ("planned.select", plain(select)),
        (
            "planned.form",
            plain(Instruction::RequestForm { question: "Who?".to_owned(), form: FORM.to_owned() }),
        ),
        (
            "planned.url",
            plain(Instruction::RequestUrl {
                question: "Pay?".to_owned(),
                url: "https://pay.example".to_owned(),
            }),
        ),
        ("planned.compact", plain(Instruction::Compact { strategy: "extract".to_owned() })),
        ("planned.finish", plain(Instruction::Finish { failure: None })),
        ("planned.failure", plain(Instruction::Finish { failure: Some("no way on".to_owned()) })),
    ]
}

fn model_calls() -> Vec<(&'static str, Event)> {
    let failed =
        |retry_at| Event::ModelCallFailed { model_call: 1, attempt: 2, error: model_error(), retry_at };
    vec![
        (
            "model_call_started",
            Event::ModelCallStarted { model_call: 1, attempt: 3, first_counted: 2, last_entry: EntryNo(4) },
        ),
        ("model_call_failed", failed(Some(Timestamp(1_790_000_002_500)))),
        ("model_call_failed.last", failed(None)),
        ("assistant_message", assistant(asking(), FinishReason::ToolCalls, Observation::Continue)),
        (
            "assistant_message.states",
            assistant(with_states(), FinishReason::ToolCalls, Observation::Continue),
        ),
        ("assistant_message.full", full(assistant(asking(), FinishReason::ToolCalls, Observation::Compact))),
        (
            "assistant_message.final",
            assistant(
                Message::text(Role::Assistant, "22 °C \u{1f324}\n"),
                FinishReason::Stop,
                Observation::Stop,
            ),
        ),
        (
            "assistant_message.cut",
            assistant(
                Message { role: Role::Assistant, parts: vec![] },
                FinishReason::Other("paused".to_owned()),
                Observation::Compact,
            ),
        ),
    ]
}

fn tool_calls() -> Vec<(&'static str, Event)> {
    vec![
        ("call_proposed", proposed(EffectClass::Unsafe, true)),
        ("call_proposed.asks_human", asks_human()),
        ("call_proposed.deadline_is_outcome", deadline_is_outcome()),
        ("call_proposed.read_only", proposed(EffectClass::ReadOnly, false)),
        (
            "call_offered",
            Event::CallOffered {
                slot: SLOT,
                tool: "weather".to_owned(),
                attempt: 1,
                host: host(),
                instance: None,
                effect: None,
            },
        ),
        (
            "call_offered.to_a_named_process",
            Event::CallOffered {
                slot: SLOT,
                tool: "weather".to_owned(),
                attempt: 2,
                host: host(),
                instance: Some(InstanceId::parse("3f9a.0").expect("a good name")),
                effect: None,
            },
        ),
        (
            "call_offered.stricter",
            Event::CallOffered {
                slot: SLOT,
                tool: "weather".to_owned(),
                attempt: 2,
                host: host(),
                instance: None,
                effect: Some(EffectClass::Unsafe),
            },
        ),
        ("call_proposed.terms", under_terms()),
        ("call_accepted", Event::CallAccepted { slot: SLOT, attempt: 1, host: host() }),
        (
            "call_checkpoint",
            Event::CallCheckpoint {
                slot: SLOT,
                attempt: 1,
                checkpoint: vec![0x00, 0x0f, 0xf0, 0xff],
                resume_no: 0,
            },
        ),
        (
            "call_checkpoint.resume",
            Event::CallCheckpoint { slot: SLOT, attempt: 1, checkpoint: vec![0x0f, 0xf0], resume_no: 2 },
        ),
        (
            "call_attempt_failed",
            attempt_failed(Ran::No, AfterAttempt::Retry { at: Some(Timestamp(1_790_000_004_000)) }),
        ),
        ("call_attempt_failed.at_once", attempt_failed(Ran::No, AfterAttempt::Retry { at: None })),
        ("call_attempt_failed.in_doubt", attempt_failed(Ran::Maybe, AfterAttempt::InDoubt)),
        ("call_attempt_failed.settle", attempt_failed(Ran::Yes, AfterAttempt::Settle)),
        ("call_attempt_failed.busy", busy()),
        ("call_settled", settled(2, Some(host()), ToolStatus::Succeeded, vec![by_value()])),
        ("call_settled.attachments", settled_with_attachments()),
        ("call_settled.blob", settled_with_blob()),
        ("call_settled.outcome", settled_by(Some(Digest::of(&[b"an outcome"])))),
        ("call_settled.rejected", settled(0, None, ToolStatus::Rejected, vec![])),
        ("call_settled.unknown", settled(1, None, ToolStatus::OutcomeUnknown, vec![])),
    ]
}

fn questions() -> Vec<(&'static str, Event)> {
    let question = |kind, expires_at| Event::HumanRequested {
        resume_state: None,
        question: Question {
            request: request(),
            kind,
            slot: Some(SLOT),
            tool: "weather".to_owned(),
            content: None,
            arguments: r#"{"city": "Köln"}"#.to_owned(),
            digest: Digest::of(&[b"weather", b"{}"]),
            why: String::new(),
            terms: None,
            asked_at: Timestamp(1_790_000_003_000),
            expires_at,
            approvers: Approvers::default(),
        },
    };
    vec![
        ("human_requested", question(QuestionKind::Approve, Some(Timestamp(1_790_000_600_000)))),
        ("human_requested.in_doubt", question(QuestionKind::InDoubt, None)),
        ("human_requested.in_doubt_why", doubted()),
        ("human_requested.again", asked_again()),
        ("human_requested.approvers", asked_of_two()),
        ("human_requested.prompt", prompted()),
        ("human_requested.select", selected()),
        ("human_requested.resume", suspended()),
        ("human_requested.form", form_asked()),
        ("human_requested.url", visit_asked()),
        ("human_requested.allow_empty", maybe_empty()),
    ]
}

fn doubted() -> Event {
    Event::HumanRequested {
        resume_state: None,
        question: Question {
            request: request(),
            kind: QuestionKind::InDoubt,
            slot: Some(SLOT),
            tool: "weather".to_owned(),
            terms: None,
            content: None,
            arguments: "{}".to_owned(),
            digest: Digest::of(&[b"weather", b"{}"]),
            why: "no answer within 30 s".to_owned(),
            asked_at: Timestamp(1_790_000_003_000),
            expires_at: None,
            approvers: Approvers::default(),
        },
    }
}

/// For two of a group, and not for the one who started the run.
fn asked_of_two() -> Event {
    let Event::HumanRequested { question, .. } = asked_again() else { unreachable!("a question") };
    let approvers = Approvers {
        any_of: vec!["group:sre".to_owned(), "ada".to_owned()],
        forbid_requester: true,
        quorum: 2,
    };
    Event::HumanRequested { question: Question { approvers, ..question }, resume_state: None }
}

fn first_of_two() -> Event {
    Event::HumanApproved {
        request: request(),
        slot: Some(SLOT),
        by: "ada".to_owned(),
        approvals: 1,
        quorum: 2,
    }
}

/// About a call whose host declares stricter terms than the call was approved under.
fn asked_again() -> Event {
    let run = RunId::parse("r-1").expect("an id");
    Event::HumanRequested {
        resume_state: None,
        question: Question {
            request: CallId { run, slot: SLOT }.request_again(1, 2),
            kind: QuestionKind::Approve,
            slot: Some(SLOT),
            tool: "weather".to_owned(),
            arguments: "{}".to_owned(),
            digest: Digest::of(&[b"weather", b"{}"]),
            terms: Some(Digest::of(&[b"terms"])),
            content: None,
            why: String::new(),
            asked_at: Timestamp(1_790_000_003_000),
            expires_at: None,
            approvers: Approvers::default(),
        },
    }
}

/// By the planner.
fn prompted() -> Event {
    let run = RunId::parse("r-1").expect("an id");
    let ask = QuestionContent { text: "Which city?".to_owned(), ..QuestionContent::default() };
    Event::HumanRequested {
        resume_state: None,
        question: Question::planned(&run, 3, ask, Timestamp(1_790_000_003_000), None),
    }
}

const FORM: &str = r#"{"type":"object","properties":{"name":{"type":"string"}}}"#;

/// Any question with a content of its own, by the planner.
fn planned_question(content: QuestionContent) -> Event {
    let run = RunId::parse("r-1").expect("an id");
    Event::HumanRequested {
        resume_state: None,
        question: Question::planned(&run, 3, content, Timestamp(1_790_000_003_000), None),
    }
}

fn form_asked() -> Event {
    let metadata = Some(r#"{"icon":"id"}"#.to_owned());
    let (text, form) = ("Who?".to_owned(), Some(FORM.to_owned()));
    planned_question(QuestionContent { text, form, metadata, ..QuestionContent::default() })
}

fn visit_asked() -> Event {
    let (text, url) = ("Pay?".to_owned(), Some("https://pay.example".to_owned()));
    planned_question(QuestionContent { text, url, ..QuestionContent::default() })
}

fn maybe_empty() -> Event {
    let text = "Anything else?".to_owned();
    planned_question(QuestionContent { text, allow_empty: true, ..QuestionContent::default() })
}

/// By a call that a host has.
fn selected() -> Event {
    let option = |id: &str, label: &str| SelectOption { id: id.to_owned(), label: label.to_owned() };
    let ask = QuestionContent {
        text: "Which unit?".to_owned(),
        options: vec![option("c", "Celsius"), option("f", "Fahrenheit")],
        multiple: true,
        input: Some("unit".to_owned()),
        ..QuestionContent::default()
    };
    let call = CallId { run: RunId::parse("r-1").expect("an id"), slot: SLOT };
    Event::HumanRequested {
        resume_state: None,
        question: Question {
            request: call.input(1, 2),
            kind: ask.kind(),
            slot: Some(SLOT),
            tool: "weather".to_owned(),
            arguments: String::new(),
            digest: ask.digest(),
            terms: None,
            content: Some(Box::new(ask)),
            why: String::new(),
            asked_at: Timestamp(1_790_000_003_000),
            expires_at: Some(Timestamp(1_790_000_600_000)),
            approvers: Approvers::default(),
        },
    }
}

/// By a call that gives its host up until the answer.
fn suspended() -> Event {
    let Event::HumanRequested { question, .. } = selected() else { unreachable!("a question") };
    Event::HumanRequested { question, resume_state: Some(vec![0x00, 0xff]) }
}

fn answers() -> Vec<(&'static str, Event)> {
    let resolved = |decision, by: &str| Event::HumanResolved {
        request: request(),
        slot: Some(SLOT),
        answer: Answer::new(decision, by.to_owned(), Timestamp(1_790_000_005_000)),
    };
    let message = || "not on a Sunday".to_owned();
    vec![
        ("human_approved", first_of_two()),
        ("human_resolved", resolved(Decision::Approve, "ada@example.org")),
        (
            "human_resolved.edits",
            resolved(Decision::ApproveWithEdits { arguments: r#"{"city":"Bonn"}"#.to_owned() }, "ada"),
        ),
        ("human_resolved.deny", resolved(Decision::Deny { message: message() }, "ada")),
        ("human_resolved.stop", resolved(Decision::DenyAndStop { message: message() }, "ada")),
        ("human_resolved.answer", resolved(Decision::AnswerInPlace { output: "22".to_owned() }, "ada")),
        ("human_resolved.selected", resolved(Decision::Selected { options: vec!["c".to_owned()] }, "ada")),
        (
            "human_resolved.filled",
            resolved(Decision::Filled { fields: r#"{"name":"Ada"}"#.to_owned() }, "ada"),
        ),
        ("human_resolved.visited", resolved(Decision::Visited { done: true }, "ada")),
        ("human_resolved.declined", resolved(Decision::Declined { message: message() }, "ada")),
        ("human_resolved.text", planned_answer()),
        ("human_resolved.remembered", remembered()),
        ("human_resolved.followed", followed()),
        ("human_resolved.made_under", remembered_by_approver()),
        ("human_resolved.expired", resolved(Decision::Expired, "")),
        ("human_resolved.withdrawn", resolved(Decision::Withdrawn, "")),
    ]
}

fn no_weather(origin: RuleOrigin) -> PolicyRule {
    let argument = ArgumentPattern { pointer: "/city".to_owned(), pattern: "B*".to_owned() };
    PolicyRule {
        name: "no B".to_owned(),
        action: PolicyAction::Deny,
        tool: "weather".to_owned(),
        arguments: vec![argument],
        origin,
        terms: None,
        approvers: Approvers::default(),
        made_under: None,
    }
}

fn denied(answer: Answer) -> Event {
    Event::HumanResolved { request: request(), slot: Some(SLOT), answer }
}

fn remembered() -> Event {
    let rule = no_weather(RuleOrigin::Session);
    let decision = Decision::Deny { message: "not on a Sunday".to_owned() };
    let answer = Answer::new(decision, "ada".to_owned(), Timestamp(1_790_000_005_000));
    let remembered = Some(Box::new(Remembered { scope: RememberScope::Session, rule }));
    denied(Answer { remembered, ..answer })
}

/// By somebody whom a rule names.
fn remembered_by_approver() -> Event {
    let Event::HumanResolved { answer, .. } = remembered() else { unreachable!("an answer") };
    let rule =
        PolicyRule { made_under: Some(Digest::of(&[b"approvers"])), ..no_weather(RuleOrigin::Session) };
    let remembered = Some(Box::new(Remembered { scope: RememberScope::Session, rule }));
    denied(Answer { remembered, ..answer })
}

fn followed() -> Event {
    let decision = Decision::Deny { message: "not on a Sunday".to_owned() };
    let answer = Answer::new(decision, "ada".to_owned(), Timestamp(1_790_000_005_000));
    denied(Answer { followed: Some(Box::new(no_weather(RuleOrigin::Run))), ..answer })
}

/// To what the planner asked.
fn planned_answer() -> Event {
    let decision = Decision::Text { text: "Köln".to_owned() };
    Event::HumanResolved {
        request: RunId::parse("r-1").expect("an id").planned_question(3),
        slot: None,
        answer: Answer::new(decision, "ada".to_owned(), Timestamp(1_790_000_005_000)),
    }
}

fn ends() -> Vec<(&'static str, Event)> {
    let failed = RunError::new(RunErrorCode::LimitIterations, "10 model calls");
    let aborted = RunError::new(RunErrorCode::AbortedByCaller, "no longer needed");
    vec![
        ("finished", Event::Finished { outcome: Outcome::Completed, error: None, totals: totals() }),
        (
            "finished.planned",
            Event::Finished {
                outcome: Outcome::Completed,
                error: None,
                totals: Totals { final_entry: Some(EntryNo(5)), ..totals() },
            },
        ),
        (
            "finished.failed",
            Event::Finished { outcome: Outcome::Failed, error: Some(failed), totals: totals() },
        ),
        (
            "finished.aborted",
            Event::Finished { outcome: Outcome::Aborted, error: Some(aborted), totals: totals() },
        ),
    ]
}

fn totals() -> Totals {
    Totals {
        usage: Usage { input_tokens: 210, output_tokens: 34, ..Usage::default() },
        iterations: 2,
        tool_calls: 1,
        duration: Millis(4_200),
        last_entry: EntryNo(7),
        ..Totals::default()
    }
}

fn keeps_todos() -> RunSpec {
    RunSpec { tool_policy: ToolPolicy { todos: true, ..ToolPolicy::default() }, ..RunSpec::default() }
}

fn asks_two() -> RunSpec {
    let approvers = Approvers { any_of: vec!["group:sre".to_owned()], forbid_requester: false, quorum: 2 };
    let rule = PolicyRule { action: PolicyAction::Ask, approvers, ..no_weather(RuleOrigin::Agent) };
    RunSpec { tool_policy: ToolPolicy { rules: vec![rule], ..ToolPolicy::default() }, ..RunSpec::default() }
}

fn outcome_at_the_deadline() -> RunSpec {
    let tool_policy =
        ToolPolicy { deadline_is_outcome: vec!["wait_for_mail".to_owned()], ..ToolPolicy::default() };
    RunSpec { tool_policy, ..RunSpec::default() }
}

/// As in journals that were written before the configuration limited the rules of requests and approvals.
fn unlimited(mut spec: RunSpec) -> RunSpec {
    spec.tool_policy.widening = Widening::UNLIMITED;
    spec
}

fn started(spec: RunSpec, seed: u64) -> Event {
    let session = SessionId::parse("s-1").expect("an id");
    Event::Started {
        session,
        last_entry: EntryNo(3),
        spec: Arc::new(spec),
        seed,
        queued: false,
        traceparent: None,
        unknown_tools: Vec::new(),
        withdrawn_tools: Vec::new(),
    }
}

/// A run that names a tool which nobody has declared, and one that a rule denies.
fn not_offered() -> Event {
    Event::Started {
        session: SessionId::parse("s-1").expect("an id"),
        last_entry: EntryNo(0),
        spec: Arc::new(RunSpec::default()),
        seed: 3,
        queued: false,
        traceparent: None,
        unknown_tools: vec!["wether".to_owned()],
        withdrawn_tools: vec!["mail".to_owned()],
    }
}

fn queued() -> Event {
    let session = SessionId::parse("s-1").expect("an id");
    Event::Started {
        session,
        last_entry: EntryNo(0),
        spec: Arc::new(unlimited(RunSpec::default())),
        seed: 2,
        queued: true,
        traceparent: None,
        unknown_tools: Vec::new(),
        withdrawn_tools: Vec::new(),
    }
}

fn full_spec() -> RunSpec {
    RunSpec {
        in_doubt_timeout: Some(Millis::secs(900)),
        agent: "default".to_owned(),
        model: "openai/gpt-5".to_owned(),
        system_prompt: "Be brief.\n\"Quoted\" \\ \u{0} \u{7f}".to_owned(),
        allowed_tools: Some(vec!["weather".to_owned(), "clock".to_owned()]),
        tool_order: vec!["clock".to_owned()],
        tool_policy: ToolPolicy {
            enabled: true,
            allow_list: Some(vec![]),
            max_parallel: 4,
            max_calls_per_run: Some(20),
            require_approval_by_default: true,
            ..ToolPolicy::default()
        },
        limits: LoopLimits {
            max_iterations: 12,
            max_tool_rounds: Some(6),
            max_run_duration: Some(Millis::secs(3_600)),
            max_tokens: Some(1 << 40),
            max_consecutive_failures: Some(3),
            max_repeated_calls: Some(2),
            ..LoopLimits::default()
        },
        retry: RetryPolicy {
            max_retries: 5,
            initial_backoff: Millis(250),
            max_backoff: Millis::secs(30),
            jitter: false,
            pause_when_exhausted: true,
        },
        options: full_options(),
        timeouts: ModelTimeouts {
            connect: Millis(1),
            first_token: Millis(2),
            idle: Millis(3),
            total: Millis(4),
        },
        approval_timeout: Some(Millis::secs(600)),
        runtime_init_data: Some(r#"{"image":"base"}"#.to_owned()),
        runtime_hints: Some("{}".to_owned()),
        labels: BTreeMap::from([("team".to_owned(), "blue".to_owned()), ("env".to_owned(), String::new())]),
        ..RunSpec::default()
    }
}

/// What [`full_spec`] leaves out.
fn extended_spec() -> RunSpec {
    let argument = ArgumentPattern { pointer: "/amount".to_owned(), pattern: "1??".to_owned() };
    let rule = PolicyRule {
        name: "no large sums".to_owned(),
        action: PolicyAction::Deny,
        tool: "charge*".to_owned(),
        arguments: vec![argument],
        origin: RuleOrigin::Agent,
        terms: None,
        approvers: Approvers::default(),
        made_under: None,
    };
    let any = PolicyRule {
        name: String::new(),
        action: PolicyAction::Ask,
        tool: String::new(),
        arguments: vec![],
        origin: RuleOrigin::Agent,
        terms: None,
        approvers: Approvers::default(),
        made_under: None,
    };
    RunSpec {
        tool_policy: ToolPolicy { rules: vec![any, rule], ask_human: true, ..ToolPolicy::default() },
        limits: LoopLimits { max_cost_micros: Some(2_000_000), ..LoopLimits::default() },
        context: ContextPolicy {
            max_messages: Some(20),
            max_tokens: Some(100_000),
            strategy: "extract".to_owned(),
            keep_recent: 4,
            summary_model: Some("openai/small".to_owned()),
        },
        planner: Some("careful".to_owned()),
        stepped: true,
        hooks: vec!["audit".to_owned()],
        context_sources: vec!["recall".to_owned(), "memory".to_owned()],
        background: BackgroundPolicy { title: true, summary: true, model: Some("openai/small".to_owned()) },
        ..RunSpec::default()
    }
}

fn full_options() -> ModelOptions {
    ModelOptions {
        temperature: Some(0.1),
        top_p: Some(1.0),
        max_output_tokens: Some(4_096),
        stop: vec!["END".to_owned()],
        tool_choice: Some(ToolChoice::Named("weather".to_owned())),
        reasoning_effort: Some(ReasoningEffort::Low),
        response_schema: Some(ResponseSchema {
            name: "answer".to_owned(),
            schema: r#"{"type":"object"}"#.to_owned(),
            strict: true,
        }),
        provider_options: Some(r#"{"user":"u"}"#.to_owned()),
    }
}

fn prompt() -> Message {
    let by_reference = Image::Url { url: "https://example.org/sky.png".to_owned() };
    Message {
        role: Role::User,
        parts: vec![
            Part::text("How warm is it?"),
            Part::Image { image: by_reference },
            Part::Image { image: by_value() },
        ],
    }
}

fn asking() -> Message {
    let thought = Reasoning {
        text: "I should look.".to_owned(),
        signature: Some("c2ln".to_owned()),
        redacted: Some("ZGF0YQ==".to_owned()),
        state: None,
    };
    let call = ToolCall {
        slot: SLOT,
        provider_id: "call_abc".to_owned(),
        name: "weather".to_owned(),
        arguments: r#"{"city": "Köln", "n": 12345678901234567890"#.to_owned(),
        state: None,
    };
    Message {
        role: Role::Assistant,
        parts: vec![
            Part::Reasoning(thought),
            Part::Reasoning(Reasoning::default()),
            Part::text("Let me look."),
            Part::ToolCall(call),
        ],
    }
}

/// Every kind of part that can have a provider's state, with it.
fn with_states() -> Message {
    let state = |data: &str| ProviderState {
        provider: "openai".to_owned(),
        family: "gpt-6.1-sol".to_owned(),
        data: data.to_owned(),
    };
    let thought = Reasoning {
        text: "I should look.".to_owned(),
        state: Some(state(r#"{"encrypted":"b3BhcXVl"}"#)),
        ..Reasoning::default()
    };
    let call = ToolCall {
        slot: SLOT,
        provider_id: "call_abc".to_owned(),
        name: "weather".to_owned(),
        arguments: "{}".to_owned(),
        state: Some(state("c2ln")),
    };
    Message {
        role: Role::Assistant,
        parts: vec![
            Part::Reasoning(thought),
            Part::Opaque(state(r#"{"type":"web_search_call"}"#)),
            Part::Text { text: "Let me look.".to_owned(), state: Some(state("commentary")) },
            Part::ToolCall(call),
        ],
    }
}

/// The context has passed a bound with this message.
fn full(mut event: Event) -> Event {
    if let Event::AssistantMessage { full, .. } = &mut event {
        *full = Some(CompactionReason::Tokens);
    }
    event
}

fn assistant(message: Message, finish: FinishReason, decision: Observation) -> Event {
    Event::AssistantMessage {
        model_call: 1,
        attempt: 2,
        entry: EntryNo(5),
        message: Arc::new(message),
        finish,
        usage: Usage {
            input_tokens: 1_200,
            output_tokens: 80,
            cached_input_tokens: 1_000,
            cache_write_tokens: 200,
            reasoning_tokens: 40,
            cost_micros: 0,
            unpriced_calls: 0,
        },
        first_token: Millis(310),
        duration: Millis(1_900),
        tools: Digest::of(&[b"weather"]),
        full: None,
        decision,
    }
}

fn deadline_is_outcome() -> Event {
    let mut event = proposed(EffectClass::Unsafe, false);
    if let Event::CallProposed { deadline_is_outcome, .. } = &mut event {
        *deadline_is_outcome = true;
    }
    event
}

fn proposed(effect: EffectClass, needs_approval: bool) -> Event {
    Event::CallProposed {
        slot: SLOT,
        tool: "weather".to_owned(),
        effect,
        timeout: Millis::secs(30),
        needs_approval,
        asks_human: false,
        arguments: None,
        needs_runtime: false,
        title: String::new(),
        deadline_is_outcome: false,
        terms: None,
    }
}

fn under_terms() -> Event {
    let Event::CallProposed { slot, tool, effect, timeout, title, .. } = proposed(EffectClass::Keyed, true)
    else {
        unreachable!("it was just made")
    };
    Event::CallProposed {
        slot,
        tool,
        effect,
        timeout,
        needs_approval: true,
        asks_human: false,
        arguments: None,
        needs_runtime: false,
        title,
        deadline_is_outcome: false,
        terms: Some(Digest::of(&[b"terms"])),
    }
}

fn asks_human() -> Event {
    Event::CallProposed {
        slot: SLOT,
        tool: "ask_human".to_owned(),
        effect: EffectClass::ReadOnly,
        timeout: Millis(0),
        needs_approval: false,
        asks_human: true,
        arguments: None,
        needs_runtime: false,
        title: String::new(),
        deadline_is_outcome: false,
        terms: None,
    }
}

fn attempt_failed(ran: Ran, then: AfterAttempt) -> Event {
    Event::CallAttemptFailed {
        slot: SLOT,
        attempt: 1,
        message: "host lost".to_owned(),
        ran,
        then,
        busy: false,
    }
}

fn busy() -> Event {
    let then = AfterAttempt::Retry { at: Some(Timestamp(1_790_000_004_000)) };
    let message = "no room".to_owned();
    Event::CallAttemptFailed { slot: SLOT, attempt: 1, message, ran: Ran::No, then, busy: true }
}

fn settled_by(outcome: Option<Digest>) -> Event {
    let result = ToolResult {
        slot: SLOT,
        provider_id: "call_abc".to_owned(),
        name: "weather".to_owned(),
        status: ToolStatus::Succeeded,
        output: "sunny".to_owned(),
        images: Vec::new(),
        attachments: Default::default(),
    };
    Event::CallSettled {
        slot: SLOT,
        attempt: 1,
        host: Some(host()),
        entry: EntryNo(6),
        message: Arc::new(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] }),
        duration: Millis(1_200),
        outcome,
    }
}

fn settled_with_attachments() -> Event {
    let Event::CallSettled { slot, attempt, host, entry, message, duration, outcome } = settled_by(None)
    else {
        unreachable!("a settled call")
    };
    let mut result = message.tool_result().expect("a result").clone();
    let source = FileSource::Inline { base64: "YSxiCg==".to_owned() };
    let file = File { name: "a.csv".to_owned(), media_type: "text/csv".to_owned(), size: 4, source };
    let link = Link { url: "https://example.org".to_owned(), title: "More".to_owned() };
    let structured = Some(r#"{"celsius":22}"#.to_owned());
    result.attachments = Attachments { structured, files: vec![file], links: vec![link] };
    let message = Arc::new(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] });
    Event::CallSettled { slot, attempt, host, entry, message, duration, outcome }
}

fn settled_with_blob() -> Event {
    let Event::CallSettled { slot, attempt, host, entry, message, duration, outcome } = settled_by(None)
    else {
        unreachable!("a settled call")
    };
    let mut result = message.tool_result().expect("a result").clone();
    let source = FileSource::Blob { digest: BlobDigest::of_hash([0x5a; 32]) };
    let file = File { name: "a.pdf".to_owned(), media_type: "application/pdf".to_owned(), size: 9, source };
    result.attachments = Attachments { files: vec![file], ..Attachments::default() };
    let message = Arc::new(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] });
    Event::CallSettled { slot, attempt, host, entry, message, duration, outcome }
}

fn settled(attempt: u32, host: Option<HostId>, status: ToolStatus, images: Vec<Image>) -> Event {
    let result = ToolResult {
        slot: SLOT,
        provider_id: "call_abc".to_owned(),
        name: "weather".to_owned(),
        status,
        output: r#"{"celsius":22}"#.to_owned(),
        images,
        attachments: Default::default(),
    };
    let message = Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] };
    Event::CallSettled {
        slot: SLOT,
        attempt,
        host,
        entry: EntryNo(6),
        message: Arc::new(message),
        duration: Millis(1_200),
        outcome: None,
    }
}

fn model_error() -> RunError {
    RunError {
        code: RunErrorCode::Model(ModelErrorKind::RateLimited),
        message: "slow down".to_owned(),
        http_status: Some(429),
    }
}

fn by_value() -> Image {
    Image::Inline { media_type: "image/png".to_owned(), base64: "iVBORw0KGgo=".to_owned() }
}

fn host() -> HostId {
    HostId::parse("host-1").expect("an id")
}

fn request() -> RequestId {
    CallId { run: RunId::parse("r-1").expect("an id"), slot: SLOT }.request(1)
}
