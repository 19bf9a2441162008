//! Turns a `RunInput` into a request to start a run. Checks every field and reports all violations together.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::{
    LoopLimits, ModelOptions, ReasoningEffort, ResponseSchema, RetryPolicy, RunSpec, ToolChoice, ToolPolicy,
};
use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::limits::{
    BACKOFF_MILLIS_MAX, CALLS_PER_MESSAGE_MAX, INITIAL_BACKOFF_MILLIS_MAX, INPUT_MESSAGE_BYTES_MAX,
    INPUT_MESSAGES_MAX, LABELS_MAX, MODEL_RETRIES_MAX, OUTPUT_TOKENS_MAX, RUN_COUNT_MAX, RUN_MILLIS_MAX,
    SHORT_TEXT_BYTES_MAX, STOP_TEXTS_MAX, TEMPERATURE_MAX,
};
use agentloop_core::message::{Message, Role, SharedMessage};
use agentloop_core::time::Millis;
use agentloop_core::tool::Digest;
use agentloop_proto::v1 as wire;
use prost::Message as _;
use tonic::Status;

use super::context::apply_context_settings;
use super::provider_options;
use crate::engine::{Author, OnBusy, StartRequest};
use crate::grpc::convert::message::input_message;
use crate::grpc::convert::people::policy::rules;
use crate::grpc::convert::{self, json_object, millis, name, within};
use crate::grpc::status::Violations;
use crate::model::Models;
use crate::schema::check_response_schema;

/// Largest system prompt that a request may bring.
const SYSTEM_PROMPT_BYTES_MAX: usize = 1024 * 1024;
/// Tool names that one list of a request may have.
const TOOL_NAMES_MAX: usize = 1_024;

/// The configured agents, by the name that a caller uses.
pub type Agents = BTreeMap<String, RunSpec>;

/// The name of the agent in the request; `default` if it names none.
#[must_use]
pub fn agent_name(input: &wire::RunInput) -> &str {
    input.agent.as_deref().unwrap_or("default")
}

/// Identifies a repeat of an earlier request, even if the request is no longer valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestIdentity {
    /// The run id that the caller gave, if it is valid.
    pub run: Option<RunId>,
    /// Digest of the request. The configuration is not part of it, because it may change between two calls.
    pub digest: Digest,
    /// The caller's policy for a session that has a live run or a queue.
    pub on_busy: OnBusy,
}

impl RequestIdentity {
    /// The identity of this request.
    #[must_use]
    pub fn of(input: &wire::RunInput) -> Self {
        let run = input.run_id.clone().and_then(|id| RunId::parse(id).ok());
        Self { run, digest: Digest::of(&[&input.encode_to_vec()]), on_busy: on_busy(input) }
    }
}

/// Builds the request to start a run: the agent's configuration with the caller's changes.
///
/// # Errors
/// INVALID_ARGUMENT with every violation.
pub fn start_request(
    tenant: TenantId,
    agent: &RunSpec,
    models: &dyn Models,
    input: wire::RunInput,
    identity: RequestIdentity,
) -> Result<StartRequest, Status> {
    let RequestIdentity { run, digest, on_busy } = identity;
    let mut bad = Violations::default();
    known_values(&input, &mut bad);
    unserved_fields(&input, &mut bad);
    if let (None, Some(id)) = (&run, &input.run_id) {
        bad.take("input.run_id", RunId::parse(id.clone()));
    }
    let session = input.session_id.clone().and_then(|id| bad.take("input.session_id", SessionId::parse(id)));
    let messages = messages(&input, &mut bad);
    let create_session = input.auto_create_session.unwrap_or(false);
    let spec = spec(agent.clone(), models, input, &mut bad);
    bad.check()?;
    let spec = Arc::new(spec);
    Ok(StartRequest {
        tenant,
        run,
        session,
        create_session,
        spec,
        messages,
        digest,
        author: Author::default(),
        on_busy,
        traceparent: None,
        imports: false,
    })
}

fn on_busy(input: &wire::RunInput) -> OnBusy {
    match input.on_busy_session() {
        wire::BusySessionPolicy::Unspecified | wire::BusySessionPolicy::Reject => OnBusy::Reject,
        wire::BusySessionPolicy::Enqueue => OnBusy::Enqueue,
        wire::BusySessionPolicy::Interrupt => OnBusy::Interrupt,
        wire::BusySessionPolicy::Steer => OnBusy::Steer,
    }
}

