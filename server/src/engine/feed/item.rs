//! What subscribers are shown.

use std::sync::Arc;

use agentloop_core::run::event::Record;

use crate::engine::feed::Transient;

/// Something to show. Clones share it.
#[derive(Debug, Clone)]
pub enum FeedItem {
    /// A durable event.
    Durable(Arc<Record>),
    /// Work in progress.
    Transient(Arc<Transient>),
}
