//! Opening a database: its settings are checked, it is locked, its schema is migrated.

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::id::Epoch;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Error, Executor as _, PgConnection, Row as _};

use super::migrations::NotMigrated;
use super::owner::{self, ConnectError, Hold, Owner};
use super::readers::Readers;
use super::write::{blobs, ops};
use super::{PostgresOptions, index, migrations, pooler, rows, settings};
use crate::clock::{Clock as _, SystemClock};
use crate::lifecycle::Tasks;
use crate::store::append::LastNumbers;
use crate::store::features_used::FeaturesUsed;
use crate::store::number::int;

/// The oldest version of PostgreSQL that is supported, as `server_version_num` has it.
const VERSION_MIN: i32 = 150_000;
/// The reason why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is none.
    #[error("store.url is not the address of a database ({what}); write postgres://USER@HOST:PORT/DATABASE")]
    BadUrl {
        /// The fault in it.
        what: String,
    },
    /// Nobody answers at the address.
    #[error("cannot reach PostgreSQL at {at}: {what}; see that it runs and that store.url is right")]
    Unreachable {
        /// Host, port and database.
        at: String,
        /// The error of the connection.
        what: String,
    },
    /// The user or the password is wrong.
    #[error("PostgreSQL at {at} refuses the user or the password: {what}; see store.url and store.password")]
    Refused {
        /// Host, port and database.
        at: String,
        /// The message of the database.
        what: String,
    },
    /// There is no such database.
    #[error("there is no such database at {at}; make it with createdb, or name another one in store.url")]
    NoDatabase {
        /// Host, port and database.
        at: String,
    },
    /// The version is not supported.
    #[error("PostgreSQL at {at} has version {found}; version 15 or later is needed")]
    OldVersion {
        /// Host, port and database.
        at: String,
        /// The version that the database says it has.
        found: String,
    },
    /// A setting of the database would lose acknowledged writes, or their texts.
    #[error("PostgreSQL at {at} has {setting}, with which {consequence}; change it")]
    BadSetting {
        /// Host, port and database.
        at: String,
        /// The setting and its value.
        setting: String,
        /// The loss that this setting would lead to.
        consequence: &'static str,
    },
    /// There is a pooler that gives each transaction another session of the database.
    #[error(
        "the pooler at {at} gives each transaction another session of the database; name the database itself in store.url, \
         or let each connection have a session of its own (pgbouncer: pool_mode = session)"
    )]
    Pooled {
        /// Host, port and database.
        at: String,
    },
    /// The database takes no writes.
    #[error("PostgreSQL at {at} is a standby or read-only; name the primary in store.url")]
    ReadOnly {
        /// Host, port and database.
        at: String,
    },
    /// Another server uses the database.
    #[error(
        "the database at {at} is in use by another server ({holder}); stop that server, or name another database"
    )]
    InUse {
        /// Host, port and database.
        at: String,
        /// The other server, as PostgreSQL knows it.
        holder: String,
    },
    /// Replicas use the database, and this server is none.
    #[error(
        "the database at {at} is in use by replicas ({holder}); stop them, or name another database (a server with \
         cluster.listen in its configuration becomes one of them)"
    )]
    InUseByReplicas {
        /// Host, port and database.
        at: String,
        /// One of them, as PostgreSQL knows it.
        holder: String,
    },
    /// A server without `[cluster]` uses the database, and this one is a replica.
    #[error(
        "the database at {at} is in use by a server without [cluster] ({holder}); stop that server and set its \
         cluster.listen, or name another database"
    )]
    InUseAlone {
        /// Host, port and database.
        at: String,
        /// The other server, as PostgreSQL knows it.
        holder: String,
    },
    /// This replica does not own the database any more.
    #[error("another replica has taken the database at {at} over; start this server again")]
    Fenced {
        /// Host, port and database.
        at: String,
    },
    /// The schema is of a newer server.
    #[error(
        "the database at {at} is of a newer server (schema {found}, this server knows {known}); use that server"
    )]
    Newer {
        /// Host, port and database.
        at: String,
        /// The newest migration that was applied.
        found: i64,
        /// The newest migration that this server has.
        known: i64,
    },
    /// The schema has tables that are not a store's.
    #[error(
        "the database at {at} has tables that are not a store's ({what}); name another database, or another schema by \
             ?options=-csearch_path%3DSCHEMA"
    )]
    NotOurs {
        /// Host, port and database.
        at: String,
        /// The table or row that is another program's.
        what: String,
    },
    /// Something reads the tables that a later version has to change.
    #[error(
        "the tables of the database at {at} cannot be changed for this version, because something has been reading them for a \
         minute, such as a backup; start this server when that has ended"
    )]
    TablesInUse {
        /// Host, port and database.
        at: String,
    },
    /// A copy into the database was cut.
    #[error(
        "a copy into the database at {at} is not complete; run agentloop store copy again, or drop its schema"
    )]
    HalfCopied {
        /// Host, port and database.
        at: String,
    },
    /// Any other failure, such as no connection.
    #[error("cannot open the database at {at}: {what}")]
    Failed {
        /// Host, port and database.
        at: String,
        /// The message of the driver or the database.
        what: String,
    },
}

