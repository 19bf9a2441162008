//! Backoff: the wait before a failed model call is retried.

use crate::agent::RetryPolicy;
use crate::id::Attempt;
use crate::model::error::ErrorClass;
use crate::time::Millis;

/// Longest wait that a provider may request. A hostile or confused provider must not park runs for ever.
pub const RETRY_AFTER_MAX: Millis = Millis::secs(300);

/// The wait before the next attempt, after `failures` consecutive failures.
///
/// `None` means no retry: it would not help, the context must be compacted first, or the retries are used up. `chance` is
/// the random number for the jitter.
#[must_use]
pub fn after_failure(
    policy: &RetryPolicy,
    class: ErrorClass,
    failures: u32,
    retry_after: Option<Millis>,
    chance: u64,
) -> Option<Millis> {
    match class {
        ErrorClass::Retryable => backoff(policy, failures, retry_after, chance),
        ErrorClass::Overflow | ErrorClass::Fatal => None,
    }
}

/// The wait after `failures` consecutive failures, or `None` if the retries are used up.
///
/// The bound doubles from the policy's initial backoff to its highest. With jitter, the wait is drawn evenly between zero
/// and the bound. It is never shorter than the provider requests.
fn backoff(policy: &RetryPolicy, failures: u32, retry_after: Option<Millis>, chance: u64) -> Option<Millis> {
    if failures > policy.max_retries {
        return None;
    }
    let doubled = policy.initial_backoff.0.saturating_mul(1 << failures.saturating_sub(1).min(32));
    let bound = doubled.min(policy.max_backoff.0);
    let wait = if policy.jitter { chance % bound.saturating_add(1) } else { bound };
    Some(Millis(wait.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX).0)))
}

/// The random number for the jitter of one attempt of a model call: the same on every replay.
#[must_use]
pub fn chance(seed: u64, model_call: u32, attempt: Attempt) -> u64 {
    // SplitMix64 (Steele, Lea, Flood 2014): good enough for jitter.
    let mut mixed = seed
        .wrapping_add(u64::from(model_call) << 32 | u64::from(attempt.0))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(jitter: bool) -> RetryPolicy {
        RetryPolicy { max_retries: 5, jitter, ..RetryPolicy::default() }
    }

    #[test]
    fn only_retryable_failures_are_retried() {
        let wait = |class, failures| after_failure(&policy(false), class, failures, None, 0);
        assert_eq!(wait(ErrorClass::Retryable, 1), Some(Millis::secs(1)));
        assert_eq!(wait(ErrorClass::Retryable, 6), None, "the retries are used up");
        assert_eq!(wait(ErrorClass::Overflow, 1), None);
        assert_eq!(wait(ErrorClass::Fatal, 1), None);
    }

    #[test]
    fn waits_double_up_to_the_cap() {
        let waits: Vec<_> = (1..=6).map(|n| backoff(&policy(false), n, None, 7).map(|w| w.0)).collect();
        assert_eq!(waits, [Some(1_000), Some(2_000), Some(4_000), Some(8_000), Some(10_000), None]);
    }

    #[test]
    fn jitter_stays_within_the_bound_and_varies() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let wait = backoff(&policy(true), 2, None, chance(seed, 1, Attempt(2))).unwrap();
            assert!(wait.0 <= 2_000);
            seen.insert(wait.0 / 200);
        }
        assert!((0..10).all(|tenth| seen.contains(&tenth)), "every tenth of the range: {seen:?}");
    }

    #[test]
    fn the_provider_sets_the_least_wait_within_reason() {
        assert_eq!(backoff(&policy(false), 1, Some(Millis::secs(20)), 0), Some(Millis::secs(20)));
        assert_eq!(backoff(&policy(false), 1, Some(Millis(5)), 0), Some(Millis::secs(1)));
        assert_eq!(backoff(&policy(false), 1, Some(Millis::secs(86_400)), 0), Some(RETRY_AFTER_MAX));
    }

    #[test]
    fn bounds_without_end_do_not_overflow() {
        let endless = RetryPolicy {
            initial_backoff: Millis(u64::MAX),
            max_backoff: Millis(u64::MAX),
            max_retries: u32::MAX,
            ..policy(true)
        };
        for failures in [0, 1, 33, 64, u32::MAX] {
            assert_eq!(backoff(&endless, failures, None, 7), Some(Millis(7)), "{failures}");
        }
    }

    #[test]
    fn chance_is_the_same_every_time() {
        assert_eq!(chance(1, 2, Attempt(3)), chance(1, 2, Attempt(3)));
        assert_ne!(chance(1, 2, Attempt(3)), chance(1, 2, Attempt(4)));
    }
}
