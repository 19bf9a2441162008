//! The streams of a run's events.

use std::pin::Pin;

use agentloop_core::id::{RunId, Seq};
use agentloop_proto::EventFrame;
use futures_util::{Stream, StreamExt as _};
use prost::Message as _;
use tonic::Status;

use super::AgentLoopService;
use crate::engine::error::EngineError;
use crate::engine::feed::FeedItem;
use crate::grpc::caller::Caller;
use crate::grpc::convert::event::{EventConverter, PlanningEvents, is_last, is_shown};
use crate::grpc::edge::disconnect::DisconnectGuard;
use crate::pace::Paced;

/// The events that a subscriber of a run gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventSelection {
    /// Durable events, and nothing of work in progress.
    Durable,
    /// Durable events and work in progress.
    All,
    /// The same, of a run that this RPC has started: it may be over before the first event is read.
    AllOfNewRun,
}

/// A stream of events for the transport.
pub(super) type EventStream = Pin<Box<dyn Stream<Item = Result<EventFrame, Status>> + Send>>;

impl AgentLoopService {
    /// The events of a run after this one, as its subscriber gets them.
    pub(super) async fn events(
        &self,
        caller: &Caller,
        run: &RunId,
        after: u64,
        selection: EventSelection,
        guard: Option<DisconnectGuard>,
    ) -> Result<EventStream, Status> {
        let mut guard = guard;
        let subscription =
            self.engine.subscribe(caller.tenant(), run, Seq(after)).await.inspect_err(|_| {
                // The server refuses the stream, so this is not a disconnect of the caller.
                guard.iter_mut().for_each(DisconnectGuard::disarm);
            })?;
        let converter =
            EventConverter::new(run.clone(), subscription.session).masking(self.engine.masks().clone());
        let wanted = move |item: &FeedItem| {
            is_shown(item) && (selection != EventSelection::Durable || matches!(item, FeedItem::Durable(_)))
        };
        guard.iter_mut().for_each(|guard| guard.watches(&subscription.feed));
        let shows_planning = match selection {
            EventSelection::Durable => false,
            // A run that is over has its journal sent.
            EventSelection::All => !subscription.has_ended,
            EventSelection::AllOfNewRun => true,
        };
        let mut planning = shows_planning.then(PlanningEvents::default);
        let items = match caller.is_at_another_replica() {
            true => Paced::new(subscription.events, self.pace, is_in_progress).left_stream(),
            false => subscription.events.right_stream(),
        };
        let events = items.flat_map(move |result| {
            let frames = match result {
                Ok(item) if !wanted(&item) => [None, None],
                Ok(item) => {
                    if is_last(&item) {
                        guard.iter_mut().for_each(DisconnectGuard::disarm);
                    }
                    let before = planning.as_mut().and_then(|planning| planning.before(&converter, &item));
                    let before = before.map(|event| EventFrame { event: event.encode_to_vec().into() });
                    [before.map(Ok), Some(Ok(converter.frame(&item)))]
                }
                Err(error) => {
                    // The server ends the stream, so this is not a disconnect of the caller.
                    guard.iter_mut().for_each(DisconnectGuard::disarm);
                    [None, Some(Err(Status::from(error)))]
                }
            };
            futures_util::stream::iter(frames.into_iter().flatten())
        });
        Ok(Box::pin(events))
    }
}

/// Work in progress may wait. Durable events do not, and neither does the error that ends a subscription.
fn is_in_progress(item: &Result<FeedItem, EngineError>) -> bool {
    matches!(item, Ok(FeedItem::Transient(_)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agentloop_core::id::Attempt;
    use agentloop_core::run::event::Record;
    use agentloop_core::run::status::RunStatus;
    use agentloop_core::time::Timestamp;

    use super::*;
    use crate::engine::feed::{LiveProgress, Transient};
    use crate::store::conformance::fixture::finished;

    #[test]
    fn only_work_in_progress_waits() {
        let (slot, attempt) = ((1, 0).into(), Attempt(1));
        let what = LiveProgress::Output { slot, attempt, chunk_seq: 1, stderr: false, data: Vec::new() };
        assert!(is_in_progress(&Ok(FeedItem::transient(Transient { at: Timestamp(0), what }))));
        let record =
            Record { seq: Seq(1), at: Timestamp(0), status: RunStatus::Completed, event: finished() };
        assert!(!is_in_progress(&Ok(FeedItem::durable(Arc::new(record)))));
        assert!(!is_in_progress(&Err(EngineError::ShuttingDown)));
    }
}
