//! The statements of replicas. Each is one statement and one transaction, and may be repeated by anybody.
//!
//! Three rows decide. The replica's own row has its counter and the mark of its fence, so a beat and a fence wait for each
//! other. The row in `owners` is locked by every commit. The row of a shard in `shards` has its owner, or nobody.

use agentloop_core::cluster::shard::{OwnerNo, ShardNo, Term};
use agentloop_core::time::{Millis, Timestamp};
use sqlx::postgres::PgRow;
use sqlx::{Error, PgConnection, Row as _};

use super::ReplicaOptions;
use crate::cluster::ClusterId;
use crate::store::postgres::migrations;
use crate::store::postgres::rows;
use crate::store::support::number::int;

/// Raises the counter and reads the rows of all. The rows are as they were before, this replica's too. The owners of shards are
/// in the first row.
const BEAT: &str = "
    WITH me AS (
        UPDATE replicas SET beat = beat + 1 WHERE replica_no = $1 AND NOT fenced RETURNING replica_no),
    owned AS MATERIALIZED (
        SELECT array_agg(coalesce(owner_no, 0) ORDER BY shard) AS owners,
               array_agg(shard) FILTER (WHERE owner_no = $1) AS mine,
               array_agg(term) FILTER (WHERE owner_no = $1) AS terms
        FROM shards),
    listed AS (
        SELECT r.*, row_number() OVER (ORDER BY r.replica_no) AS place
        FROM ownership AS o LEFT JOIN replicas AS r ON true)
    SELECT r.replica_no, r.address, r.version, r.configuration, (extract(epoch FROM r.started_at) * 1000)::bigint AS started_at,
           r.lease, r.beat, r.draining, r.fenced, r.ended_at IS NOT NULL AS is_ended,
           CASE WHEN NOT o.of_shards THEN o.owner_no END AS whole_owner, owned.owners, owned.mine, owned.terms,
           EXISTS (SELECT 1 FROM me) AS is_beaten
    FROM listed AS r CROSS JOIN ownership AS o LEFT JOIN owned ON r.place = 1
    ORDER BY r.place";

/// Claims free shards, up to a number of them.
///
/// A replica claims nothing once a replica of a later version has joined, because it cannot read the events of that version.
/// Nobody claims anything while a replica of an earlier version owns the whole database. Owners that are no replicas are
/// servers without `[cluster]`. They are gone, since the replicas hold their lock, and their rows are deleted.
///
/// Claims take turns at the gate. Side by side they could wait for each other: the claim of the first shard also writes
/// `ownership`, and would wait for all others. These may wait for one of its shards, because `SKIP LOCKED` still waits for a
/// row that was changed at that moment.
const CLAIM: &str = "
    WITH me AS MATERIALIZED (
        SELECT replica_no FROM replicas WHERE replica_no = $1 AND NOT fenced FOR NO KEY UPDATE),
    gate AS MATERIALIZED (
        SELECT o.only_one FROM ownership AS o, me
        WHERE (o.owner_no IS NULL OR o.of_shards)
          AND NOT EXISTS (SELECT 1 FROM _sqlx_migrations WHERE version > $3)
        FOR NO KEY UPDATE OF o),
    free AS MATERIALIZED (
        SELECT s.shard FROM shards AS s, gate WHERE s.owner_no IS NULL
        ORDER BY s.shard LIMIT $2 FOR NO KEY UPDATE OF s SKIP LOCKED),
    taken AS (
        UPDATE shards AS s SET owner_no = $1, term = s.term + 1 FROM free
        WHERE s.shard = free.shard AND s.owner_no IS NULL
        RETURNING s.shard, s.term),
    shown AS (
        UPDATE ownership SET owner_no = $1, of_shards = true
        WHERE EXISTS (SELECT 1 FROM taken WHERE shard = 0)),
    gone AS (
        DELETE FROM owners AS o
        WHERE EXISTS (SELECT 1 FROM taken) AND NOT EXISTS (SELECT 1 FROM replicas AS r WHERE r.replica_no = o.owner_no))
    SELECT shard, term FROM taken ORDER BY shard";

const END: &str = "
    WITH free AS (
        UPDATE shards SET owner_no = NULL WHERE owner_no = $1),
    shown AS (
        UPDATE ownership SET owner_no = NULL WHERE owner_no = $1),
    lane AS (
        DELETE FROM owners WHERE owner_no = $1)
    UPDATE replicas SET ended_at = now() WHERE replica_no = $1 AND fenced AND ended_at IS NULL";

/// A commit of this replica that is under way is waited for: the row of its owner is deleted.
const LEAVE: &str = "
    WITH free AS (
        UPDATE shards SET owner_no = NULL WHERE owner_no = $1),
    shown AS (
        UPDATE ownership SET owner_no = NULL WHERE owner_no = $1),
    lane AS (
        DELETE FROM owners WHERE owner_no = $1)
    DELETE FROM replicas WHERE replica_no = $1";

