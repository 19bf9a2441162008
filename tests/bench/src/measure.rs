//! Numbers of many: middle, percentile, spread.

use std::time::{SystemTime, UNIX_EPOCH};

/// The middle of some numbers; 0 of none.
pub(crate) fn middle(numbers: impl Iterator<Item = f64>) -> f64 {
    percentile(numbers, 0.5)
}

/// The number that this share of them does not pass; 0 of none.
pub(crate) fn percentile(numbers: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or_default()
}

/// Nanoseconds by the clock that all processes share.
pub(crate) fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_numbers() {
        let numbers = || (1..=100).map(f64::from);
        assert_eq!(
            (middle(numbers()), percentile(numbers(), 0.99), percentile(numbers(), 1.0)),
            (50.0, 99.0, 100.0)
        );
        assert_eq!(middle([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(middle([].into_iter()), 0.0);
    }
}
