//! Starts of runs, with their specs.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::{
    BackgroundPolicy, ContextPolicy, LoopLimits, ModelOptions, ModelTimeouts, ReasoningEffort,
    ResponseSchema, RetryPolicy, RunSpec, ToolChoice, ToolPolicy,
};
use agentloop_core::id::{EntryNo, SessionId};
use agentloop_core::message::{Image, Message, Part, Role};
use agentloop_core::policy::{Approvers, ArgumentPattern, PolicyAction, PolicyRule, RuleOrigin, Widening};
use agentloop_core::run::event::Event;
use agentloop_core::time::Millis;

use super::{by_value, model_error, no_weather};

pub(super) fn starts() -> Vec<(&'static str, Event)> {
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
        ("started.groups", in_groups()),
        ("started.hidden_seed", hides_its_seed()),
        ("session_entered", entered(Vec::new())),
        ("session_entered.rules", entered(vec![no_weather(RuleOrigin::Session)])),
        ("session_entered.withdrawn", withdrawn()),
        ("input_added", Event::MessageAdded { entry: EntryNo(4), message: Arc::new(prompt()) }),
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
        caller_groups: Vec::new(),
        hidden_seed: false,
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
        caller_groups: Vec::new(),
        hidden_seed: false,
    }
}

/// A run whose caller is in two groups.
fn in_groups() -> Event {
    Event::Started {
        session: SessionId::parse("s-1").expect("an id"),
        last_entry: EntryNo(0),
        spec: Arc::new(RunSpec::default()),
        seed: 4,
        queued: false,
        traceparent: None,
        unknown_tools: Vec::new(),
        withdrawn_tools: Vec::new(),
        caller_groups: vec!["sre".to_owned(), "on call".to_owned()],
        hidden_seed: false,
    }
}

/// A run whose idempotency keys do not show its seed.
fn hides_its_seed() -> Event {
    let mut event = started(RunSpec::default(), 5);
    if let Event::Started { hidden_seed, .. } = &mut event {
        *hidden_seed = true;
    }
    event
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
        caller_groups: Vec::new(),
        hidden_seed: false,
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

/// Everything that [`full_spec`] leaves out.
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
