//! Facts of tool calls that need nothing special.

use agentloop_core::run::input::ReadyCall;
use agentloop_core::time::Millis;
use agentloop_core::tool::EffectClass;

/// A call of a tool with this effect, which may run at once and for a minute.
pub(crate) fn ready_call(effect: EffectClass) -> ReadyCall {
    ReadyCall {
        effect,
        requires_approval: false,
        timeout: Millis::secs(60),
        requires_runtime: false,
        deadline_is_outcome: false,
        title: String::new(),
        terms: None,
    }
}
