//! The ownership of a database: one server at a time writes to it.
//!
//! Two things see to that. A lock of the writing connection (an advisory lock of PostgreSQL) keeps a second server from
//! starting. The owner's row keeps an older server from writing: every commit changes that row first, and finds none if
//! another server has started since. So it does no harm that the lock goes with its connection.
//!
//! Replicas share that lock among them, on connections that do not write, so that it keeps out a server without `[cluster]`.
//! `replica/` decides which of them has a row of an owner.

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Error, Executor as _, PgConnection, Row as _};

use super::connect::settings;
use super::rows;

/// Longest wait for the lock of an owner. It stays taken for a moment after its connection was cut.
const LOCK_WAIT_MILLIS: u32 = 3_000;
/// Longest wait for an earlier connection of the same owner. After it, that connection is ended.
const LANE_WAIT_MILLIS: u32 = 1_000;
/// PostgreSQL's code for a lock that could not be had in time.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// The lock. Each schema has one.
macro_rules! lock_key {
    () => {
        "hashtext('agentloop'), hashtext(current_schema())"
    };
}

const LOCK: &str = concat!("SELECT pg_advisory_lock(", lock_key!(), ")");
const SHARE_LOCK: &str = concat!("SELECT pg_advisory_lock_shared(", lock_key!(), ")");
const TRY_SHARE_LOCK: &str = concat!("SELECT pg_try_advisory_lock_shared(", lock_key!(), ") AS is_taken");

/// The holder of the lock: its process, address and start.
const HOLDER: &str = "
    SELECT a.pid, coalesce(host(a.client_addr), 'a local socket') AS address, a.application_name AS name,
           to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') AS since, l.mode = 'ShareLock' AS is_shared
    FROM pg_locks AS l
    JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.classid = (hashtext('agentloop')::bigint & 4294967295)::oid
      AND l.objid = (hashtext(current_schema())::bigint & 4294967295)::oid
    LIMIT 1";

/// Owner and connection, as a commit names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::postgres) struct Owner {
    pub(in crate::store::postgres) no: i64,
    pub(in crate::store::postgres) conn: i64,
}

/// The two kinds of server that write to a database. Each keeps others from writing by its own means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::postgres) enum ServerKind {
    /// The only one that writes. It has the lock of its writing connection.
    Alone,
    /// One of several replicas. It has a lease.
    Replica,
}

