//! Extensions of the loop: hooks, context sources and planners. The embedder or a connected host registers them by name,
//! and a run's spec names those that it uses.
//!
//! An extension may be called twice for the same thing: after a restart, or after its host was lost before it responded.

pub(crate) mod changes;
mod hook;
mod local;
mod planner;
pub mod remote;
mod source;

use std::sync::Arc;

use agentloop_core::id::TenantId;
use agentloop_core::run::state::RunState;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use hook::{Hook, HookRequest, HookVerdict, Occasion};
pub use local::LocalExtensions;
pub use planner::{PLANNER_TIMEOUT, PlanView, Planner};
pub use source::{ContextItem, ContextRequest, ContextSource, RememberRequest};

/// The run that an extension is called about.
#[derive(Debug, Clone, PartialEq)]
pub struct RunContext {
    /// The tenant that owns the run.
    pub tenant: TenantId,
    /// The run's state at the time of the call.
    pub state: Arc<RunState>,
}

/// Finds extensions by name. The engine calls this; hosts and embedders register extensions.
#[async_trait]
pub trait Extensions: Send + Sync + 'static {
    /// The hook of this name. May wait for a host to register it.
    ///
    /// # Errors
    /// [`ExtensionError::Unknown`] if it is not registered.
    async fn hook(&self, tenant: &TenantId, name: &str) -> Result<Arc<dyn Hook>, ExtensionError>;

    /// The context source of this name. May wait for a host to register it.
    ///
    /// # Errors
    /// [`ExtensionError::Unknown`] if it is not registered.
    async fn context_source(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Arc<dyn ContextSource>, ExtensionError>;

    /// The planner of this name. May wait for a host to register it.
    ///
    /// # Errors
    /// [`ExtensionError::Unknown`] if it is not registered.
    async fn planner(&self, tenant: &TenantId, name: &str) -> Result<Arc<dyn Planner>, ExtensionError>;

    /// True if this planner is registered, or was: a run may then name it.
    fn knows_planner(&self, tenant: &TenantId, name: &str) -> bool;
}

/// The reason why a call of an extension failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ExtensionError {
    /// No embedder or host has registered it.
    #[error("it is not registered")]
    Unknown,
    /// It did not respond before its deadline.
    #[error("no response in time")]
    Timeout,
    /// Its host disconnected before it responded.
    #[error("its host disconnected")]
    Lost,
    /// Its response is invalid, for the reason given.
    #[error("its response is invalid: {0}")]
    Nonsense(String),
    /// It reported a failure.
    #[error("it failed: {message}")]
    Failed {
        /// The reason in the extension's own words.
        message: String,
        /// True if another call, or another host, may succeed.
        retryable: bool,
    },
}

impl ExtensionError {
    /// True if another host may succeed.
    #[must_use]
    pub fn is_retryable_elsewhere(&self) -> bool {
        match self {
            Self::Lost | Self::Nonsense(_) | Self::Failed { retryable: true, .. } => true,
            Self::Unknown | Self::Timeout | Self::Failed { retryable: false, .. } => false,
        }
    }

    /// True if the run may call it once more. An extension whose response is invalid was called on every host already.
    #[must_use]
    pub fn is_retryable_by_run(&self) -> bool {
        match self {
            Self::Lost | Self::Failed { retryable: true, .. } => true,
            Self::Unknown | Self::Timeout | Self::Nonsense(_) | Self::Failed { retryable: false, .. } => {
                false
            }
        }
    }
}
