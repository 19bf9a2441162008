//! Chance from a seed.

use std::time::Duration;

/// A stream of numbers that its seed decides.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// A generator for this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Others, for something that goes on beside this.
    pub fn split(&mut self) -> Self {
        Self(self.next())
    }

    /// Any number (SplitMix64).
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of the numbers below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True in so many cases of a hundred.
    pub fn percent(&mut self, cases: u64) -> bool {
        self.below(100) < cases
    }

    /// A time up to this many milliseconds.
    pub fn up_to(&mut self, ms: u64) -> Duration {
        Duration::from_millis(self.below(ms + 1))
    }

    /// Picks one of these at random.
    pub fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let at = usize::try_from(self.below(choices.len() as u64)).expect("an index");
        &choices[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_everything() {
        let (mut one, mut two) = (Dice::new(7), Dice::new(7));
        let throws: Vec<u64> = (0..9).map(|_| one.below(1_000)).collect();
        assert_eq!(throws, (0..9).map(|_| two.below(1_000)).collect::<Vec<_>>());
        assert_ne!(throws, (0..9).map(|_| Dice::new(8).below(1_000)).collect::<Vec<_>>());
    }
}
