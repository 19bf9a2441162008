//! Plans of prepared statements, which are made anew while a database grows.

use std::time::Duration;

use sqlx::{Executor as _, PgConnection};
use tokio::time::timeout;

/// Uses of a connection after which the plans of its statements are made anew: at the first number and at each double of it, up
/// to the second. PostgreSQL keeps a plan until it has statistics, which takes it a minute, and a plan for empty tables may
/// read all rows of a tenant to find one of them.
const RENEWED_AT: (u64, u64) = (256, 65_536);

/// True if plans are made anew after so many uses.
pub(in crate::store::postgres) fn are_renewed(uses: u64) -> bool {
    let (first, last) = RENEWED_AT;
    (first..=last).contains(&uses) && uses.is_power_of_two()
}

/// Has the statements of this connection planned again. False if it is lost, or has not responded in time.
pub(in crate::store::postgres) async fn renew(db: &mut PgConnection, within: Duration) -> bool {
    matches!(timeout(within, db.execute("DISCARD PLANS")).await, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_renewed_while_a_database_grows() {
        let renewed: Vec<u64> = (0..200_000).filter(|uses| are_renewed(*uses)).collect();
        assert_eq!(renewed, [256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536]);
    }
}
