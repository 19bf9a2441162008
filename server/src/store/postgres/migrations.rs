//! Changes of the tables for this version. A server of the version before may be at work meanwhile.

use std::sync::LazyLock;
use std::time::Duration;

use sqlx::migrate::{Migrate as _, MigrateError, Migrator};
use sqlx::{Error, Executor as _, PgConnection, Row as _};
use tokio::time::Instant;

use crate::store::postgres::{owner, rows};
use crate::store::support::migrations::migrator;

static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = migrator!(
        "postgres",
        [
            "0001_init",
            "0002_replicas",
            "0003_tenants_in_turn",
            "0004_owners_of_shards",
            "0005_hosts",
            "0006_deletion_in_slices",
            "0007_cluster_identity",
            "0008_rows_in_place",
        ]
    );
    // It is taken here instead, with a wait of its own.
    migrations.set_locking(false);
    migrations
});

/// Longest wait of a change for its table. All statements of others wait behind it, those of the owner too.
const TABLE_WAIT_MILLIS: u32 = 200;
/// The wait before another try. The others go on meanwhile.
const RETRY_WAIT: Duration = Duration::from_secs(1);
/// Time after which a start gives up, and says why.
const PATIENCE: Duration = Duration::from_mins(1);
/// Longest wait for another server that changes the tables.
const TURN_WAIT_MILLIS: u32 = 60_000;

/// The number of the last change that this server knows.
pub(in crate::store::postgres) fn newest() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default()
}

/// The reason why the tables are not as this version needs them.
#[derive(Debug, thiserror::Error)]
pub(in crate::store::postgres) enum NotMigrated {
    /// Something reads them for too long.
    #[error("something reads the tables")]
    TablesInUse,
    /// A later version has changed them, up to this number.
    #[error("the tables are of a later version ({0})")]
    Newer(i64),
    /// Some of them are not a store's.
    #[error("{0}")]
    NotOurs(String),
    /// The database refused a change, or could not be reached.
    #[error(transparent)]
    Other(MigrateError),
}

impl From<MigrateError> for NotMigrated {
    fn from(error: MigrateError) -> Self {
        if let MigrateError::VersionMissing(found) = error {
            return Self::Newer(found);
        }
        match of_sql(&error).and_then(Error::as_database_error) {
            Some(found) if matches!(found.code().as_deref(), Some("42P07" | "42710" | "42723")) => {
                Self::NotOurs(found.message().to_owned())
            }
            _ => Self::Other(error),
        }
    }
}

impl From<Error> for NotMigrated {
    fn from(error: Error) -> Self {
        Self::Other(error.into())
    }
}

/// Brings the tables to this version, one server at a time.
///
/// # Errors
/// [`NotMigrated`].
pub(in crate::store::postgres) async fn apply(db: &mut PgConnection) -> Result<(), NotMigrated> {
    owner::wait_for_locks(db, TURN_WAIT_MILLIS).await?;
    db.lock().await?;
    owner::wait_for_locks(db, TABLE_WAIT_MILLIS).await?;
    let until = Instant::now() + PATIENCE;
    let mut is_told = false;
    while let Err(error) = MIGRATIONS.run_direct(None, db, false).await {
        if !of_sql(&error).is_some_and(owner::is_waited_for) {
            return Err(error.into());
        }
        if Instant::now() >= until {
            return Err(NotMigrated::TablesInUse);
        }
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!(
                "the tables cannot be changed while something reads them, such as a backup; trying again"
            );
        }
        tokio::time::sleep(RETRY_WAIT).await;
    }
    db.unlock().await?;
    owner::wait_for_locks(db, TURN_WAIT_MILLIS).await?;
    replace_indexes(db).await?;
    db.execute("SET lock_timeout = 0").await?;
    Ok(())
}

/// Does what `0008_rows_in_place` leaves to the server where there are many runs: commits of others go on meanwhile. An index that
/// was not finished is made anew. One server does it, and nobody waits for it: the index is finished after all that wait.
async fn replace_indexes(db: &mut PgConnection) -> Result<(), Error> {
    let sql = "SELECT CASE WHEN to_regclass('runs_by_end') IS NULL AND to_regclass('runs_paused') IS NULL
                                AND to_regclass('sessions_live') IS NULL
                                AND EXISTS (SELECT 1 FROM pg_index
                                            WHERE indexrelid = to_regclass('runs_at_rest') AND indisvalid) THEN true
                           ELSE NOT pg_try_advisory_lock('run_states'::regclass::oid::int, 8) END AS is_made";
    if sqlx::query(sql).fetch_one(&mut *db).await?.try_get("is_made")? {
        return Ok(());
    }
    tracing::info!("making an index of runs; this takes a while where there are many");
    for sql in [
        "DROP INDEX CONCURRENTLY IF EXISTS runs_at_rest",
        "CREATE INDEX CONCURRENTLY runs_at_rest ON run_states (tenant, updated_at) WHERE NOT goes_on",
        "DROP INDEX CONCURRENTLY IF EXISTS runs_by_end",
        "DROP INDEX CONCURRENTLY IF EXISTS runs_paused",
        "DROP INDEX CONCURRENTLY IF EXISTS sessions_live",
    ] {
        match db.execute(sql).await {
            Err(error) if owner::is_waited_for(&error) || is_deadlock(&error) => {
                tracing::warn!(
                    "an index of runs cannot be made while something reads for so long, such as a backup; the next start tries again"
                );
                break;
            }
            made => made?,
        };
    }
    let unlock = "SELECT pg_advisory_unlock('run_states'::regclass::oid::int, 8)";
    db.execute(unlock).await.map(|_| ())
}

/// True if another one waits for what this connection has, which waits for the other one.
fn is_deadlock(error: &Error) -> bool {
    rows::code(error).as_deref() == Some("40P01")
}

fn of_sql(error: &MigrateError) -> Option<&Error> {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Some(error),
        _ => None,
    }
}

#[cfg(test)]
pub(in crate::store::postgres) async fn apply_up_to(db: &mut PgConnection, version: i64) {
    MIGRATIONS.run_direct(Some(version), db, false).await.expect("the tables of an earlier version");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::support::migrations::tests::is_of_folder;

    #[tokio::test]
    async fn all_files_are_compiled_in() {
        is_of_folder(&MIGRATIONS, "postgres").await;
    }
}
