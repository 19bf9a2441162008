//! The clock of this replica beside that of the database, which all replicas can read. Leases compare no two clocks. But timeouts
//! and the times of events follow the owner's clock. So a replica whose clock is wrong says so when it joins.

use agentloop_core::time::{Millis, Timestamp};
use sqlx::{Error, PgConnection};

use super::link::DatabaseLink;
use crate::clock::{Clock as _, SystemClock};
use crate::store::postgres::rows;

/// A difference that a machine whose clock is kept in step never has.
const SKEW_MAX: Millis = Millis::secs(2);

/// The time of the database, in milliseconds.
pub(in crate::store::postgres) const TIME: &str =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";

/// The difference of this replica's clock from that of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::postgres) enum Skew {
    Ahead(Millis),
    Behind(Millis),
}

impl Skew {
    /// A time of this replica's clock as the database's clock shows it.
    pub(in crate::store::postgres) fn at_database(self, at: Timestamp) -> Timestamp {
        match self {
            Self::Ahead(by) => Timestamp(at.0.saturating_sub(by.0)),
            Self::Behind(by) => at.after(by),
        }
    }
}

/// Reads the time of the database, and warns if that of this replica is another one.
pub(super) async fn warn(link: &mut DatabaseLink) -> Result<(), Error> {
    let sent = SystemClock.now();
    let theirs = link.execute(time_of_database).await?;
    let seconds = |skew: Millis| skew.0 / 1_000;
    let consequence =
        "timeouts and the times of events follow the owner's clock; correct it and start this replica again";
    match skew(sent, SystemClock.now(), theirs) {
        None => {}
        Some(Skew::Ahead(by)) => {
            tracing::warn!(
                seconds = seconds(by),
                "the clock of this replica is ahead of the database's: {consequence}"
            );
        }
        Some(Skew::Behind(by)) => {
            tracing::warn!(
                seconds = seconds(by),
                "the clock of this replica is behind the database's: {consequence}"
            );
        }
    }
    Ok(())
}

async fn time_of_database(db: &mut PgConnection) -> Result<Timestamp, Error> {
    rows::time(&sqlx::query(TIME).fetch_one(db).await?, "now")
}

/// The least difference that explains the time that the database gave between `sent` and `received`; `None` if it is small.
pub(in crate::store::postgres) fn skew(
    sent: Timestamp,
    received: Timestamp,
    theirs: Timestamp,
) -> Option<Skew> {
    let (ahead, behind) = (sent.since(theirs), theirs.since(received));
    if ahead > SKEW_MAX {
        Some(Skew::Ahead(ahead))
    } else {
        (behind > SKEW_MAX).then_some(Skew::Behind(behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_that_no_slow_response_explains_counts() {
        let of = |theirs| skew(Timestamp(100_000), Timestamp(104_000), Timestamp(theirs));
        assert_eq!([98_000, 100_000, 104_000, 106_000].map(of), [None; 4]);
        assert_eq!(of(97_999), Some(Skew::Ahead(Millis(2_001))));
        assert_eq!(of(106_001), Some(Skew::Behind(Millis(2_001))));
        assert_eq!(of(3_706_000), Some(Skew::Behind(Millis(3_602_000))));
        assert_eq!(Skew::Behind(Millis(5)).at_database(Timestamp(100)), Timestamp(105));
        assert_eq!(Skew::Ahead(Millis(5)).at_database(Timestamp(100)), Timestamp(95));
    }
}
