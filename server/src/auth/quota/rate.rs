//! Counts of RPCs a second.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Holder, QuotaBound, QuotaScope};

/// Parts of an RPC that buckets count in, so that slow rates need no fractions.
const PARTS: u64 = 1_000_000;
/// The time in which every bucket fills. One that nobody took from for so long is full, so it need not be kept.
const FULL_AFTER: Duration = Duration::from_secs(1);

/// Buckets of the principals and tenants that have called lately: at most 2 s ago.
#[derive(Debug, Default)]
pub(super) struct RpcRates {
    /// Buckets that were taken from since `since`.
    current: HashMap<Holder, RateBucket>,
    /// Buckets that were taken from in the stretch before.
    previous: HashMap<Holder, RateBucket>,
    since: Option<Instant>,
}

/// RPCs that may begin at once. It fills at the rate of the quota, up to one second's RPCs.
#[derive(Debug, Clone, Copy)]
struct RateBucket {
    parts: u64,
    at: Instant,
}

impl RateBucket {
    /// The bucket as it is now.
    fn filled(self, rate: u64, now: Instant) -> Self {
        let micros = u64::try_from(now.duration_since(self.at).as_micros()).unwrap_or(u64::MAX);
        // `rate` RPCs a second are `rate` parts a microsecond.
        let parts = self.parts.saturating_add(micros.saturating_mul(rate)).min(rate.saturating_mul(PARTS));
        Self { parts, at: now }
    }
}

impl RpcRates {
    fn bucket(&self, holder: &Holder, rate: u64, now: Instant) -> RateBucket {
        let full = RateBucket { parts: rate.saturating_mul(PARTS), at: now };
        let known = self.current.get(holder).or_else(|| self.previous.get(holder));
        known.copied().unwrap_or(full).filled(rate, now)
    }

    /// Begins a new stretch when it is time, and returns the buckets that are full by now.
    fn turn(&mut self, now: Instant) -> Option<HashMap<Holder, RateBucket>> {
        if now.duration_since(*self.since.get_or_insert(now)) < FULL_AFTER {
            return None;
        }
        self.since = Some(now);
        let last = std::mem::take(&mut self.current);
        Some(std::mem::replace(&mut self.previous, last))
    }
}

/// Counts an RPC for each of its holders, or for none: then the error has the scope whose bound is reached, and the time after
/// which the quota allows it.
pub(super) fn take(
    rates: &Mutex<RpcRates>,
    bounds: Vec<QuotaBound>,
    now: Instant,
) -> Result<(), (QuotaScope, Duration)> {
    if bounds.is_empty() {
        return Ok(());
    }
    let mut rates = rates.lock();
    let full = rates.turn(now);
    let mut taken = Vec::with_capacity(bounds.len());
    for QuotaBound { scope, holder, max: rate } in bounds {
        let bucket = rates.bucket(&holder, rate, now);
        let Some(left) = bucket.parts.checked_sub(PARTS) else {
            // An embedder may allow no RPC at all.
            let micros = (PARTS - bucket.parts).div_ceil(rate.max(1));
            return Err((scope, Duration::from_micros(micros)));
        };
        taken.push((holder, RateBucket { parts: left, at: now }));
    }
    rates.current.extend(taken);
    drop(rates);
    // They may be many: others need not wait for their end.
    drop(full);
    Ok(())
}

/// RPCs that the bucket lacks of a full one now.
pub(super) fn used(rates: &Mutex<RpcRates>, holder: &Holder, rate: u64, now: Instant) -> u64 {
    let rates = rates.lock();
    rate - rates.bucket(holder, rate, now).parts / PARTS
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::TenantId;

    use super::*;

    struct Rpcs {
        rates: Mutex<RpcRates>,
        own: Option<u64>,
        tenant: Option<u64>,
    }

    impl Rpcs {
        fn new(own: Option<u64>, tenant: Option<u64>) -> Self {
            Self { rates: Mutex::default(), own, tenant }
        }

        fn take(&self, name: &str, tenant: &str, now: Instant) -> Result<(), (QuotaScope, Duration)> {
            let tenant = TenantId::parse(tenant).unwrap();
            let bounds = [(QuotaScope::Principal, self.own), (QuotaScope::Tenant, self.tenant)];
            let bounds = bounds.into_iter().filter_map(|(scope, max)| {
                Some(QuotaBound { scope, holder: Holder::of(&tenant, Some(name), scope)?, max: max? })
            });
            take(&self.rates, bounds.collect(), now)
        }

        fn kept(&self) -> usize {
            let rates = self.rates.lock();
            rates.current.len() + rates.previous.len()
        }
    }

    #[test]
    fn a_principal_has_one_seconds_rpcs_and_gets_more_with_time() {
        let (rpcs, now) = (Rpcs::new(Some(2), None), Instant::now());
        assert!(rpcs.take("ada", "red", now).is_ok() && rpcs.take("ada", "red", now).is_ok());
        let refused = rpcs.take("ada", "red", now).unwrap_err();
        assert_eq!(refused, (QuotaScope::Principal, Duration::from_millis(500)));
        assert!(rpcs.take("bob", "red", now).is_ok(), "another's RPCs do not count");
        assert!(rpcs.take("ada", "red", now + Duration::from_millis(499)).is_err());
        assert!(rpcs.take("ada", "red", now + Duration::from_millis(500)).is_ok());
        let later = now + Duration::from_secs(3_600);
        assert!(rpcs.take("ada", "red", later).is_ok() && rpcs.take("ada", "red", later).is_ok());
        assert!(rpcs.take("ada", "red", later).is_err(), "no more than one second's RPCs are saved");
        let ada = Holder::of(&TenantId::parse("red").unwrap(), Some("ada"), QuotaScope::Principal).unwrap();
        assert_eq!(used(&rpcs.rates, &ada, 2, later), 2);
        assert_eq!(used(&rpcs.rates, &ada, 2, later + Duration::from_millis(500)), 1);
    }

    #[test]
    fn a_rate_of_none_refuses_every_rpc_and_the_highest_none() {
        let now = Instant::now();
        let refused = Rpcs::new(Some(0), None).take("ada", "red", now).unwrap_err();
        assert_eq!(refused, (QuotaScope::Principal, FULL_AFTER));
        assert!(Rpcs::new(Some(u64::MAX), None).take("ada", "red", now).is_ok());
    }

    #[test]
    fn the_principals_of_a_tenant_share_its_quota() {
        let (rpcs, now) = (Rpcs::new(Some(2), Some(3)), Instant::now());
        for name in ["ada", "ada", "bob"] {
            assert!(rpcs.take(name, "red", now).is_ok());
        }
        assert_eq!(rpcs.take("bob", "red", now).unwrap_err().0, QuotaScope::Tenant);
        assert!(rpcs.take("ada", "blue", now).is_ok(), "another tenant's RPCs do not count");
    }

    #[test]
    fn a_bucket_is_kept_until_it_is_full() {
        let (rpcs, now) = (Rpcs::new(Some(1), None), Instant::now());
        for number in 0..1_000 {
            assert!(rpcs.take(&format!("p{number}"), "red", now).is_ok());
        }
        let before = now + Duration::from_millis(999);
        assert!(rpcs.take("p7", "red", before).is_err());
        let late = now + Duration::from_millis(1_500);
        assert!(rpcs.take("late", "red", late).is_ok());
        assert!(rpcs.take("late", "red", now + Duration::from_millis(2_499)).is_err(), "it is kept");
        assert!(rpcs.take("late", "red", now + Duration::from_millis(2_500)).is_ok());
        assert_eq!(rpcs.kept(), 2, "those of the beginning are full");
    }
}
