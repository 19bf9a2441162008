//! The catalogue: the known tools of each tenant, including those that no host serves at the moment.

mod declaration;
mod mirror;
mod offered;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{TenantId, ToolKey};
use agentloop_core::limits::{TOOLS_PER_TENANT_MAX, WITHDRAWN_TOOLS_MAX};
use agentloop_core::run::ask_human::ASK_HUMAN;
use agentloop_core::run::input::NotOffered;
use agentloop_core::run::update_todos::UPDATE_TODOS;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::{Digest, ToolDeclaration, ToolTerms};

pub(in crate::tool) use declaration::{CheckedTool, RefusedTool, check, normalise};
pub(in crate::tool) use mirror::KnownTool;
use offered::{KnownTools, OfferCache};

use crate::extension::changes::Followers;
use crate::tool::catalogue::schema::Schema;
use crate::tool::{BadOutput, Offered};

/// Schemas of typed output of earlier declarations that are kept for a tool.
const EARLIER_OUTPUTS_MAX: usize = 3;

/// A tool as the store keeps it across restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTool {
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// The declaration, as the host sent it after normalisation.
    pub declaration: ToolDeclaration,
    /// The last time at which a host served it.
    pub last_seen: Timestamp,
    /// The terms that count for the name, if they are not those of the declaration: an operator accepted weaker ones.
    pub terms: Option<ToolTerms>,
}

/// The known tools of all tenants.
#[derive(Debug)]
pub(in crate::tool) struct Catalogue {
    retention: Millis,
    /// The embedder's tools, which every tenant has.
    own: BTreeMap<String, CatalogueTool>,
    by_tenant: BTreeMap<TenantId, TenantTools>,
    /// Tools whose row in the store is out of date.
    unsaved: BTreeSet<ToolKey>,
    /// The other replicas, which have the same tools.
    followers: Followers<ToolKey>,
}

/// The tools of one tenant's hosts, and a cache of what its runs are offered.
#[derive(Debug, Default)]
struct TenantTools {
    tools: BTreeMap<String, CatalogueTool>,
    offers: OfferCache,
}

/// A schema of a tool's typed output, as one of its declarations has it.
#[derive(Debug, Clone)]
struct OutputSchema {
    digest: Option<Digest>,
    /// `None` if the declaration has none.
    schema: Option<Arc<Schema>>,
}

impl OutputSchema {
    fn check(&self, output: &str) -> Result<(), String> {
        match &self.schema {
            Some(schema) => schema.check_output(output),
            None => Err("the tool declares no output_schema_json".to_owned()),
        }
    }
}

/// A tool of the catalogue, with what runs need of its declaration.
#[derive(Debug, Clone)]
pub(in crate::tool) struct CatalogueTool {
    pub(in crate::tool) declaration: Arc<ToolDeclaration>,
    pub(in crate::tool) digest: Digest,
    pub(in crate::tool) terms: Arc<ToolTerms>,
    pub(in crate::tool) schema: Arc<Schema>,
    /// `None` if the tool gives no typed output.
    pub(in crate::tool) output_schema: Option<Arc<Schema>>,
    /// Schemas of earlier declarations, newest first: calls that were offered under them may still be running.
    earlier_outputs: Arc<[OutputSchema]>,
    /// True while a connected host serves it, and always for a tool of the server or the embedder.
    served: bool,
    last_seen: Timestamp,
}

impl CatalogueTool {
    /// One of the server's built-in tools, which is always served.
    fn built_in(declaration: ToolDeclaration, now: Timestamp) -> Self {
        let (digest, terms) = (declaration.digest(), Arc::new(declaration.terms()));
        let schema = Schema::compile(&declaration.input_schema).expect("our own schema is right");
        let (declaration, schema) = (Arc::new(declaration), Arc::new(schema));
        Self::served(CheckedTool { declaration, digest, terms, schema, output_schema: None }, now)
    }

    fn served(tool: CheckedTool, now: Timestamp) -> Self {
        let CheckedTool { declaration, digest, terms, schema, output_schema } = tool;
        let earlier_outputs = Arc::default();
        Self {
            declaration,
            digest,
            terms,
            schema,
            output_schema,
            earlier_outputs,
            served: true,
            last_seen: now,
        }
    }

    fn newest_output(&self) -> OutputSchema {
        OutputSchema { digest: self.terms.output_schema.clone(), schema: self.output_schema.clone() }
    }

