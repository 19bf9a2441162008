//! The results of calls that have ended: those that the server has not acknowledged, and a cache of the others.

use std::collections::BTreeMap;

use agentloop_proto::v1::connect_request::Frame;

use crate::host::{
    call::frame_bound::FrameBound,
    call::key::CallKey,
    call::outcome::{self, ToolResult},
    call::result_cache::{CachedResult, ResultCache},
};

/// Bounds on results that wait for their acknowledgement. At either bound the host accepts no more calls.
pub(super) const UNACKNOWLEDGED_MAX: usize = 1024;
const UNACKNOWLEDGED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The results of a host.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// Calls that ended, and whose result the server has not acknowledged.
    unacknowledged: BTreeMap<CallKey, FinishedCall>,
    unacknowledged_bytes: usize,
    /// Acknowledged results. They answer a call that the server sends a second time.
    cache: ResultCache,
}

/// A call whose result the server has not acknowledged.
#[derive(Debug)]
struct FinishedCall {
    lease_token: String,
    idempotency_key: String,
    result: ToolResult,
}

impl From<FinishedCall> for CachedResult {
    fn from(FinishedCall { idempotency_key, result, .. }: FinishedCall) -> Self {
        CachedResult { idempotency_key, result }
    }
}

impl Results {
    /// The number of results that wait for their acknowledgement.
    pub(super) fn unacknowledged(&self) -> usize {
        self.unacknowledged.len()
    }

    /// Bytes of the results that the server has not acknowledged.
    #[cfg(test)]
    pub(super) fn unacknowledged_bytes(&self) -> usize {
        self.unacknowledged_bytes
    }

    /// True if the host accepts no more calls before some are acknowledged.
    pub(super) fn is_full(&self) -> bool {
        self.unacknowledged() >= UNACKNOWLEDGED_MAX || self.unacknowledged_bytes >= UNACKNOWLEDGED_BYTES_MAX
    }

    /// The calls whose results wait for their acknowledgement, with their leases.
    pub(super) fn leases(&self) -> impl Iterator<Item = (&CallKey, &str)> {
        self.unacknowledged.iter().map(|(key, finished)| (key, finished.lease_token.as_str()))
    }

    /// True if the result of this call waits for its acknowledgement.
    pub(super) fn is_unacknowledged(&self, key: &CallKey) -> bool {
        self.unacknowledged.contains_key(key)
    }

    /// True if the call has ended, as far as that is known.
    pub(super) fn has(&self, key: &CallKey) -> bool {
        self.is_unacknowledged(key) || self.cache.has(key)
    }

    /// Drops a result whose idempotency key differs: it belongs to another call that had the same key.
    pub(super) fn drop_stale(&mut self, key: &CallKey, idempotency_key: &str) {
        if self.unacknowledged.get(key).is_some_and(|finished| finished.idempotency_key != idempotency_key) {
            self.remove(key);
        }
        if self.cache.idempotency_key(key).is_some_and(|cached| cached != idempotency_key) {
            self.cache.take(key);
        }
    }

    /// Gives a call that ended another lease: its result waits for its acknowledgement, again if it is from the cache.
    /// `false` if the call is not known.
    pub(super) fn renew(&mut self, key: &CallKey, lease_token: &str) -> bool {
        if let Some(finished) = self.unacknowledged.get_mut(key) {
            lease_token.clone_into(&mut finished.lease_token);
            return true;
        }
        let cached = self.cache.take(key);
        cached.map(|cached| self.keep(key, lease_token, cached)).is_some()
    }

    /// Keeps a result until it is acknowledged.
    pub(super) fn keep(&mut self, key: &CallKey, lease_token: &str, cached: CachedResult) {
        let CachedResult { idempotency_key, result } = cached;
        self.unacknowledged_bytes += outcome::size(&result);
        let finished = FinishedCall { lease_token: lease_token.to_owned(), idempotency_key, result };
        self.unacknowledged.insert(key.clone(), finished);
    }

    /// Caches a result that needs no acknowledgement.
    pub(super) fn cache(&mut self, key: &CallKey, cached: CachedResult) {
        self.cache.put(key.clone(), cached);
    }

    /// Moves a result to the cache: the server has recorded it, or never will.
    pub(super) fn acknowledge(&mut self, key: &CallKey) {
        if let Some(finished) = self.remove(key) {
            self.cache.put(key.clone(), finished.into());
        }
    }

    /// The frame of a finished call. A result larger than the server's bound becomes a failure for good.
    pub(super) fn frame(&mut self, key: &CallKey, bound: FrameBound) -> Option<Frame> {
        let finished = self.unacknowledged.get(key)?;
        let frame = outcome::frame(key, &finished.lease_token, &finished.result);
        if bound.fits(&frame) {
            return Some(frame);
        }
        let shorter = outcome::cut_to_fit(&finished.result, frame.encoded_len(), bound.bytes);
        let frame = outcome::frame(key, &finished.lease_token, &shorter);
        self.replace(key, shorter);
        Some(frame)
    }

    /// Replaces the result of a finished call.
    pub(super) fn replace(&mut self, key: &CallKey, result: ToolResult) {
        if let Some(FinishedCall { lease_token, idempotency_key, .. }) = self.remove(key) {
            self.keep(key, &lease_token, CachedResult { idempotency_key, result });
        }
    }

    fn remove(&mut self, key: &CallKey) -> Option<FinishedCall> {
        let finished = self.unacknowledged.remove(key)?;
        self.unacknowledged_bytes -= outcome::size(&finished.result);
        Some(finished)
    }
}
