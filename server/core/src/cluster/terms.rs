//! The newest term of each shard that a receiver has seen. Frames of an older one are dropped.

use std::collections::BTreeMap;

use crate::cluster::shard::{ShardNo, Term};

/// The newest term that was seen of each shard.
#[derive(Debug, Clone, Default)]
pub struct TermsSeen(BTreeMap<ShardNo, Term>);

impl TermsSeen {
    /// Notes the term of a frame. False if the frame is to be dropped, because a newer owner of the shard was heard.
    #[must_use]
    pub fn accept(&mut self, shard: ShardNo, term: Term) -> bool {
        let newest = self.0.entry(shard).or_default();
        *newest = (*newest).max(term);
        *newest == term
    }

    /// The newest term of a shard.
    #[must_use]
    pub fn newest(&self, shard: ShardNo) -> Option<Term> {
        self.0.get(&shard).copied()
    }
}