/// Refuses fields whose meaning this server does not have. Ignoring them would start another run than the caller wants.
fn unserved_fields(input: &wire::RunInput, bad: &mut Violations) {
    const UNSERVED: &str = "is not served: GetServerInfo does not name the feature";
    if input.start_at.is_some() {
        bad.add("input.start_at", format!("{UNSERVED} start_at"));
    }
    if input.parent_run_id.is_some() {
        bad.add("input.parent_run_id", format!("{UNSERVED} child_runs"));
    }
}

/// Refuses enum values of a later version of the contract, which must not be read as this version's default.
fn known_values(input: &wire::RunInput, bad: &mut Violations) {
    const UNKNOWN: &str = "is not a value that this server knows";
    if wire::DisconnectPolicy::try_from(input.on_disconnect).is_err() {
        bad.add("input.on_disconnect", UNKNOWN);
    }
    if wire::BusySessionPolicy::try_from(input.on_busy_session).is_err() {
        bad.add("input.on_busy_session", UNKNOWN);
    }
    let effort = input.model_options.as_ref().map_or(0, |options| options.reasoning_effort);
    if wire::ReasoningEffort::try_from(effort).is_err() {
        bad.add("input.model_options.reasoning_effort", UNKNOWN);
    }
}

fn messages(input: &wire::RunInput, bad: &mut Violations) -> Vec<SharedMessage> {
    let count = input.input_messages.len() + usize::from(!input.prompt.is_empty());
    if count == 0 {
        bad.add("input.prompt", "a prompt or input_messages is required");
    }
    if count > INPUT_MESSAGES_MAX {
        bad.add("input.input_messages", format!("must be at most {INPUT_MESSAGES_MAX}"));
        return Vec::new();
    }
    let mut out = Vec::with_capacity(count);
    for (at, message) in input.input_messages.iter().enumerate() {
        out.extend(input_message(&format!("input.input_messages[{at}]"), message.clone(), bad));
    }
    if input.prompt.len() > INPUT_MESSAGE_BYTES_MAX {
        bad.add("input.prompt", format!("must be at most {INPUT_MESSAGE_BYTES_MAX} bytes"));
    }
    if !input.prompt.is_empty() {
        out.push(Message::text(Role::User, input.prompt.clone()));
    }
    out.into_iter().map(Arc::new).collect()
}

fn spec(mut spec: RunSpec, models: &dyn Models, mut input: wire::RunInput, bad: &mut Violations) -> RunSpec {
    spec.cancel_on_disconnect = input.on_disconnect() == wire::DisconnectPolicy::Cancel;
    let is_blank = input.model.as_ref().is_some_and(String::is_empty) && !spec.model.is_empty();
    if let Some(model) = input.model.take() {
        spec.model = model;
    }
    if is_blank {
        bad.add("input.model", "must be provider/model; leave it out for the agent's model");
    } else if spec.model.is_empty() {
        bad.add("input.model", "is required, because the agent has no model; name one as provider/model");
    } else if spec.model.len() > SHORT_TEXT_BYTES_MAX {
        bad.add("input.model", format!("must be at most {SHORT_TEXT_BYTES_MAX} bytes"));
    } else if !spec
        .model
        .split_once('/')
        .is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty())
    {
        bad.add("input.model", "must be provider/model");
    }
    if let Some(prompt) = input.system_prompt_override.take() {
        if prompt.len() > SYSTEM_PROMPT_BYTES_MAX {
            bad.add(
                "input.system_prompt_override",
                format!("must be at most {SYSTEM_PROMPT_BYTES_MAX} bytes"),
            );
        }
        spec.system_prompt = prompt;
    }
    apply_context_settings(&mut spec, models, &mut input, bad);
    if let Some(tools) = input.allowed_tools {
        spec.allowed_tools = Some(tool_names("input.allowed_tools.names", tools.names, bad));
    }
    if !input.tool_order.is_empty() {
        spec.tool_order = tool_names("input.tool_order", input.tool_order, bad);
    }
    if let Some(policy) = input.tool_policy {
        tool_policy("input.tool_policy", &mut spec.tool_policy, policy, bad);
    }
    if let Some(limits) = input.loop_limits {
        loop_limits(&mut spec.limits, &limits, bad);
    }
    if let Some(retry) = input.retry_policy {
        retry_policy(&mut spec.retry, &retry, bad);
    }
    if let Some(options) = input.model_options {
        model_options(&mut spec.options, options, bad);
    }
    if let Some(seconds) = input.approval_timeout_seconds {
        let length = Millis::secs(u64::from(seconds));
        let seconds_max = RUN_MILLIS_MAX / 1_000;
        within("input.approval_timeout_seconds", Some(u64::from(seconds)), 1..=seconds_max, bad);
        spec.approval_timeout = Some(length);
    }
    spec.runtime_init_data =
        object("input.runtime_init_data_json", input.runtime_init_data_json, spec.runtime_init_data, bad);
    spec.runtime_hints =
        object("input.runtime_hints_json", input.runtime_hints_json, spec.runtime_hints, bad);
    spec.stepped = input.stepped;
    spec.labels = labels("input.labels", input.labels, bad);
    spec
}

