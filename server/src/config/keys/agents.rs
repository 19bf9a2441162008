//! `[agents.NAME]`: the settings of an agent's runs. A request can override most of them.

use agentloop_core::agent::{
    BackgroundPolicy, ContextPolicy, LoopLimits, ModelOptions, ModelTimeouts, ReasoningEffort,
    ResponseSchema, RetryPolicy, RunSpec, ToolChoice, ToolPolicy,
};
use agentloop_core::limits::{
    BACKOFF_MILLIS_MAX, CALLS_PER_MESSAGE_MAX, ID_BYTES_MAX, INITIAL_BACKOFF_MILLIS_MAX, KEEP_RECENT_MAX,
    MODEL_RETRIES_MAX, OUTPUT_TOKENS_MAX, RUN_COUNT_MAX, RUN_MILLIS_MAX, SHORT_TEXT_BYTES_MAX,
    STOP_TEXTS_MAX, TEMPERATURE_MAX, TOOL_NAME_BYTES_MAX, TOOL_SCHEMA_BYTES_MAX,
};
use agentloop_core::policy::Widening;
use agentloop_core::time::Millis;
use agentloop_core::tool::is_name;

use super::prompts::{self, text_of};
use super::rules::rules;
use crate::auth::Authentication;
use crate::config::hint::did_you_mean_one_of;
use crate::config::section::Section;
use crate::schema::check_response_schema;

const MILLISECOND: Millis = Millis(1);
const HOUR: Millis = Millis::secs(60 * 60);
const DAY: Millis = Millis::secs(24 * 60 * 60);

/// Reads the text that tells people what an agent is for. It is no part of a run's spec.
pub(in crate::config) fn description(section: &mut Section<'_, '_>) -> Option<String> {
    section.get_checked("description", None, |text: String| {
        if text.len() > SHORT_TEXT_BYTES_MAX {
            return Err(format!("expected at most {SHORT_TEXT_BYTES_MAX} bytes; found {}", text.len()));
        }
        Ok(text)
    })
}

/// Reads one agent. `providers` are the configured providers that its model may name.
pub(in crate::config) fn agent(
    name: &str,
    section: &mut Section<'_, '_>,
    providers: &[&str],
    authentication: Authentication,
) -> RunSpec {
    if name.is_empty() || name.len() > ID_BYTES_MAX {
        section.problem(&[], format!("expected an agent's name of 1 to {ID_BYTES_MAX} bytes"));
    }
    RunSpec {
        agent: name.to_owned(),
        model: section.get_checked("model", None, |model| known_model(model, providers)).unwrap_or_default(),
        system_prompt: prompts::system_prompt(section),
        prompt_template: prompts::template(section),
        allowed_tools: section.get_list("tools", tool_name),
        tool_order: section.get_list("tool_order", tool_name).unwrap_or_default(),
        tool_policy: section.section("tool_policy", |section| tool_policy(section, authentication)),
        limits: section.section("limits", limits),
        retry: section.section("retry", retry),
        options: section.section("options", options),
        timeouts: section.section("timeouts", timeouts),
        approval_timeout: section
            .get_some_within("approval_timeout", Millis::secs(1)..=Millis(RUN_MILLIS_MAX)),
        // Set from `[runs]`, because it is the same for every agent.
        in_doubt_timeout: None,
        runtime_init_data: section.get_json("runtime_init_data"),
        runtime_hints: section.get_json("runtime_hints"),
        labels: Default::default(),
        context: section.section("context", |section| context(section, providers)),
        planner: section.get_checked("planner", None, |name: String| tool_name(&name).map(|()| name)),
        stepped: false,
        cancel_on_disconnect: false,
        hooks: section.get_list("hooks", tool_name).unwrap_or_default(),
        context_sources: section.get_list("context_sources", tool_name).unwrap_or_default(),
        background: section.section("background", |section| background(section, providers)),
    }
}

fn context(section: &mut Section<'_, '_>, providers: &[&str]) -> ContextPolicy {
    let default = ContextPolicy::default();
    ContextPolicy {
        max_messages: section.get_some_within("max_messages", 2..=RUN_COUNT_MAX),
        max_tokens: section.get_some_within("max_tokens", 1..=u64::MAX),
        strategy: section
            .get_checked("strategy", None, |name: String| tool_name(&name).map(|()| name))
            .unwrap_or(default.strategy),
        keep_recent: section.get_within("keep_recent", default.keep_recent, 1..=KEEP_RECENT_MAX),
        summary_model: section.get_checked("summary_model", None, |model| known_model(model, providers)),
    }
}

fn background(section: &mut Section<'_, '_>, providers: &[&str]) -> BackgroundPolicy {
    BackgroundPolicy {
        title: section.get_or("title", false),
        summary: section.get_or("summary", false),
        model: section.get_checked("model", None, |model| known_model(model, providers)),
    }
}

