//! What may be put beside the loop: hooks, sources of context, planners. They are registered by name, by whoever
//! embeds the engine or by a host that dials in, and runs name those that they want.
//!
//! An extension may be asked twice for the same thing: by a restart, or where a host was lost before it answered.

mod hook;
mod local;
mod planner;
pub mod remote;
mod source;

use std::sync::Arc;

use agentloop_core::id::TenantId;
use agentloop_core::run::state::State;
use async_trait::async_trait;

pub use hook::{Hook, HookRequest, HookVerdict, Occasion};
pub use local::LocalExtensions;
pub use planner::{PLANNER_TIMEOUT, PlanView, Planner};
pub use source::{ContextItem, ContextRequest, ContextSource, RememberRequest};

/// The run that an extension is asked about.
#[derive(Debug, Clone, PartialEq)]
pub struct RunContext {
    /// Whose it is.
    pub tenant: TenantId,
    /// The run as it stands.
    pub state: Arc<State>,
}

/// Extensions by name. The engine asks; hosts and embedders provide.
#[async_trait]
pub trait Extensions: Send + Sync + 'static {
    /// The hook of this name. May wait a while for somebody to offer it.
    ///
    /// # Errors
    /// [`ExtensionError::Unknown`] when nobody does.
    async fn hook(&self, tenant: &TenantId, name: &str) -> Result<Arc<dyn Hook>, ExtensionError>;

    /// The context source of this name. May wait a while for somebody to offer it.
    ///
    /// # Errors
    /// [`ExtensionError::Unknown`] when nobody does.
    async fn context_source(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Arc<dyn ContextSource>, ExtensionError>;

    /// The planner of this name. May wait a while for somebody to offer it.
    ///
    /// # Errors
    /// [`ExtensionError::Unknown`] when nobody does.
    async fn planner(&self, tenant: &TenantId, name: &str) -> Result<Arc<dyn Planner>, ExtensionError>;

    /// Whether a run may name this planner: somebody offers it, or did.
    fn knows_planner(&self, tenant: &TenantId, name: &str) -> bool;
}

/// Why an extension gave no answer that counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtensionError {
    /// Nobody offers it.
    #[error("nobody offers it")]
    Unknown,
    /// Its time was up.
    #[error("no answer in time")]
    Timeout,
    /// The host that was asked is gone, and no other offers it.
    #[error("its host is gone")]
    Lost,
    /// What it answered makes no sense.
    #[error("it answered nonsense: {0}")]
    Nonsense(String),
    /// It says that it failed.
    #[error("it failed: {message}")]
    Failed {
        /// Its words.
        message: String,
        /// Whether asking again, or elsewhere, may help.
        retryable: bool,
    },
}

impl ExtensionError {
    /// Whether another host may do better.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Lost | Self::Nonsense(_) | Self::Failed { retryable: true, .. } => true,
            Self::Unknown | Self::Timeout | Self::Failed { retryable: false, .. } => false,
        }
    }
}
