//! The catalogue: which tools there are, per tenant, whether or not somebody serves them at the moment.

mod declaration;
mod offered;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::TenantId;
use agentloop_core::limits::TOOLS_PER_TENANT_MAX;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::{Digest, ToolDeclaration};

pub(in crate::tool) use declaration::{Checked, Refused, check, normalise};
use offered::Offers;

use crate::tool::Offered;
use crate::tool::catalogue::schema::Schema;

/// A tool with its last sign of life, as it is remembered across restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedTool {
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// As declared.
    pub declaration: ToolDeclaration,
    /// When a host that serves it was last seen.
    pub last_seen: Timestamp,
}

/// All tools of all tenants.
#[derive(Debug)]
pub(in crate::tool) struct Catalogue {
    retention: Millis,
    /// Tools of the server itself, which every tenant has.
    own: BTreeMap<String, Tool>,
    shelves: BTreeMap<TenantId, Shelf>,
    /// Tools whose row in the store is behind.
    unsaved: BTreeSet<(TenantId, String)>,
}

/// The tools of one tenant.
#[derive(Debug, Default)]
struct Shelf {
    tools: BTreeMap<String, Tool>,
    offers: Offers,
}

/// A known tool.
#[derive(Debug, Clone)]
pub(in crate::tool) struct Tool {
    pub(in crate::tool) declaration: Arc<ToolDeclaration>,
    pub(in crate::tool) digest: Digest,
    pub(in crate::tool) schema: Arc<Schema>,
    served: bool,
    last_seen: Timestamp,
}

impl Tool {
    /// A tool that the server has itself, and always serves.
    fn built_in(declaration: ToolDeclaration, now: Timestamp) -> Self {
        let digest = declaration.digest();
        let schema = Schema::compile(&declaration.input_schema).expect("our own schema is right");
        Self::served(Checked { declaration: Arc::new(declaration), digest, schema: Arc::new(schema) }, now)
    }

    fn served(Checked { declaration, digest, schema }: Checked, now: Timestamp) -> Self {
        Self { declaration, digest, schema, served: true, last_seen: now }
    }

    /// Whether it runs in this process.
    pub(in crate::tool) fn is_own(&self, catalogue: &Catalogue) -> bool {
        catalogue.own.contains_key(&self.declaration.name)
    }

    /// When a host that serves it was last seen.
    pub(in crate::tool) fn last_seen(&self, now: Timestamp) -> Timestamp {
        if self.served { now } else { self.last_seen }
    }
}

impl Catalogue {
    /// What the store remembers. A row that this version cannot take is left out: its host will declare it again.
    pub(in crate::tool) fn new(
        retention: Millis,
        own: Vec<Checked>,
        remembered: Vec<RememberedTool>,
        now: Timestamp,
    ) -> Self {
        let own = own.into_iter().map(|tool| (tool.declaration.name.clone(), Tool::served(tool, now)));
        let own = own.collect();
        let mut catalogue = Self { retention, own, shelves: BTreeMap::new(), unsaved: BTreeSet::new() };
        for row in remembered {
            if catalogue.own.contains_key(&row.declaration.name) {
                continue;
            }
            match check(row.declaration) {
                Ok(tool) => catalogue.put(&row.tenant, tool, false, row.last_seen),
                Err(refused) => {
                    tracing::warn!(
                        tool = refused.name,
                        reason = refused.reason,
                        "a remembered tool is left out"
                    );
                }
            }
        }
        catalogue
    }

    fn put(&mut self, tenant: &TenantId, tool: Checked, served: bool, last_seen: Timestamp) {
        let shelf = self.shelves.entry(tenant.clone()).or_default();
        shelf.offers.clear();
        let Checked { declaration, digest, schema } = tool;
        let name = declaration.name.clone();
        shelf.tools.insert(name, Tool { declaration, digest, schema, served, last_seen });
    }

    /// Takes in a tool that a host serves from now on.
    pub(in crate::tool) fn register(&mut self, tenant: &TenantId, tool: Checked, now: Timestamp) {
        let unchanged = self
            .tool(tenant, &tool.declaration.name)
            .is_some_and(|known| known.served && known.digest == tool.digest);
        if !unchanged {
            self.unsaved.insert((tenant.clone(), tool.declaration.name.clone()));
            self.put(tenant, tool, true, now);
        }
    }

