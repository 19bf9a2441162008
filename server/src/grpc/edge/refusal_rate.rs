//! The refusals that the audit log writes. Each tenant has its own bucket of them, and beyond it refusals are only counted: a
//! flood must not fill the disk, nor hide what others are refused. Replicas share the bound: each writes an equal part.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

/// Refusals that are written at once before they are only counted.
const REFUSALS_BURST: u32 = 100;
/// Refusals a second that are written for good.
const REFUSALS_PER_SECOND: u32 = 10;
/// Causes that are counted apart from each other, and the length of their names in bytes. Other replicas name some.
const CAUSES_MAX: usize = 64;
const CAUSE_BYTES_MAX: usize = 64;
/// Buckets that are kept before full ones are dropped.
const BUCKETS_MAX: usize = 1_024;

/// Number of refusals that have no rows of their own, by the name of their cause.
pub(in crate::grpc) type CountedRefusals = BTreeMap<String, u64>;

/// Counts refusals of this cause. There are few causes.
pub(in crate::grpc) fn count(counted: &mut CountedRefusals, cause: &str, more: u64) {
    let is_new = counted.len() < CAUSES_MAX && cause.len() <= CAUSE_BYTES_MAX;
    let is_known = is_new || counted.contains_key(cause);
    let count = counted.entry(if is_known { cause } else { "other" }.to_owned()).or_default();
    *count = count.saturating_add(more);
}

/// The buckets by their names, and the refusals that found theirs empty.
#[derive(Default)]
pub(super) struct RefusalBuckets {
    buckets: HashMap<String, Bucket>,
    pub(super) counted: CountedRefusals,
}

impl RefusalBuckets {
    /// True if a refusal may be written now. Otherwise it is counted. `replicas` write rows of this bucket, each its part: one row
    /// here takes as much as each of them may write meanwhile.
    pub(super) fn take(&mut self, bucket: &str, cause: &str, replicas: u32) -> bool {
        let now = Instant::now();
        if self.buckets.len() >= BUCKETS_MAX && !self.buckets.contains_key(bucket) {
            self.buckets.retain(|_, bucket| bucket.filled(now).left < REFUSALS_BURST);
        }
        let known = self.buckets.get(bucket).copied().unwrap_or(Bucket { left: REFUSALS_BURST, at: now });
        let mut filled = known.filled(now);
        let taken = replicas.clamp(1, REFUSALS_BURST);
        let may_write = filled.left >= taken;
        if may_write {
            filled.left -= taken;
        }
        self.buckets.insert(bucket.to_owned(), filled);
        if !may_write {
            count(&mut self.counted, cause, 1);
        }
        may_write
    }
}

/// Refusals that may be written.
#[derive(Clone, Copy)]
struct Bucket {
    left: u32,
    at: Instant,
}

impl Bucket {
    /// The bucket as it is now.
    fn filled(self, now: Instant) -> Self {
        let seconds = u32::try_from(now.duration_since(self.at).as_secs()).unwrap_or(u32::MAX);
        if seconds == 0 {
            return self;
        }
        let left = self.left.saturating_add(seconds.saturating_mul(REFUSALS_PER_SECOND));
        Self { left: left.min(REFUSALS_BURST), at: now }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_in_one_bucket_leaves_the_others_alone() {
        let mut buckets = RefusalBuckets::default();
        let written = (0..10_000).filter(|_| buckets.take("noisy", "denied", 1)).count();
        assert_eq!(written, REFUSALS_BURST as usize);
        assert!(buckets.take("quiet", "denied", 1) && !buckets.take("noisy", "denied", 1));
        assert_eq!(buckets.counted["denied"], 10_001 - u64::from(REFUSALS_BURST));
        tokio::time::advance(Duration::from_secs(1)).await;
        let written = (0..100).filter(|_| buckets.take("noisy", "denied", 1)).count();
        assert_eq!(written, REFUSALS_PER_SECOND as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_write_as_much_together_as_one_alone() {
        let (one, several) = ((REFUSALS_BURST, REFUSALS_PER_SECOND), [2, 3, 4, 30]);
        for replicas in several {
            let mut all: Vec<RefusalBuckets> = (0..replicas).map(|_| RefusalBuckets::default()).collect();
            let mut flood = || {
                let rows = all
                    .iter_mut()
                    .map(|buckets| (0..1_000).filter(|_| buckets.take("noisy", "denied", replicas)).count());
                u32::try_from(rows.sum::<usize>()).unwrap()
            };
            let burst = flood();
            tokio::time::advance(Duration::from_secs(10)).await;
            let later = flood();
            assert!(burst <= one.0 && burst + replicas > one.0, "{replicas}: {burst}");
            assert!(later <= 10 * one.1 + replicas && later + replicas > 10 * one.1, "{replicas}: {later}");
        }
        let mut buckets = RefusalBuckets::default();
        assert!(buckets.take("noisy", "denied", u32::MAX), "very many replicas write, too");
    }

    #[test]
    fn names_of_causes_are_few_and_short() {
        let mut counted = CountedRefusals::new();
        count(&mut counted, &"x".repeat(65), 2);
        for cause in 0..1_000 {
            count(&mut counted, &cause.to_string(), 1);
        }
        count(&mut counted, "7", 5);
        assert!(counted.len() <= CAUSES_MAX + 1, "{}", counted.len());
        assert_eq!((counted["7"], counted.values().sum::<u64>()), (6, 1_007));
    }
}
