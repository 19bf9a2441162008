//! Credit: the number of calls that the server may send on one stream.

/// The credit of one stream. It is a running total that only grows, as the contract requires.
#[derive(Debug)]
pub(crate) struct Credit {
    granted: u64,
    received: u64,
}

impl Credit {
    /// The credit of a stream whose `hello` granted `free` calls.
    pub(crate) fn new(free: usize) -> Self {
        Credit { granted: free as u64, received: 0 }
    }

    /// Counts a call that the server sent, accepted or not.
    pub(crate) fn spend(&mut self) {
        self.received += 1;
    }

    /// The new total to grant when `free` calls can start; `None` while it is not above the last total.
    pub(crate) fn grow(&mut self, free: usize) -> Option<u64> {
        let total = self.received + free as u64;
        let grown = total > self.granted;
        self.granted = self.granted.max(total);
        grown.then_some(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_call_adds_credit_for_another() {
        let mut credit = Credit::new(2);
        assert_eq!(credit.grow(2), None);
        credit.spend();
        assert_eq!(credit.grow(1), None, "one runs, one more may come: two in all");
        assert_eq!(credit.grow(2), Some(3));
        assert_eq!(credit.grow(2), None, "granted already");
    }

    #[test]
    fn the_total_never_shrinks() {
        let mut credit = Credit::new(4);
        assert_eq!(credit.grow(0), None);
        assert_eq!(credit.grow(4), None);
        assert_eq!(credit.grow(5), Some(5));
    }
}
