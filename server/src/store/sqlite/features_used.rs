//! The features that the database has used, as its tables say.

use sqlx::{Error, Row as _, SqliteConnection};

use crate::store::support::features_used::{Features, FeaturesUsed};

/// Each part looks for one row and stops.
const FEATURES_USED: &str = "
    SELECT EXISTS (SELECT 1 FROM steers) AS steers,
           EXISTS (SELECT 1 FROM remembered_rules) AS rules,
           EXISTS (SELECT 1 FROM runs INDEXED BY runs_queued WHERE queue_no IS NOT NULL) AS queues";

/// Reads the flags from the tables.
pub(in crate::store::sqlite) async fn read(db: &mut SqliteConnection) -> Result<FeaturesUsed, Error> {
    let row = sqlx::query(FEATURES_USED).fetch_one(db).await?;
    let (steers, rules) = (row.try_get("steers")?, row.try_get("rules")?);
    Ok(FeaturesUsed::of(Features { steers, rules, queues: row.try_get("queues")? }))
}