    /// The schemas of typed output that are known once this declaration follows.
    fn outputs_before(&self, next: &CheckedTool) -> Arc<[OutputSchema]> {
        let newest = self.newest_output();
        if newest.digest == next.terms.output_schema {
            return self.earlier_outputs.clone();
        }
        let earlier = self.earlier_outputs.iter().filter(|known| known.digest != next.terms.output_schema);
        std::iter::once(&newest).chain(earlier).take(EARLIER_OUTPUTS_MAX).cloned().collect()
    }

    /// Checks the typed output of a call that was offered under the schema with this digest.
    ///
    /// # Errors
    /// The fault, and if it is one of that schema.
    pub(in crate::tool) fn check_output(
        &self,
        declared: Option<&Digest>,
        output: &str,
    ) -> Result<(), BadOutput> {
        let newest = self.newest_output();
        let mut known = std::iter::once(&newest).chain(&*self.earlier_outputs);
        if let Some(own) = known.find(|known| declared.is_some() && known.digest.as_ref() == declared) {
            return own.check(output).map_err(BadOutput::BreaksSchema);
        }
        let follows_earlier = || self.earlier_outputs.iter().any(|earlier| earlier.check(output).is_ok());
        newest
            .check(output)
            .or_else(|fault| if follows_earlier() { Ok(()) } else { Err(BadOutput::FitsNone(fault)) })
    }

    /// True for an embedder's tool, which runs in this process.
    pub(in crate::tool) fn is_own(&self, catalogue: &Catalogue) -> bool {
        catalogue.own.contains_key(&self.declaration.name)
    }

    /// The last time at which a host served it: `now` while one does.
    pub(in crate::tool) fn last_seen(&self, now: Timestamp) -> Timestamp {
        if self.served { now } else { self.last_seen }
    }
}

impl Catalogue {
    /// A catalogue of the embedder's tools and those in the store. A stored tool that fails the checks
    /// of this version is left out; its host declares it again when it connects.
    pub(in crate::tool) fn new(
        retention: Millis,
        own: Vec<CheckedTool>,
        stored: Vec<StoredTool>,
        now: Timestamp,
    ) -> Self {
        let own =
            own.into_iter().map(|tool| (tool.declaration.name.clone(), CatalogueTool::served(tool, now)));
        let own = own.collect();
        let (unsaved, followers) = (BTreeSet::new(), Followers::default());
        let mut catalogue = Self { retention, own, by_tenant: BTreeMap::new(), unsaved, followers };
        for row in stored {
            if catalogue.own.contains_key(&row.declaration.name) {
                continue;
            }
            match check(row.declaration) {
                Ok(tool) => catalogue.put(&row.tenant, tool, false, row.last_seen),
                Err(refused) => {
                    tracing::warn!(
                        tool = refused.name,
                        reason = refused.reason,
                        "a tool in the store fails the checks of this version and is left out until its host connects"
                    );
                }
            }
        }
        catalogue
    }

    fn put(&mut self, tenant: &TenantId, tool: CheckedTool, served: bool, last_seen: Timestamp) {
        let hosted = self.by_tenant.entry(tenant.clone()).or_default();
        hosted.offers.clear();
        let known = hosted.tools.get(&tool.declaration.name);
        let earlier_outputs = known.map(|known| known.outputs_before(&tool)).unwrap_or_default();
        let CheckedTool { declaration, digest, terms, schema, output_schema } = tool;
        let name = declaration.name.clone();
        self.followers.mark(&ToolKey::new(tenant.clone(), name.clone()));
        let tool = CatalogueTool {
            declaration,
            digest,
            terms,
            schema,
            output_schema,
            earlier_outputs,
            served,
            last_seen,
        };
        hosted.tools.insert(name, tool);
    }

    /// Registers a tool that a host serves from now on.
    pub(in crate::tool) fn register(&mut self, tenant: &TenantId, tool: CheckedTool, now: Timestamp) {
        let unchanged = self
            .tool(tenant, &tool.declaration.name)
            .is_some_and(|known| known.served && known.digest == tool.digest);
        if !unchanged {
            self.unsaved.insert(ToolKey::new(tenant.clone(), tool.declaration.name.clone()));
            self.put(tenant, tool, true, now);
        }
    }

