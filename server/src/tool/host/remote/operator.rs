//! Tools and hosts as operators see them, and their decisions about the terms of tools.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use agentloop_core::host::FleetInput;
use agentloop_core::id::TenantId;
use agentloop_core::tool::{ToolDeclaration, ToolTerms};
use tokio::sync::MutexGuard;

use super::RemoteTools;
use crate::tool::FleetCounts;
use crate::tool::catalogue::registry::{CatalogueTool, StoredTool};
use crate::tool::catalogue::terms::TermsError;
use crate::tool::host::snapshot::{HostSnapshot, ToolSnapshot};
use crate::tool::in_process::in_process;

/// Terms of a refused declaration that are being accepted. No tool is saved meanwhile.
#[derive(Debug)]
pub(in crate::tool) struct AcceptingTerms<'a> {
    /// The row to store: the tool with these terms.
    pub(in crate::tool) row: StoredTool,
    tools: &'a RemoteTools,
    terms: Arc<ToolTerms>,
    _saving: MutexGuard<'a, ()>,
}

impl AcceptingTerms<'_> {
    /// Accepts the terms here, after the store has. The hosts that were refused for them are told to connect again, and
    /// keep their calls.
    pub(in crate::tool) fn finish(self) {
        self.tools.accept_terms(&self.row.tenant, &self.row.declaration.name, self.terms);
    }
}

/// A tool that is being forgotten. No tool is saved meanwhile.
#[derive(Debug)]
pub(in crate::tool) struct ForgettingTool<'a> {
    tools: &'a RemoteTools,
    tenant: &'a TenantId,
    name: &'a str,
    _saving: MutexGuard<'a, ()>,
}

impl ForgettingTool<'_> {
    /// Forgets the tool and its terms here, after the store has. A host that has begun to serve it by now keeps it, and it is
    /// saved again. True if there was something to forget.
    #[must_use]
    pub(in crate::tool) fn finish(self) -> bool {
        self.tools.forget_terms(self.tenant, self.name)
    }
}

impl RemoteTools {
    /// A tenant's known tools, sorted by name, with the embedder's.
    #[must_use]
    pub fn tools_snapshot(&self, tenant: &TenantId) -> Vec<ToolSnapshot> {
        let state = self.lock();
        let now = self.now();
        let mut views: HashMap<String, _> =
            state.fleet.tools(tenant).into_iter().map(|view| (view.name.clone(), view)).collect();
        let snapshot = |tool: &CatalogueTool| {
            let view = views.remove(&tool.declaration.name);
            let (hosts, calls, queued) = match view {
                Some(view) => (view.hosts, view.calls, view.queued),
                None if tool.is_own(&state.catalogue) => (vec![in_process()], 0, 0),
                None => Default::default(),
            };
            ToolSnapshot {
                declaration: tool.declaration.clone(),
                digest: tool.digest.clone(),
                terms: state
                    .terms
                    .digest(tenant, &tool.declaration.name)
                    .unwrap_or(&tool.terms.digest)
                    .clone(),
                hosts,
                calls_in_flight: calls,
                calls_queued: queued,
                last_seen: tool.last_seen(now),
                refused: state.terms.all_refused(tenant, &tool.declaration.name).to_vec(),
                configured: state.terms.is_configured(&tool.declaration.name),
            }
        };
        state.catalogue.tools(tenant).map(snapshot).collect()
    }

    /// Accepts the terms of a refused declaration, once `save` has stored the tool with them. An empty digest means the only
    /// declaration of the name that was refused. Nothing is stored if it is accepted already.
    ///
    /// # Errors
    /// Those of `save`, and [`TermsError`], except `Served`.
    pub async fn accept_declaration<E: From<TermsError>, F: Future<Output = Result<(), E>>>(
        &self,
        tenant: &TenantId,
        name: &str,
        digest: &str,
        save: impl FnOnce(StoredTool) -> F,
    ) -> Result<(), E> {
        if let Some(accepting) = self.begin_accepting(tenant, name, digest).await? {
            save(accepting.row.clone()).await?;
            accepting.finish();
        }
        Ok(())
    }

