//! Chance that is the same every time: SplitMix64. Each actor has a stream of its own, so that what one draws does not
//! depend on how often another does.

/// A generator, from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for somebody with this name.
    pub(crate) fn of(seed: u64, name: &str) -> Self {
        // FNV-1a.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let named = name.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        let mut random = Self::new(seed ^ named);
        Self::new(random.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `end`, which is not reached.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Yes, so many times in a thousand.
    pub(crate) fn chance(&mut self, in_a_thousand: u64) -> bool {
        self.below(1_000) < in_a_thousand
    }

    /// Picks one of these at random.
    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let index = usize::try_from(self.below(from.len() as u64)).expect("an index");
        from[index].clone()
    }
}
