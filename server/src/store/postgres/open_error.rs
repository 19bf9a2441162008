//! The reasons why a database is not opened.

use sqlx::Error;

use super::migrations::{self, NotMigrated};
use crate::store::postgres::owner::ConnectError;
use crate::store::postgres::rows;

/// The reason why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is none.
    #[error("store.url is not the address of a database ({what}); write postgres://USER@HOST:PORT/DATABASE")]
    BadUrl {
        /// The fault in it.
        what: String,
    },
    /// Nothing responds at the address.
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
        /// The setting and its value, as `name = value`.
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

/// No connection was made.
pub(in crate::store::postgres) fn cannot_connect(at: &str, error: &Error) -> OpenError {
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

/// The lock on the database was not taken.
pub(in crate::store::postgres) fn lock_error(at: &str, error: ConnectError) -> OpenError {
    let at = at.to_owned();
    match error {
        ConnectError::InUse(holder) => OpenError::InUse { at, holder },
        ConnectError::InUseByReplicas(holder) => OpenError::InUseByReplicas { at, holder },
        ConnectError::Fenced => OpenError::Fenced { at },
        ConnectError::Sql(error) => failure(&at, &error),
    }
}

/// The schema was not brought to this version.
pub(in crate::store::postgres) fn migration_error(at: &str, error: NotMigrated) -> OpenError {
    let at = at.to_owned();
    match error {
        NotMigrated::TablesInUse => OpenError::TablesInUse { at },
        NotMigrated::Newer(found) => OpenError::Newer { at, found, known: migrations::newest() },
        NotMigrated::NotOurs(what) => OpenError::NotOurs { at, what },
        NotMigrated::Other(error) => OpenError::Failed { at, what: error.to_string() },
    }
}

/// The error of a statement that failed while the database was opened.
pub(in crate::store::postgres) fn failure(at: &str, error: &Error) -> OpenError {
    match rows::code(error).as_deref() {
        Some("25006") => OpenError::ReadOnly { at: at.to_owned() },
        // A prepared statement that is there already, or is not there: its session is another one.
        Some("42P05" | "26000") => OpenError::Pooled { at: at.to_owned() },
        _ => OpenError::Failed { at: at.to_owned(), what: error.to_string() },
    }
}
