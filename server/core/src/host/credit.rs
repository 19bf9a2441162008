//! Flow control of one stream: a host says how many calls it accepts, and is never sent more.

use crate::limits::CALLS_PER_HOST_MAX;

/// Credit of one stream. The host's figure is cumulative: all calls that it would have accepted since the stream began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Credit {
    /// Calls that the host would have accepted in all. It never shrinks.
    total: u64,
    /// Calls that were sent on this stream.
    used: u64,
    /// Calls that were granted and are about to be sent.
    reserved: u64,
}

impl Credit {
    /// The credit that a host gives with its first frame.
    pub(super) fn new(total: u64) -> Self {
        Self { total, ..Self::default() }
    }

    /// Calls that may still be granted. A host may give any total; more than [`CALLS_PER_HOST_MAX`] calls it cannot have.
    pub(super) fn free(self) -> u64 {
        self.total.saturating_sub(self.used + self.reserved).min(CALLS_PER_HOST_MAX as u64)
    }

    /// True while no more was sent and reserved than the host gave.
    #[cfg(test)]
    pub(super) fn is_sound(self) -> bool {
        self.used + self.reserved <= self.total
    }

    /// Calls that were granted and not yet sent.
    pub(super) fn reserved(self) -> usize {
        usize::try_from(self.reserved).unwrap_or(usize::MAX)
    }

    /// Raises the total. A smaller total than before changes nothing.
    pub(super) fn grow_to(&mut self, total: u64) {
        self.total = self.total.max(total);
    }

    /// Reserves credit for a call that is granted. There must be free credit.
    pub(super) fn reserve(&mut self) {
        assert!(self.free() > 0, "only free credit is reserved");
        self.reserved += 1;
    }

    /// Frees the credit of a granted call that is not sent after all.
    pub(super) fn release(&mut self) {
        self.reserved = self.reserved.checked_sub(1).expect("released credit was reserved");
    }

    /// Uses reserved credit: the call is sent.
    pub(super) fn spend(&mut self) {
        self.release();
        self.used += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_cumulative() {
        let mut credit = Credit::new(2);
        credit.reserve();
        credit.spend();
        credit.reserve();
        assert_eq!((credit.free(), credit.reserved()), (0, 1));
        credit.release();
        assert_eq!(credit.free(), 1);
        credit.grow_to(1);
        assert_eq!(credit.free(), 1, "a smaller total takes nothing back");
        credit.grow_to(5);
        credit.grow_to(5);
        assert_eq!(credit.free(), 4);
    }

    #[test]
    fn any_total_is_taken() {
        let mut credit = Credit::new(u64::MAX);
        credit.reserve();
        credit.spend();
        credit.grow_to(u64::MAX);
        assert_eq!(credit.free(), CALLS_PER_HOST_MAX as u64);
    }
}
