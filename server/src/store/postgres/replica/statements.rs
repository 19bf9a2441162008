//! What replicas say to the database. Each is one statement and one transaction, and may be repeated by anybody.
//!
//! Three rows decide. The replica's own row has its counter and the mark of its fence, so a beat and a fence wait for each
//! other. The row in `owners` is locked by every commit. The row in `ownership` has the owner, or nobody.

use agentloop_core::time::{Millis, Timestamp};
use sqlx::postgres::PgRow;
use sqlx::{Error, PgConnection, Row as _};

use super::ReplicaOptions;
use crate::store::number::int;
use crate::store::postgres::{migrations, rows};

/// Raises the counter and reads the rows of all. The rows are as they were before, this replica's too.
const BEAT: &str = "
    WITH me AS (
        UPDATE replicas SET beat = beat + 1 WHERE replica_no = $1 AND NOT fenced RETURNING replica_no)
    SELECT r.replica_no, r.address, r.version, r.configuration, (extract(epoch FROM r.started_at) * 1000)::bigint AS started_at, r.lease,
           r.beat, r.fenced, r.ended_at IS NOT NULL AS is_ended, o.owner_no, o.term,
           EXISTS (SELECT 1 FROM me) AS is_beaten
    FROM ownership AS o LEFT JOIN replicas AS r ON true
    ORDER BY r.replica_no";

/// A replica of an earlier version takes nothing from the moment at which a newer one has joined: it could not read what an owner of
/// that version may have written. Rows of other owners are of servers without `[cluster]`, whose lock is gone: the replicas hold it.
const CLAIM: &str = "
    WITH me AS MATERIALIZED (
        SELECT replica_no FROM replicas WHERE replica_no = $1 AND NOT fenced FOR NO KEY UPDATE),
    taken AS (
        UPDATE ownership SET owner_no = $1, term = term + 1 FROM me
        WHERE owner_no IS NULL AND NOT EXISTS (SELECT 1 FROM _sqlx_migrations WHERE version > $3)
        RETURNING term),
    gone AS (
        DELETE FROM owners WHERE owner_no <> $1 AND EXISTS (SELECT 1 FROM taken)),
    lane AS (
        INSERT INTO owners (owner_no, version) OVERRIDING SYSTEM VALUE SELECT $1, $2 FROM taken)
    SELECT term FROM taken";

const END: &str = "
    WITH free AS (
        UPDATE ownership SET owner_no = NULL WHERE owner_no = $1),
    lane AS (
        DELETE FROM owners WHERE owner_no = $1)
    UPDATE replicas SET ended_at = now() WHERE replica_no = $1 AND fenced AND ended_at IS NULL";

/// A commit of this replica that is under way is waited for: the row of its owner is deleted.
const LEAVE: &str = "
    WITH free AS (
        UPDATE ownership SET owner_no = NULL WHERE owner_no = $1),
    lane AS (
        DELETE FROM owners WHERE owner_no = $1)
    DELETE FROM replicas WHERE replica_no = $1";

/// The rows that a beat has read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::store::postgres) struct Beaten {
    /// False if this replica is fenced, or its row is gone.
    pub(in crate::store::postgres) is_beaten: bool,
    /// The replica that owns the database.
    pub(in crate::store::postgres) owner: Option<i64>,
    pub(in crate::store::postgres) term: u64,
    pub(in crate::store::postgres) replicas: Vec<StoredReplica>,
}

/// A row of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::postgres) struct StoredReplica {
    pub(in crate::store::postgres) number: i64,
    pub(in crate::store::postgres) address: String,
    pub(in crate::store::postgres) version: String,
    pub(in crate::store::postgres) configuration_digest: String,
    /// By the clock of the database.
    pub(in crate::store::postgres) started_at: Timestamp,
    pub(in crate::store::postgres) lease: Millis,
    pub(in crate::store::postgres) beat: u64,
    pub(in crate::store::postgres) is_fenced: bool,
    /// Its fence is complete: it owns nothing.
    pub(in crate::store::postgres) is_ended: bool,
}

