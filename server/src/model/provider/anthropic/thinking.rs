//! Plans thinking, and the parameters that depend on it: effort, token limits, sampling and forced tools.
//!
//! For models that take a budget, the effort becomes 2,048 (low), 8,192 (medium) or 24,576 (high) tokens.
//! Thinking counts against the output limit, so the same number is added to the default limit whenever the
//! model thinks. The traits of each model are in [`super::traits`].

use agentloop_core::agent::{ModelOptions, ReasoningEffort, ToolChoice};
use agentloop_core::model::traits::{Effort, ParameterSupport, ThinkingMode};
use serde::Serialize;

use super::traits::Claude;
use crate::model::request::omissions::OmissionLog;

/// Output limit if none is configured, without thinking. The API requires a limit.
const DEFAULT_MAX_TOKENS: u32 = 4_096;
/// Smallest budget that the API accepts.
const BUDGET_TOKENS_MIN: u32 = 1_024;

/// The `thinking` field of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Thinking {
    /// Think within a budget of tokens.
    Enabled { budget_tokens: u32 },
    /// Think as much as the model decides.
    Adaptive {
        /// Request for readable thinking, for models that hide it by default.
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<&'static str>,
    },
    /// The request forbids the model to think.
    Disabled,
}

/// The thinking in the history that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PastThinking {
    Complete,
    /// Some may be missing. A model that thinks within a budget then requires that it does not think.
    LeftOut,
}

/// Request parameters that concern or depend on thinking.
#[derive(Debug, PartialEq)]
pub(super) struct ThinkingPlan {
    pub(super) thinking: Option<Thinking>,
    pub(super) effort: Option<&'static str>,
    pub(super) max_tokens: u32,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    /// True if the model accepts a forced tool choice.
    pub(super) may_force_tool: bool,
}

/// The part of the plan that concerns thinking alone.
struct ThinkingChoice {
    thinking: Option<Thinking>,
    effort: Option<&'static str>,
    /// Tokens that thinking may take.
    thinking_tokens: u32,
}

/// Plans the parameters for a model. Parameters that the model would refuse are left out and logged.
pub(super) fn plan(
    model: &str,
    options: &ModelOptions,
    claude: &Claude,
    default_max_tokens: Option<u32>,
    past: PastThinking,
    omissions: &OmissionLog,
) -> ThinkingPlan {
    let traits = &claude.traits;
    let forced = matches!(options.tool_choice, Some(ToolChoice::Required | ToolChoice::Named(_)));
    let may_force_tool = traits.forced_tools != ParameterSupport::Never;
    if forced && !may_force_tool {
        omissions.log_omitted(model, "tool_choice", "auto");
    }
    // If a forced tool and thinking exclude each other, the forced tool wins.
    let must_not_think = forced && traits.forced_tools == ParameterSupport::WithoutThinking;
    let thought = if claude.by_budget {
        let may_think = past == PastThinking::Complete && !must_not_think;
        by_budget(options, options.reasoning_effort.filter(|_| may_think))
    } else {
        adaptive(model, options.reasoning_effort, claude, must_not_think, omissions)
    };
    let (temperature, top_p) = sampling(model, options, claude, thought.thinking_tokens > 0, omissions);
    let unbounded = default_max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    let max_tokens =
        options.max_output_tokens.unwrap_or_else(|| unbounded.saturating_add(thought.thinking_tokens));
    let ThinkingChoice { thinking, effort, .. } = thought;
    ThinkingPlan { thinking, effort, max_tokens, temperature, top_p, may_force_tool }
}

fn by_budget(options: &ModelOptions, effort: Option<ReasoningEffort>) -> ThinkingChoice {
    let budget = effort.and_then(|effort| budget(effort, options.max_output_tokens));
    let thinking = budget.map(|budget| Thinking::Enabled { budget_tokens: budget });
    ThinkingChoice { thinking, effort: None, thinking_tokens: budget.unwrap_or(0) }
}