/// Checks the number and sizes of labels.
pub fn labels(
    field: &str,
    labels: BTreeMap<String, String>,
    bad: &mut Violations,
) -> BTreeMap<String, String> {
    if labels.len() > LABELS_MAX {
        bad.add(field, format!("must be at most {LABELS_MAX}"));
    }
    if labels.iter().any(|(key, value)| key.is_empty() || key.len() + value.len() > SHORT_TEXT_BYTES_MAX) {
        bad.add(field, format!("each must have a key and be at most {SHORT_TEXT_BYTES_MAX} bytes"));
    }
    labels
}

fn object(
    field: &str,
    given: Option<String>,
    default: Option<String>,
    bad: &mut Violations,
) -> Option<String> {
    let Some(text) = given else { return default };
    bad.take(field, json_object(&text));
    Some(text)
}

fn tool_names(field: &str, names: Vec<String>, bad: &mut Violations) -> Vec<String> {
    if names.len() > TOOL_NAMES_MAX {
        bad.add(field, format!("must be at most {TOOL_NAMES_MAX}"));
    }
    for (at, one) in names.iter().enumerate() {
        name(&format!("{field}[{at}]"), one, bad);
    }
    names
}

/// The way out for a caller whose request would loosen its agent's policy.
const ONLY_IF: &str =
    "a request may loosen the agent's policy only if the agent has tool_policy.requests_may_allow = true";

/// Applies the fields that a request sets to the agent's tool policy. `field` is the policy's path in the request.
pub(in crate::grpc) fn tool_policy(
    field: &str,
    to: &mut ToolPolicy,
    policy: wire::ToolPolicy,
    bad: &mut Violations,
) {
    if let Some(enabled) = policy.enabled {
        to.enabled = enabled;
    }
    if let Some(list) = policy.allow_list {
        to.allow_list = Some(tool_names(&format!("{field}.allow_list.names"), list.names, bad));
    }
    let parallel_max = u32::try_from(CALLS_PER_MESSAGE_MAX).unwrap_or(u32::MAX);
    if let Some(max) = within(&format!("{field}.max_parallel"), policy.max_parallel, 1..=parallel_max, bad) {
        to.max_parallel = max;
    }
    if policy.max_calls_per_run.is_some() {
        to.max_calls_per_run = policy.max_calls_per_run;
    }
    if let Some(require) = policy.require_approval_by_default {
        if to.require_approval_by_default && !require && !to.widening.requests_may_allow {
            bad.add(
                format!("{field}.require_approval_by_default"),
                format!("is required by the agent; {ONLY_IF}"),
            );
        }
        to.require_approval_by_default = require;
    }
    if let Some(ask) = policy.ask_human {
        to.ask_human = ask;
    }
    if let Some(todos) = policy.todos {
        to.todos = todos;
    }
    if let Some(given) = policy.rules {
        let field = format!("{field}.rules.rules");
        let rules = rules(&field, given, bad);
        for at in to.widening.useless_rules(&rules) {
            bad.add(
                format!("{field}[{at}].action"),
                format!("ALLOW only takes back what an ASK before it in this request asked for; {ONLY_IF}"),
            );
        }
        to.rules.extend(rules);
    }
}

