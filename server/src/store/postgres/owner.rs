//! The ownership of a database: one server at a time writes to it.
//!
//! Two things see to that. A lock of the writing connection (an advisory lock of PostgreSQL) keeps a second server from
//! starting. The owner's row keeps an older server from writing: every commit changes that row first, and finds none if
//! another server has started since. So it does no harm that the lock goes with its connection.

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Error, Executor as _, PgConnection, Row as _};

use super::rows;

/// Longest wait for the lock of an owner. It is held for a moment after its connection was cut.
const LOCK_WAIT_MILLIS: u32 = 3_000;
/// PostgreSQL's code for a lock that could not be had in time.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// The lock. Each schema has one.
macro_rules! lock_key {
    () => {
        "hashtext('agentloop'), hashtext(current_schema())"
    };
}

const LOCK: &str = concat!("SELECT pg_advisory_lock(", lock_key!(), ")");

/// The holder of the lock: its process, address and start.
const HOLDER: &str = "
    SELECT a.pid, coalesce(host(a.client_addr), 'a local socket') AS address, a.application_name AS name,
           to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') AS since
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

/// The reason why a writing connection is not to be had.
#[derive(Debug, thiserror::Error)]
pub(in crate::store::postgres) enum ConnectError {
    /// Another server holds the lock.
    #[error("another server uses the database ({0})")]
    InUse(String),
    /// Another server has taken the database over.
    #[error("another server has taken the database over")]
    Fenced,
    /// SQL's own.
    #[error(transparent)]
    Sql(#[from] Error),
}

/// Takes the lock for as long as the connection lives.
///
/// # Errors
/// [`ConnectError::InUse`] if another connection keeps it.
pub(in crate::store::postgres) async fn lock(db: &mut PgConnection) -> Result<(), ConnectError> {
    wait_for_locks(db).await?;
    match db.execute(LOCK).await {
        Ok(_) => {}
        Err(error) if rows::code(&error).as_deref() == Some(LOCK_NOT_AVAILABLE) => {
            return Err(ConnectError::InUse(holder(db).await?));
        }
        Err(error) => return Err(error.into()),
    }
    db.execute("SET lock_timeout = DEFAULT").await?;
    Ok(())
}

async fn wait_for_locks(db: &mut PgConnection) -> Result<(), Error> {
    let sql = "SELECT set_config('lock_timeout', $1, false)";
    sqlx::query(sql).bind(LOCK_WAIT_MILLIS.to_string()).execute(db).await.map(|_| ())
}

async fn holder(db: &mut PgConnection) -> Result<String, Error> {
    let Some(row) = sqlx::query(HOLDER).fetch_optional(db).await? else {
        return Ok("it has just stopped".to_owned());
    };
    let text = |column: &str| row.try_get::<String, _>(column);
    let pid: i32 = row.try_get("pid")?;
    Ok(format!("{}, from {} since {} UTC, backend {pid}", text("name")?, text("address")?, text("since")?))
}

/// Becomes the only owner: the rows of earlier ones go. A commit of theirs that is under way is waited for.
pub(in crate::store::postgres) async fn take_over(db: &mut PgConnection) -> Result<Owner, Error> {
    db.execute("DELETE FROM owners").await?;
    let sql = "INSERT INTO owners (conn, version) VALUES (1, $1) RETURNING owner_no";
    let row = sqlx::query(sql).bind(env!("CARGO_PKG_VERSION")).fetch_one(db).await?;
    Ok(Owner { no: row.try_get("owner_no")?, conn: 1 })
}

/// A connection in the place of one that was lost, and the number of the last commit that happened. From then on the lost
/// connection cannot commit any more.
///
/// # Errors
/// [`ConnectError`].
pub(in crate::store::postgres) async fn reconnect(
    options: &PgConnectOptions,
    owner: Owner,
) -> Result<(PgConnection, i64), ConnectError> {
    let mut db = options.connect().await?;
    wait_for_locks(&mut db).await?;
    // A higher number, and not the next one: an answer that was lost must not look like another owner.
    let sql = "UPDATE owners SET conn = $2 WHERE owner_no = $1 AND conn < $2 RETURNING batch";
    let changed = sqlx::query(sql).bind(owner.no).bind(owner.conn).fetch_optional(&mut db).await?;
    let Some(row) = changed else { return Err(ConnectError::Fenced) };
    let batch = row.try_get("batch")?;
    match lock(&mut db).await {
        Ok(()) => Ok((db, batch)),
        Err(error) => Err(error),
    }
}

/// Changes the owner's row, as the first statement of a transaction. `false`: this server does not own the database any more.
pub(in crate::store::postgres) async fn fence(
    db: &mut PgConnection,
    owner: Owner,
    batch: i64,
) -> Result<bool, Error> {
    let sql = "UPDATE owners SET batch = $3 WHERE owner_no = $1 AND conn = $2";
    let done = sqlx::query(sql).bind(owner.no).bind(owner.conn).bind(batch).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Writes down that this server is gone.
pub(in crate::store::postgres) async fn leave(db: &mut PgConnection, owner: Owner) -> Result<(), Error> {
    let sql = "DELETE FROM owners WHERE owner_no = $1 AND conn = $2";
    sqlx::query(sql).bind(owner.no).bind(owner.conn).execute(db).await.map(|_| ())
}
