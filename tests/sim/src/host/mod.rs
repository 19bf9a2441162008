//! Tool hosts: processes that survive the server, lose their streams, forget what they did when they are killed, and
//! count every effect that they have on the world.

mod calls;
mod extensions;
mod link;

use agentloop_core::id::TenantId;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::{EffectClass, ToolDeclaration};
use agentloop_server::store::ToolRow;

pub(crate) use extensions::{HOOKS, PLANNER};
pub(crate) use link::Host;

/// A tool that asks a human from inside.
pub(crate) const CONSULT: &str = "consult";

/// The tools that every host serves.
pub(crate) fn tools() -> Vec<ToolDeclaration> {
    let tool = |name: &str, effect, requires_approval| ToolDeclaration {
        name: name.to_owned(),
        title: String::new(),
        description: format!("Does {name}."),
        input_schema: r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#
            .to_owned(),
        effect,
        requires_approval,
        requires_runtime: false,
        deadline_is_outcome: false,
        output_schema: String::new(),
        timeout: Some(Millis::secs(30)),
        max_concurrency: None,
        streams_output: true,
    };
    vec![
        tool("charge", EffectClass::Unsafe, false),
        tool(CONSULT, EffectClass::Unsafe, false),
        tool("look", EffectClass::ReadOnly, false),
        tool("put", EffectClass::Idempotent, false),
        tool("save", EffectClass::Keyed, false),
        tool("wire", EffectClass::Unsafe, true),
    ]
}

/// The same, as the store remembers them.
pub(crate) fn remembered(now: Timestamp) -> (TenantId, Vec<ToolRow>) {
    let rows = tools().into_iter().map(|declaration| ToolRow { declaration, last_seen: now, terms: None });
    (TenantId::local(), rows.collect())
}
