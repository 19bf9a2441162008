//! How a model is asked to think, and what that leaves of the other parameters.
//!
//! The effort becomes a budget of 2,048 (low), 8,192 (medium) or 24,576 (high) tokens where a budget is asked for, and
//! the same number is added to the default bound of the answer wherever the model thinks, since thoughts count
//! against that bound. What each model takes stands in [`super::traits`].

use agentloop_core::agent::{ModelOptions, ReasoningEffort, ToolChoice};
use agentloop_core::model_traits::{Effort, Taken, Thinks};
use serde::Serialize;

use super::traits::Claude;
use crate::model::request::notices::Notices;

/// The bound of an answer that nobody bounded, thoughts not counted. The API insists on one.
const DEFAULT_MAX_TOKENS: u32 = 4_096;
/// The least budget that the API takes.
const BUDGET_TOKENS_MIN: u32 = 1_024;

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
    /// Whether the request may demand a tool.
    pub(super) may_force: bool,
}

/// What is decided about thinking alone.
struct Thought {
    thinking: Option<Thinking>,
    effort: Option<&'static str>,
    /// Tokens that the thoughts may take.
    room: u32,
}

/// Decides for this model. `may_think` is false where the history lacks thoughts that a budget would demand. What the
/// model would refuse is left out, and told of in the log.
pub(super) fn plan(
    model: &str,
    options: &ModelOptions,
    claude: &Claude,
    default_max_tokens: Option<u32>,
    may_think: bool,
    notices: &Notices,
) -> Plan {
    let traits = &claude.traits;
    let forced = matches!(options.tool_choice, Some(ToolChoice::Required | ToolChoice::Named(_)));
    let may_force = traits.forced_tools != Taken::Never;
    if forced && !may_force {
        notices.left_out(model, "tool_choice", "auto");
    }
    // Where a demanded tool and thinking exclude each other, the tool wins.
    let calm = forced && traits.forced_tools == Taken::WithoutThinking;
    let thought = if claude.by_budget {
        by_budget(options, may_think && !calm)
    } else {
        adaptive(model, options.reasoning_effort, claude, calm, notices)
    };
    let (temperature, top_p) = sampling(model, options, claude, thought.room > 0, notices);
    let unbounded = default_max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    let max_tokens = options.max_output_tokens.unwrap_or_else(|| unbounded.saturating_add(thought.room));
    let Thought { thinking, effort, .. } = thought;
    Plan { thinking, effort, max_tokens, temperature, top_p, may_force }
}

fn by_budget(options: &ModelOptions, may_think: bool) -> Thought {
    let effort = options.reasoning_effort.filter(|_| may_think);
    let budget = effort.and_then(|effort| budget(effort, options.max_output_tokens));
    let thinking = budget.map(|budget| Thinking::Enabled { budget_tokens: budget });
    Thought { thinking, effort: None, room: budget.unwrap_or(0) }
}

fn adaptive(
    model: &str,
    asked: Option<ReasoningEffort>,
    claude: &Claude,
    calm: bool,
    notices: &Notices,
) -> Thought {
    const SILENT: Thought = Thought { thinking: None, effort: None, room: 0 };
    let traits = &claude.traits;
    let not = calm || asked == Some(ReasoningEffort::None);
    match traits.thinks {
        Thinks::Never => return SILENT,
        Thinks::WhenAsked if not || asked.is_none() => return SILENT,
        Thinks::ByDefault if not => return Thought { thinking: Some(Thinking::Disabled), ..SILENT },
        Thinks::WhenAsked | Thinks::ByDefault | Thinks::Always => {}
    }
    let effort = asked.and_then(|asked| notices.effort(model, traits.efforts, asked.into()));
    let display = claude.hides_thoughts.then_some("summarized");
    let room = match asked {
        Some(ReasoningEffort::None) => room(ReasoningEffort::Low),
        Some(asked) => room(asked),
        None => room(ReasoningEffort::High),
    };
    Thought { thinking: Some(Thinking::Adaptive { display }), effort: effort.map(Effort::as_str), room }
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
fn sampling(
    model: &str,
    options: &ModelOptions,
    claude: &Claude,
    thinks: bool,
    notices: &Notices,
) -> (Option<f64>, Option<f64>) {
    if !claude.traits.sampling.while_thinking(thinks) {
        for (parameter, asked) in [("temperature", options.temperature), ("top_p", options.top_p)] {
            if asked.is_some() {
                notices.left_out(model, parameter, "nothing");
            }
        }
        return (None, None);
    }
    let either = claude.one_of_sampling && options.temperature.is_some();
    if either && options.top_p.is_some() {
        notices.left_out(model, "top_p", "nothing, beside temperature");
    }
    (options.temperature, options.top_p.filter(|_| !either))
}

#[cfg(test)]
mod tests {
    use agentloop_core::model_traits::TraitOverrides;
    use serde_json::{Value, json};

    use super::super::traits::claude;
    use super::*;

    fn told(plan: &Plan) -> Option<Value> {
        plan.thinking.map(|thinking| serde_json::to_value(thinking).unwrap())
    }

    fn plan_for(model: &str, options: &ModelOptions, max_tokens: Option<u32>, may_think: bool) -> Plan {
        plan(model, options, &claude(model, None), max_tokens, may_think, &Notices::default())
    }

    fn planned(model: &str, effort: Option<ReasoningEffort>) -> (Option<Value>, Option<&'static str>, u32) {
        let options = ModelOptions { reasoning_effort: effort, ..ModelOptions::default() };
        let plan = plan_for(model, &options, None, true);
        (told(&plan), plan.effort, plan.max_tokens)
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
            // These cannot stop thinking, but think little.
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
            told(&plan(model, &options, &claude(model, Some(&own)), None, true, &Notices::default()))
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
            let plan = plan_for("claude-haiku-4-5", &options, Some(7), true);
            (plan.max_tokens, told(&plan).map(|thinking| thinking["budget_tokens"].clone()))
        };
        assert_eq!(bounded(1_024), (1_024, None));
        assert_eq!(bounded(1_025), (1_025, Some(json!(1_024))));
        assert_eq!(bounded(10_000), (10_000, Some(json!(5_000))));
        assert_eq!(bounded(100_000), (100_000, Some(json!(24_576))));
        let plan = plan_for("claude-haiku-4-5", &ModelOptions::default(), Some(7), true);
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
            let plan = plan_for(model, &options, None, true);
            (told(&plan), plan.effort, plan.may_force)
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
            let plan = plan_for(model, &options, None, true);
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
        assert_eq!(plan_for("claude-haiku-4-5", &options, None, false).thinking, None);
        assert!(plan_for("claude-opus-5", &options, None, false).thinking.is_some());
    }
}
