//! Settings of the sessions that write. They are statements: some poolers leave out the options with which a connection starts.

use sqlx::{Error, Executor as _, PgConnection};

/// In READ COMMITTED a statement that waited for a row looks at it again. Plans go from the few rows that a statement is given to
/// tables of any size: by index, whatever the statistics of a table that has just been filled say.
///
/// Bounds that a role or a database sets for people are not for a server, which has its own. The error of a statement that was
/// ended tells nothing of what it did.
const WRITING: &str = "
    SET synchronous_commit = on;
    SET default_transaction_isolation = 'read committed';
    SET statement_timeout = 0;
    SET lock_timeout = 0;
    SET idle_session_timeout = 0;
    SET idle_in_transaction_session_timeout = '30s';
    SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET jit = off";
/// A beat that a crash of the database takes back would be seen to stand still for too long. As to bounds, see [`WRITING`].
const BEATING: &str = "
    SET synchronous_commit = on;
    SET default_transaction_isolation = 'read committed';
    SET statement_timeout = 0;
    SET lock_timeout = 0;
    SET idle_session_timeout = 0;
    SET jit = off";

/// PostgreSQL 17 has one more bound, which earlier versions do not know.
const UNBOUNDED: &str =
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'";

/// Longest wait of a replica's commit for what another one has locked: all of its other writes wait meanwhile. Then they are
/// tried one at a time. A commit holds its locks for less, unless its replica stands still.
const BOUNDED_WAITS: &str = "SET lock_timeout = '500ms'";

/// The same for this transaction, after [`SHORT_WAITS`].
pub(in crate::store::postgres) const USUAL_WAITS: &str = "SET LOCAL lock_timeout = '500ms'";
/// No bound, of a server alone: nobody else locks its rows for long.
pub(in crate::store::postgres) const UNBOUNDED_WAITS: &str = "SET LOCAL lock_timeout = 0";
/// The same as the usual ones for a write that is tried alone, or a lock that may be taken for long. It is put off then.
pub(in crate::store::postgres) const SHORT_WAITS: &str = "SET LOCAL lock_timeout = '10ms'";

/// A transaction of a replica holds locks that others wait for: the end of the audit log, the sessions of a user. One that stands
/// still in the middle of it, or whose connection has fallen silent, is broken off. It tries again.
const BESIDE_OTHERS: &str = "SET idle_in_transaction_session_timeout = '3s'";

/// As [`WRITING`], for a transaction of a connection that reads otherwise.
const DELETING: &str = "
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET LOCAL idle_in_transaction_session_timeout = '3s';
    SET LOCAL lock_timeout = '1s';
    SET LOCAL enable_seqscan = off;
    SET LOCAL enable_hashjoin = off;
    SET LOCAL enable_mergejoin = off";

/// Makes this the session that commits.
pub(in crate::store::postgres) async fn to_write(db: &mut PgConnection) -> Result<(), Error> {
    db.execute(WRITING).await?;
    db.execute(UNBOUNDED).await.map(|_| ())
}

/// The same for a replica.
pub(in crate::store::postgres) async fn to_write_beside_others(db: &mut PgConnection) -> Result<(), Error> {
    to_write(db).await?;
    db.execute(BESIDE_OTHERS).await.map(|_| ())
}

/// Bounds the waits of a replica's commits for locks, once its store is open.
pub(in crate::store::postgres) async fn bound_waits(db: &mut PgConnection) -> Result<(), Error> {
    db.execute(BOUNDED_WAITS).await.map(|_| ())
}

/// Makes this transaction one that deletes a few rows of large tables, each found by index.
pub(in crate::store::postgres) async fn delete_beside_others(
    transaction: &mut PgConnection,
) -> Result<(), Error> {
    transaction.execute(DELETING).await.map(|_| ())
}

/// The isolation, and the bound on a transaction that stands still, as [`to_write_beside_others`] has them, for this transaction
/// alone. It is its first statement.
pub(in crate::store::postgres) async fn write_beside_others(
    transaction: &mut PgConnection,
) -> Result<(), Error> {
    const WRITING_ONCE: &str = "
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        SET LOCAL idle_in_transaction_session_timeout = '3s'";
    transaction.execute(WRITING_ONCE).await.map(|_| ())
}

/// Makes this the session of a replica's beats.
pub(in crate::store::postgres) async fn to_beat(db: &mut PgConnection) -> Result<(), Error> {
    db.execute(BEATING).await?;
    db.execute(UNBOUNDED).await.map(|_| ())
}
