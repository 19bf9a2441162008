//! The way of a call to the owner of its shard. A replica that accepts a call remembers who owned each shard. Its
//! memory may be old: then the replica that it sends the call to says so, and it looks again.

use std::collections::BTreeMap;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo, Term};

/// Times that one call is sent on. After that the caller is told to try again.
pub(super) const FORWARDS_MAX: u32 = 3;

/// The owner of a shard, and the claim that made it so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route {
    /// The owner that made the claim.
    pub(super) owner: OwnerNo,
    /// The term of its claim.
    pub(super) term: Term,
}

/// The owners of all shards, as far as they are known.
#[derive(Debug, Clone, Default)]
pub(super) struct Routes(BTreeMap<ShardNo, Route>);

/// One call on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forward {
    shard: ShardNo,
    tries: u32,
}

/// The next step of a call on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForwardStep {
    /// Send it to this owner, and name the term that is meant. An owner of another term says that the shard has moved.
    Send(Route),
    /// Read the owners again, then poll for the next step.
    Look,
    /// Nobody was found. The caller tries again later.
    GiveUp,
}

impl Routes {
    /// Notes the owner of a shard. A route of an older term is ignored.
    pub(super) fn note(&mut self, shard: ShardNo, route: Route) {
        let known = self.0.entry(shard).or_insert(route);
        if route.term > known.term {
            *known = route;
        }
    }

    /// Forgets the route of a shard, unless it is newer than this term.
    pub(super) fn forget(&mut self, shard: ShardNo, term: Term) {
        if self.0.get(&shard).is_some_and(|route| route.term <= term) {
            self.0.remove(&shard);
        }
    }

    /// The owner of a shard, if it is known.
    #[must_use]
    pub(super) fn owner(&self, shard: ShardNo) -> Option<Route> {
        self.0.get(&shard).copied()
    }
}

impl Forward {
    /// A call for a session of this shard.
    #[must_use]
    pub(super) fn new(shard: ShardNo) -> Self {
        Self { shard, tries: 0 }
    }

    /// Says where to send the call, and counts each sending.
    #[must_use]
    pub(super) fn poll(&mut self, routes: &Routes) -> ForwardStep {
        if self.tries >= FORWARDS_MAX {
            return ForwardStep::GiveUp;
        }
        match routes.owner(self.shard) {
            Some(route) => {
                self.tries += 1;
                ForwardStep::Send(route)
            }
            None => ForwardStep::Look,
        }
    }

    /// The owner that was sent the call says that the shard has moved, or does not respond. The next step looks again.
    pub(super) fn handle_moved(&self, routes: &mut Routes, sent: Route) {
        routes.forget(self.shard, sent.term);
    }

    /// The owners were read, and nobody owns the shard.
    pub(super) fn handle_no_owner(&mut self) {
        self.tries += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: OwnerNo = OwnerNo(1);
    const OTHER: OwnerNo = OwnerNo(2);

    #[test]
    fn a_route_that_is_old_is_looked_up_again_a_few_times() {
        let route = |owner, term| Route { owner: OwnerNo(owner), term: Term(term) };
        let mut routes = Routes::default();
        routes.note(ShardNo(1), route(2, 5));
        routes.note(ShardNo(1), route(1, 4));
        assert_eq!(routes.owner(ShardNo(1)), Some(route(2, 5)), "an older route is ignored");
        let mut forward = Forward::new(ShardNo(1));
        for term in 5..5 + u64::from(FORWARDS_MAX) {
            routes.note(ShardNo(1), route(2, term));
            assert_eq!(forward.poll(&routes), ForwardStep::Send(route(2, term)));
            forward.handle_moved(&mut routes, route(2, term));
            assert_eq!(routes.owner(ShardNo(1)), None);
        }
        assert_eq!(forward.poll(&routes), ForwardStep::GiveUp);
        let mut forward = Forward::new(ShardNo(1));
        for _ in 0..FORWARDS_MAX {
            assert_eq!(forward.poll(&routes), ForwardStep::Look);
            forward.handle_no_owner();
        }
        assert_eq!(forward.poll(&routes), ForwardStep::GiveUp);
    }

    #[test]
    fn a_route_that_is_newer_than_the_one_taken_is_kept() {
        let mut routes = Routes::default();
        let (old, new) = (Route { owner: ME, term: Term(1) }, Route { owner: OTHER, term: Term(2) });
        routes.note(ShardNo(1), old);
        routes.note(ShardNo(1), new);
        Forward::new(ShardNo(1)).handle_moved(&mut routes, old);
        assert_eq!(routes.owner(ShardNo(1)), Some(new));
    }
}
