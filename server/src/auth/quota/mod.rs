//! Quotas: how much of the server one principal and one tenant may use.
//!
//! [`Quotas`] counts in this process what passes by: RPCs, runs at work, streams and hosts. `engine/quota` reads from the
//! store what is kept: sessions, bytes, tokens and cost.

mod rate;
mod use_permit;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentloop_core::id::TenantId;
use agentloop_core::time::Millis;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::rate::RpcRates;
use self::use_permit::UseCounts;
pub use self::use_permit::UsePermit;
use super::principal::Principal;

/// The time after which a refused caller may look again, if nobody knows when the quota allows more.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A thing that a quota bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quota {
    /// RPCs a second, with bursts of one second's RPCs. Each counts once, when it begins.
    RequestsPerSecond,
    /// Runs that have a task. Parked and queued ones have none.
    LiveRuns,
    /// Open RPCs with a stream. Those of tool hosts are [`Self::Hosts`].
    Streams,
    /// Open connections of tool hosts.
    Hosts,
    /// Stored sessions, counted for the caller that created them.
    Sessions,
    /// Bytes of the events of runs, counted for the caller that started them, and of blobs.
    StoredBytes,
    /// Input and output tokens of model calls in a window.
    Tokens,
    /// Cost of model calls in a window, in millionths of the currency of the prices.
    CostMicros,
}

/// A bound on a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaBound {
    /// The principals whose use is added up.
    pub scope: QuotaScope,
    /// The holder whose use is compared with the bound.
    pub holder: Holder,
    /// The most that the holder may use.
    pub max: u64,
}

/// The principals whose use a quota adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaScope {
    /// Each principal alone. Keys without prefix.
    Principal,
    /// All principals of a tenant together. Keys with `tenant_` in front.
    Tenant,
}

impl QuotaScope {
    /// The narrower one first: a refusal names the quota that the caller can do something about.
    pub const ALL: [Self; 2] = [Self::Principal, Self::Tenant];
}

impl Quota {
    /// In the order of the configuration.
    pub const ALL: [Self; 8] = [
        Self::RequestsPerSecond,
        Self::LiveRuns,
        Self::Streams,
        Self::Hosts,
        Self::Sessions,
        Self::StoredBytes,
        Self::Tokens,
        Self::CostMicros,
    ];

    /// The key in `[quotas]`, which refusals and metrics name.
    #[must_use]
    pub fn name(self, scope: QuotaScope) -> &'static str {
        let (own, tenant) = match self {
            Self::RequestsPerSecond => ("requests_per_second", "tenant_requests_per_second"),
            Self::LiveRuns => ("live_runs", "tenant_live_runs"),
            Self::Streams => ("streams", "tenant_streams"),
            Self::Hosts => ("hosts", "tenant_hosts"),
            Self::Sessions => ("sessions", "tenant_sessions"),
            Self::StoredBytes => ("stored_bytes", "tenant_stored_bytes"),
            Self::Tokens => ("tokens", "tenant_tokens"),
            Self::CostMicros => ("cost_micros", "tenant_cost_micros"),
        };
        match scope {
            QuotaScope::Principal => own,
            QuotaScope::Tenant => tenant,
        }
    }

    /// The largest bound that the configuration takes. A larger one is more likely a mistake in the unit.
    #[must_use]
    pub fn most(self) -> u64 {
        match self {
            Self::RequestsPerSecond | Self::LiveRuns | Self::Streams | Self::Hosts => 1_000_000,
            Self::Sessions => 1_000_000_000,
            Self::StoredBytes | Self::Tokens | Self::CostMicros => 1_000_000_000_000_000,
        }
    }

    /// True if it counts over a window of time.
    #[must_use]
    pub fn has_window(self) -> bool {
        matches!(self, Self::Tokens | Self::CostMicros)
    }
}

/// The quotas of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaLimits {
    /// By quota, then by scope. `None` means no bound.
    bounds: [[Option<u64>; 2]; Quota::ALL.len()],
    /// The window of those that count over time: whole minutes. Windows begin at whole multiples of it since 1970 (UTC).
    pub window: Millis,
}

impl QuotaLimits {
    /// The usual window: a day.
    pub const WINDOW: Millis = Millis::secs(24 * 60 * 60);

    /// `None` means no bound.
    #[must_use]
    pub fn get(&self, quota: Quota, scope: QuotaScope) -> Option<u64> {
        self.bounds[quota as usize][scope as usize]
    }