/// The reason why a writing connection is not to be had.
#[derive(Debug, thiserror::Error)]
pub(in crate::store::postgres) enum ConnectError {
    /// Another server holds the lock.
    #[error("another server uses the database ({0})")]
    InUse(String),
    /// Replicas hold the lock.
    #[error("replicas use the database ({0})")]
    InUseByReplicas(String),
    /// Another server has taken the place of this one, or the database has lost a claim of it.
    #[error("this server has lost its place at the database")]
    Fenced,
    /// A failure of the statement itself.
    #[error(transparent)]
    Sql(#[from] Error),
}

/// Takes the lock for as long as the connection lives.
///
/// # Errors
/// [`ConnectError::InUse`] or [`ConnectError::InUseByReplicas`] if other connections keep it.
pub(in crate::store::postgres) async fn lock(db: &mut PgConnection) -> Result<(), ConnectError> {
    take_lock(db, LOCK).await
}

/// Takes the lock together with other replicas, for as long as the connection lives.
///
/// # Errors
/// [`ConnectError::InUse`] if a server without `[cluster]` keeps it.
pub(in crate::store::postgres) async fn share_lock(db: &mut PgConnection) -> Result<(), ConnectError> {
    take_lock(db, SHARE_LOCK).await
}

/// Like [`share_lock`], without a wait. False if the lock is not to be had now.
pub(in crate::store::postgres) async fn try_share_lock(db: &mut PgConnection) -> Result<bool, Error> {
    sqlx::query(TRY_SHARE_LOCK).fetch_one(db).await?.try_get("is_taken")
}

async fn take_lock(db: &mut PgConnection, sql: &'static str) -> Result<(), ConnectError> {
    wait_for_locks(db, LOCK_WAIT_MILLIS).await?;
    match db.execute(sql).await {
        Ok(_) => {}
        Err(error) if is_waited_for(&error) => return Err(holder(db).await?),
        Err(error) => return Err(error.into()),
    }
    db.execute("SET lock_timeout = 0").await?;
    Ok(())
}

/// True if a lock was not to be had within the time that [`wait_for_locks`] gives.
pub(in crate::store::postgres) fn is_waited_for(error: &Error) -> bool {
    rows::code(error).as_deref() == Some(LOCK_NOT_AVAILABLE)
}

/// Bounds the wait of every later statement of this connection for a lock.
pub(in crate::store::postgres) async fn wait_for_locks(
    db: &mut PgConnection,
    millis: u32,
) -> Result<(), Error> {
    let sql = "SELECT set_config('lock_timeout', $1, false)";
    sqlx::query(sql).bind(millis.to_string()).execute(db).await.map(|_| ())
}

async fn holder(db: &mut PgConnection) -> Result<ConnectError, Error> {
    let Some(row) = sqlx::query(HOLDER).fetch_optional(db).await? else {
        return Ok(ConnectError::InUse("it has just stopped".to_owned()));
    };
    let text = |column: &str| row.try_get::<String, _>(column);
    let pid: i32 = row.try_get("pid")?;
    let holder =
        format!("{}, from {} since {} UTC, backend {pid}", text("name")?, text("address")?, text("since")?);
    let is_shared: bool = row.try_get("is_shared")?;
    Ok(if is_shared { ConnectError::InUseByReplicas(holder) } else { ConnectError::InUse(holder) })
}

/// Replicas first: none whose connection was cut can claim from then on, and what one has claimed before goes with the
/// owners.
const DISMISS: &str = "DELETE FROM replicas; UPDATE ownership SET owner_no = NULL WHERE owner_no IS NOT NULL;
    UPDATE shards SET owner_no = NULL WHERE owner_no IS NOT NULL; DELETE FROM owners";

/// Becomes the only owner: the rows of earlier ones go. A commit of theirs that is under way is waited for.
pub(in crate::store::postgres) async fn take_over(db: &mut PgConnection) -> Result<Owner, Error> {
    db.execute(DISMISS).await?;
    let sql = "INSERT INTO owners (conn, version, pid) VALUES (1, $1, pg_backend_pid()) RETURNING owner_no";
    let row = sqlx::query(sql).bind(env!("CARGO_PKG_VERSION")).fetch_one(db).await?;
    Ok(Owner { no: row.try_get("owner_no")?, conn: 1 })
}

/// Notes the process of the connection that is about to open the database for a replica, so that others can end it if this
/// replica stands still in the middle.
pub(in crate::store::postgres) async fn name_connection(
    db: &mut PgConnection,
    number: i64,
) -> Result<(), Error> {
    let sql = "UPDATE owners SET pid = pg_backend_pid() WHERE owner_no = $1 AND NOT fenced";
    sqlx::query(sql).bind(number).execute(db).await.map(|_| ())
}

/// Makes this connection the one that writes for a replica. The caller has a transaction open.
///
/// # Errors
/// [`ConnectError::Fenced`] if the replica is fenced, or has left.
pub(in crate::store::postgres) async fn enter(
    db: &mut PgConnection,
    number: i64,
) -> Result<Owner, ConnectError> {
    let sql = "UPDATE owners SET conn = conn + 1, pid = pg_backend_pid() WHERE owner_no = $1 AND NOT fenced
               RETURNING conn";
    let row = sqlx::query(sql).bind(number).fetch_optional(db).await?.ok_or(ConnectError::Fenced)?;
    Ok(Owner { no: number, conn: row.try_get("conn")? })
}

/// A connection in the place of one that was lost, and the number of the last commit that happened. From then on the lost
/// connection cannot commit any more.
///
/// # Errors
/// [`ConnectError`].
pub(in crate::store::postgres) async fn reconnect(
    options: &PgConnectOptions,
    owner: Owner,
    server: ServerKind,
) -> Result<(PgConnection, i64), ConnectError> {
    let mut db = options.connect().await?;
    let wait = match server {
        ServerKind::Alone => {
            settings::to_write(&mut db).await?;
            LOCK_WAIT_MILLIS
        }
        ServerKind::Replica => {
            settings::to_write_beside_others(&mut db).await?;
            LANE_WAIT_MILLIS
        }
    };
    wait_for_locks(&mut db, wait).await?;
    // A higher number, and not the next one: a response that was lost must not look like another owner.
    let sql = "UPDATE owners SET conn = $2, pid = pg_backend_pid()
               WHERE owner_no = $1 AND conn < $2 AND NOT fenced RETURNING batch";
    let changed = match sqlx::query(sql).bind(owner.no).bind(owner.conn).fetch_optional(&mut db).await {
        Err(error) if server == ServerKind::Replica && is_waited_for(&error) => {
            end_connection(&mut db, owner.no).await?;
            return Err(error.into());
        }
        changed => changed?,
    };
    let Some(row) = changed else { return Err(ConnectError::Fenced) };
    let batch = row.try_get("batch")?;
    match server {
        ServerKind::Alone => lock(&mut db).await?,
        ServerKind::Replica => {
            settings::bound_waits(&mut db).await?;
        }
    }
    Ok((db, batch))
}

/// Ends the connection that commits for an owner, if it is inside of a transaction that has changed a row of an owner. Returns
/// true if there is one. The transaction is rolled back, or was committed. One that waits for the synchronous standby goes on:
/// if it were ended, readers would see a commit that a fail-over takes back.
pub(in crate::store::postgres) async fn end_connection(
    db: &mut PgConnection,
    owner_no: i64,
) -> Result<bool, Error> {
    // The number of a process may be used again, so its lock is checked as well.
    let sql = "SELECT coalesce(bool_or(pg_terminate_backend(o.pid)), false) AS is_ended FROM owners AS o
               WHERE o.owner_no = $1 AND NOT EXISTS (
                   SELECT 1 FROM pg_stat_activity AS a WHERE a.pid = o.pid AND a.wait_event = 'SyncRep')
               AND EXISTS (
                   SELECT 1 FROM pg_locks AS l
                   WHERE l.pid = o.pid AND l.locktype = 'relation' AND l.granted AND l.mode = 'RowExclusiveLock'
                     AND l.relation = 'owners'::regclass)";
    sqlx::query(sql).bind(owner_no).fetch_one(db).await?.try_get("is_ended")
}

/// Changes the owner's row, as the first statement of a transaction. `false`: this server does not own the database any more.
pub(in crate::store::postgres) async fn fence(
    db: &mut PgConnection,
    owner: Owner,
    batch: i64,
) -> Result<bool, Error> {
    let sql = "UPDATE owners SET batch = $3 WHERE owner_no = $1 AND conn = $2 AND NOT fenced";
    let done = sqlx::query(sql).bind(owner.no).bind(owner.conn).bind(batch).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Writes down that this server is gone.
pub(in crate::store::postgres) async fn leave(db: &mut PgConnection, owner: Owner) -> Result<(), Error> {
    let sql = "DELETE FROM owners WHERE owner_no = $1 AND conn = $2";
    sqlx::query(sql).bind(owner.no).bind(owner.conn).execute(db).await.map(|_| ())
}
