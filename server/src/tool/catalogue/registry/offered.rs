//! What a model is offered, made once and shared until something changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::run::ask_human::{self, ASK_HUMAN};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::{Digest, ToolDeclaration};

use super::{Tool, asks_human, is_allowed};
use crate::tool::Offered;

/// Kinds of runs that are remembered at a time. There are about as many as configured agents.
const KINDS_MAX: usize = 256;

/// What was offered to runs that ask for the same.
#[derive(Debug, Default)]
pub(super) struct Offers {
    by_kind: HashMap<Kind, Made>,
}

/// Everything about a run that decides what it is offered.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Kind {
    enabled: bool,
    allow_list: Option<Vec<String>>,
    allowed_tools: Option<Vec<String>>,
    tool_order: Vec<String>,
    ask_human: bool,
}

#[derive(Debug)]
struct Made {
    offered: Offered,
    /// When the first tool that nobody serves falls out of it.
    until: Option<Timestamp>,
}

impl Offers {
    /// The tools changed.
    pub(super) fn clear(&mut self) {
        self.by_kind.clear();
    }

    pub(super) fn get(
        &mut self,
        spec: &RunSpec,
        tools: (&BTreeMap<String, Tool>, &BTreeMap<String, Tool>),
        now: Timestamp,
        retention: Millis,
    ) -> Offered {
        let kind = Kind {
            enabled: spec.tool_policy.enabled,
            allow_list: spec.tool_policy.allow_list.clone(),
            allowed_tools: spec.allowed_tools.clone(),
            tool_order: spec.tool_order.clone(),
            ask_human: asks_human(spec),
        };
        if let Some(made) = self.by_kind.get(&kind).filter(|made| made.until.is_none_or(|until| now < until))
        {
            return made.offered.clone();
        }
        if self.by_kind.len() >= KINDS_MAX {
            self.by_kind.clear();
        }
        let made = make(spec, tools, now, retention);
        let offered = made.offered.clone();
        self.by_kind.insert(kind, made);
        offered
    }
}

fn make(
    spec: &RunSpec,
    (own, hosted): (&BTreeMap<String, Tool>, &BTreeMap<String, Tool>),
    now: Timestamp,
    retention: Millis,
) -> Made {
    let gone_at = |tool: &Tool| tool.last_seen.after(retention);
    let asking = asks_human(spec).then(|| Tool::built_in(ask_human::declaration(), now));
    let mut shown: BTreeMap<&str, &Tool> = hosted
        .iter()
        .chain(own)
        .map(|(name, tool)| (name.as_str(), tool))
        .filter(|(name, tool)| is_allowed(spec, name) && (tool.served || now < gone_at(tool)))
        .collect();
    shown.extend(asking.as_ref().map(|tool| (ASK_HUMAN, tool)));
    let until = shown.values().filter(|tool| !tool.served).map(|tool| gone_at(tool)).min();
    let ordered = in_order(spec, &shown);
    let digests: Vec<&[u8]> = ordered.iter().map(|tool| tool.digest.as_str().as_bytes()).collect();
    let digest = Digest::of(&digests);
    let tools: Arc<[Arc<ToolDeclaration>]> = ordered.iter().map(|tool| tool.declaration.clone()).collect();
    Made { offered: Offered { tools, digest }, until }
}

/// Those that the run names first, in its order; the rest by name. Each once.
fn in_order<'a>(spec: &RunSpec, shown: &BTreeMap<&str, &'a Tool>) -> Vec<&'a Tool> {
    let mut seen = BTreeSet::new();
    let named = spec.tool_order.iter().map(String::as_str);
    named
        .chain(shown.keys().copied())
        .filter(|name| seen.insert(name.to_owned()))
        .filter_map(|name| shown.get(name).copied())
        .collect()
}
