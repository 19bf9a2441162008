//! Quotas on the calls of principals and tenants, counted in this process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentloop_core::id::TenantId;
use tokio::time::Instant;

use super::principal::Principal;

/// Parts of a call that buckets count in, so that slow rates need no fractions.
const PARTS: u64 = 1_000_000;

/// The quotas of a server. `None` means no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Calls of one principal a second.
    pub requests_per_second: Option<u32>,
    /// Calls of all principals of one tenant a second.
    pub tenant_requests_per_second: Option<u32>,
}

/// A quota is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// Its name in the configuration.
    pub quota: &'static str,
    /// The time after which there is room for a call.
    pub retry_after: Duration,
}

/// Most counters that are kept. Beyond them, those that are full are dropped: a counter that is not there is full.
const BUCKETS_MAX: usize = 4_096;

/// Counts calls. There is one counter for each principal and tenant that has called lately.
#[derive(Debug)]
pub struct Quotas {
    limits: QuotaLimits,
    buckets: Mutex<HashMap<(TenantId, Option<String>), Bucket>>,
}

/// Room for calls: it fills at the rate of the quota, up to one second's calls.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    parts: u64,
    at: Instant,
}

impl Bucket {
    /// The bucket as it is now.
    fn filled(self, rate: u64, now: Instant) -> Self {
        let micros = u64::try_from(now.duration_since(self.at).as_micros()).unwrap_or(u64::MAX);
        // `rate` calls a second are `rate` parts a microsecond.
        let parts = self.parts.saturating_add(micros.saturating_mul(rate)).min(rate * PARTS);
        Self { parts, at: now }
    }
}

impl Quotas {
    /// `None` if nothing is bounded.
    #[must_use]
    pub fn new(limits: QuotaLimits) -> Option<Self> {
        (limits != QuotaLimits::default()).then(|| Self { limits, buckets: Mutex::default() })
    }

    /// Counts a call of this principal.
    ///
    /// # Errors
    /// [`QuotaExceeded`]: the call must not go on, and counts nowhere.
    pub fn take(&self, principal: &Principal, now: Instant) -> Result<(), QuotaExceeded> {
        let own = (principal.tenant.clone(), Some(principal.name.clone()));
        let all = (principal.tenant.clone(), None);
        let QuotaLimits { requests_per_second, tenant_requests_per_second } = self.limits;
        let bounds = [
            (own, requests_per_second, "requests_per_second"),
            (all, tenant_requests_per_second, "tenant_requests_per_second"),
        ];
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::new();
        for (key, rate, quota) in bounds {
            let Some(rate) = rate.map(u64::from) else { continue };
            let full = Bucket { parts: rate * PARTS, at: now };
            let bucket = buckets.get(&key).copied().unwrap_or(full).filled(rate, now);
            let Some(left) = bucket.parts.checked_sub(PARTS) else {
                let micros = (PARTS - bucket.parts).div_ceil(rate);
                return Err(QuotaExceeded { quota, retry_after: Duration::from_micros(micros) });
            };
            taken.push((key, Bucket { parts: left, at: now }));
        }
        buckets.extend(taken);
        if buckets.len() > BUCKETS_MAX {
            self.drop_full(&mut buckets, now);
        }
        Ok(())
    }

    fn drop_full(&self, buckets: &mut HashMap<(TenantId, Option<String>), Bucket>, now: Instant) {
        let QuotaLimits { requests_per_second, tenant_requests_per_second } = self.limits;
        buckets.retain(|(_, name), bucket| {
            let rate = if name.is_some() { requests_per_second } else { tenant_requests_per_second };
            let rate = u64::from(rate.unwrap_or_default());
            bucket.filled(rate, now).parts < rate * PARTS
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(name: &str, tenant: &str) -> Principal {
        Principal::new(name, Some(tenant), ["caller"], []).unwrap()
    }

    fn quotas(own: Option<u32>, tenant: Option<u32>) -> Quotas {
        let limits = QuotaLimits { requests_per_second: own, tenant_requests_per_second: tenant };
        Quotas::new(limits).unwrap()
    }

    #[test]
    fn a_principal_has_one_seconds_calls_and_gets_room_with_time() {
        let (quotas, now) = (quotas(Some(2), None), Instant::now());
        let (ada, bob) = (principal("ada", "red"), principal("bob", "red"));
        assert!(quotas.take(&ada, now).is_ok() && quotas.take(&ada, now).is_ok());
        let refused = quotas.take(&ada, now).unwrap_err();
        assert_eq!(refused.quota, "requests_per_second");
        assert_eq!(refused.retry_after, Duration::from_millis(500));
        assert!(quotas.take(&bob, now).is_ok(), "another's calls do not count");
        assert!(quotas.take(&ada, now + Duration::from_millis(499)).is_err());
        assert!(quotas.take(&ada, now + Duration::from_millis(500)).is_ok());
        let later = now + Duration::from_secs(3_600);
        assert!(quotas.take(&ada, later).is_ok() && quotas.take(&ada, later).is_ok());
        assert!(quotas.take(&ada, later).is_err(), "no more than one second's calls are saved");
    }

    #[test]
    fn the_principals_of_a_tenant_share_its_quota() {
        let (quotas, now) = (quotas(Some(2), Some(3)), Instant::now());
        let (ada, bob) = (principal("ada", "red"), principal("bob", "red"));
        for one in [&ada, &ada, &bob] {
            assert!(quotas.take(one, now).is_ok());
        }
        assert_eq!(quotas.take(&bob, now).unwrap_err().quota, "tenant_requests_per_second");
        assert!(quotas.take(&principal("ada", "blue"), now).is_ok(), "another tenant's calls do not count");
        assert!(Quotas::new(QuotaLimits::default()).is_none());
    }

    #[test]
    fn counters_that_are_full_again_are_dropped() {
        let (quotas, now) = (quotas(Some(1), None), Instant::now());
        for number in 0..BUCKETS_MAX {
            assert!(quotas.take(&principal(&format!("p{number}"), "red"), now).is_ok());
        }
        assert!(quotas.take(&principal("late", "red"), now + Duration::from_secs(2)).is_ok());
        assert_eq!(quotas.buckets.lock().unwrap().len(), 1, "only the last one is not full");
    }
}