    /// Room for a tool of this name beside `coming` other new ones. A catalogue that is full forgets the tool that was not seen for the longest
    /// time; its name is returned.
    ///
    /// # Errors
    /// Why there is no room: every tool is served, or the server has one of this name.
    pub(in crate::tool) fn make_room(
        &mut self,
        tenant: &TenantId,
        name: &str,
        coming: usize,
    ) -> Result<Option<String>, String> {
        if self.own.contains_key(name) {
            return Err(format!("the server has a tool {name} of its own"));
        }
        let Some(shelf) = self.shelves.get_mut(tenant) else { return Ok(None) };
        if shelf.tools.len() + coming < TOOLS_PER_TENANT_MAX || shelf.tools.contains_key(name) {
            return Ok(None);
        }
        let unserved = shelf.tools.iter().filter(|(_, tool)| !tool.served);
        let oldest = unserved.min_by_key(|(_, tool)| tool.last_seen).map(|(name, _)| name.clone());
        let oldest = oldest.ok_or_else(|| format!("there are {TOOLS_PER_TENANT_MAX} tools already"))?;
        shelf.tools.remove(&oldest);
        shelf.offers.clear();
        Ok(Some(oldest))
    }

    /// The last host of a tool is gone.
    pub(in crate::tool) fn unserve(&mut self, tenant: &TenantId, name: &str, now: Timestamp) {
        let Some(shelf) = self.shelves.get_mut(tenant) else { return };
        if let Some(tool) = shelf.tools.get_mut(name) {
            tool.served = false;
            tool.last_seen = now;
            shelf.offers.clear();
            self.unsaved.insert((tenant.clone(), name.to_owned()));
        }
    }

    /// Marks what is served as seen, so that the store's rows do not fall behind for long.
    pub(in crate::tool) fn refresh(&mut self) {
        for (tenant, shelf) in &self.shelves {
            let served = shelf.tools.iter().filter(|(_, tool)| tool.served);
            self.unsaved.extend(served.map(|(name, _)| (tenant.clone(), name.clone())));
        }
    }

    /// Takes what the store should be told.
    pub(in crate::tool) fn take_unsaved(&mut self, now: Timestamp) -> Vec<RememberedTool> {
        std::mem::take(&mut self.unsaved)
            .into_iter()
            .filter_map(|(tenant, name)| {
                let tool = self.tool(&tenant, &name)?;
                let declaration = ToolDeclaration::clone(&tool.declaration);
                let last_seen = tool.last_seen(now);
                Some(RememberedTool { tenant, declaration, last_seen })
            })
            .collect()
    }

    /// The store could not be told.
    pub(in crate::tool) fn put_back(&mut self, rows: Vec<RememberedTool>) {
        self.unsaved.extend(rows.into_iter().map(|row| (row.tenant, row.declaration.name)));
    }

    /// A known tool.
    pub(in crate::tool) fn tool(&self, tenant: &TenantId, name: &str) -> Option<&Tool> {
        self.own.get(name).or_else(|| self.shelves.get(tenant)?.tools.get(name))
    }

    /// A tool that was checked before, so that it need not be compiled again.
    pub(in crate::tool) fn known(&self, tenant: &TenantId, name: &str, digest: &Digest) -> Option<Checked> {
        let tool = self.tool(tenant, name).filter(|tool| tool.digest == *digest)?;
        let Tool { declaration, digest, schema, .. } = tool.clone();
        Some(Checked { declaration, digest, schema })
    }

    /// All known tools of a tenant, by name.
    pub(in crate::tool) fn tools(&self, tenant: &TenantId) -> impl Iterator<Item = &Tool> {
        let hosted = self.shelves.get(tenant).into_iter().flat_map(|shelf| &shelf.tools);
        let all: BTreeMap<&String, &Tool> = self.own.iter().chain(hosted).collect();
        all.into_values()
    }

    /// All known tools of all tenants, by name.
    pub(in crate::tool) fn names(&self) -> Vec<(TenantId, Vec<String>)> {
        let names = |shelf: &Shelf| shelf.tools.keys().cloned().collect();
        self.shelves.iter().map(|(tenant, shelf)| (tenant.clone(), names(shelf))).collect()
    }

    /// What a run's model is offered now.
    pub(in crate::tool) fn offered(&mut self, tenant: &TenantId, spec: &RunSpec, now: Timestamp) -> Offered {
        let retention = self.retention;
        let shelf = self.shelves.entry(tenant.clone()).or_default();
        shelf.offers.get(spec, (&self.own, &shelf.tools), now, retention)
    }
}

/// Whether a run's model is offered the built-in tool `ask_human`, which no list names: it has a switch of its own.
pub(in crate::tool) fn asks_human(spec: &RunSpec) -> bool {
    spec.tool_policy.enabled && spec.tool_policy.ask_human
}

/// Whether a run may use a tool of this name.
pub(in crate::tool) fn is_allowed(spec: &RunSpec, name: &str) -> bool {
    let within = |list: &Option<Vec<String>>| {
        list.as_ref().is_none_or(|names| names.iter().any(|allowed| allowed == name))
    };
    spec.tool_policy.enabled && within(&spec.tool_policy.allow_list) && within(&spec.allowed_tools)
}

#[cfg(test)]
mod tests;
