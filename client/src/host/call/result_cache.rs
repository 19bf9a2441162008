//! Cache of acknowledged results. It answers a call that the server sends a second time.

use std::collections::{BTreeMap, VecDeque};

use crate::host::{
    call::key::CallKey,
    call::outcome::{self, ToolResult},
};

const CACHED_MAX: usize = 1024;
const CACHED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A result with its call's idempotency key, which tells calls with the same `CallKey` apart.
#[derive(Debug)]
pub(crate) struct CachedResult {
    pub(crate) idempotency_key: String,
    pub(crate) result: ToolResult,
}

/// The most recent results, bounded in number and bytes.
#[derive(Debug, Default)]
pub(crate) struct ResultCache {
    results: BTreeMap<CallKey, CachedResult>,
    /// Keys of `results`, the oldest first.
    order: VecDeque<CallKey>,
    bytes: usize,
}

impl ResultCache {
    pub(crate) fn has(&self, key: &CallKey) -> bool {
        self.results.contains_key(key)
    }

    /// The idempotency key of the call with this key.
    pub(crate) fn idempotency_key(&self, key: &CallKey) -> Option<&str> {
        self.results.get(key).map(|cached| cached.idempotency_key.as_str())
    }

    pub(crate) fn take(&mut self, key: &CallKey) -> Option<CachedResult> {
        let cached = self.results.remove(key)?;
        self.order.retain(|other| other != key);
        self.bytes -= outcome::size(&cached.result);
        Some(cached)
    }

    pub(crate) fn put(&mut self, key: CallKey, cached: CachedResult) {
        self.take(&key);
        self.bytes += outcome::size(&cached.result);
        self.order.push_back(key.clone());
        self.results.insert(key, cached);
        while self.results.len() > CACHED_MAX || self.bytes > CACHED_BYTES_MAX {
            let Some(oldest) = self.order.front().cloned() else { return };
            self.take(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Output;

    fn cached(text: &str) -> CachedResult {
        CachedResult { idempotency_key: String::new(), result: Ok(Output::text(text)) }
    }

    #[test]
    fn the_oldest_result_is_evicted_first() {
        let mut cache = ResultCache::default();
        for attempt in 0..=CACHED_MAX as u32 {
            cache.put(CallKey::new("c", attempt), cached("x"));
        }
        assert!(!cache.has(&CallKey::new("c", 0)));
        assert!(cache.has(&CallKey::new("c", 1)));
        assert_eq!(cache.bytes, CACHED_MAX);
    }

    #[test]
    fn cached_bytes_are_bounded() {
        let mut cache = ResultCache::default();
        for attempt in 0..9 {
            cache.put(CallKey::new("c", attempt), cached(&"x".repeat(3 * 1024 * 1024)));
        }
        assert_eq!(cache.results.len(), 5);
        assert!(cache.has(&CallKey::new("c", 8)));
    }
}
