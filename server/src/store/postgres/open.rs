//! Opening a database: its settings are checked, it is locked, its schema is migrated.

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::id::Epoch;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Error, Executor as _, PgConnection, Row as _};

use super::connect::readers::Readers;
use super::connect::{pooler, settings};
use super::migrations;
use super::open_error::{OpenError, cannot_connect, failure, lock_error, migration_error};
use crate::clock::{Clock as _, SystemClock};
use crate::lifecycle::Tasks;
use crate::store::postgres::owner::{self, ConnectError, Owner, ServerKind};
use crate::store::postgres::write::{blobs, ops};
use crate::store::postgres::{PostgresOptions, index};
use crate::store::support::append::LastNumbers;
use crate::store::support::features_used::FeaturesUsed;
use crate::store::support::number::int;

/// The oldest version of PostgreSQL that is supported, as `server_version_num` has it.
const VERSION_MIN: i32 = 150_000;

/// An opened database, and everything that the store is started with.
pub(in crate::store::postgres) struct OpenedStore {
    pub(in crate::store::postgres) writing: PgConnectOptions,
    pub(in crate::store::postgres) db: PgConnection,
    pub(in crate::store::postgres) readers: Readers,
    pub(in crate::store::postgres) owner: Owner,
    pub(in crate::store::postgres) server: ServerKind,
    pub(in crate::store::postgres) started: StoreStart,
    /// The tasks of the store.
    pub(in crate::store::postgres) tasks: Tasks,
}

/// The facts that the database tells a server that starts.
pub(in crate::store::postgres) struct StoreStart {
    pub(in crate::store::postgres) epoch: Epoch,
    pub(in crate::store::postgres) numbers: LastNumbers,
    pub(in crate::store::postgres) used: FeaturesUsed,
}

/// Opens the database and becomes its only owner.
pub(in crate::store::postgres) async fn open(
    options: &PostgresOptions,
    is_copied: bool,
) -> Result<OpenedStore, OpenError> {
    let Connected { base, at, mut db } = connect_directly(options).await?;
    let failed = |error: Error| failure(&at, &error);
    settings::to_write(&mut db).await.map_err(failed)?;
    check_server(&mut db, &at, options.accept_loss).await?;
    owner::lock(&mut db).await.map_err(|error| lock_error(&at, error))?;
    migrations::apply(&mut db).await.map_err(|error| migration_error(&at, error))?;
    if !is_copied {
        check_copied(&mut db, &at).await?;
    }
    let owner = owner::take_over(&mut db).await.map_err(failed)?;
    let started = begin(&mut db, options, owner, ServerKind::Alone).await.map_err(failed)?;
    let tasks = Tasks::new();
    let readers = Readers::open(base.clone(), options, tasks.clone()).await.map_err(failed)?;
    Ok(OpenedStore { writing: base, db, readers, owner, server: ServerKind::Alone, started, tasks })
}

/// Connects, and checks what an opening checks before it changes anything. Returns host, port and database.
pub(in crate::store::postgres) async fn check(options: &PostgresOptions) -> Result<String, OpenError> {
    let Connected { at, mut db, .. } = connect_directly(options).await?;
    check_server(&mut db, &at, options.accept_loss).await?;
    // The outcome is known; a connection that is not closed in good order ends with this process.
    let _ = db.close().await;
    Ok(at)
}

/// Opens the database for a replica. All changes of a start are one transaction behind the fence: a replica that was fenced
/// meanwhile changes nothing.
pub(in crate::store::postgres) async fn open_replica(
    options: &PostgresOptions,
    number: OwnerNo,
) -> Result<OpenedStore, OpenError> {
    let Connected { base, at, mut db } = connect(options).await?;
    let failed = |error: Error| failure(&at, &error);
    settings::to_write_beside_others(&mut db).await.map_err(failed)?;
    check_server(&mut db, &at, options.accept_loss).await?;
    warn_of_asynchronous_standbys(&mut db).await.map_err(failed)?;
    owner::name_connection(&mut db, int(number.0)).await.map_err(failed)?;
    db.execute("BEGIN").await.map_err(failed)?;
    let owner = owner::enter(&mut db, int(number.0)).await.map_err(|error| lock_error(&at, error))?;
    let started = begin(&mut db, options, owner, ServerKind::Replica).await.map_err(failed)?;
    db.execute("COMMIT").await.map_err(failed)?;
    settings::bound_waits(&mut db).await.map_err(failed)?;
    let tasks = Tasks::new();
    let readers = Readers::open(base.clone(), options, tasks.clone()).await.map_err(failed)?;
    Ok(OpenedStore { writing: base, db, readers, owner, server: ServerKind::Replica, started, tasks })
}

