//! Sources of context, such as a memory or a knowledge base.

use agentloop_core::extension::SourceTerms;
use agentloop_core::message::SharedMessage;
use agentloop_core::time::Timestamp;
use async_trait::async_trait;

use super::{ExtensionError, RunContext};

/// A source of context. The engine asks all of a run's sources side by side before the first model call; one that
/// fails is left out.
#[async_trait]
pub trait ContextSource: Send + Sync + 'static {
    /// How long it may take, and whether it wants to remember.
    fn terms(&self) -> SourceTerms;

    /// What it knows about the query, the best first. What passes `max_bytes` is left out.
    ///
    /// # Errors
    /// When it fails.
    async fn context(&self, request: ContextRequest) -> Result<Vec<ContextItem>, ExtensionError>;

    /// Takes in what a run added to its session. Asked in the background, until it does not fail.
    ///
    /// # Errors
    /// When it fails; it is asked again.
    async fn remember(&self, _request: RememberRequest) -> Result<(), ExtensionError> {
        Ok(())
    }
}

/// What a source is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextRequest {
    /// The run.
    pub run: RunContext,
    /// No answer counts after this.
    pub deadline: Timestamp,
    /// What it is about.
    pub query: String,
    /// All texts together are at most this long.
    pub max_bytes: usize,
}

/// What a source is to remember.
#[derive(Debug, Clone, PartialEq)]
pub struct RememberRequest {
    /// The run, which is over.
    pub run: RunContext,
    /// No answer counts after this.
    pub deadline: Timestamp,
    /// What it added to its session, oldest first.
    pub messages: Vec<SharedMessage>,
}

/// A piece of context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextItem {
    /// What the model reads.
    pub text: String,
    /// Where it comes from; may be empty.
    pub origin: String,
}
