//! Results that the server has acknowledged, kept to answer a call that is given a second time.

use std::collections::{BTreeMap, VecDeque};

use crate::host::{
    call::calls::CallKey,
    call::outcome::{self, ToolResult},
};

const REMEMBERED_MAX: usize = 1024;
const REMEMBERED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A result, and the idempotency key of the call that it is the result of.
#[derive(Debug)]
pub(crate) struct Remembered {
    pub(crate) idempotency_key: String,
    pub(crate) result: ToolResult,
}

/// The most recent results, within bounds.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    results: BTreeMap<CallKey, Remembered>,
    /// Oldest first.
    order: VecDeque<CallKey>,
    bytes: usize,
}

impl Memory {
    pub(crate) fn has(&self, key: &CallKey) -> bool {
        self.results.contains_key(key)
    }

    /// The idempotency key of the call of this name.
    pub(crate) fn idempotency_key(&self, key: &CallKey) -> Option<&str> {
        self.results.get(key).map(|remembered| remembered.idempotency_key.as_str())
    }

    pub(crate) fn take(&mut self, key: &CallKey) -> Option<Remembered> {
        let remembered = self.results.remove(key)?;
        self.order.retain(|other| other != key);
        self.bytes -= outcome::size(&remembered.result);
        Some(remembered)
    }

    pub(crate) fn put(&mut self, key: CallKey, remembered: Remembered) {
        self.take(&key);
        self.bytes += outcome::size(&remembered.result);
        self.order.push_back(key.clone());
        self.results.insert(key, remembered);
        while self.results.len() > REMEMBERED_MAX || self.bytes > REMEMBERED_BYTES_MAX {
            let Some(oldest) = self.order.front().cloned() else { return };
            self.take(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Output;

    fn remembered(text: &str) -> Remembered {
        Remembered { idempotency_key: String::new(), result: Ok(Output::text(text)) }
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut memory = Memory::default();
        for attempt in 0..=REMEMBERED_MAX as u32 {
            memory.put(CallKey::new("c", attempt), remembered("x"));
        }
        assert!(!memory.has(&CallKey::new("c", 0)));
        assert!(memory.has(&CallKey::new("c", 1)));
        assert_eq!(memory.bytes, REMEMBERED_MAX);
    }

    #[test]
    fn bytes_are_bounded() {
        let mut memory = Memory::default();
        for attempt in 0..9 {
            memory.put(CallKey::new("c", attempt), remembered(&"x".repeat(3 * 1024 * 1024)));
        }
        assert_eq!(memory.results.len(), 5);
        assert!(memory.has(&CallKey::new("c", 8)));
    }
}