    /// Makes room for a tool of this name beside `coming` other new ones of the same offer, whose names are `offered`. A full
    /// catalogue forgets the tool that was unserved for the longest time, and returns its name.
    ///
    /// # Errors
    /// When every tool is served or about to be, or the server has a tool of this name.
    pub(in crate::tool) fn make_room(
        &mut self,
        tenant: &TenantId,
        name: &str,
        coming: usize,
        offered: &BTreeSet<String>,
    ) -> Result<Option<String>, String> {
        if self.own.contains_key(name) {
            return Err(format!("the server has a tool {name} of its own; choose another name"));
        }
        let hosted = self.by_tenant.entry(tenant.clone()).or_default();
        if hosted.tools.len() + coming < TOOLS_PER_TENANT_MAX || hosted.tools.contains_key(name) {
            return Ok(None);
        }
        let unserved = hosted.tools.iter().filter(|(name, tool)| !tool.served && !offered.contains(*name));
        let oldest = unserved.min_by_key(|(_, tool)| tool.last_seen).map(|(name, _)| name.clone());
        let oldest = oldest.ok_or_else(|| {
            format!(
                "{TOOLS_PER_TENANT_MAX} tools are served already, which is the limit; disconnect a host first"
            )
        })?;
        hosted.tools.remove(&oldest);
        hosted.offers.clear();
        self.followers.mark(&ToolKey::new(tenant.clone(), oldest.clone()));
        Ok(Some(oldest))
    }

    /// Removes a tool, unless a host serves it.
    pub(in crate::tool) fn remove(&mut self, tenant: &TenantId, name: &str) {
        let Some(hosted) = self.by_tenant.get_mut(tenant) else { return };
        if hosted.tools.get(name).is_some_and(|tool| !tool.served) {
            hosted.tools.remove(name);
            hosted.offers.clear();
        }
        self.followers.mark(&ToolKey::new(tenant.clone(), name.to_owned()));
    }

    /// True while a connected host serves the tool, or the server itself does.
    pub(in crate::tool) fn is_served(&self, tenant: &TenantId, name: &str) -> bool {
        self.tool(tenant, name).is_some_and(|tool| tool.served)
    }

    /// Marks a tool as unserved: its last host is gone.
    pub(in crate::tool) fn unserve(&mut self, tenant: &TenantId, name: &str, now: Timestamp) {
        let Some(hosted) = self.by_tenant.get_mut(tenant) else { return };
        if let Some(tool) = hosted.tools.get_mut(name) {
            tool.served = false;
            tool.last_seen = now;
            hosted.offers.clear();
            self.unsaved.insert(ToolKey::new(tenant.clone(), name.to_owned()));
            self.followers.mark(&ToolKey::new(tenant.clone(), name.to_owned()));
        }
    }

    /// Marks every served tool as unsaved, so that `last_seen` in the store is renewed from time to time.
    pub(in crate::tool) fn refresh(&mut self) {
        for (tenant, hosted) in &self.by_tenant {
            let served = hosted.tools.iter().filter(|(_, tool)| tool.served);
            self.unsaved.extend(served.map(|(name, _)| ToolKey::new(tenant.clone(), name.clone())));
        }
    }

    /// Marks a tool as unsaved, because more than its declaration changed.
    pub(in crate::tool) fn mark_unsaved(&mut self, tenant: &TenantId, name: &str) {
        self.unsaved.insert(ToolKey::new(tenant.clone(), name.to_owned()));
        self.followers.mark(&ToolKey::new(tenant.clone(), name.to_owned()));
    }

    /// Takes the rows that the store should write.
    pub(in crate::tool) fn take_unsaved(&mut self, now: Timestamp) -> Vec<StoredTool> {
        std::mem::take(&mut self.unsaved)
            .into_iter()
            .filter_map(|ToolKey { tenant, name }| {
                let tool = self.tool(&tenant, &name)?;
                let declaration = ToolDeclaration::clone(&tool.declaration);
                let last_seen = tool.last_seen(now);
                Some(StoredTool { tenant, declaration, last_seen, terms: None })
            })
            .collect()
    }

    /// Marks rows as unsaved again after the store failed to write them.
    pub(in crate::tool) fn put_back(&mut self, rows: Vec<StoredTool>) {
        self.unsaved.extend(rows.into_iter().map(|row| ToolKey::new(row.tenant, row.declaration.name)));
    }