fn loop_limits(to: &mut LoopLimits, limits: &wire::LoopLimits, bad: &mut Violations) {
    const FIELD: &str = "input.loop_limits";
    let count = |field: &str, value: Option<u32>, least: u32, bad: &mut Violations| {
        within(&format!("{FIELD}.{field}"), value, least..=RUN_COUNT_MAX, bad)
    };
    to.max_iterations = count("max_iterations", limits.max_iterations, 1, bad).unwrap_or(to.max_iterations);
    to.max_tool_rounds = count("max_tool_rounds", limits.max_tool_rounds, 0, bad).or(to.max_tool_rounds);
    let longest = Millis(RUN_MILLIS_MAX);
    let length = length(&format!("{FIELD}.max_run_duration"), limits.max_run_duration.as_ref(), longest, bad);
    to.max_run_duration = length.or(to.max_run_duration);
    let failures = count("max_consecutive_failures", limits.max_consecutive_failures, 1, bad);
    to.max_consecutive_failures = failures.or(to.max_consecutive_failures);
    let repeated = count("max_repeated_calls", limits.max_repeated_calls, 1, bad);
    to.max_repeated_calls = repeated.or(to.max_repeated_calls);
    let tokens = within(&format!("{FIELD}.max_tokens"), limits.max_tokens, 1..=u64::MAX, bad);
    to.max_tokens = tokens.or(to.max_tokens);
    let cost = within(&format!("{FIELD}.max_cost_micros"), limits.max_cost_micros, 1..=u64::MAX, bad);
    to.max_cost_micros = cost.or(to.max_cost_micros);
}

/// A length of time of the request, above zero.
fn length(
    field: &str,
    given: Option<&prost_types::Duration>,
    longest: Millis,
    bad: &mut Violations,
) -> Option<Millis> {
    let length = bad.take(field, millis(given?))?;
    if length > longest {
        bad.add(field, format!("must be at most {} s", longest.0 / 1_000));
    }
    Some(length)
}

fn retry_policy(to: &mut RetryPolicy, retry: &wire::RetryPolicy, bad: &mut Violations) {
    const FIELD: &str = "input.retry_policy";
    let max = within(&format!("{FIELD}.max_retries"), retry.max_retries, 0..=MODEL_RETRIES_MAX, bad);
    to.max_retries = max.unwrap_or(to.max_retries);
    let mut wait = |field: &str, given: &Option<prost_types::Duration>, longest: u64| {
        length(&format!("{FIELD}.{field}"), given.as_ref(), Millis(longest), bad)
    };
    let initial = wait("initial_backoff", &retry.initial_backoff, INITIAL_BACKOFF_MILLIS_MAX);
    let longest = wait("max_backoff", &retry.max_backoff, BACKOFF_MILLIS_MAX);
    to.initial_backoff = initial.unwrap_or(to.initial_backoff);
    to.max_backoff = longest.unwrap_or(to.max_backoff);
    if to.initial_backoff > to.max_backoff {
        match (initial, longest) {
            (_, Some(_)) => {
                let least = humantime::format_duration(to.initial_backoff.duration());
                let problem = format!("must be no shorter than initial_backoff, which is {least}");
                bad.add(format!("{FIELD}.max_backoff"), problem);
            }
            (Some(_), None) => {
                let most = humantime::format_duration(to.max_backoff.duration());
                let problem = format!("must be no longer than max_backoff, which is {most}");
                bad.add(format!("{FIELD}.initial_backoff"), problem);
            }
            // The request left the agent's policy as it is.
            (None, None) => {}
        }
    }
    if let Some(pause) = retry.pause_when_exhausted {
        to.pause_when_exhausted = pause;
    }
}