/// With the terms, so that a statement that is late frees nothing that this replica has claimed again.
const RELEASE: &str = "
    WITH free AS (
        UPDATE shards AS s SET owner_no = NULL FROM unnest($2::bigint[], $3::bigint[]) AS v (shard, term)
        WHERE s.owner_no = $1 AND s.shard = v.shard AND s.term = v.term
        RETURNING s.shard)
    UPDATE ownership SET owner_no = NULL WHERE owner_no = $1 AND 0 IN (SELECT shard FROM free)";

/// A shard, and the term of a claim of it.
pub(in crate::store::postgres) type Claimed = (ShardNo, Term);

/// The rows that a beat has read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::store::postgres) struct Beaten {
    /// False if this replica is fenced, or its row is gone.
    pub(in crate::store::postgres) is_beaten: bool,
    /// The owner of each shard; `None` where there is none.
    pub(in crate::store::postgres) owners: Vec<Option<OwnerNo>>,
    /// The shards of this replica.
    pub(in crate::store::postgres) mine: Vec<Claimed>,
    pub(in crate::store::postgres) replicas: Vec<StoredReplica>,
}

/// A row of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::postgres) struct StoredReplica {
    pub(in crate::store::postgres) number: OwnerNo,
    pub(in crate::store::postgres) address: String,
    pub(in crate::store::postgres) version: String,
    pub(in crate::store::postgres) configuration_digest: String,
    /// By the clock of the database.
    pub(in crate::store::postgres) started_at: Timestamp,
    pub(in crate::store::postgres) lease: Millis,
    pub(in crate::store::postgres) beat: u64,
    /// It takes no shards, and gives away those that it has.
    pub(in crate::store::postgres) is_draining: bool,
    pub(in crate::store::postgres) is_fenced: bool,
    /// Its fence is complete: it owns nothing.
    pub(in crate::store::postgres) is_ended: bool,
}

/// Writes the row of a new replica and that of its commits, and returns its number. It counts for nobody's share before it is
/// [ready](set_ready). Rows of those that ended an hour ago go.
pub(in crate::store::postgres) async fn register(
    db: &mut PgConnection,
    me: &ReplicaOptions,
) -> Result<OwnerNo, Error> {
    let sql = "WITH gone AS (DELETE FROM replicas WHERE ended_at < now() - interval '1 hour'),
               me AS (
                   INSERT INTO replicas (address, version, configuration, lease, draining)
                   VALUES ($1, $2, $3, $4, true) RETURNING replica_no),
               lane AS (
                   INSERT INTO owners (owner_no, version) OVERRIDING SYSTEM VALUE SELECT replica_no, $2 FROM me)
               SELECT replica_no FROM me";
    let lease = int(u64::try_from(me.lease.as_millis()).unwrap_or(u64::MAX));
    let query = sqlx::query(sql).bind(&me.address).bind(env!("CARGO_PKG_VERSION"));
    let query = query.bind(&me.configuration_digest).bind(lease);
    query.fetch_one(db).await?.try_get("replica_no").map(owner_no)
}

/// Reads the name of the database.
pub(in crate::store::postgres) async fn cluster(db: &mut PgConnection) -> Result<ClusterId, Error> {
    let found = sqlx::query("SELECT id FROM cluster_identity").fetch_one(db).await?;
    Ok(ClusterId(found.try_get::<String, _>("id")?.into()))
}

/// Notes if a replica takes shards from now on.
pub(in crate::store::postgres) async fn set_ready(
    db: &mut PgConnection,
    number: OwnerNo,
    is_ready: bool,
) -> Result<(), Error> {
    let sql = "UPDATE replicas SET draining = NOT $2 WHERE replica_no = $1 AND NOT fenced";
    sqlx::query(sql).bind(int(number.0)).bind(is_ready).execute(db).await.map(|_| ())
}

/// Raises the replica's counter, unless it is fenced, and reads all rows.
pub(in crate::store::postgres) async fn beat(db: &mut PgConnection, me: OwnerNo) -> Result<Beaten, Error> {
    let found = sqlx::query(BEAT).bind(int(me.0)).fetch_all(db).await?;
    let Some(first) = found.first() else { return Ok(Beaten::default()) };
    let replicas = found.iter().filter_map(|row| replica(row).transpose()).collect::<Result<_, _>>()?;
    let whole_owner: Option<i64> = first.try_get("whole_owner")?;
    let (mine, terms): (Option<Vec<i64>>, Option<Vec<i64>>) =
        (first.try_get("mine")?, first.try_get("terms")?);
    let owners: Vec<i64> = first.try_get("owners")?;
    Ok(Beaten {
        is_beaten: first.try_get("is_beaten")?,
        owners: match whole_owner {
            Some(owner) => vec![Some(owner_no(owner)); owners.len()],
            None => owners.into_iter().map(owner_if_any).collect(),
        },
        mine: mine.unwrap_or_default().into_iter().zip(terms.unwrap_or_default()).map(claimed).collect(),
        replicas,
    })
}

