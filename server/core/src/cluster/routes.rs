//! The way of a call to the owner of its shard. A replica that accepts a call remembers who owned each shard. Its
//! memory may be old: then the replica that it asks says so, and it looks again.

use std::collections::BTreeMap;

use crate::cluster::shard::{OwnerNo, ShardNo, Term};

/// Times that one call is sent on. After that the caller is told to try again.
pub const FORWARDS_MAX: u32 = 3;

/// The owner of a shard, and the claim that made it so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The owner that made the claim.
    pub owner: OwnerNo,
    /// The term of its claim.
    pub term: Term,
}

/// The owners of all shards, as far as they are known.
#[derive(Debug, Clone, Default)]
pub struct Routes(BTreeMap<ShardNo, Route>);

/// One call on its way.
#[derive(Debug, Clone, Copy)]
pub struct Forward {
    shard: ShardNo,
    tries: u32,
}

/// The next step of a call on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardStep {
    /// Send it to this owner, and name the term that is meant. An owner of another term answers that the shard has moved.
    Send(Route),
    /// Read the owners again, then ask for the next step.
    Look,
    /// Nobody was found. The caller tries again later.
    GiveUp,
}

impl Routes {
    /// Notes the owner of a shard. A route of an older term is ignored.
    pub fn note(&mut self, shard: ShardNo, route: Route) {
        let known = self.0.entry(shard).or_insert(route);
        if route.term > known.term {
            *known = route;
        }
    }

    /// Forgets the route of a shard, unless it is newer than this term.
    pub fn forget(&mut self, shard: ShardNo, term: Term) {
        if self.0.get(&shard).is_some_and(|route| route.term <= term) {
            self.0.remove(&shard);
        }
    }

    /// The owner of a shard, if it is known.
    #[must_use]
    pub fn owner(&self, shard: ShardNo) -> Option<Route> {
        self.0.get(&shard).copied()
    }
}

impl Forward {
    /// A call for a session of this shard.
    #[must_use]
    pub fn new(shard: ShardNo) -> Self {
        Self { shard, tries: 0 }
    }

    /// Says where to send the call, and counts each sending.
    #[must_use]
    pub fn poll(&mut self, routes: &Routes) -> ForwardStep {
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

    /// The owner that was asked says that the shard has moved, or does not answer. The next step looks again.
    pub fn handle_moved(&self, routes: &mut Routes, asked: Route) {
        routes.forget(self.shard, asked.term);
    }

    /// The owners were read, and nobody owns the shard.
    pub fn handle_no_owner(&mut self) {
        self.tries += 1;
    }
}