/// An opened database, and everything that the store is started with.
pub(in crate::store::postgres) struct OpenedStore {
    pub(in crate::store::postgres) writing: PgConnectOptions,
    pub(in crate::store::postgres) db: PgConnection,
    pub(in crate::store::postgres) readers: Readers,
    pub(in crate::store::postgres) owner: Owner,
    pub(in crate::store::postgres) hold: Hold,
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
    let base = connect_options(options)?;
    let at = place(&base);
    let mut db = base.connect().await.map_err(|error| cannot_connect(&at, &error))?;
    let failed = |error: Error| failure(&at, &error);
    check_pooler(&mut db, &base, &at).await?;
    settings::to_write(&mut db).await.map_err(failed)?;
    check_server(&mut db, &at, options.accept_loss).await?;
    owner::lock(&mut db).await.map_err(|error| not_had(&at, error))?;
    migrations::apply(&mut db).await.map_err(|error| not_migrated(&at, error))?;
    if !is_copied {
        check_copied(&mut db, &at).await?;
    }
    let owner = owner::take_over(&mut db).await.map_err(failed)?;
    let started = begin(&mut db, options, owner, Hold::Lock).await.map_err(failed)?;
    let tasks = Tasks::new();
    let readers = Readers::open(base.clone(), options, tasks.clone()).await.map_err(failed)?;
    Ok(OpenedStore { writing: base, db, readers, owner, hold: Hold::Lock, started, tasks })
}

/// Connects, and checks what an opening checks before it changes anything. Returns host, port and database.
pub(in crate::store::postgres) async fn check(options: &PostgresOptions) -> Result<String, OpenError> {
    let base = connect_options(options)?;
    let at = place(&base);
    let mut db = base.connect().await.map_err(|error| cannot_connect(&at, &error))?;
    check_pooler(&mut db, &base, &at).await?;
    check_server(&mut db, &at, options.accept_loss).await?;
    // The answer is there; a connection that is not closed in good order ends with this process.
    let _ = db.close().await;
    Ok(at)
}

/// Opens the database for a replica. All changes of a start are one transaction behind the fence: a replica that was fenced
/// meanwhile changes nothing.
pub(in crate::store::postgres) async fn open_replica(
    options: &PostgresOptions,
    number: OwnerNo,
) -> Result<OpenedStore, OpenError> {
    let base = connect_options(options)?;
    let at = place(&base);
    let mut db = base.connect().await.map_err(|error| cannot_connect(&at, &error))?;
    let failed = |error: Error| failure(&at, &error);
    settings::to_write_beside_others(&mut db).await.map_err(failed)?;
    check_server(&mut db, &at, options.accept_loss).await?;
    owner::name_connection(&mut db, int(number.0)).await.map_err(failed)?;
    db.execute("BEGIN").await.map_err(failed)?;
    let owner = owner::enter(&mut db, int(number.0)).await.map_err(|error| not_had(&at, error))?;
    let started = begin(&mut db, options, owner, Hold::Lease).await.map_err(failed)?;
    db.execute("COMMIT").await.map_err(failed)?;
    let tasks = Tasks::new();
    let readers = Readers::open(base.clone(), options, tasks.clone()).await.map_err(failed)?;
    Ok(OpenedStore { writing: base, db, readers, owner, hold: Hold::Lease, started, tasks })
}

/// The source of a copy that has made its tables, and nothing else yet. No database has this number.
pub(in crate::store) const SOURCE_UNKNOWN: i64 = 0;

