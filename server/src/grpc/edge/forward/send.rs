//! Sends a kept call until an owner answers it.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http;

use crate::grpc::edge::forward::call::Call;
use crate::grpc::edge::forward::ending::done_here;
use crate::grpc::edge::forward::leave::shutting_down;
use crate::grpc::edge::forward::outcome::{Outcome, Until, ask, nobody, unanswered};
use crate::grpc::edge::forward::routing::{Moved, Routing, SEARCH_WAIT, Target};

/// An owner that had the call for this long was well. After it, a new search has all of its time.
const WAS_WELL: Duration = Duration::from_secs(10);

/// The wait before a call is refused that cannot be sent again.
const REFUSED_AFTER: Duration = Duration::from_secs(1);
/// Owners that may be lost while they have a call. It may be the reason, so it is not sent to more of them.
const LOST_OWNERS_MAX: usize = 3;

/// The answer of whoever did the call.
pub(super) struct Sent {
    pub(super) response: http::Response<Body>,
    /// Number of the replica that answered; `None` for this one.
    pub(super) from: Option<i64>,
}

impl Sent {
    fn here(response: http::Response<Body>) -> Self {
        Self { response, from: None }
    }

    /// Resolves when whoever answered owns the database no more.
    pub(super) fn moved(&self, routing: &Routing) -> Moved {
        self.from.map_or_else(|| Box::pin(std::future::pending()) as Moved, |number| routing.moved(number))
    }
}

/// Has a call done. `repeats` is true if it may be sent again where an owner may have done it. The call ends with this replica.
pub(super) async fn send(routing: &Routing, call: &impl Call, repeats: bool, until: Until) -> Sent {
    tokio::select! {
        biased;
        sent = send_until_answered(routing, call, repeats, until) => sent,
        () = routing.stopped() => Sent::here(shutting_down().into_http()),
    }
}

async fn send_until_answered(routing: &Routing, call: &impl Call, repeats: bool, until: Until) -> Sent {
    let mut give_up = Instant::now() + SEARCH_WAIT;
    let mut lost = BTreeSet::new();
    loop {
        let Some(target) = routing.target(give_up).await else { return Sent::here(nobody().into_http()) };
        let (number, link) = match target {
            Target::Local(services) => {
                let request = call.head().for_local(call.body());
                return Sent::here(done_here(routing, services, request).await);
            }
            Target::Owner { number, link } => (number, link),
        };
        let began = Instant::now();
        let request = call.head().for_replica(number, call.body());
        let outcome = tokio::select! {
            biased;
            outcome = ask(link, request, until) => outcome,
            () = routing.moved(number) => Outcome::Broken,
        };
        match outcome {
            Outcome::Answered(response) => return Sent { response, from: Some(number) },
            Outcome::Stopping(response) => {
                let end = Instant::now() + SEARCH_WAIT;
                if !repeats || !call.is_whole() || !routing.other_than(number, end).await {
                    return Sent { response, from: Some(number) };
                }
            }
            Outcome::NotDone if !call.is_whole() => {
                return refused_later(routing, number, nobody()).await;
            }
            Outcome::Broken if !call.is_whole() => {
                return refused_later(routing, number, unanswered()).await;
            }
            Outcome::Broken if !repeats => return Sent::here(unanswered().into_http()),
            Outcome::Broken if is_lost(&mut lost, number, began) => {
                tracing::warn!(
                    path = call.head().path(),
                    "owners were lost while they had this call; it is not sent to more"
                );
                return Sent::here(unanswered().into_http());
            }
            Outcome::NotDone | Outcome::Broken => routing.pause(number, give_up).await,
        }
        if began.elapsed() >= WAS_WELL || routing.owner() != Some(number) {
            give_up = Instant::now() + SEARCH_WAIT;
        }
        if Instant::now() >= give_up {
            return Sent::here(nobody().into_http());
        }
    }
}

/// Notes that an owner was lost while it had the call. True if it is one too many. One that had it for long is not counted.
fn is_lost(lost: &mut BTreeSet<i64>, number: i64, began: Instant) -> bool {
    if began.elapsed() >= WAS_WELL {
        lost.clear();
    }
    lost.insert(number);
    lost.len() >= LOST_OWNERS_MAX
}

/// The refusal of a call that cannot be sent again, after a moment, or as soon as the owner is the owner no more. A host that is
/// refused at once tries again at once, and waits longer each time: when there is an owner again, it would wait still.
async fn refused_later(routing: &Routing, number: i64, refusal: Status) -> Sent {
    let _moved = routing.other_than(number, Instant::now() + REFUSED_AFTER).await;
    Sent::here(refusal.into_http())
}