/// The source of a copy that has made its tables, and nothing else yet. No database has this number.
pub(in crate::store) const SOURCE_UNKNOWN: i64 = 0;

/// A connection to a database that a copy is made into: locked, and with the tables of a store.
pub(in crate::store) async fn for_copy(options: &PostgresOptions) -> Result<PgConnection, OpenError> {
    let Connected { at, mut db, .. } = connect_directly(options).await?;
    check_server(&mut db, &at, options.accept_loss).await?;
    owner::lock(&mut db).await.map_err(|error| lock_error(&at, error))?;
    let failed = |error: Error| failure(&at, &error);
    let sql = "SELECT to_regclass('copied') IS NULL AND to_regclass('sessions') IS NULL AS is_empty";
    let found = sqlx::query(sql).fetch_one(&mut db).await.map_err(failed)?;
    if found.try_get("is_empty").map_err(failed)? {
        // A copy that is cut here leaves nothing: a server would take tables without a note for a database of its own.
        let mut whole = db.begin().await.map_err(failed)?;
        migrations::apply(&mut whole).await.map_err(|error| migration_error(&at, error))?;
        let note = "INSERT INTO copied (source, last) VALUES ($1, -1)";
        sqlx::query(note).bind(SOURCE_UNKNOWN).execute(&mut *whole).await.map_err(failed)?;
        whole.commit().await.map_err(failed)?;
    } else {
        migrations::apply(&mut db).await.map_err(|error| migration_error(&at, error))?;
    }
    Ok(db)
}

/// A connection of a replica to its database, as [`for_replica`] makes it.
pub(in crate::store::postgres) struct ReplicaConnection {
    pub(in crate::store::postgres) db: PgConnection,
    /// Options of a connection in its place.
    pub(in crate::store::postgres) options: PgConnectOptions,
    /// Host, port and database, for messages.
    pub(in crate::store::postgres) at: String,
}

/// A connection for the beats of a replica. It shares the lock with those of other replicas. The tables are there afterwards.
pub(in crate::store::postgres) async fn for_replica(
    options: &PostgresOptions,
) -> Result<ReplicaConnection, OpenError> {
    let Connected { base, at, mut db } = connect_directly(options).await?;
    settings::to_beat(&mut db).await.map_err(|error| failure(&at, &error))?;
    check_server(&mut db, &at, options.accept_loss).await?;
    owner::share_lock(&mut db).await.map_err(|error| match error {
        ConnectError::InUse(holder) => OpenError::InUseAlone { at: at.clone(), holder },
        other => lock_error(&at, other),
    })?;
    migrations::apply(&mut db).await.map_err(|error| migration_error(&at, error))?;
    check_copied(&mut db, &at).await?;
    Ok(ReplicaConnection { db, options: base, at })
}

/// Begins the epoch of this start, and deletes what the last start left. Rows of other replicas stay.
async fn begin(
    db: &mut PgConnection,
    options: &PostgresOptions,
    owner: Owner,
    server: ServerKind,
) -> Result<StoreStart, Error> {
    let epoch = ops::begin_epoch(db, server, SystemClock.now()).await?;
    let numbers = ops::number_block(db, owner).await?;
    if server == ServerKind::Alone {
        blobs::forget_unfinished(db).await?;
    }
    ops::complete_jobs(db).await?;
    let used = ops::features_used(db, server).await?;
    if !options.search {
        index::empty(db).await?;
    }
    Ok(StoreStart { epoch, numbers, used })
}

/// A connection that is not checked yet.
struct Connected {
    base: PgConnectOptions,
    /// Host, port and database, for messages.
    at: String,
    db: PgConnection,
}

async fn connect(options: &PostgresOptions) -> Result<Connected, OpenError> {
    let base = connect_options(options)?;
    let at = place(&base);
    let db = base.connect().await.map_err(|error| cannot_connect(&at, &error))?;
    Ok(Connected { base, at, db })
}

/// As [`connect`], with an error if a pooler is in between.
async fn connect_directly(options: &PostgresOptions) -> Result<Connected, OpenError> {
    let mut connected = connect(options).await?;
    let Connected { base, at, db } = &mut connected;
    check_pooler(db, base, at).await?;
    Ok(connected)
}

