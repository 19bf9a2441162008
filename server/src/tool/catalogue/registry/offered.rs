//! A cache of tool lists: the list that a model is offered is made once and shared until the tools change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::run::ask_human::{self, ASK_HUMAN};
use agentloop_core::run::update_todos::{self, UPDATE_TODOS};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::{Digest, ToolDeclaration};

use super::{CatalogueTool, asks_human, is_allowed, keeps_todos};
use crate::tool::Offered;

/// Lists in the cache. There are about as many as configured agents.
const OFFERS_CACHED_MAX: usize = 256;

/// The tools that a list is made of, by name.
#[derive(Clone, Copy)]
pub(super) struct KnownTools<'a> {
    /// The embedder's own tools, by name.
    pub(super) own: &'a BTreeMap<String, CatalogueTool>,
    /// The tools of the tenant's hosts.
    pub(super) hosted: &'a BTreeMap<String, CatalogueTool>,
}

/// Tool lists by the settings that decide them.
#[derive(Debug, Default)]
pub(super) struct OfferCache {
    by_key: HashMap<OfferKey, CachedOffer>,
}

/// All settings of a run that decide its tool list.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfferKey {
    enabled: bool,
    allow_list: Option<Vec<String>>,
    allowed_tools: Option<Vec<String>>,
    tool_order: Vec<String>,
    ask_human: bool,
    todos: bool,
    /// Patterns of the tools that are denied whatever their arguments.
    denied: Vec<String>,
}

#[derive(Debug)]
struct CachedOffer {
    offered: Offered,
    /// The time at which the first unserved tool drops out of the list.
    until: Option<Timestamp>,
}

impl OfferCache {
    /// Drops all lists. Called when the tools change.
    pub(super) fn clear(&mut self) {
        self.by_key.clear();
    }

    pub(super) fn get(
        &mut self,
        spec: &RunSpec,
        tools: KnownTools<'_>,
        now: Timestamp,
        retention: Millis,
    ) -> Offered {
        let key = OfferKey {
            enabled: spec.tool_policy.enabled,
            allow_list: spec.tool_policy.allow_list.clone(),
            allowed_tools: spec.allowed_tools.clone(),
            tool_order: spec.tool_order.clone(),
            ask_human: asks_human(spec),
            todos: keeps_todos(spec),
            denied: denied(spec),
        };
        if let Some(made) = self.by_key.get(&key).filter(|made| made.until.is_none_or(|until| now < until)) {
            return made.offered.clone();
        }
        if self.by_key.len() >= OFFERS_CACHED_MAX {
            self.by_key.clear();
        }
        let made = make(spec, tools, now, retention);
        let offered = made.offered.clone();
        self.by_key.insert(key, made);
        offered
    }
}

fn denied(spec: &RunSpec) -> Vec<String> {
    spec.tool_policy.rules.iter().filter(|rule| rule.denies_always()).map(|rule| rule.tool.clone()).collect()
}

fn make(
    spec: &RunSpec,
    KnownTools { own, hosted }: KnownTools<'_>,
    now: Timestamp,
    retention: Millis,
) -> CachedOffer {
    let gone_at = |tool: &CatalogueTool| tool.last_seen.after(retention);
    let asking = asks_human(spec).then(|| CatalogueTool::built_in(ask_human::declaration(), now));
    let todos = keeps_todos(spec).then(|| CatalogueTool::built_in(update_todos::declaration(), now));
    let mut shown: BTreeMap<&str, &CatalogueTool> = hosted
        .iter()
        .chain(own)
        .map(|(name, tool)| (name.as_str(), tool))
        .filter(|(name, tool)| is_allowed(spec, name) && (tool.served || now < gone_at(tool)))
        .collect();
    shown.extend(asking.as_ref().map(|tool| (ASK_HUMAN, tool)));
    shown.extend(todos.as_ref().map(|tool| (UPDATE_TODOS, tool)));
    shown.retain(|name, _| !spec.denies_always(name));
    let until = shown.values().filter(|tool| !tool.served).map(|tool| gone_at(tool)).min();
    let ordered = in_order(spec, &shown);
    let digests: Vec<&[u8]> = ordered.iter().map(|tool| tool.digest.as_str().as_bytes()).collect();
    let digest = Digest::of(&digests);
    let tools: Arc<[Arc<ToolDeclaration>]> = ordered.iter().map(|tool| tool.declaration.clone()).collect();
    CachedOffer { offered: Offered { tools, digest }, until }
}

/// Sorts tools: those in the run's `tool_order` first, in that order, then the others by name. No tool appears twice.
fn in_order<'a>(spec: &RunSpec, shown: &BTreeMap<&str, &'a CatalogueTool>) -> Vec<&'a CatalogueTool> {
    let mut seen = BTreeSet::new();
    let named = spec.tool_order.iter().map(String::as_str);
    named
        .chain(shown.keys().copied())
        .filter(|name| seen.insert(name.to_owned()))
        .filter_map(|name| shown.get(name).copied())
        .collect()
}
