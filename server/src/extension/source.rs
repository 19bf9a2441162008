//! Context sources, such as a memory or a knowledge base.

use agentloop_core::extension::SourceDeclaration;
use agentloop_core::message::SharedMessage;
use agentloop_core::time::Timestamp;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{ExtensionError, RunContext};

/// A context source. The engine calls all of a run's sources at once before the first model call. A source that fails is
/// left out.
#[async_trait]
pub trait ContextSource: Send + Sync + 'static {
    /// The source's timeout, and whether it wants to remember messages.
    fn declaration(&self) -> SourceDeclaration;

    /// Finds context for a query, the best items first. Items that pass `max_bytes` together are left out.
    ///
    /// # Errors
    /// [`ExtensionError::Failed`]; the run goes on without this source.
    async fn context(&self, request: ContextRequest) -> Result<Vec<ContextItem>, ExtensionError>;

    /// Remembers the messages of a run. Called in the background after the run.
    ///
    /// # Errors
    /// [`ExtensionError::Failed`]; the call is repeated later, unless the error is not retryable.
    async fn remember(&self, _request: RememberRequest) -> Result<(), ExtensionError> {
        Ok(())
    }
}

/// A request for texts to add to the context of a run's first model call.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextRequest {
    /// The run that is about to begin.
    pub run: RunContext,
    /// A response after this time is ignored.
    pub deadline: Timestamp,
    /// The text of the user's last message.
    pub query: String,
    /// The most bytes of all items together.
    pub max_bytes: usize,
}

/// A request to remember messages.
#[derive(Debug, Clone, PartialEq)]
pub struct RememberRequest {
    /// The run, which has ended.
    pub run: RunContext,
    /// A response after this time is ignored.
    pub deadline: Timestamp,
    /// The messages that the run added to its session, oldest first.
    pub messages: Vec<SharedMessage>,
}

/// A piece of context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextItem {
    /// The text that the model reads.
    pub text: String,
    /// The name of its origin, such as a page or file. May be empty.
    pub origin: String,
}
