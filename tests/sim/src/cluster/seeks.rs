//! An owner looks for room on a tool host at every replica that serves the tool. The first replica that has room is
//! taken. Every other grant, then or later, is given back: nobody else gets room that is granted and not used.

use std::collections::{BTreeMap, BTreeSet};

use agentloop_core::cluster::shard::OwnerNo;

/// The reply to a replica that has granted room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Granted {
    /// The call uses it.
    Take,
    /// Another replica was faster, or the call needs none any more. Tell the replica that it has its room back.
    GiveBack,
}

/// Calls that look for room, and where. `C` names a call.
#[derive(Debug, Clone)]
pub(super) struct Seeks<C>(BTreeMap<C, Sought>);

#[derive(Debug, Clone)]
enum Sought {
    At(BTreeSet<OwnerNo>),
    Taken(OwnerNo),
}

impl<C> Default for Seeks<C> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<C: Ord + Clone> Seeks<C> {
    /// Begins to look for room at these replicas. A call that already looks, or has found room, is left as it is.
    pub(super) fn seek(&mut self, call: C, places: BTreeSet<OwnerNo>) {
        self.0.entry(call).or_insert(Sought::At(places));
    }

    /// A replica grants room. With [`Granted::Take`] come the replicas that need not look any longer.
    pub(super) fn handle_granted(&mut self, call: &C, place: OwnerNo) -> (Granted, BTreeSet<OwnerNo>) {
        match self.0.get_mut(call) {
            Some(Sought::At(places)) => {
                let mut others = std::mem::take(places);
                others.remove(&place);
                self.0.insert(call.clone(), Sought::Taken(place));
                (Granted::Take, others)
            }
            // The same grant again is the room that it has.
            Some(Sought::Taken(taken)) if *taken == place => (Granted::Take, BTreeSet::new()),
            Some(Sought::Taken(_)) | None => (Granted::GiveBack, BTreeSet::new()),
        }
    }

    /// The call needs no room any more. Returns the replicas to tell.
    pub(super) fn end(&mut self, call: &C) -> BTreeSet<OwnerNo> {
        match self.0.remove(call) {
            Some(Sought::At(places)) => places,
            Some(Sought::Taken(place)) => BTreeSet::from([place]),
            None => BTreeSet::new(),
        }
    }

    /// The connection to a replica is broken, and the replica has freed what it had granted. Returns the calls that have
    /// to look again.
    pub(super) fn handle_lost(&mut self, place: OwnerNo) -> Vec<C> {
        let mut again = Vec::new();
        for (call, sought) in &mut self.0 {
            let is_without = match sought {
                Sought::At(places) => places.remove(&place) && places.is_empty(),
                Sought::Taken(taken) => *taken == place,
            };
            if is_without {
                again.push(call.clone());
            }
        }
        again.iter().for_each(|call| drop(self.0.remove(call)));
        again
    }

    /// Calls that look for room or have it.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: OwnerNo = OwnerNo(1);
    const OTHER: OwnerNo = OwnerNo(2);

    #[test]
    fn of_all_room_that_is_granted_one_is_used() {
        let mut seeks = Seeks::default();
        let places = || BTreeSet::from([ME, OTHER, OwnerNo(3)]);
        seeks.seek("call", places());
        assert_eq!(seeks.handle_granted(&"call", OTHER), (Granted::Take, BTreeSet::from([ME, OwnerNo(3)])));
        assert_eq!(seeks.handle_granted(&"call", ME), (Granted::GiveBack, BTreeSet::new()));
        assert_eq!(seeks.handle_granted(&"call", OTHER), (Granted::Take, BTreeSet::new()), "said twice");
        assert_eq!(seeks.end(&"call"), BTreeSet::from([OTHER]));
        assert_eq!(seeks.handle_granted(&"call", OwnerNo(3)), (Granted::GiveBack, BTreeSet::new()));
        assert_eq!(seeks.len(), 0);
        seeks.seek("call", places());
        assert_eq!(seeks.end(&"call"), places(), "those who still look are told");
    }

    #[test]
    fn a_call_whose_replica_is_lost_looks_again() {
        let mut seeks = Seeks::default();
        seeks.seek("taken", BTreeSet::from([ME]));
        seeks.seek("elsewhere", BTreeSet::from([ME, OTHER]));
        seeks.seek("only there", BTreeSet::from([ME]));
        assert_eq!(seeks.handle_granted(&"taken", ME).0, Granted::Take);
        assert_eq!(seeks.handle_lost(ME), ["only there", "taken"]);
        assert_eq!(seeks.len(), 1);
    }
}
