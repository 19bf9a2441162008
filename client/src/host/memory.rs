//! Results that the server has acknowledged, kept to answer a call that is given a second time.

use std::collections::{BTreeMap, VecDeque};

use super::{
    calls::CallKey,
    outcome::{self, ToolResult},
};

const REMEMBERED_MAX: usize = 1024;
const REMEMBERED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The most recent results, within bounds.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    results: BTreeMap<CallKey, ToolResult>,
    /// Oldest first.
    order: VecDeque<CallKey>,
    bytes: usize,
}

impl Memory {
    pub(crate) fn has(&self, key: &CallKey) -> bool {
        self.results.contains_key(key)
    }

    pub(crate) fn take(&mut self, key: &CallKey) -> Option<ToolResult> {
        let result = self.results.remove(key)?;
        self.order.retain(|other| other != key);
        self.bytes -= outcome::size(&result);
        Some(result)
    }

    pub(crate) fn put(&mut self, key: CallKey, result: ToolResult) {
        self.take(&key);
        self.bytes += outcome::size(&result);
        self.order.push_back(key.clone());
        self.results.insert(key, result);
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

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut memory = Memory::default();
        for attempt in 0..=REMEMBERED_MAX as u32 {
            memory.put(CallKey::new("c", attempt), Ok(Output::text("x")));
        }
        assert!(!memory.has(&CallKey::new("c", 0)));
        assert!(memory.has(&CallKey::new("c", 1)));
        assert_eq!(memory.bytes, REMEMBERED_MAX);
    }

    #[test]
    fn bytes_are_bounded() {
        let mut memory = Memory::default();
        for attempt in 0..9 {
            memory.put(CallKey::new("c", attempt), Ok(Output::text("x".repeat(3 * 1024 * 1024))));
        }
        assert_eq!(memory.results.len(), 5);
        assert!(memory.has(&CallKey::new("c", 8)));
    }
}