/// The number of an owner, as the protocol has it. The database's are positive.
fn owner_no(number: i64) -> OwnerNo {
    OwnerNo(number.unsigned_abs())
}

/// The owner of a shard. The query has 0 for a shard that has none.
fn owner_if_any(number: i64) -> Option<OwnerNo> {
    (number != 0).then(|| owner_no(number))
}

fn claimed((shard, term): (i64, i64)) -> Claimed {
    (ShardNo(u16::try_from(shard).unwrap_or(u16::MAX)), Term(term.unsigned_abs()))
}

/// `None`: there is no replica.
fn replica(row: &PgRow) -> Result<Option<StoredReplica>, Error> {
    let Some(number) = row.try_get("replica_no")? else { return Ok(None) };
    Ok(Some(StoredReplica {
        number: owner_no(number),
        address: row.try_get("address")?,
        version: row.try_get("version")?,
        configuration_digest: row.try_get("configuration")?,
        started_at: rows::time(row, "started_at")?,
        lease: Millis(rows::number(row, "lease")?),
        beat: rows::number(row, "beat")?,
        is_draining: row.try_get("draining")?,
        is_fenced: row.try_get("fenced")?,
        is_ended: row.try_get("is_ended")?,
    }))
}

/// Marks a replica as fenced, if its counter still stands there. False if it does not, or somebody was faster.
pub(in crate::store::postgres) async fn mark(
    db: &mut PgConnection,
    number: OwnerNo,
    beat: u64,
) -> Result<bool, Error> {
    let sql = "UPDATE replicas SET fenced = true WHERE replica_no = $1 AND beat = $2 AND NOT fenced";
    let done = sqlx::query(sql).bind(int(number.0)).bind(int(beat)).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Keeps every later commit of a replica that is marked from being written. Waits for the commit that is under way, for as long
/// as this connection waits for locks.
pub(in crate::store::postgres) async fn mark_lane(
    db: &mut PgConnection,
    number: OwnerNo,
) -> Result<(), Error> {
    let sql = "UPDATE owners SET fenced = true WHERE owner_no = $1 AND NOT fenced";
    sqlx::query(sql).bind(int(number.0)).execute(db).await.map(|_| ())
}

/// Frees the shards of a replica, after [`mark_lane`].
pub(in crate::store::postgres) async fn end(db: &mut PgConnection, number: OwnerNo) -> Result<(), Error> {
    sqlx::query(END).bind(int(number.0)).execute(db).await.map(|_| ())
}

/// Takes free shards, at most so many, and returns them. There are none if others were faster, if this replica is fenced, if the
/// database [is newer](is_newer), or if a replica of an earlier version owns all of it.
pub(in crate::store::postgres) async fn claim(
    db: &mut PgConnection,
    number: OwnerNo,
    at_most: u16,
) -> Result<Vec<Claimed>, Error> {
    let query = sqlx::query(CLAIM).bind(int(number.0)).bind(i64::from(at_most)).bind(migrations::newest());
    let taken = query.fetch_all(db).await?;
    taken.iter().map(|row| Ok(claimed((row.try_get("shard")?, row.try_get("term")?)))).collect()
}

/// Frees shards of this replica, after its last commit of them.
pub(in crate::store::postgres) async fn release(
    db: &mut PgConnection,
    number: OwnerNo,
    shards: &[Claimed],
) -> Result<(), Error> {
    let (shards, terms): (Vec<i64>, Vec<i64>) =
        shards.iter().map(|(shard, term)| (i64::from(shard.0), int(term.0))).unzip();
    sqlx::query(RELEASE).bind(int(number.0)).bind(shards).bind(terms).execute(db).await.map(|_| ())
}

/// True if a replica of a later version has joined, which has changed the tables since this one did.
pub(in crate::store::postgres) async fn is_newer(db: &mut PgConnection) -> Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT 1 FROM _sqlx_migrations WHERE version > $1) AS is_newer";
    sqlx::query(sql).bind(migrations::newest()).fetch_one(db).await?.try_get("is_newer")
}

/// Frees the shards of this replica, and removes everything of it.
pub(in crate::store::postgres) async fn leave(db: &mut PgConnection, number: OwnerNo) -> Result<(), Error> {
    sqlx::query(LEAVE).bind(int(number.0)).execute(db).await.map(|_| ())
}
