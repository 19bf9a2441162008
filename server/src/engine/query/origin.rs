//! The request that started a run, for a caller whose repetition is not the same request.

use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{RunId, Seq, SessionId, TenantId};
use agentloop_core::message::SharedMessage;
use agentloop_core::run::event::Event;

use crate::engine::Engine;
use crate::engine::error::EngineError;

/// The request that started a run, from its first events.
#[derive(Debug, Clone)]
pub struct RunOrigin {
    /// The session of the run.
    pub session: SessionId,
    /// The settings of the run.
    pub spec: Arc<RunSpec>,
    /// The caller's first messages.
    pub messages: Vec<SharedMessage>,
}

impl Engine {
    /// The request that started a run, with at most this many messages. `None` if no run has the id.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn origin(
        &self,
        tenant: &TenantId,
        run: &RunId,
        messages_max: usize,
    ) -> Result<Option<RunOrigin>, EngineError> {
        let _entered = self.deps().memory.journal_gate.enter(tenant).await;
        let max = u32::try_from(1 + messages_max).unwrap_or(u32::MAX);
        let records = self.store().records(tenant, run, Seq(0), max).await?;
        let mut events = records.into_iter().map(|record| record.event);
        let Some(Event::Started { session, spec, .. }) = events.next() else { return Ok(None) };
        let messages = events.map_while(|event| match event {
            Event::MessageAdded { message, .. } | Event::MessageHeld { message, steer: None } => {
                Some(message)
            }
            _ => None,
        });
        Ok(Some(RunOrigin { session, spec, messages: messages.collect() }))
    }
}
