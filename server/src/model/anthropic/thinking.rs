//! How a model is asked to think, which depends on its generation.
//!
//! | models | asked by | thinks unasked | sampling |
//! |---|---|---|---|
//! | before Claude 4.6 | a budget of tokens | no | while not thinking |
//! | 4.6 | `adaptive` and an effort | no | while not thinking |
//! | 4.7, 4.8 | `adaptive` and an effort | no | never |
//! | from 5 | `adaptive` and an effort | yes | never |
//!
//! The effort becomes a budget of 2,048 (low), 8,192 (medium) or 24,576 (high) tokens where a budget is asked for, and
//! the same number is added to the default bound of the answer wherever the model thinks, since thoughts count
//! against that bound. Forced tool use does not go together with thinking; the tool wins.

use agentloop_core::agent::{ModelOptions, ReasoningEffort, ToolChoice};
use serde::Serialize;

/// The bound of an answer that nobody bounded, thoughts not counted. The API insists on one.
const DEFAULT_MAX_TOKENS: u32 = 4_096;
/// The least budget that the API takes.
const BUDGET_TOKENS_MIN: u32 = 1_024;

/// How models are asked to think.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ThinkingStyle {
    /// As the model's name says; by a budget where it says nothing.
    #[default]
    Auto,
    /// By a budget of tokens, as models before Claude 4.6 and most other servers want it.
    Budget,
    /// By an effort, as models from Claude 4.6 want it.
    Adaptive,
}

/// What a model is told about thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Thinking {
    /// So many tokens of it.
    Enabled { budget_tokens: u32 },
    /// As much as it finds right.
    Adaptive {
        /// Whether its thoughts are shown, where they are not unasked.
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<&'static str>,
    },
    /// None.
    Disabled,
}

/// What a request says about thinking and what depends on it.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) thinking: Option<Thinking>,
    pub(super) effort: Option<&'static str>,
    pub(super) max_tokens: u32,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
}

/// Of Claude: major and minor.
type Version = (u32, u32);

/// Decides for this model. `may_think` is false where the history lacks thoughts that a budget would demand.
pub(super) fn plan(
    model: &str,
    options: &ModelOptions,
    style: ThinkingStyle,
    default_max_tokens: Option<u32>,
    may_think: bool,
) -> Plan {
    let version = version(model);
    let adaptive = match style {
        ThinkingStyle::Auto => version.is_some_and(|version| version >= (4, 6)),
        ThinkingStyle::Budget => false,
        ThinkingStyle::Adaptive => true,
    };
    let forced = matches!(options.tool_choice, Some(ToolChoice::Required | ToolChoice::Named(_)));
    let unbounded = default_max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    let (thinking, effort, room) = if adaptive {
        adaptive_thinking(version, options.reasoning_effort, forced)
    } else {
        let effort = options.reasoning_effort.filter(|_| may_think && !forced);
        let budget = effort.and_then(|effort| budget(effort, options.max_output_tokens));
        let thinking = budget.map(|budget| Thinking::Enabled { budget_tokens: budget });
        (thinking, None, budget.unwrap_or(0))
    };
    let (temperature, top_p) = sampling(version, options, room > 0);
    let max_tokens = options.max_output_tokens.unwrap_or_else(|| unbounded.saturating_add(room));
    Plan { thinking, effort, max_tokens, temperature, top_p }
}

fn adaptive_thinking(
    version: Option<Version>,
    effort: Option<ReasoningEffort>,
    forced: bool,
) -> (Option<Thinking>, Option<&'static str>, u32) {
    let by_default = version.is_some_and(|version| version >= (5, 0));
    let word = match effort {
        // Not every model can stop thinking, but every one can think little.
        Some(ReasoningEffort::None) if by_default => Some("low"),
        Some(ReasoningEffort::None) | None => None,
        Some(ReasoningEffort::Low) => Some("low"),
        Some(ReasoningEffort::Medium) => Some("medium"),
        Some(ReasoningEffort::High) => Some("high"),
    };
    if forced {
        return (by_default.then_some(Thinking::Disabled), None, 0);
    }
    if word.is_none() && !by_default {
        return (None, None, 0);
    }
    // These keep their thoughts to themselves unless asked.
    let display = version.is_some_and(|version| version >= (4, 7)).then_some("summarized");
    let thinks = match effort {
        Some(ReasoningEffort::None) => ReasoningEffort::Low,
        Some(effort) => effort,
        None => ReasoningEffort::High,
    };
    (Some(Thinking::Adaptive { display }), word, room(thinks))
}

