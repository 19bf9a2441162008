//! Sends a buffered RPC until an owner responds.

use std::collections::BTreeSet;
use std::time::Duration;

use agentloop_core::cluster::shard::OwnerNo;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http;

use crate::grpc::edge::forward::outcome::{
    AttemptOutcome, ResponseExtent, no_owner_status, no_response_status, not_reached_status,
    not_taken_status, send_over_link, serve_here,
};
use crate::grpc::edge::forward::request::forwarded_rpc::ForwardedRpc;
use crate::grpc::edge::forward::route::route_key::RouteKey;
use crate::grpc::edge::forward::route::routing::{
    OwnerSearch, Recipient, Replica, ResolvedTarget, Routing, RpcHandler, SEARCH_WAIT,
};
use crate::grpc::edge::forward::route::rpc_place::RpcPlace;
use crate::grpc::edge::forward::route::shutdown::shutting_down;
use crate::grpc::edge::forward::wire::metadata::REPEATED;
use crate::grpc::repetition::RepeatedRpc;

/// An owner that had the RPC for this long was well. After it, a new search has all of its time.
const WAS_WELL: Duration = Duration::from_secs(10);

/// The wait before an RPC is sent again to a replica that could not do it: it stops, or does not reach the database.
const UNABLE_FOR: Duration = Duration::from_millis(500);
/// The wait before the refusal of an RPC that cannot be sent again.
const REFUSED_AFTER: Duration = Duration::from_secs(1);
/// Owners that may be lost while they have an RPC. It may be the reason, so it is not sent to more of them.
const LOST_OWNERS_MAX: usize = 3;

/// The response of whoever did the RPC.
pub(super) struct Sent {
    pub(super) response: http::Response<Body>,
    /// The replica that responded; `None` if nobody did, and the response says so.
    pub(super) from: Option<(Recipient, RpcHandler)>,
}

impl Sent {
    fn refused(status: Status) -> Self {
        Self { response: status.into_http(), from: None }
    }
}

/// The way in which an RPC is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendOptions {
    /// True if the RPC may be sent again although an owner may have done it.
    is_repeatable: bool,
    extent: ResponseExtent,
    /// The mark of tries after one that an owner may have done.
    repetition: Option<RepeatedRpc>,
}

impl SendOptions {
    /// For an RPC with one response.
    pub(super) fn unary() -> Self {
        Self { is_repeatable: true, extent: ResponseExtent::Whole, repetition: None }
    }

    /// The same, sent at most once to an owner that may have done it, unless the RPC `is_repeatable`.
    pub(super) fn unary_if(is_repeatable: bool) -> Self {
        Self { is_repeatable, ..Self::unary() }
    }

    /// The same, sent again with this mark alone.
    pub(super) fn unary_as(repetition: Option<RepeatedRpc>) -> Self {
        Self { repetition, ..Self::unary_if(repetition.is_some()) }
    }

    /// For an RPC with a stream of responses or requests.
    pub(super) fn stream() -> Self {
        Self { is_repeatable: true, extent: ResponseExtent::Begun, repetition: None }
    }
}

/// Has an RPC done. `at` says who has it. When this replica stops, it ends RPCs at other replicas. Its own services end theirs
/// themselves.
pub(super) async fn send(
    routing: &Routing,
    rpc: &impl ForwardedRpc,
    route_key: &RouteKey,
    SendOptions { is_repeatable, extent, repetition }: SendOptions,
    at: &RpcPlace,
) -> Sent {
    let mut give_up = Instant::now() + SEARCH_WAIT;
    let mut lost = BTreeSet::new();
    let mut search = OwnerSearch::First;
    let mut mark = None;
    loop {
        let found = tokio::select! {
            biased;
            found = routing.resolve(route_key, search, give_up) => found,
            () = routing.stopped() => return Sent::refused(shutting_down()),
        };
        let Some((target, recipient)) = found else { return Sent::refused(no_owner_status()) };
        let is_guess = search == OwnerSearch::First && route_key.is_guessed();
        search = OwnerSearch::Again;
        let began = Instant::now();
        at.set(Some(recipient));
        let Some((outcome, handler)) = attempt(routing, rpc, target, recipient, extent, mark).await else {
            return Sent::refused(shutting_down());
        };
        if !matches!(outcome, AttemptOutcome::Responded(_)) {
            at.set(None);
        }
        if matches!(outcome, AttemptOutcome::Broken | AttemptOutcome::Stopping(_)) {
            mark = repetition;
        }
        let unable = match outcome {
            AttemptOutcome::Responded(response) => {
                return Sent { response, from: Some((recipient, handler)) };
            }
            AttemptOutcome::Stopping(response) => {
                let goes_on =
                    is_repeatable && rpc.is_whole() && may_be_sent_again(routing, recipient, give_up).await;
                if !goes_on {
                    return Sent { response, from: Some((recipient, handler)) };
                }
                None
            }
            // The run has begun elsewhere, and a look tells where.
            AttemptOutcome::NotDone if is_guess => continue,
            AttemptOutcome::NotDone | AttemptOutcome::NotReached(_) if !rpc.is_whole() => {
                return refused_later(routing, recipient, no_owner_status()).await;
            }
            AttemptOutcome::Broken if !rpc.is_whole() => {
                return refused_later(routing, recipient, no_response_status()).await;
            }
            AttemptOutcome::Broken if !is_repeatable || is_lost(&mut lost, recipient, began, rpc) => {
                return Sent::refused(no_response_status());
            }
            AttemptOutcome::NotDone => recipient.replica.peer().map(Unable::refuses),
            AttemptOutcome::Broken => {
                recipient.replica.peer().filter(|_| routing.is_still_owner(recipient)).map(Unable::breaks)
            }
            AttemptOutcome::NotReached(why) => {
                recipient.replica.peer().map(|number| Unable::not_reached(number, why))
            }
        };
        routing.pause(recipient, give_up).await;
        if began.elapsed() >= WAS_WELL || !routing.is_still_owner(recipient) {
            give_up = Instant::now() + SEARCH_WAIT;
        }
        if Instant::now() >= give_up {
            return Sent::refused(unable.map_or_else(no_owner_status, |unable| unable.logged(routing)));
        }
    }
}

