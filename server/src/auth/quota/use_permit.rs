//! Counts of what callers hold at a time: runs at work, streams, connections of hosts.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};

use super::{Holder, Quota, QuotaBound, QuotaLimits, QuotaScope, Quotas};

/// The counts by holder. A count of 0 is removed, so that the table does not grow with everybody who ever called.
#[derive(Debug, Default)]
pub(super) struct UseCounts(Mutex<HashMap<(Quota, Holder), u64>>);

impl UseCounts {
    pub(super) fn get(&self, quota: Quota, holder: &Holder) -> u64 {
        self.counts().get(&(quota, holder.clone())).copied().unwrap_or(0)
    }

    /// The part that is used by the holder that uses most, by the names of the quotas.
    pub(super) fn highest(&self, limits: &QuotaLimits) -> HashMap<&'static str, f64> {
        let mut highest = HashMap::new();
        for ((quota, holder), count) in &*self.counts() {
            let scope = if holder.name.is_some() { QuotaScope::Principal } else { QuotaScope::Tenant };
            let Some(bound) = limits.get(*quota, scope) else { continue };
            let known: &mut f64 = highest.entry(quota.name(scope)).or_default();
            *known = known.max(*count as f64 / bound as f64);
        }
        highest
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<(Quota, Holder), u64>> {
        self.0.lock()
    }
}

/// A run, a stream or a connection that counts until this is dropped.
#[derive(Debug)]
pub struct UsePermit {
    quotas: Quotas,
    quota: Quota,
    /// The principal and its tenant, as far as they have a bound.
    holders: Vec<Holder>,
}

impl UsePermit {
    /// Counts one for each of these holders, or for none: if it `compares`, the first bound that is reached is the error.
    pub(super) fn new(
        quotas: &Quotas,
        quota: Quota,
        bounds: Vec<QuotaBound>,
        compares: bool,
    ) -> Result<Self, QuotaScope> {
        if bounds.is_empty() {
            return Ok(Self { quotas: quotas.clone(), quota, holders: Vec::new() });
        }
        let mut counts = quotas.0.held.counts();
        for QuotaBound { scope, holder, max } in &bounds {
            let count = counts.get(&(quota, holder.clone())).copied().unwrap_or(0);
            if compares && count >= *max {
                return Err(*scope);
            }
        }
        let holders: Vec<Holder> = bounds.into_iter().map(|bound| bound.holder).collect();
        for holder in &holders {
            *counts.entry((quota, holder.clone())).or_default() += 1;
        }
        drop(counts);
        Ok(Self { quotas: quotas.clone(), quota, holders })
    }
}

impl Drop for UsePermit {
    fn drop(&mut self) {
        if self.holders.is_empty() {
            return;
        }
        let mut counts = self.quotas.0.held.counts();
        for holder in self.holders.drain(..) {
            let key = (self.quota, holder);
            if let Some(count) = counts.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&key);
                }
            }
        }
    }
}
