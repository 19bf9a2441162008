//! The parameters that OpenAI's models accept, in either API.

use super::Asked;
use super::refusal::{Refusal, bad, ensure};

/// Refused while a model reasons.
const SAMPLING: [&str; 7] = [
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
];

/// The reasoning efforts that a model of OpenAI accepts.
pub(super) struct Reasons {
    /// The efforts that it takes; none where it does not reason.
    pub(super) efforts: &'static [&'static str],
    /// The effort of a request that names none.
    pub(super) default: &'static str,
}

/// By the model's name, as of this autumn.
pub(super) fn reasons(model: &str) -> Reasons {
    let (efforts, default): (&[&str], _) = match model {
        m if starts(m, &["gpt-6-sol", "gpt-6-luna", "gpt-6.1-terra", "gpt-5.6"]) => {
            (&["none", "low", "medium", "high", "xhigh", "max"], "medium")
        }
        m if m.starts_with("gpt-6") => (&["low", "medium", "high", "xhigh", "max"], "medium"),
        m if starts(m, &["gpt-5.5-pro", "gpt-5.4-pro", "gpt-5.2-pro"]) => {
            (&["medium", "high", "xhigh"], "medium")
        }
        m if m.starts_with("gpt-5.5") => (&["none", "low", "medium", "high", "xhigh"], "medium"),
        m if starts(m, &["gpt-5.4", "gpt-5.2"]) => (&["none", "low", "medium", "high", "xhigh"], "none"),
        m if m.starts_with("gpt-5.1") => (&["none", "low", "medium", "high"], "none"),
        m if m.starts_with("gpt-5-chat") => (&[], "none"),
        m if m.starts_with("gpt-5-pro") => (&["high"], "high"),
        m if m.starts_with("gpt-5") => (&["minimal", "low", "medium", "high"], "medium"),
        m if starts(m, &["o1", "o3", "o4"]) => (&["low", "medium", "high"], "medium"),
        _ => (&[], "none"),
    };
    Reasons { efforts, default }
}

/// True if a name begins with one of these.
pub(super) fn starts(model: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| model.starts_with(beginning))
}

/// Refuses an effort that the model does not have. The effort that it works with.
pub(super) fn check_effort<'a>(model: &str, param: &str, asked: Option<&'a str>) -> Result<&'a str, Refusal> {
    let Reasons { efforts, default } = reasons(model);
    let Some(effort) = asked else { return Ok(default) };
    ensure(!efforts.is_empty(), || unsupported(param))?;
    ensure(efforts.contains(&effort), || {
        let message = format!("Unsupported value: '{param}' does not support '{effort}' with this model.");
        bad(message).about(param).coded("unsupported_value")
    })?;
    Ok(effort)
}

/// Refuses sampling parameters while the model reasons.
pub(super) fn check_sampling(asked: &Asked, effort: &str) -> Result<(), Refusal> {
    match asked.first_of(&SAMPLING) {
        Some(param) if effort != "none" => Err(unsupported(param)),
        _ => Ok(()),
    }
}

pub(super) fn unsupported(param: &str) -> Refusal {
    let message = format!("Unsupported parameter: '{param}' is not supported with this model.");
    bad(message).about(param).coded("unsupported_parameter")
}