/// The owner of an RPC's session, which did not take the RPC in all the time of a search.
struct Unable {
    number: OwnerNo,
    /// The reason, for the log.
    why: String,
    status: Status,
}

impl Unable {
    fn not_reached(number: OwnerNo, why: String) -> Self {
        Self { number, why, status: not_reached_status(number) }
    }

    fn refuses(number: OwnerNo) -> Self {
        let why = "it says that it does not own the session, or another replica has its address".to_owned();
        Self { number, why, status: not_taken_status(number) }
    }

    fn breaks(number: OwnerNo) -> Self {
        let why = "connections to it break, or nothing comes over them".to_owned();
        Self { number, why, status: not_reached_status(number) }
    }

    /// The status, after a line in the log. While this replica has no valid lease, the database is the likely reason, and others
    /// tell of it.
    fn logged(self, routing: &Routing) -> Status {
        let Self { number, why, status } = self;
        if !routing.ownerships.borrow().is_valid() {
            tracing::debug!(replica = %number, why, "an RPC found no owner while this replica has no valid lease");
            return status;
        }
        tracing::warn!(
            replica = %number, why,
            "the replica that has to do an RPC does not take it; correct cluster.advertise there, or the certificates"
        );
        status
    }
}

/// Sends it once. `None`: this replica stops.
async fn attempt(
    routing: &Routing,
    rpc: &impl ForwardedRpc,
    target: ResolvedTarget,
    recipient: Recipient,
    extent: ResponseExtent,
    mark: Option<RepeatedRpc>,
) -> Option<(AttemptOutcome, RpcHandler)> {
    match target {
        ResolvedTarget::Here(services) => {
            let (mut request, link) = rpc.head().for_local(rpc.body());
            if let Some(mark) = mark {
                request.extensions_mut().insert(mark);
            }
            let handler = RpcHandler::Here(link);
            let outcome = tokio::select! {
                biased;
                outcome = serve_here(services, request) => outcome,
                () = async {
                    routing.ownership_lost(recipient).await;
                    handler.give_up();
                } => AttemptOutcome::Broken,
            };
            Some((outcome, handler))
        }
        ResolvedTarget::Owner { number, shard, link } => {
            let mut request = rpc.head().for_replica(number, shard, rpc.body());
            if let Some(mark) = mark {
                request.headers_mut().insert(REPEATED, mark.to_header());
            }
            let outcome = tokio::select! {
                biased;
                outcome = send_over_link((*link).clone(), request, extent) => outcome,
                () = routing.ownership_lost(recipient) => AttemptOutcome::Broken,
                () = routing.stopped() => return None,
            };
            routing.links.count(|counts| match outcome {
                AttemptOutcome::Responded(_) => &mut counts.responded,
                AttemptOutcome::NotDone | AttemptOutcome::Stopping(_) => &mut counts.moved,
                AttemptOutcome::NotReached(_) => &mut counts.unreached,
                AttemptOutcome::Broken => &mut counts.lost,
            });
            Some((outcome, RpcHandler::Owner { _link: link }))
        }
    }
}

/// True if the RPC may be sent again, after a replica could not do it. Another one has taken over then, or the same one may be
/// able to by now. False once the search ends at the given moment.
pub(super) async fn may_be_sent_again(routing: &Routing, recipient: Recipient, give_up: Instant) -> bool {
    if recipient.replica == Replica::Here
        && (routing.stop.is_cancelled() || routing.is_still_owner(recipient))
    {
        return false;
    }
    tokio::select! {
        biased;
        other = routing.other_than(recipient, give_up.min(Instant::now() + UNABLE_FOR)) => {
            other || Instant::now() < give_up
        }
        () = routing.stopped() => false,
    }
}

/// Notes that an owner was lost while it had the RPC. Returns true, and logs it, if too many were lost. When one had the RPC for
/// long, the count begins anew.
fn is_lost(
    lost: &mut BTreeSet<Replica>,
    recipient: Recipient,
    began: Instant,
    rpc: &impl ForwardedRpc,
) -> bool {
    if began.elapsed() >= WAS_WELL {
        lost.clear();
    }
    lost.insert(recipient.replica);
    let too_many = lost.len() >= LOST_OWNERS_MAX;
    if too_many {
        let path = rpc.head().path();
        tracing::warn!(path, "owners were lost while they had this RPC; it is not sent to more");
    }
    too_many
}

/// The refusal of an RPC that cannot be sent again, after a moment, or as soon as the owner has lost the shard. Hosts wait longer
/// after each refusal. If they were refused at once, they would still wait when there is an owner again.
async fn refused_later(routing: &Routing, recipient: Recipient, refusal: Status) -> Sent {
    let _moved = routing.other_than(recipient, Instant::now() + REFUSED_AFTER).await;
    Sent::refused(refusal)
}