fn known_model(model: String, providers: &[&str]) -> Result<String, String> {
    let Some((provider, name)) = model.split_once('/').filter(|(_, name)| !name.is_empty()) else {
        return Err(format!("expected \"provider/model\"; found \"{model}\""));
    };
    if name.contains(char::is_whitespace) {
        return Err(format!("expected a model's name without white space; found \"{name}\""));
    }
    if !providers.contains(&provider) {
        let hint = did_you_mean_one_of(provider, providers);
        return Err(format!("there is no [providers.{provider}]; {hint}"));
    }
    Ok(model)
}

fn tool_name(name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!(
        "expected a tool's name of 1 to {TOOL_NAME_BYTES_MAX} letters, digits, '_' and '-'; found \"{name}\""
    ))
}

fn tool_policy(section: &mut Section<'_, '_>, authentication: Authentication) -> ToolPolicy {
    let default = ToolPolicy::default();
    let parallel_max = u32::try_from(CALLS_PER_MESSAGE_MAX).unwrap_or(u32::MAX);
    ToolPolicy {
        enabled: section.get_or("enabled", default.enabled),
        allow_list: section.get_list("allow_list", tool_name),
        max_parallel: section.get_within("max_parallel", default.max_parallel, 1..=parallel_max),
        max_calls_per_run: section.get_some_within("max_calls_per_run", 0..=u32::MAX),
        require_approval_by_default: section
            .get_or("require_approval_by_default", default.require_approval_by_default),
        rules: rules(section, authentication),
        ask_human: section.get_or("ask_human", default.ask_human),
        todos: section.get_or("todos", default.todos),
        deadline_is_outcome: section.get_list("deadline_is_outcome", tool_name).unwrap_or_default(),
        widening: Widening {
            requests_may_allow: section.get_or("requests_may_allow", default.widening.requests_may_allow),
            remember_any_tool: section.get_or("remember_any_tool", default.widening.remember_any_tool),
        },
    }
}

fn limits(section: &mut Section<'_, '_>) -> LoopLimits {
    LoopLimits {
        max_iterations: section.get_within(
            "max_iterations",
            LoopLimits::default().max_iterations,
            1..=RUN_COUNT_MAX,
        ),
        max_tool_rounds: section.get_some_within("max_tool_rounds", 0..=RUN_COUNT_MAX),
        max_run_duration: section.get_some_within("max_run_duration", MILLISECOND..=Millis(RUN_MILLIS_MAX)),
        max_tokens: section.get_some_within("max_tokens", 1..=u64::MAX),
        max_consecutive_failures: section.get_some_within("max_consecutive_failures", 1..=RUN_COUNT_MAX),
        max_repeated_calls: section.get_some_within("max_repeated_calls", 1..=RUN_COUNT_MAX),
        max_cost_micros: section.get_some_within("max_cost_micros", 1..=u64::MAX),
    }
}

/// Reads the retry policy. The preset gives the defaults for the other keys.
fn retry(section: &mut Section<'_, '_>) -> RetryPolicy {
    let presets = [("standard", Preset::Standard), ("patient", Preset::Patient)];
    let preset =
        section.get_choice("preset", Some("standard"), &presets).unwrap_or(Preset::Standard).policy();
    let policy = RetryPolicy {
        max_retries: section.get_within("max_retries", preset.max_retries, 0..=MODEL_RETRIES_MAX),
        initial_backoff: section.get_within(
            "initial_backoff",
            preset.initial_backoff,
            MILLISECOND..=Millis(INITIAL_BACKOFF_MILLIS_MAX),
        ),
        max_backoff: section.get_within(
            "max_backoff",
            preset.max_backoff,
            MILLISECOND..=Millis(BACKOFF_MILLIS_MAX),
        ),
        jitter: section.get_or("jitter", preset.jitter),
        pause_when_exhausted: section.get_or("pause_when_exhausted", preset.pause_when_exhausted),
    };
    if policy.initial_backoff > policy.max_backoff {
        section.problem(
            &["max_backoff", "initial_backoff"],
            "expected max_backoff to be no shorter than initial_backoff".to_owned(),
        );
    }
    policy
}

#[derive(Debug, Clone, Copy)]
enum Preset {
    Standard,
    Patient,
}

impl Preset {
    fn policy(self) -> RetryPolicy {
        let (max_retries, max_backoff) = match self {
            Self::Standard => (3, Millis::secs(10)),
            Self::Patient => (5, Millis::secs(30)),
        };
        RetryPolicy { max_retries, max_backoff, ..RetryPolicy::default() }
    }
}