    /// `None` takes the bound away.
    pub fn set(&mut self, quota: Quota, scope: QuotaScope, bound: Option<u64>) {
        self.bounds[quota as usize][scope as usize] = bound;
    }

    /// True if there is a bound of either scope.
    #[must_use]
    pub fn has(&self, quota: Quota) -> bool {
        self.bounds[quota as usize].iter().any(Option::is_some)
    }

    /// True if there is no bound at all, so that nothing needs to be counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !Quota::ALL.into_iter().any(|quota| self.has(quota))
    }
}

impl Default for QuotaLimits {
    fn default() -> Self {
        Self { bounds: Default::default(), window: Self::WINDOW }
    }
}

/// The refusal of an RPC that a quota does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the quota {quota} is used up; try again later")]
pub struct QuotaExceeded {
    /// The key in `[quotas]`.
    pub quota: &'static str,
    /// The time after which the quota allows more, or after which it is worth to look again.
    pub retry_after: Duration,
}

/// A principal or a tenant, as the one whose use is added up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// Principals of the same name in two tenants are two holders.
    pub tenant: TenantId,
    /// The principal; `None` for the tenant as a whole.
    pub name: Option<String>,
}

impl Holder {
    /// The holder in this scope. `None` for a principal without a name: without authentication nobody has one.
    #[must_use]
    pub fn of(tenant: &TenantId, name: Option<&str>, scope: QuotaScope) -> Option<Self> {
        let name = match scope {
            QuotaScope::Principal => Some(name?.to_owned()),
            QuotaScope::Tenant => None,
        };
        Some(Self { tenant: tenant.clone(), name })
    }
}

/// A quota of a caller or of its tenant, as `GetUsage` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaUse {
    /// Gives `limit` and `used` their unit.
    pub quota: Quota,
    /// The caller alone, or all of its tenant.
    pub scope: QuotaScope,
    /// The most that may be used. A lower one than `used` was set later, or stored things grew while they were used.
    pub limit: u64,
    /// The use now; of tokens and cost, in the window under way.
    pub used: u64,
}

/// The quotas of a server with the counts of this process. Clones share the counts.
#[derive(Debug, Clone)]
pub struct Quotas(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: QuotaLimits,
    rates: Mutex<RpcRates>,
    held: UseCounts,
    /// Refusals, by quota and scope.
    refused: [[AtomicU64; 2]; Quota::ALL.len()],
}

impl Quotas {
    /// `None` if nothing is bounded.
    #[must_use]
    pub fn new(limits: QuotaLimits) -> Option<Self> {
        (!limits.is_empty()).then(|| {
            Self(Arc::new(Inner {
                limits,
                rates: Mutex::default(),
                held: UseCounts::default(),
                refused: Default::default(),
            }))
        })
    }

    /// The configured bounds, which do not change while the server runs.
    #[must_use]
    pub fn limits(&self) -> &QuotaLimits {
        &self.0.limits
    }

    /// Counts an RPC of this principal.
    ///
    /// # Errors
    /// [`QuotaExceeded`]: the RPC must not go on, and counts nowhere.
    pub fn take(&self, principal: &Principal, now: Instant) -> Result<(), QuotaExceeded> {
        let bounds = self.bounds_of(Quota::RequestsPerSecond, &principal.tenant, Some(&principal.name));
        let taken = rate::take(&self.0.rates, bounds, now);
        taken.map_err(|(scope, after)| self.refuse(Quota::RequestsPerSecond, scope, after))
    }

    /// Counts a run, a stream or a connection of this caller until the result is dropped.
    ///
    /// # Errors
    /// [`QuotaExceeded`]: nothing is counted.
    pub fn hold(
        &self,
        quota: Quota,
        tenant: &TenantId,
        name: Option<&str>,
    ) -> Result<UsePermit, QuotaExceeded> {
        let bounds = self.bounds_of(quota, tenant, name);
        UsePermit::new(self, quota, bounds, true).map_err(|scope| self.refuse(quota, scope, LOOK_AGAIN))
    }

    /// As [`Self::hold`], for a run that was started before this process: it counts, and is never refused.
    #[must_use]
    pub fn hold_anyway(&self, quota: Quota, tenant: &TenantId, name: Option<&str>) -> UsePermit {
        let bounds = self.bounds_of(quota, tenant, name);
        UsePermit::new(self, quota, bounds, false).unwrap_or_else(|_| unreachable!("nothing is compared"))
    }