    /// Begins to accept the terms of a refused declaration: the store is to have the row, then [`AcceptingTerms::finish`]. Waits
    /// for a save of tools that has begun. An empty digest means the only declaration of the name that was refused. `None` if it is
    /// accepted already.
    ///
    /// # Errors
    /// [`TermsError`], except `Served`.
    pub(in crate::tool) async fn begin_accepting(
        &self,
        tenant: &TenantId,
        name: &str,
        digest: &str,
    ) -> Result<Option<AcceptingTerms<'_>>, TermsError> {
        let saving = self.saving.lock().await;
        let state = self.lock();
        let Some(refused) = state.terms.refused(tenant, name, digest)? else { return Ok(None) };
        let known = state.catalogue.tool(tenant, name);
        let declaration = known.map_or(&refused.declaration, |tool| &tool.declaration);
        let terms = refused.tool.terms.clone();
        let row = StoredTool {
            tenant: tenant.clone(),
            declaration: ToolDeclaration::clone(declaration),
            last_seen: known.map_or(refused.refused_at, |tool| tool.last_seen(self.now())),
            terms: Some(ToolTerms::clone(&terms)),
        };
        Ok(Some(AcceptingTerms { row, tools: self, terms, _saving: saving }))
    }

    fn accept_terms(&self, tenant: &TenantId, name: &str, terms: Arc<ToolTerms>) {
        let mut state = self.lock();
        let refused = state.terms.refused(tenant, name, terms.digest.as_str());
        let connections =
            refused.ok().flatten().map(|refused| refused.connections.clone()).unwrap_or_default();
        state.terms.accept(tenant, name, terms);
        // A host may have declared the tool anew while the store wrote the row.
        state.catalogue.mark_unsaved(tenant, name);
        self.unsaved.notify_one();
        let (after, now) = (self.options.reconnect_after, self.now());
        let reason = format!("the declaration of the tool {name} was accepted: connect again");
        let out = state.tell_to_reconnect(connections, after, &reason, now);
        self.perform(&mut state, out, now);
    }

    /// Forgets a tool and its terms, once the store has done so with `forget`. True if there was something to forget.
    ///
    /// # Errors
    /// Those of `forget`. When the configuration sets the terms, or a connected host serves the tool.
    pub async fn forget_tool<E: From<TermsError>, F: Future<Output = Result<bool, E>>>(
        &self,
        tenant: &TenantId,
        name: &str,
        forget: impl FnOnce() -> F,
    ) -> Result<bool, E> {
        let forgetting = self.begin_forgetting(tenant, name).await?;
        let stored = forget().await?;
        Ok(forgetting.finish() || stored)
    }

    /// Begins to forget a tool and its terms: the store is to forget them, then [`ForgettingTool::finish`]. Waits for a save of
    /// tools that has begun.
    ///
    /// # Errors
    /// When the configuration sets them, or a connected host serves the tool.
    pub(in crate::tool) async fn begin_forgetting<'a>(
        &'a self,
        tenant: &'a TenantId,
        name: &'a str,
    ) -> Result<ForgettingTool<'a>, TermsError> {
        let saving = self.saving.lock().await;
        let state = self.lock();
        if state.terms.is_configured(name) {
            Err(TermsError::Configured(name.to_owned()))
        } else if state.catalogue.is_served(tenant, name) {
            Err(TermsError::Served(name.to_owned()))
        } else {
            Ok(ForgettingTool { tools: self, tenant, name, _saving: saving })
        }
    }

    /// Forgets a tool and its terms, unless a host has begun to serve it by now. True if there was something to forget.
    pub(in crate::tool) fn forget_terms(&self, tenant: &TenantId, name: &str) -> bool {
        let mut state = self.lock();
        if state.catalogue.is_served(tenant, name) {
            return false;
        }
        // The other replicas are told after the lock is free, so they learn that the terms are forgotten too.
        state.catalogue.remove(tenant, name);
        self.handle_locked(&mut state, tenant, FleetInput::Forget { tool: name.to_owned() });
        state.terms.forget(tenant, name)
    }

    /// A tenant's hosts, sorted by id: those that are connected, and lost ones whose calls wait for them.
    #[must_use]
    pub fn hosts_snapshot(&self, tenant: &TenantId) -> Vec<HostSnapshot> {
        self.lock().fleet.hosts(tenant)
    }

    /// Counts of hosts and calls over all tenants, for metrics.
    #[must_use]
    pub fn counts(&self) -> FleetCounts {
        self.lock().fleet.counts()
    }

    /// Declarations that were refused because they are weaker than the known terms, since the start.
    #[must_use]
    pub fn weaker_declarations(&self) -> u64 {
        self.lock().terms.refused_count()
    }

    /// Says that the terms of these names were lost. Call it before hosts connect. Terms of a name that are not
    /// known count as the strictest: UNSAFE with approval. They count until a host declares such terms, or an operator
    /// accepts weaker ones.
    pub fn lose_terms(&self, names: BTreeSet<String>) {
        self.lock().terms.lose(names);
    }
}
