//! The parameters that Anthropic's models accept.

use crate::vendor::request::family;

/// When `tool_choice` may demand a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forced {
    Always,
    /// Not with `thinking` of type `enabled`.
    WithoutBudget,
    Never,
}

/// The traits of one model.
pub(super) struct Traits {
    /// Accepted types of `thinking`.
    pub(super) thinking: &'static [&'static str],
    /// Values of `output_config.effort`.
    pub(super) efforts: &'static [&'static str],
    pub(super) forced: Forced,
    /// True if it accepts `temperature` and other sampling parameters.
    pub(super) sampling: bool,
    /// True if the last message may be the model's own.
    pub(super) prefill: bool,
    /// True if each thought is bound to everything before it.
    pub(super) binds: bool,
    /// True if thoughts have no text unless the request asks for it.
    pub(super) hides_thoughts: bool,
}

/// By the model's name, as of this autumn. Of a model that is not known, nothing is refused.
pub(super) fn of(model: &str) -> Traits {
    let all: &[&str] = &["low", "medium", "high", "xhigh", "max"];
    let recent = Traits {
        thinking: &["adaptive", "disabled"],
        efforts: all,
        forced: Forced::Always,
        sampling: false,
        prefill: false,
        binds: false,
        hides_thoughts: true,
    };
    let old = Traits {
        thinking: &["enabled", "disabled"],
        efforts: &[],
        forced: Forced::WithoutBudget,
        sampling: true,
        prefill: true,
        binds: false,
        hides_thoughts: false,
    };
    match family(model).strip_prefix("claude-").unwrap_or_default() {
        "haiku-4-5" | "sonnet-4-5" => old,
        "opus-4-5" => Traits { efforts: &["low", "medium", "high"], ..old },
        "opus-4-6" | "sonnet-4-6" => Traits {
            thinking: &["adaptive", "enabled", "disabled"],
            efforts: &["low", "medium", "high", "max"],
            prefill: false,
            ..old
        },
        "opus-4-7" | "opus-4-8" | "opus-5" | "sonnet-5" => recent,
        "haiku-5-5" => Traits { binds: true, ..recent },
        "sonnet-5-5" => {
            Traits { thinking: &["adaptive", "between_tools"], forced: Forced::Never, binds: true, ..recent }
        }
        "fable-5" | "mythos-5" => Traits { thinking: &["adaptive"], ..recent },
        "opus-5-5" | "fable-5-1" | "mythos-5-1" | "fable-5-2" | "mythos-5-2" => {
            Traits { thinking: &["adaptive"], forced: Forced::Never, binds: true, ..recent }
        }
        _ => Traits {
            thinking: &["adaptive", "enabled", "disabled", "between_tools"],
            efforts: all,
            sampling: true,
            prefill: true,
            hides_thoughts: false,
            ..recent
        },
    }
}