    /// The bounds on this caller, each with the holder whose use is compared with it.
    #[must_use]
    pub fn bounds_of(&self, quota: Quota, tenant: &TenantId, name: Option<&str>) -> Vec<QuotaBound> {
        let bound = |scope| {
            let max = self.limits().get(quota, scope)?;
            Some(QuotaBound { scope, holder: Holder::of(tenant, name, scope)?, max })
        };
        QuotaScope::ALL.into_iter().filter_map(bound).collect()
    }

    /// The number that this process counts now: RPCs of the last second, or what is held.
    #[must_use]
    pub fn used(&self, quota: Quota, holder: &Holder, limit: u64, now: Instant) -> u64 {
        match quota {
            Quota::RequestsPerSecond => rate::used(&self.0.rates, holder, limit, now),
            _ => self.0.held.get(quota, holder),
        }
    }

    /// The error for a quota that is used up. Counts the refusal.
    #[must_use]
    pub fn refuse(&self, quota: Quota, scope: QuotaScope, retry_after: Duration) -> QuotaExceeded {
        self.0.refused[quota as usize][scope as usize].fetch_add(1, Ordering::Relaxed);
        QuotaExceeded { quota: quota.name(scope), retry_after }
    }

    /// The part that is used by the holder that uses most, by the names of the quotas on what is held.
    #[must_use]
    pub fn highest(&self) -> HashMap<&'static str, f64> {
        self.0.held.highest(self.limits())
    }

    /// Refusals since the start, by the names of the quotas that have a bound.
    #[must_use]
    pub fn refusals(&self) -> Vec<(&'static str, u64)> {
        let bounded = Quota::ALL.into_iter().flat_map(|quota| QuotaScope::ALL.map(|scope| (quota, scope)));
        bounded
            .filter(|(quota, scope)| self.limits().get(*quota, *scope).is_some())
            .map(|(quota, scope)| {
                let refused = self.0.refused[quota as usize][scope as usize].load(Ordering::Relaxed);
                (quota.name(scope), refused)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    #[test]
    fn names_are_those_of_the_configuration_and_differ() {
        let names: std::collections::BTreeSet<_> =
            Quota::ALL.into_iter().flat_map(|quota| QuotaScope::ALL.map(|scope| quota.name(scope))).collect();
        assert_eq!(names.len(), 2 * Quota::ALL.len());
        for (at, quota) in Quota::ALL.into_iter().enumerate() {
            assert_eq!(quota as usize, at);
        }
        assert!(Quotas::new(QuotaLimits::default()).is_none());
    }

    #[test]
    fn what_is_held_counts_until_it_is_dropped() {
        let mut limits = QuotaLimits::default();
        limits.set(Quota::LiveRuns, QuotaScope::Principal, Some(1));
        limits.set(Quota::LiveRuns, QuotaScope::Tenant, Some(2));
        let quotas = Quotas::new(limits).unwrap();
        let (red, blue) = (tenant("red"), tenant("blue"));
        let hold = |tenant: &TenantId, name: &str| quotas.hold(Quota::LiveRuns, tenant, Some(name));
        let ada = hold(&red, "ada").unwrap();
        assert_eq!(hold(&red, "ada").unwrap_err().quota, "live_runs");
        let _bob = hold(&red, "bob").unwrap();
        assert_eq!(hold(&red, "eve").unwrap_err().quota, "tenant_live_runs");
        let _other = hold(&blue, "ada").unwrap();
        let taken_over = quotas.hold_anyway(Quota::LiveRuns, &red, Some("ada"));
        drop(ada);
        assert!(hold(&red, "ada").is_err(), "the run that was taken over counts");
        drop(taken_over);
        let _again = hold(&red, "ada").unwrap();
        let used = |scope| {
            let holder = Holder::of(&red, Some("ada"), scope).unwrap();
            quotas.used(Quota::LiveRuns, &holder, 2, Instant::now())
        };
        assert_eq!(QuotaScope::ALL.map(used), [1, 2]);
        assert_eq!(quotas.refusals(), [("live_runs", 2), ("tenant_live_runs", 1)]);
        // Without a bound nothing is counted.
        let _stream = quotas.hold(Quota::Streams, &red, Some("ada")).unwrap();
        assert!(quotas.0.held.get(Quota::Streams, &Holder::of(&red, None, QuotaScope::Tenant).unwrap()) == 0);
    }
}