    /// Finds a tool by name. The embedder's tools take precedence.
    pub(in crate::tool) fn tool(&self, tenant: &TenantId, name: &str) -> Option<&CatalogueTool> {
        self.own.get(name).or_else(|| self.by_tenant.get(tenant)?.tools.get(name))
    }

    /// Finds a tool with exactly this declaration, whose schema need not be compiled again.
    pub(in crate::tool) fn known(
        &self,
        tenant: &TenantId,
        name: &str,
        digest: &Digest,
    ) -> Option<CheckedTool> {
        let tool = self.tool(tenant, name).filter(|tool| tool.digest == *digest)?;
        let CatalogueTool { declaration, digest, terms, schema, output_schema, .. } = tool.clone();
        Some(CheckedTool { declaration, digest, terms, schema, output_schema })
    }

    /// All known tools of a tenant, by name.
    pub(in crate::tool) fn tools(&self, tenant: &TenantId) -> impl Iterator<Item = &CatalogueTool> {
        let hosted = self.by_tenant.get(tenant).into_iter().flat_map(|hosted| &hosted.tools);
        let all: BTreeMap<&String, &CatalogueTool> = self.own.iter().chain(hosted).collect();
        all.into_values()
    }

    /// The names of all hosted tools, by tenant.
    pub(in crate::tool) fn names(&self) -> Vec<(TenantId, Vec<String>)> {
        let names = |hosted: &TenantTools| hosted.tools.keys().cloned().collect();
        self.by_tenant.iter().map(|(tenant, hosted)| (tenant.clone(), names(hosted))).collect()
    }

    /// The tools that a run's model may call now.
    pub(in crate::tool) fn offered(&mut self, tenant: &TenantId, spec: &RunSpec, now: Timestamp) -> Offered {
        let retention = self.retention;
        let hosted = self.by_tenant.entry(tenant.clone()).or_default();
        let tools = KnownTools { own: &self.own, hosted: &hosted.tools };
        hosted.offers.get(spec, tools, now, retention)
    }

    /// The tools that a run which starts now is not offered, although its lists name or allow them.
    pub(in crate::tool) fn not_offered(
        &self,
        tenant: &TenantId,
        spec: &RunSpec,
        now: Timestamp,
    ) -> NotOffered {
        let built_in = [(ASK_HUMAN, asks_human(spec)), (UPDATE_TODOS, keeps_todos(spec))];
        let built_in = || built_in.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| *name);
        let is_there = |tool: &CatalogueTool| tool.served || now < tool.last_seen.after(self.retention);
        let is_known =
            |name: &str| built_in().any(|own| own == name) || self.tool(tenant, name).is_some_and(is_there);
        let mut seen = BTreeSet::new();
        let named = spec.allowed_tools.iter().flatten().chain(&spec.tool_order);
        let unknown = named.filter(|name| !is_known(name) && seen.insert(name.as_str())).cloned().collect();
        let hosted =
            self.tools(tenant).filter(|tool| is_there(tool)).map(|tool| tool.declaration.name.as_str());
        let all: BTreeSet<&str> = hosted.filter(|name| is_allowed(spec, name)).chain(built_in()).collect();
        let withdrawn = all.into_iter().filter(|name| spec.denies_always(name));
        let withdrawn = withdrawn.take(WITHDRAWN_TOOLS_MAX).map(str::to_owned).collect();
        NotOffered { unknown, withdrawn }
    }
}

/// True if a run's model is offered the built-in tool `ask_human`. It has a switch of its own, so no list names it.
pub(in crate::tool) fn asks_human(spec: &RunSpec) -> bool {
    spec.tool_policy.enabled && spec.tool_policy.ask_human
}

/// True if a run's model is offered the built-in tool `update_todos`. It has a switch of its own, so no list names it.
pub(in crate::tool) fn keeps_todos(spec: &RunSpec) -> bool {
    spec.tool_policy.enabled && spec.tool_policy.todos
}

/// True if the run's lists allow a tool of this name.
pub(in crate::tool) fn is_allowed(spec: &RunSpec, name: &str) -> bool {
    let within = |list: &Option<Vec<String>>| {
        list.as_ref().is_none_or(|names| names.iter().any(|allowed| allowed == name))
    };
    spec.tool_policy.enabled && within(&spec.tool_policy.allow_list) && within(&spec.allowed_tools)
}

#[cfg(test)]
mod tests;