fn adaptive(
    model: &str,
    wanted: Option<ReasoningEffort>,
    claude: &Claude,
    must_not_think: bool,
    omissions: &OmissionLog,
) -> ThinkingChoice {
    const NO_THINKING: ThinkingChoice = ThinkingChoice { thinking: None, effort: None, thinking_tokens: 0 };
    let traits = &claude.traits;
    let not = must_not_think || wanted == Some(ReasoningEffort::None);
    match traits.thinks {
        ThinkingMode::Never => return NO_THINKING,
        ThinkingMode::WhenAsked if not || wanted.is_none() => return NO_THINKING,
        ThinkingMode::ByDefault if not => {
            return ThinkingChoice { thinking: Some(Thinking::Disabled), ..NO_THINKING };
        }
        ThinkingMode::WhenAsked | ThinkingMode::ByDefault | ThinkingMode::Always => {}
    }
    let effort = wanted.and_then(|wanted| omissions.supported_effort(model, traits.efforts, wanted.into()));
    let display = claude.hides_thoughts.then_some("summarized");
    let thinking_tokens = match wanted {
        Some(ReasoningEffort::None) => thinking_tokens(ReasoningEffort::Low),
        Some(wanted) => thinking_tokens(wanted),
        None => thinking_tokens(ReasoningEffort::High),
    };
    ThinkingChoice {
        thinking: Some(Thinking::Adaptive { display }),
        effort: effort.map(Effort::as_str),
        thinking_tokens,
    }
}

/// Returns the thinking budget; `None` if the output limit leaves no room.
fn budget(effort: ReasoningEffort, max_tokens: Option<u32>) -> Option<u32> {
    let wanted = thinking_tokens(effort);
    match max_tokens {
        _ if wanted < BUDGET_TOKENS_MIN => None,
        None => Some(wanted),
        Some(max) if max <= BUDGET_TOKENS_MIN => None,
        Some(max) => Some(wanted.min((max / 2).max(BUDGET_TOKENS_MIN))),
    }
}

fn thinking_tokens(effort: ReasoningEffort) -> u32 {
    match effort {
        ReasoningEffort::None => 0,
        ReasoningEffort::Low => 2_048,
        ReasoningEffort::Medium => 8_192,
        ReasoningEffort::High => 24_576,
    }
}

/// Returns the temperature and `top_p` that the model accepts.
fn sampling(
    model: &str,
    options: &ModelOptions,
    claude: &Claude,
    thinks: bool,
    omissions: &OmissionLog,
) -> (Option<f64>, Option<f64>) {
    if !claude.traits.sampling.while_thinking(thinks) {
        for (parameter, asked) in [("temperature", options.temperature), ("top_p", options.top_p)] {
            if asked.is_some() {
                omissions.log_omitted(model, parameter, "nothing");
            }
        }
        return (None, None);
    }
    let either = claude.one_of_sampling && options.temperature.is_some();
    if either && options.top_p.is_some() {
        omissions.log_omitted(model, "top_p", "nothing, beside temperature");
    }
    (options.temperature, options.top_p.filter(|_| !either))
}

#[cfg(test)]
mod tests {
    use agentloop_core::model::traits::TraitOverrides;
    use serde_json::{Value, json};

    use super::super::traits::claude;
    use super::*;

    fn thinking_json(plan: &ThinkingPlan) -> Option<Value> {
        plan.thinking.map(|thinking| serde_json::to_value(thinking).unwrap())
    }

    fn plan_for(
        model: &str,
        options: &ModelOptions,
        max_tokens: Option<u32>,
        past: PastThinking,
    ) -> ThinkingPlan {
        plan(model, options, &claude(model, None), max_tokens, past, &OmissionLog::default())
    }

    fn planned(model: &str, effort: Option<ReasoningEffort>) -> (Option<Value>, Option<&'static str>, u32) {
        let options = ModelOptions { reasoning_effort: effort, ..ModelOptions::default() };
        let plan = plan_for(model, &options, None, PastThinking::Complete);
        (thinking_json(&plan), plan.effort, plan.max_tokens)
    }

