//! Sends a kept call until an owner answers it.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http;

use crate::grpc::edge::forward::call::Call;
use crate::grpc::edge::forward::leave::shutting_down;
use crate::grpc::edge::forward::outcome::{Outcome, Until, ask, ask_here, nobody, unanswered};
use crate::grpc::edge::forward::place::Named;
use crate::grpc::edge::forward::routing::{Asked, Doer, Routing, SEARCH_WAIT, Target};

/// An owner that had the call for this long was well. After it, a new search has all of its time.
const WAS_WELL: Duration = Duration::from_secs(10);

/// The wait before the refusal of a call that cannot be sent again.
const REFUSED_AFTER: Duration = Duration::from_secs(1);
/// Owners that may be lost while they have a call. It may be the reason, so it is not sent to more of them.
const LOST_OWNERS_MAX: usize = 3;

/// The answer of whoever did the call.
pub(super) struct Sent {
    pub(super) response: http::Response<Body>,
    /// The replica that answered; `None` if nobody did, and the response says so.
    pub(super) from: Option<(Asked, Doer)>,
}

impl Sent {
    fn refused(status: Status) -> Self {
        Self { response: status.into_http(), from: None }
    }
}

/// Has a call done. `repeats` is true if the call may be sent again although an owner may have done it. When this replica stops, it
/// ends calls at other replicas. Its own services end theirs themselves.
pub(super) async fn send(
    routing: &Routing,
    call: &impl Call,
    named: &Named,
    repeats: bool,
    until: Until,
) -> Sent {
    let mut give_up = Instant::now() + SEARCH_WAIT;
    let mut lost = BTreeSet::new();
    let mut again = false;
    loop {
        let found = tokio::select! {
            biased;
            found = routing.find(named, again, give_up) => found,
            () = routing.stopped() => return Sent::refused(shutting_down()),
        };
        let Some((target, asked)) = found else { return Sent::refused(nobody()) };
        again = true;
        let began = Instant::now();
        let Some((outcome, doer)) = attempt(routing, call, target, asked, until).await else {
            return Sent::refused(shutting_down());
        };
        match outcome {
            Outcome::Answered(response) => return Sent { response, from: Some((asked, doer)) },
            Outcome::Stopping(response) => {
                let goes_on = repeats && call.is_whole() && is_left(routing, asked).await;
                if !goes_on {
                    return Sent { response, from: Some((asked, doer)) };
                }
            }
            Outcome::NotDone if !call.is_whole() => {
                return refused_later(routing, asked, nobody()).await;
            }
            Outcome::Broken if !call.is_whole() => {
                return refused_later(routing, asked, unanswered()).await;
            }
            Outcome::Broken if !repeats => return Sent::refused(unanswered()),
            Outcome::Broken if is_lost(&mut lost, asked, began) => {
                tracing::warn!(
                    path = call.head().path(),
                    "owners were lost while they had this call; it is not sent to more"
                );
                return Sent::refused(unanswered());
            }
            Outcome::NotDone | Outcome::Broken => routing.pause(asked, give_up).await,
        }
        if began.elapsed() >= WAS_WELL || !routing.is_right(asked) {
            give_up = Instant::now() + SEARCH_WAIT;
        }
        if Instant::now() >= give_up {
            return Sent::refused(nobody());
        }
    }
}

/// Asks once. `None`: this replica stops.
async fn attempt(
    routing: &Routing,
    call: &impl Call,
    target: Target,
    asked: Asked,
    until: Until,
) -> Option<(Outcome, Doer)> {
    match target {
        Target::Local(services) => {
            let (request, link) = call.head().for_local(call.body());
            let doer = Doer::Here(link);
            let outcome = tokio::select! {
                biased;
                outcome = ask_here(services, request) => outcome,
                () = async {
                    routing.moved(asked).await;
                    doer.give_up();
                } => Outcome::Broken,
            };
            Some((outcome, doer))
        }
        Target::Owner { number, shard, link } => {
            let request = call.head().for_replica(number, shard, call.body());
            let outcome = tokio::select! {
                biased;
                outcome = ask((*link).clone(), request, until) => outcome,
                () = routing.moved(asked) => Outcome::Broken,
                () = routing.stopped() => return None,
            };
            Some((outcome, Doer::Owner { _link: link }))
        }
    }
}

/// True if another replica takes over within the time of a search, after the one that was asked ended the call.
pub(super) async fn is_left(routing: &Routing, asked: Asked) -> bool {
    if asked.number.is_none() && (routing.stop.is_cancelled() || routing.is_right(asked)) {
        return false;
    }
    tokio::select! {
        biased;
        other = routing.other_than(asked, Instant::now() + SEARCH_WAIT) => other,
        () = routing.stopped() => false,
    }
}

/// Notes that an owner was lost while it had the call. Returns true if too many were lost. When one had the call for long, the
/// count begins anew.
fn is_lost(lost: &mut BTreeSet<Option<i64>>, asked: Asked, began: Instant) -> bool {
    if began.elapsed() >= WAS_WELL {
        lost.clear();
    }
    lost.insert(asked.number);
    lost.len() >= LOST_OWNERS_MAX
}

/// The refusal of a call that cannot be sent again, after a moment, or as soon as the owner has lost the shard. Hosts wait longer
/// after each refusal. If they were refused at once, they would still wait when there is an owner again.
async fn refused_later(routing: &Routing, asked: Asked, refusal: Status) -> Sent {
    let _moved = routing.other_than(asked, Instant::now() + REFUSED_AFTER).await;
    Sent::refused(refusal)
}