/// Writes the row of a new replica, and returns its number. Rows of those that ended an hour ago go.
pub(in crate::store::postgres) async fn register(
    db: &mut PgConnection,
    me: &ReplicaOptions,
) -> Result<i64, Error> {
    let sql = "WITH gone AS (DELETE FROM replicas WHERE ended_at < now() - interval '1 hour')
               INSERT INTO replicas (address, version, configuration, lease) VALUES ($1, $2, $3, $4)
               RETURNING replica_no";
    let lease = int(u64::try_from(me.lease.as_millis()).unwrap_or(u64::MAX));
    let query = sqlx::query(sql).bind(&me.address).bind(env!("CARGO_PKG_VERSION"));
    let query = query.bind(&me.configuration_digest).bind(lease);
    query.fetch_one(db).await?.try_get("replica_no")
}

/// Raises the replica's counter, unless it is fenced, and reads all rows.
pub(in crate::store::postgres) async fn beat(db: &mut PgConnection, me: i64) -> Result<Beaten, Error> {
    let found = sqlx::query(BEAT).bind(me).fetch_all(db).await?;
    let Some(first) = found.first() else { return Ok(Beaten::default()) };
    let replicas = found.iter().filter_map(|row| replica(row).transpose()).collect::<Result<_, _>>()?;
    Ok(Beaten {
        is_beaten: first.try_get("is_beaten")?,
        owner: first.try_get("owner_no")?,
        term: rows::number(first, "term")?,
        replicas,
    })
}

/// `None`: there is no replica.
fn replica(row: &PgRow) -> Result<Option<StoredReplica>, Error> {
    let Some(number) = row.try_get("replica_no")? else { return Ok(None) };
    Ok(Some(StoredReplica {
        number,
        address: row.try_get("address")?,
        version: row.try_get("version")?,
        configuration_digest: row.try_get("configuration")?,
        started_at: rows::time(row, "started_at")?,
        lease: Millis(rows::number(row, "lease")?),
        beat: rows::number(row, "beat")?,
        is_fenced: row.try_get("fenced")?,
        is_ended: row.try_get("is_ended")?,
    }))
}

/// Marks a replica as fenced, if its counter still stands there. False if it does not, or somebody was faster.
pub(in crate::store::postgres) async fn mark(
    db: &mut PgConnection,
    number: i64,
    beat: u64,
) -> Result<bool, Error> {
    let sql = "UPDATE replicas SET fenced = true WHERE replica_no = $1 AND beat = $2 AND NOT fenced";
    let done = sqlx::query(sql).bind(number).bind(int(beat)).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Keeps every later commit of a replica that is marked from being written. Waits for the commit that is under way, for as long
/// as this connection waits for locks.
pub(in crate::store::postgres) async fn mark_lane(db: &mut PgConnection, number: i64) -> Result<(), Error> {
    let sql = "UPDATE owners SET fenced = true WHERE owner_no = $1 AND NOT fenced";
    sqlx::query(sql).bind(number).execute(db).await.map(|_| ())
}

/// Frees the database, if this replica owns it, after [`mark_lane`].
pub(in crate::store::postgres) async fn end(db: &mut PgConnection, number: i64) -> Result<(), Error> {
    sqlx::query(END).bind(number).execute(db).await.map(|_| ())
}

/// Takes the database if nobody owns it, and returns the term. `None` if somebody does, if this replica is fenced, or if the
/// database [is newer](is_newer).
pub(in crate::store::postgres) async fn claim(
    db: &mut PgConnection,
    number: i64,
) -> Result<Option<u64>, Error> {
    let query = sqlx::query(CLAIM).bind(number).bind(env!("CARGO_PKG_VERSION")).bind(migrations::newest());
    query.fetch_optional(db).await?.map(|row| rows::number(&row, "term")).transpose()
}

/// True if a replica of a later version has joined, which has changed the tables since this one did.
pub(in crate::store::postgres) async fn is_newer(db: &mut PgConnection) -> Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT 1 FROM _sqlx_migrations WHERE version > $1) AS is_newer";
    sqlx::query(sql).bind(migrations::newest()).fetch_one(db).await?.try_get("is_newer")
}

/// Frees the database, if this replica owns it, and removes everything of this replica.
pub(in crate::store::postgres) async fn leave(db: &mut PgConnection, number: i64) -> Result<(), Error> {
    sqlx::query(LEAVE).bind(number).execute(db).await.map(|_| ())
}
