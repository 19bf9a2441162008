//! Poolers between a server and its database. The lock of an owner, its wait for locks and its prepared statements are of a
//! session of the database, so each connection must have one for itself.

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Error, Executor as _, PgConnection, Row as _};

/// True if a pooler gives the session of this connection to other connections, between two transactions.
pub(in crate::store::postgres) async fn shares_sessions(
    db: &mut PgConnection,
    options: &PgConnectOptions,
) -> Result<bool, Error> {
    let own = session(db).await?;
    let mut other = options.connect().await?;
    // A pooler either gives this transaction the session from above, or has to find another one for `db`.
    other.execute("BEGIN").await?;
    let is_shared = session(&mut other).await? == own || session(db).await? != own;
    other.close().await?;
    Ok(is_shared)
}

/// The process of the database that responds now. The query is not prepared: another session would not know it.
async fn session(db: &mut PgConnection) -> Result<i32, Error> {
    sqlx::raw_sql("SELECT pg_backend_pid() AS pid").fetch_one(db).await?.try_get("pid")
}
