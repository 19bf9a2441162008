//! The newest term of each shard that a receiver has seen. Frames of an older one are dropped.

use std::collections::BTreeMap;

use agentloop_core::cluster::shard::{ShardNo, Term};

/// The newest term that was seen of each shard.
#[derive(Debug, Clone, Default)]
pub(super) struct TermsSeen(BTreeMap<ShardNo, Term>);

impl TermsSeen {
    /// Notes the term of a frame. False if the frame is to be dropped, because a newer owner of the shard was heard.
    #[must_use]
    pub(super) fn accept(&mut self, shard: ShardNo, term: Term) -> bool {
        let newest = self.0.entry(shard).or_default();
        *newest = (*newest).max(term);
        *newest == term
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_an_older_term_are_dropped() {
        let mut terms = TermsSeen::default();
        assert!(terms.accept(ShardNo(1), Term(3)));
        assert!(terms.accept(ShardNo(1), Term(3)));
        assert!(terms.accept(ShardNo(2), Term(1)), "each shard has its own terms");
        assert!(terms.accept(ShardNo(1), Term(4)));
        assert!(!terms.accept(ShardNo(1), Term(3)));
        assert_eq!(terms.0.get(&ShardNo(1)), Some(&Term(4)));
        assert_eq!(terms.0.get(&ShardNo(9)), None);
    }
}
