//! Points in time and lengths of time. The core has no clock: the time is always an argument.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch. Arithmetic saturates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

/// A length of time in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Timestamp {
    /// The time that is `length` later.
    #[must_use]
    pub fn after(self, length: Millis) -> Self {
        Self(self.0.saturating_add(length.0))
    }

    /// The time that is `length` earlier; the earliest time there is if that is too early.
    #[must_use]
    pub fn before(self, length: Millis) -> Self {
        Self(self.0.saturating_sub(length.0))
    }

    /// The time that passed since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Millis {
    /// A length of this many seconds.
    #[must_use]
    pub const fn secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// This length in whole milliseconds, rounded down; the longest one for what is longer.
    #[must_use]
    pub fn of(length: std::time::Duration) -> Self {
        Self(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
    }

    /// The sum of both lengths.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }

    /// True for zero milliseconds.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// The same length as a [`std::time::Duration`].
    #[must_use]
    pub const fn duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp(u64::MAX).after(Millis(1)), Timestamp(u64::MAX));
        assert_eq!(Timestamp(1).since(Timestamp(2)), Millis(0));
        assert_eq!(Millis::secs(2), Millis(2_000));
    }
}