fn options(section: &mut Section<'_, '_>) -> ModelOptions {
    let efforts = [
        ("none", ReasoningEffort::None),
        ("low", ReasoningEffort::Low),
        ("medium", ReasoningEffort::Medium),
        ("high", ReasoningEffort::High),
    ];
    ModelOptions {
        temperature: section.get_some_within("temperature", 0.0..=TEMPERATURE_MAX),
        top_p: section.get_checked("top_p", None, top_p),
        max_output_tokens: section.get_some_within("max_output_tokens", 1..=OUTPUT_TOKENS_MAX),
        stop: stop_texts(section),
        tool_choice: section.get_checked("tool_choice", None, tool_choice),
        reasoning_effort: section.get_choice("reasoning_effort", None, &efforts),
        response_schema: section.section("response_schema", response_schema),
        provider_options: provider_options(section),
    }
}

/// Reads what is merged into each request. The server reads every response as a stream, whatever the options say.
fn provider_options(section: &mut Section<'_, '_>) -> Option<String> {
    let json = section.get_json("provider_options")?;
    let options: serde_json::Value = serde_json::from_str(&json).ok()?;
    if options.get("stream").is_some_and(|stream| *stream != true) {
        section.problem(&["provider_options"], "every response is streamed; leave stream out".to_owned());
    }
    Some(json)
}

fn stop_texts(section: &mut Section<'_, '_>) -> Vec<String> {
    let mut room = STOP_TEXTS_MAX;
    let check = |text: &str| match room.checked_sub(1) {
        _ if text.is_empty() => Err("expected a text that is not empty".to_owned()),
        None => Err(format!("expected at most {STOP_TEXTS_MAX} texts")),
        Some(left) => {
            room = left;
            Ok(())
        }
    };
    section.get_list("stop", check).unwrap_or_default()
}

fn top_p(value: f64) -> Result<f64, String> {
    if value > 0.0 && value <= 1.0 {
        Ok(value)
    } else {
        Err(format!("expected a number above 0 and at most 1; found {value}"))
    }
}

fn tool_choice(word: String) -> Result<ToolChoice, String> {
    match word.as_str() {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        other => match other.strip_prefix("tool:") {
            Some(name) => tool_name(name).map(|()| ToolChoice::Named(name.to_owned())),
            None => {
                Err(format!("expected \"auto\", \"none\", \"required\" or \"tool:NAME\"; found \"{other}\""))
            }
        },
    }
}

fn response_schema(section: &mut Section<'_, '_>) -> Option<ResponseSchema> {
    let name: Option<String> = section.get_checked("name", None, |name: String| {
        tool_name(&name).map_err(|_| "expected a name of letters, digits, '_' and '-'".to_owned())?;
        Ok(name)
    });
    let inline = section.get_json("schema");
    let file = section.get_path("schema_file", None);
    let strict = section.get_or("strict", true);
    let from_file = file.and_then(|path| {
        let text = text_of(section, "schema_file", &path, TOOL_SCHEMA_BYTES_MAX)?;
        json_object(&text).map_err(|message| section.problem(&["schema_file"], message)).ok()
    });
    let set = |section: &Section<'_, '_>| section.is_set("schema") || section.is_set("schema_file");
    if section.is_set("schema") && section.is_set("schema_file") {
        section.problem(&["schema_file"], "expected only one of schema and schema_file".to_owned());
    } else if section.is_set("name") && !set(section) {
        section.problem(&["name"], "expected schema or schema_file beside it".to_owned());
    } else if set(section) && !section.is_set("name") {
        section.problem(&["schema", "schema_file"], "expected a name beside it".to_owned());
    }
    let schema = inline.or(from_file)?;
    if let Err(fault) = check_response_schema(&schema) {
        section.problem(&["schema", "schema_file"], format!("expected a JSON schema; {fault}"));
    }
    Some(ResponseSchema { name: name?, schema, strict })
}

fn json_object(text: &str) -> Result<String, String> {
    match serde_json::from_str(text) {
        Ok(serde_json::Value::Object(object)) => Ok(serde_json::Value::Object(object).to_string()),
        Ok(_) => Err("expected a JSON object in the file".to_owned()),
        Err(error) => Err(format!("expected JSON in the file; {error}")),
    }
}

fn timeouts(section: &mut Section<'_, '_>) -> ModelTimeouts {
    let default = ModelTimeouts::default();
    let timeouts = ModelTimeouts {
        connect: section.get_within("connect", default.connect, MILLISECOND..=HOUR),
        first_token: section.get_within("first_token", default.first_token, MILLISECOND..=HOUR),
        idle: section.get_within("idle", default.idle, MILLISECOND..=HOUR),
        total: section.get_within("total", default.total, MILLISECOND..=DAY),
    };
    for (key, part) in
        [("connect", timeouts.connect), ("first_token", timeouts.first_token), ("idle", timeouts.idle)]
    {
        if part > timeouts.total && (section.is_set(key) || section.is_set("total")) {
            section.problem(&[key, "total"], format!("expected total to be no shorter than {key}"));
        }
    }
    timeouts
}
