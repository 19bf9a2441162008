//! The streams of a run's events.

use std::pin::Pin;

use agentloop_core::id::{RunId, Seq, TenantId};
use agentloop_proto::EventFrame;
use futures_util::{Stream, StreamExt as _};
use prost::Message as _;
use tonic::Status;

use super::AgentLoopService;
use crate::engine::feed::FeedItem;
use crate::grpc::convert::event::{EventConverter, PlanningEvents, is_last, is_shown};
use crate::grpc::edge::disconnect::DisconnectGuard;

/// The events that a subscriber of a run is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
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
    /// The events of a run after this one, as its subscriber is shown them.
    pub(super) async fn events(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: u64,
        shows: Shown,
        guard: Option<DisconnectGuard>,
    ) -> Result<EventStream, Status> {
        let mut guard = guard;
        let subscription = self.engine.subscribe(tenant, run, Seq(after)).await.inspect_err(|_| {
            // The server refuses the stream, so this is not a disconnect of the caller.
            guard.iter_mut().for_each(DisconnectGuard::disarm);
        })?;
        let converter =
            EventConverter::new(run.clone(), subscription.session).masking(self.engine.masks().clone());
        let wanted = move |shown: &FeedItem| {
            is_shown(shown) && (shows != Shown::Durable || matches!(shown, FeedItem::Durable(_)))
        };
        guard.iter_mut().for_each(|guard| guard.watches(&subscription.feed));
        let shows_planning = match shows {
            Shown::Durable => false,
            // Of a run that is over, its journal is shown.
            Shown::All => !subscription.has_ended,
            Shown::AllOfNewRun => true,
        };
        let mut planning = shows_planning.then(PlanningEvents::default);
        let events = subscription.events.flat_map(move |item| {
            let frames = match item {
                Ok(shown) if !wanted(&shown) => [None, None],
                Ok(shown) => {
                    if is_last(&shown) {
                        guard.iter_mut().for_each(DisconnectGuard::disarm);
                    }
                    let before = planning.as_mut().and_then(|planning| planning.before(&converter, &shown));
                    let before = before.map(|event| EventFrame { event: event.encode_to_vec().into() });
                    [before.map(Ok), Some(Ok(converter.frame(&shown)))]
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