async fn check_copied(db: &mut PgConnection, at: &str) -> Result<(), OpenError> {
    let found = sqlx::query("SELECT 1 FROM copied").fetch_optional(db).await;
    match found.map_err(|error| failure(at, &error))? {
        Some(_) => Err(OpenError::HalfCopied { at: at.to_owned() }),
        None => Ok(()),
    }
}

/// Reads the address. Errors name no part of it: it may have a password.
pub(in crate::store::postgres) fn connect_options(
    options: &PostgresOptions,
) -> Result<PgConnectOptions, OpenError> {
    let bad = |what: &str| OpenError::BadUrl { what: what.to_owned() };
    let url = options.url.expose();
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(bad("it does not begin with postgres://"));
    }
    let parsed: PgConnectOptions = url.parse().map_err(|_| bad("it cannot be read"))?;
    let parsed = match &options.password {
        Some(password) => parsed.password(password.expose()),
        None => parsed,
    };
    let named = match parsed.get_application_name() {
        Some(_) => parsed,
        None => parsed.application_name("agentloop"),
    };
    // A connection whose other end is gone is noticed by the database, too: it holds locks.
    let named = named.options([
        ("tcp_keepalives_idle", "10"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("client_min_messages", "warning"),
        ("idle_in_transaction_session_timeout", "30s"),
    ]);
    Ok(named.disable_statement_logging())
}

/// Host, port and database, for messages.
pub(in crate::store::postgres) fn place(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    match options.get_socket() {
        Some(socket) => format!("{} (database {database})", socket.display()),
        None => format!("{}:{}/{database}", options.get_host(), options.get_port()),
    }
}

/// Comes before any statement that is prepared: what another session does not know is an error that explains nothing.
async fn check_pooler(db: &mut PgConnection, options: &PgConnectOptions, at: &str) -> Result<(), OpenError> {
    match pooler::shares_sessions(db, options).await.map_err(|error| cannot_connect(at, &error))? {
        true => Err(OpenError::Pooled { at: at.to_owned() }),
        false => Ok(()),
    }
}

/// Without a synchronous standby, a fail-over may take back what the server has acknowledged.
pub(in crate::store::postgres) async fn warn_of_asynchronous_standbys(
    db: &mut PgConnection,
) -> Result<(), Error> {
    // An engine like PostgreSQL may not have the setting.
    let sql = "SELECT current_setting('synchronous_standby_names', true) = '' AS is_empty";
    if let Some(true) = sqlx::query(sql).fetch_one(db).await?.try_get("is_empty")? {
        tracing::warn!(
            "synchronous_standby_names of the database is empty: a fail-over to a standby may lose what was acknowledged"
        );
    }
    Ok(())
}

async fn check_server(db: &mut PgConnection, at: &str, accept_loss: bool) -> Result<(), OpenError> {
    let sql = "SELECT current_setting('server_version_num')::int AS version_num,
                      current_setting('server_version') AS version,
                      current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
                      current_setting('server_encoding') AS encoding,
                      pg_is_in_recovery() OR current_setting('transaction_read_only')::bool AS read_only,
                      current_schema() AS schema";
    let row = sqlx::query(sql).fetch_one(db).await.map_err(|error| failure(at, &error))?;
    let failed = |error: Error| failure(at, &error);
    let text = |column: &str| row.try_get::<String, _>(column).map_err(failed);
    let at = at.to_owned();
    if row.try_get::<i32, _>("version_num").map_err(failed)? < VERSION_MIN {
        return Err(OpenError::OldVersion { found: text("version")?, at });
    }
    if row.try_get::<bool, _>("read_only").map_err(failed)? {
        return Err(OpenError::ReadOnly { at });
    }
    if row.try_get::<Option<String>, _>("schema").map_err(failed)?.is_none() {
        let what = "the search path of its user names no schema that exists".to_owned();
        return Err(OpenError::Failed { at, what });
    }
    let encoding = text("encoding")?;
    if encoding != "UTF8" {
        let (setting, consequence) = (format!("the encoding {encoding}"), "not every text can be stored");
        return Err(OpenError::BadSetting { at, setting, consequence });
    }
    for name in ["fsync", "full_page_writes"] {
        if text(name)? == "off" && !accept_loss {
            let consequence = "a power cut loses what was acknowledged";
            return Err(OpenError::BadSetting { at, setting: format!("{name} = off"), consequence });
        }
    }
    Ok(())
}