/// `None` where there is no room to think.
fn budget(effort: ReasoningEffort, max_tokens: Option<u32>) -> Option<u32> {
    let wanted = room(effort);
    match max_tokens {
        _ if wanted < BUDGET_TOKENS_MIN => None,
        None => Some(wanted),
        Some(max) if max <= BUDGET_TOKENS_MIN => None,
        Some(max) => Some(wanted.min((max / 2).max(BUDGET_TOKENS_MIN))),
    }
}

fn room(effort: ReasoningEffort) -> u32 {
    match effort {
        ReasoningEffort::None => 0,
        ReasoningEffort::Low => 2_048,
        ReasoningEffort::Medium => 8_192,
        ReasoningEffort::High => 24_576,
    }
}

/// What the model takes of temperature and `top_p`.
fn sampling(version: Option<Version>, options: &ModelOptions, thinks: bool) -> (Option<f64>, Option<f64>) {
    let version = version.unwrap_or_default();
    if thinks || version >= (4, 7) {
        return (None, None);
    }
    let either = version >= (4, 1) && options.temperature.is_some();
    (options.temperature, options.top_p.filter(|_| !either))
}

/// Read from names such as `claude-opus-4-6`, `claude-3-7-sonnet-20250219` or `anthropic.claude-sonnet-5-v1:0`.
fn version(model: &str) -> Option<Version> {
    let (_, name) = model.split_once("claude")?;
    let short_number = |word: &str| word.parse::<u32>().ok().filter(|_| word.len() <= 2);
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let major = words.find_map(short_number);
    match major {
        Some(major) => Some((major, words.next().and_then(short_number).unwrap_or(0))),
        // The one family that has had no number takes what its numbered successors take.
        None => name.contains("mythos").then_some((5, 0)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(plan: &Plan) -> Option<Value> {
        plan.thinking.map(|thinking| serde_json::to_value(thinking).unwrap())
    }

    #[test]
    fn versions() {
        for (model, expected) in [
            ("claude-3-7-sonnet-20250219", Some((3, 7))),
            ("claude-3-opus-latest", Some((3, 0))),
            ("claude-sonnet-4-20250514", Some((4, 0))),
            ("claude-opus-4-1-20250805", Some((4, 1))),
            ("claude-haiku-4-5", Some((4, 5))),
            ("claude-opus-4-6", Some((4, 6))),
            ("claude-sonnet-4.6", Some((4, 6))),
            ("claude-opus-5", Some((5, 0))),
            ("claude-opus-5-5", Some((5, 5))),
            ("claude-haiku-4-5@20251001", Some((4, 5))),
            ("us.anthropic.claude-opus-4-6-v1:0", Some((4, 6))),
            ("claude-mythos-preview", Some((5, 0))),
            ("claude-instant", None),
            ("deepseek-v4-pro", None),
        ] {
            assert_eq!(version(model), expected, "{model}");
        }
    }

    fn planned(model: &str, effort: Option<ReasoningEffort>) -> (Option<Value>, Option<&'static str>, u32) {
        let options = ModelOptions { reasoning_effort: effort, ..ModelOptions::default() };
        let plan = plan(model, &options, ThinkingStyle::Auto, None, true);
        (told(&plan), plan.effort, plan.max_tokens)
    }

    #[test]
    fn each_generation_is_asked_in_its_way() {
        use ReasoningEffort::{High, Low, Medium, None as Not};
        let budget = |tokens: u32| Some(json!({"type": "enabled", "budget_tokens": tokens}));
        let adaptive = || Some(json!({"type": "adaptive"}));
        let shown = || Some(json!({"type": "adaptive", "display": "summarized"}));
        let cases = [
            ("claude-haiku-4-5", None, (None, None, 4_096)),
            ("claude-haiku-4-5", Some(Not), (None, None, 4_096)),
            ("claude-haiku-4-5", Some(Low), (budget(2_048), None, 6_144)),
            ("claude-haiku-4-5", Some(High), (budget(24_576), None, 28_672)),
            ("some-other-model", Some(Medium), (budget(8_192), None, 12_288)),
            ("claude-opus-4-6", None, (None, None, 4_096)),
            ("claude-opus-4-6", Some(Not), (None, None, 4_096)),
            ("claude-opus-4-6", Some(Low), (adaptive(), Some("low"), 6_144)),
            ("claude-opus-4-8", Some(Medium), (shown(), Some("medium"), 12_288)),
            ("claude-opus-5", None, (shown(), None, 28_672)),
            ("claude-opus-5", Some(Not), (shown(), Some("low"), 6_144)),
            ("claude-opus-5-5", Some(High), (shown(), Some("high"), 28_672)),
        ];
        for (model, effort, expected) in cases {
            assert_eq!(planned(model, effort), expected, "{model} {effort:?}");
        }
    }

    #[test]
    fn the_style_can_be_given() {
        let options =
            ModelOptions { reasoning_effort: Some(ReasoningEffort::Low), ..ModelOptions::default() };
        let thinking = |model: &str, style| told(&plan(model, &options, style, None, true));
        assert_eq!(thinking("alias", ThinkingStyle::Adaptive), Some(json!({"type": "adaptive"})));
        assert_eq!(
            thinking("claude-opus-5", ThinkingStyle::Budget),
            Some(json!({"type": "enabled", "budget_tokens": 2048}))
        );
    }

    #[test]
    fn the_answer_keeps_its_bound() {
        let bounded = |max: u32| {
            let options = ModelOptions {
                reasoning_effort: Some(ReasoningEffort::High),
                max_output_tokens: Some(max),
                ..ModelOptions::default()
            };
            let plan = plan("claude-haiku-4-5", &options, ThinkingStyle::Auto, Some(7), true);
            (plan.max_tokens, told(&plan).map(|thinking| thinking["budget_tokens"].clone()))
        };
        assert_eq!(bounded(1_024), (1_024, None));
        assert_eq!(bounded(1_025), (1_025, Some(json!(1_024))));
        assert_eq!(bounded(10_000), (10_000, Some(json!(5_000))));
        assert_eq!(bounded(100_000), (100_000, Some(json!(24_576))));
        let plan = plan("claude-haiku-4-5", &ModelOptions::default(), ThinkingStyle::Auto, Some(7), true);
        assert_eq!(plan.max_tokens, 7);
    }

    #[test]
    fn a_forced_tool_wins_over_thinking() {
        let forced = |model: &str| {
            let options = ModelOptions {
                reasoning_effort: Some(ReasoningEffort::High),
                tool_choice: Some(ToolChoice::Required),
                ..ModelOptions::default()
            };
            let plan = plan(model, &options, ThinkingStyle::Auto, None, true);
            (told(&plan), plan.effort, plan.max_tokens)
        };
        assert_eq!(forced("claude-haiku-4-5"), (None, None, 4_096));
        assert_eq!(forced("claude-opus-4-6"), (None, None, 4_096));
        assert_eq!(forced("claude-opus-5"), (Some(json!({"type": "disabled"})), None, 4_096));
    }

    #[test]
    fn sampling_is_sent_only_where_it_is_taken() {
        let sampled = |model: &str, effort: Option<ReasoningEffort>| {
            let options = ModelOptions {
                temperature: Some(0.5),
                top_p: Some(0.9),
                reasoning_effort: effort,
                ..ModelOptions::default()
            };
            let plan = plan(model, &options, ThinkingStyle::Auto, None, true);
            (plan.temperature, plan.top_p)
        };
        assert_eq!(sampled("claude-3-7-sonnet", None), (Some(0.5), Some(0.9)));
        assert_eq!(sampled("claude-3-7-sonnet", Some(ReasoningEffort::Low)), (None, None));
        assert_eq!(sampled("claude-opus-4-6", None), (Some(0.5), None));
        assert_eq!(sampled("claude-opus-4-7", None), (None, None));
        assert_eq!(sampled("other", None), (Some(0.5), Some(0.9)));
    }

    #[test]
    fn a_history_without_its_thoughts_is_not_thought_about_by_budget() {
        let options =
            ModelOptions { reasoning_effort: Some(ReasoningEffort::Low), ..ModelOptions::default() };
        assert_eq!(plan("claude-haiku-4-5", &options, ThinkingStyle::Auto, None, false).thinking, None);
        assert!(plan("claude-opus-5", &options, ThinkingStyle::Auto, None, false).thinking.is_some());
    }
}