/// A connection to a database that a copy is made into: locked, and with the tables of a store.
pub(in crate::store) async fn for_copy(options: &PostgresOptions) -> Result<PgConnection, OpenError> {
    let base = connect_options(options)?;
    let at = place(&base);
    let mut db = base.connect().await.map_err(|error| cannot_connect(&at, &error))?;
    check_pooler(&mut db, &base, &at).await?;
    check_server(&mut db, &at, options.accept_loss).await?;
    owner::lock(&mut db).await.map_err(|error| not_had(&at, error))?;
    let failed = |error: Error| failure(&at, &error);
    let sql = "SELECT to_regclass('copied') IS NULL AND to_regclass('sessions') IS NULL AS is_empty";
    let found = sqlx::query(sql).fetch_one(&mut db).await.map_err(failed)?;
    if found.try_get("is_empty").map_err(failed)? {
        // A copy that is cut here leaves nothing: a server would take tables without a note for a database of its own.
        let mut whole = db.begin().await.map_err(failed)?;
        migrations::apply(&mut whole).await.map_err(|error| not_migrated(&at, error))?;
        let note = "INSERT INTO copied (source, last) VALUES ($1, -1)";
        sqlx::query(note).bind(SOURCE_UNKNOWN).execute(&mut *whole).await.map_err(failed)?;
        whole.commit().await.map_err(failed)?;
    } else {
        migrations::apply(&mut db).await.map_err(|error| not_migrated(&at, error))?;
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
    let base = connect_options(options)?;
    let at = place(&base);
    let mut db = base.connect().await.map_err(|error| cannot_connect(&at, &error))?;
    check_pooler(&mut db, &base, &at).await?;
    settings::to_beat(&mut db).await.map_err(|error| failure(&at, &error))?;
    check_server(&mut db, &at, options.accept_loss).await?;
    owner::share_lock(&mut db).await.map_err(|error| match error {
        ConnectError::InUse(holder) => OpenError::InUseAlone { at: at.clone(), holder },
        other => not_had(&at, other),
    })?;
    migrations::apply(&mut db).await.map_err(|error| not_migrated(&at, error))?;
    check_copied(&mut db, &at).await?;
    Ok(ReplicaConnection { db, options: base, at })
}

/// Begins the epoch of this start, and deletes what the last start left. Rows of other replicas stay.
async fn begin(
    db: &mut PgConnection,
    options: &PostgresOptions,
    owner: Owner,
    hold: Hold,
) -> Result<StoreStart, Error> {
    let epoch = ops::begin_epoch(db, hold, SystemClock.now()).await?;
    let numbers = ops::number_block(db, owner).await?;
    if hold == Hold::Lock {
        blobs::forget_unfinished(db).await?;
    }
    ops::complete_jobs(db).await?;
    let used = ops::features_used(db, hold).await?;
    if !options.search {
        index::empty(db).await?;
    }
    Ok(StoreStart { epoch, numbers, used })
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

fn cannot_connect(at: &str, error: &Error) -> OpenError {
    let (at, what) = (at.to_owned(), error.to_string());
    match rows::code(error).as_deref() {
        Some("28P01" | "28000") => OpenError::Refused {
            at,
            what: error.as_database_error().map_or(what, |found| found.message().to_owned()),
        },
        Some("3D000") => OpenError::NoDatabase { at },
        Some(_) => OpenError::Failed { at, what },
        None => OpenError::Unreachable { at, what },
    }
}

fn not_had(at: &str, error: ConnectError) -> OpenError {
    let at = at.to_owned();
    match error {
        ConnectError::InUse(holder) => OpenError::InUse { at, holder },
        ConnectError::InUseByReplicas(holder) => OpenError::InUseByReplicas { at, holder },
        ConnectError::Fenced => OpenError::Fenced { at },
        ConnectError::Sql(error) => failure(&at, &error),
    }
}

fn not_migrated(at: &str, error: NotMigrated) -> OpenError {
    let at = at.to_owned();
    match error {
        NotMigrated::TablesInUse => OpenError::TablesInUse { at },
        NotMigrated::Newer(found) => OpenError::Newer { at, found, known: migrations::newest() },
        NotMigrated::NotOurs(what) => OpenError::NotOurs { at, what },
        NotMigrated::Other(error) => OpenError::Failed { at, what: error.to_string() },
    }
}

pub(in crate::store::postgres) fn failure(at: &str, error: &Error) -> OpenError {
    match rows::code(error).as_deref() {
        Some("25006") => OpenError::ReadOnly { at: at.to_owned() },
        // A prepared statement that is there already, or is not there: its session is another one.
        Some("42P05" | "26000") => OpenError::Pooled { at: at.to_owned() },
        _ => OpenError::Failed { at: at.to_owned(), what: error.to_string() },
    }
}

/// Comes before any statement that is prepared: what another session does not know is an error that explains nothing.
async fn check_pooler(db: &mut PgConnection, options: &PgConnectOptions, at: &str) -> Result<(), OpenError> {
    match pooler::shares_sessions(db, options).await.map_err(|error| cannot_connect(at, &error))? {
        true => Err(OpenError::Pooled { at: at.to_owned() }),
        false => Ok(()),
    }
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
