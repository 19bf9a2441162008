//! Numbers as SQL stores them.

/// A number as SQL stores it. Numbers beyond its range, such as `Timestamp::MAX`, become the largest it has.
pub(in crate::store) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