fn model_options(to: &mut ModelOptions, options: wire::ModelOptions, bad: &mut Violations) {
    const FIELD: &str = "input.model_options";
    let effort = options.reasoning_effort();
    if let Some(temperature) = options.temperature {
        if !(0.0..=TEMPERATURE_MAX).contains(&temperature) {
            bad.add(format!("{FIELD}.temperature"), format!("must be between 0 and {TEMPERATURE_MAX}"));
        }
        to.temperature = Some(temperature);
    }
    if let Some(top_p) = options.top_p {
        if !(top_p > 0.0 && top_p <= 1.0) {
            bad.add(format!("{FIELD}.top_p"), "must be above 0 and at most 1");
        }
        to.top_p = Some(top_p);
    }
    let tokens = options.max_output_tokens;
    let tokens = within(&format!("{FIELD}.max_output_tokens"), tokens, 1..=OUTPUT_TOKENS_MAX, bad);
    to.max_output_tokens = tokens.or(to.max_output_tokens);
    if options.stop.len() > STOP_TEXTS_MAX || options.stop.iter().any(String::is_empty) {
        bad.add(
            format!("{FIELD}.stop"),
            format!("must be at most {STOP_TEXTS_MAX} texts, none of them empty"),
        );
    }
    if !options.stop.is_empty() {
        to.stop = options.stop;
    }
    if let Some(choice) = options.tool_choice.and_then(|choice| choice.choice) {
        to.tool_choice = tool_choice(choice, bad);
    }
    to.reasoning_effort = match effort {
        wire::ReasoningEffort::Unspecified => to.reasoning_effort,
        wire::ReasoningEffort::None => Some(ReasoningEffort::None),
        wire::ReasoningEffort::Low => Some(ReasoningEffort::Low),
        wire::ReasoningEffort::Medium => Some(ReasoningEffort::Medium),
        wire::ReasoningEffort::High => Some(ReasoningEffort::High),
    };
    if let Some(schema) = options.response_schema {
        let checked =
            json_object(&schema.schema_json).and_then(|()| check_response_schema(&schema.schema_json));
        bad.take(&format!("{FIELD}.response_schema.schema_json"), checked);
        let name = if schema.name.is_empty() { "answer".to_owned() } else { schema.name };
        convert::name(&format!("{FIELD}.response_schema.name"), &name, bad);
        to.response_schema = Some(ResponseSchema { name, schema: schema.schema_json, strict: schema.strict });
    }
    if let Some(text) = options.provider_options_json {
        bad.take(&format!("{FIELD}.provider_options_json"), provider_options::check(&text));
        to.provider_options = Some(text);
    }
}

fn tool_choice(choice: wire::tool_choice::Choice, bad: &mut Violations) -> Option<ToolChoice> {
    use wire::tool_choice::Choice;
    const FIELD: &str = "input.model_options.tool_choice";
    match choice {
        Choice::Name(name) => {
            convert::name(&format!("{FIELD}.name"), &name, bad);
            Some(ToolChoice::Named(name))
        }
        Choice::Mode(mode) => match wire::ToolChoiceMode::try_from(mode) {
            Ok(wire::ToolChoiceMode::Auto) => Some(ToolChoice::Auto),
            Ok(wire::ToolChoiceMode::None) => Some(ToolChoice::None),
            Ok(wire::ToolChoiceMode::Required) => Some(ToolChoice::Required),
            Ok(wire::ToolChoiceMode::Unspecified) | Err(_) => {
                bad.add(format!("{FIELD}.mode"), "must be AUTO, NONE or REQUIRED");
                None
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_of_the_request_fits_to_the_one_of_the_agent() {
        let refused = |initial: Option<u64>, longest: Option<u64>| {
            let wait = |seconds: u64| crate::grpc::convert::duration(Millis::secs(seconds));
            let retry = wire::RetryPolicy {
                initial_backoff: initial.map(wait),
                max_backoff: longest.map(wait),
                ..Default::default()
            };
            // From 2 s to 10 s.
            let mut agents = RetryPolicy { initial_backoff: Millis::secs(2), ..RetryPolicy::default() };
            let mut bad = Violations::default();
            retry_policy(&mut agents, &retry, &mut bad);
            bad.check().err().map(|status| status.message().to_owned())
        };
        for (initial, longest) in [(None, None), (Some(10), None), (None, Some(2)), (Some(20), Some(20))] {
            assert_eq!(refused(initial, longest), None, "{initial:?} {longest:?}");
        }
        for (initial, longest, told) in [
            (
                Some(11),
                None,
                "input.retry_policy.initial_backoff: must be no longer than max_backoff, which is 10s",
            ),
            (
                None,
                Some(1),
                "input.retry_policy.max_backoff: must be no shorter than initial_backoff, which is 2s",
            ),
            (
                Some(4),
                Some(3),
                "input.retry_policy.max_backoff: must be no shorter than initial_backoff, which is 4s",
            ),
        ] {
            let refused = refused(initial, longest).expect("it is refused");
            assert!(refused.contains(told), "{refused}");
        }
    }
}