    #[test]
    fn each_generation_is_asked_in_its_way() {
        use ReasoningEffort::{High, Low, Medium, None as Not};
        let budget = |tokens: u32| Some(json!({"type": "enabled", "budget_tokens": tokens}));
        let adaptive = || Some(json!({"type": "adaptive"}));
        let shown = || Some(json!({"type": "adaptive", "display": "summarized"}));
        let off = || Some(json!({"type": "disabled"}));
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
            ("claude-opus-5", Some(Not), (off(), None, 4_096)),
            ("claude-haiku-5-5", Some(Not), (off(), None, 4_096)),
            // These models always think; low effort is the least.
            ("claude-sonnet-5-5", Some(Not), (shown(), Some("low"), 6_144)),
            ("claude-opus-5-5", Some(High), (shown(), Some("high"), 28_672)),
        ];
        for (model, effort, expected) in cases {
            assert_eq!(planned(model, effort), expected, "{model} {effort:?}");
        }
    }

    #[test]
    fn the_style_can_be_configured() {
        let options =
            ModelOptions { reasoning_effort: Some(ReasoningEffort::Low), ..ModelOptions::default() };
        let thinking = |model: &str, by_budget| {
            let own = TraitOverrides { by_budget: Some(by_budget), ..TraitOverrides::default() };
            thinking_json(&plan(
                model,
                &options,
                &claude(model, Some(&own)),
                None,
                PastThinking::Complete,
                &OmissionLog::default(),
            ))
        };
        assert_eq!(thinking("alias", false), Some(json!({"type": "adaptive"})));
        assert_eq!(thinking("claude-opus-5", true), Some(json!({"type": "enabled", "budget_tokens": 2048})));
    }

    #[test]
    fn the_answer_keeps_its_bound() {
        let bounded = |max: u32| {
            let options = ModelOptions {
                reasoning_effort: Some(ReasoningEffort::High),
                max_output_tokens: Some(max),
                ..ModelOptions::default()
            };
            let plan = plan_for("claude-haiku-4-5", &options, Some(7), PastThinking::Complete);
            (plan.max_tokens, thinking_json(&plan).map(|thinking| thinking["budget_tokens"].clone()))
        };
        assert_eq!(bounded(1_024), (1_024, None));
        assert_eq!(bounded(1_025), (1_025, Some(json!(1_024))));
        assert_eq!(bounded(10_000), (10_000, Some(json!(5_000))));
        assert_eq!(bounded(100_000), (100_000, Some(json!(24_576))));
        let plan = plan_for("claude-haiku-4-5", &ModelOptions::default(), Some(7), PastThinking::Complete);
        assert_eq!(plan.max_tokens, 7);
    }

    #[test]
    fn a_demanded_tool_and_thinking() {
        let forced = |model: &str| {
            let options = ModelOptions {
                reasoning_effort: Some(ReasoningEffort::High),
                tool_choice: Some(ToolChoice::Required),
                ..ModelOptions::default()
            };
            let plan = plan_for(model, &options, None, PastThinking::Complete);
            (thinking_json(&plan), plan.effort, plan.may_force_tool)
        };
        let shown = || Some(json!({"type": "adaptive", "display": "summarized"}));
        assert_eq!(forced("claude-haiku-4-5"), (None, None, true), "the tool wins");
        assert_eq!(forced("claude-opus-4-6"), (Some(json!({"type": "adaptive"})), Some("high"), true));
        assert_eq!(forced("claude-opus-5"), (shown(), Some("high"), true));
        assert_eq!(forced("claude-opus-5-5"), (shown(), Some("high"), false), "thinking wins");
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
            let plan = plan_for(model, &options, None, PastThinking::Complete);
            (plan.temperature, plan.top_p)
        };
        assert_eq!(sampled("claude-3-7-sonnet", None), (Some(0.5), Some(0.9)));
        assert_eq!(sampled("claude-3-7-sonnet", Some(ReasoningEffort::Low)), (None, None));
        assert_eq!(sampled("claude-opus-4-6", None), (Some(0.5), None));
        assert_eq!(sampled("claude-opus-4-7", None), (None, None));
        assert_eq!(sampled("claude-opus-5-5", None), (None, None));
        assert_eq!(sampled("other", None), (Some(0.5), Some(0.9)));
    }

    #[test]
    fn a_history_without_its_thoughts_is_not_thought_about_by_budget() {
        let options =
            ModelOptions { reasoning_effort: Some(ReasoningEffort::Low), ..ModelOptions::default() };
        assert_eq!(plan_for("claude-haiku-4-5", &options, None, PastThinking::LeftOut).thinking, None);
        assert!(plan_for("claude-opus-5", &options, None, PastThinking::LeftOut).thinking.is_some());
    }
}
