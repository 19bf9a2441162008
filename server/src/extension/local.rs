//! Extensions in this process, registered by the embedder. They come before those of hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::id::TenantId;
use async_trait::async_trait;

use super::{ContextSource, ExtensionError, Extensions, Hook, Planner};

/// Extensions in this process, by name. Names that are not found here are looked up in the next registry.
#[derive(Default)]
pub struct LocalExtensions {
    hooks: BTreeMap<String, Arc<dyn Hook>>,
    sources: BTreeMap<String, Arc<dyn ContextSource>>,
    planners: BTreeMap<String, Arc<dyn Planner>>,
    next: Option<Arc<dyn Extensions>>,
}

impl LocalExtensions {
    /// A registry without extensions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a hook. It replaces one of the same name.
    pub fn add_hook(&mut self, name: impl Into<String>, hook: Arc<dyn Hook>) {
        self.hooks.insert(name.into(), hook);
    }

    /// Registers a context source. It replaces one of the same name.
    pub fn add_context_source(&mut self, name: impl Into<String>, source: Arc<dyn ContextSource>) {
        self.sources.insert(name.into(), source);
    }

    /// Registers a planner. It replaces one of the same name.
    pub fn add_planner(&mut self, name: impl Into<String>, planner: Arc<dyn Planner>) {
        self.planners.insert(name.into(), planner);
    }

    /// Sets the registry for names that are not found here.
    pub fn set_next(&mut self, next: Arc<dyn Extensions>) {
        self.next = Some(next);
    }
}

#[async_trait]
impl Extensions for LocalExtensions {
    async fn hook(&self, tenant: &TenantId, name: &str) -> Result<Arc<dyn Hook>, ExtensionError> {
        match (self.hooks.get(name), &self.next) {
            (Some(hook), _) => Ok(hook.clone()),
            (None, Some(next)) => next.hook(tenant, name).await,
            (None, None) => Err(ExtensionError::Unknown),
        }
    }

    async fn context_source(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Arc<dyn ContextSource>, ExtensionError> {
        match (self.sources.get(name), &self.next) {
            (Some(source), _) => Ok(source.clone()),
            (None, Some(next)) => next.context_source(tenant, name).await,
            (None, None) => Err(ExtensionError::Unknown),
        }
    }

    async fn planner(&self, tenant: &TenantId, name: &str) -> Result<Arc<dyn Planner>, ExtensionError> {
        match (self.planners.get(name), &self.next) {
            (Some(planner), _) => Ok(planner.clone()),
            (None, Some(next)) => next.planner(tenant, name).await,
            (None, None) => Err(ExtensionError::Unknown),
        }
    }

    fn knows_planner(&self, tenant: &TenantId, name: &str) -> bool {
        self.planners.contains_key(name)
            || self.next.as_ref().is_some_and(|next| next.knows_planner(tenant, name))
    }
}
