//! How many calls the server may send on one stream.

/// The credit of one stream. It is cumulative, as the contract has it: what was granted is never taken back.
#[derive(Debug)]
pub(crate) struct Credit {
    granted: u64,
    received: u64,
}

impl Credit {
    /// A stream whose `hello` granted `free` calls.
    pub(crate) fn new(free: usize) -> Self {
        Credit { granted: free as u64, received: 0 }
    }

    /// A call came in, whatever becomes of it.
    pub(crate) fn spend(&mut self) {
        self.received += 1;
    }

    /// The new total to grant now that `free` calls have room; `None` while that is no more than before.
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
    fn a_call_that_ended_makes_room_for_another() {
        let mut credit = Credit::new(2);
        assert_eq!(credit.grow(2), None);
        credit.spend();
        assert_eq!(credit.grow(1), None, "one runs, one more may come: two in all");
        assert_eq!(credit.grow(2), Some(3));
        assert_eq!(credit.grow(2), None, "granted already");
    }

    #[test]
    fn less_room_takes_nothing_back() {
        let mut credit = Credit::new(4);
        assert_eq!(credit.grow(0), None);
        assert_eq!(credit.grow(4), None);
        assert_eq!(credit.grow(5), Some(5));
    }
}
