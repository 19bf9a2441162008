//! The index's file: opening it, adding to it, deleting from it, and connections to search it.

use std::io;
use std::path::{Path, PathBuf};

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{ConnectOptions as _, Connection as _, Error, Row as _, SqliteConnection, SqlitePool};

use super::IndexPlace;
use crate::store::codec::{int, text};
use crate::store::sqlite::{connect, rows};

/// In the header of every index of ours: "AGLS".
const APPLICATION_ID: i64 = 0x4147_4C53;
/// Of the schema. An index of another one is deleted and filled again.
const VERSION: i64 = 1;

/// The index alone, without texts, and the database that it is of: its identity, and its last opening in which the index
/// was written.
const SCHEMA: &str = "
    CREATE VIRTUAL TABLE search_index USING fts5 (
        text,
        content = '',
        contentless_delete = 1,
        tokenize = 'porter unicode61 remove_diacritics 2'
    );
    CREATE TABLE belongs (identity INTEGER NOT NULL, epoch INTEGER NOT NULL) STRICT;
    INSERT INTO belongs VALUES (0, 0);";

/// Files up to this size are read whole before they are used.
const CHECKED_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Connections for searches, which may take long: whoever else reads does not wait for them.
pub(in crate::store::sqlite) const SEARCHERS: u32 = 2;

/// `SQLITE_ERROR`, `SQLITE_CORRUPT`, `SQLITE_CONSTRAINT` and `SQLITE_NOTADB`: the index lacks what it is to have, does
/// not find what it wrote, or finds what it did not.
const DAMAGED: [i32; 4] = [1, 11, rows::CONSTRAINT, 26];

/// Whether the index has to be deleted and filled again.
pub(in crate::store::sqlite) fn is_damage(error: &Error) -> bool {
    rows::primary_code(error).is_some_and(|code| DAMAGED.contains(&code))
}

/// The index's file: beside the database, with `.search` added to its name.
pub(in crate::store::sqlite) fn path_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".search");
    name.into()
}

/// Deletes the index, if there is one.
///
/// # Errors
/// The operating system's own.
pub(in crate::store::sqlite) fn delete(place: &IndexPlace) -> io::Result<()> {
    if place.in_memory {
        return Ok(());
    }
    // The log first: a database without it is whole or damaged, and a log without its database is neither.
    for ending in ["-wal", "-shm", ""] {
        let mut name = place.path.as_os_str().to_owned();
        name.push(ending);
        match std::fs::remove_file(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// An open index.
#[derive(Debug)]
pub(super) struct IndexFile {
    db: SqliteConnection,
    /// The number of the last document.
    last: i64,
    searchers: SqlitePool,
}

impl IndexFile {
    /// Opens the index if it is sound and of this database; otherwise makes one with nothing in it.
    ///
    /// # Errors
    /// When neither is possible: SQL's or the operating system's own.
    pub(super) async fn open(place: &IndexPlace) -> Result<Self, Error> {
        match Self::open_as_it_is(place).await {
            Ok(Some(file)) => return Ok(file),
            Ok(None) => {
                tracing::info!("the search index is of another database or version, and is filled again")
            }
            Err(error) if is_damage(&error) => {
                tracing::warn!(%error, "the search index is damaged, and is filled again");
            }
            Err(error) => return Err(error),
        }
        delete(place).map_err(Error::Io)?;
        Self::open_as_it_is(place).await?.ok_or(Error::RowNotFound)
    }

    /// `None`: it is not the index of this database.
    async fn open_as_it_is(place: &IndexPlace) -> Result<Option<Self>, Error> {
        let mut db = writing(place).connect().await?;
        let bytes = place.path.metadata().map_or(0, |file| file.len());
        if is_empty(&mut db).await? {
            make(&mut db).await?;
        } else if !is_sound(&mut db, bytes).await? || !belongs(&mut db, place).await? {
            db.close().await?;
            return Ok(None);
        }
        let sql = "UPDATE belongs SET identity = ?1, epoch = ?2";
        sqlx::query(sql).bind(place.identity).bind(int(place.epoch.0)).execute(&mut db).await?;
        let last = last(&mut db).await?;
        Ok(Some(Self { db, last, searchers: searchers(place) }))
    }

    /// The number of the last document; 0 where there is none.
    pub(super) fn last(&self) -> i64 {
        self.last
    }

    /// Connections that find `session_entries` and what it refers to in `main`, the index in `search`.
    pub(super) fn searchers(&self) -> &SqlitePool {
        &self.searchers
    }

    /// How many documents there are.
    pub(super) async fn count(&mut self) -> Result<i64, Error> {
        let sql = "SELECT count(*) AS documents FROM search_index_docsize";
        sqlx::query(sql).fetch_one(&mut self.db).await?.try_get("documents")
    }

    /// Adds documents by number and words, in the order of the numbers.
    pub(super) async fn add(&mut self, documents: &[(i64, String)]) -> Result<(), Error> {
        let Some((last, _)) = documents.last() else { return Ok(()) };
        let sql = "INSERT INTO search_index (rowid, text)
                   SELECT value ->> 0, value ->> 1 FROM json_each(?1)";
        sqlx::query(sql).bind(text(&documents)).execute(&mut self.db).await?;
        self.last = *last;
        Ok(())
    }

    /// Deletes the documents of these numbers, as far as there are such.
    pub(super) async fn delete(&mut self, numbers: &[i64]) -> Result<(), Error> {
        let sql = "DELETE FROM search_index WHERE rowid IN (SELECT value FROM json_each(?1))";
        sqlx::query(sql).bind(text(&numbers)).execute(&mut self.db).await?;
        self.last = last(&mut self.db).await?;
        Ok(())
    }

    /// Lets go of the file; searches that run end first.
    pub(super) async fn close(self) {
        self.searchers.close().await;
        // What is not in the file is in its log.
        let _ = self.db.close().await;
    }
}

fn writing(place: &IndexPlace) -> SqliteConnectOptions {
    let options = connect::base().filename(&place.path).create_if_missing(true);
    if place.in_memory {
        return options.vfs("memdb").journal_mode(SqliteJournalMode::Memory);
    }
    connect::limited(options.journal_mode(SqliteJournalMode::Wal), place.max_bytes)
}

/// Each connects when it is first needed.
fn searchers(place: &IndexPlace) -> SqlitePool {
    let main = connect::base().filename(&place.database).pragma("query_only", "ON");
    let (main, name) = if place.in_memory {
        (main.vfs("memdb"), format!("file:{}?vfs=memdb", place.path.display()))
    } else {
        (main, place.path.display().to_string())
    };
    let attached = connect::pool(SEARCHERS).after_connect(move |db, _| {
        let name = name.clone();
        Box::pin(async move {
            sqlx::query("ATTACH ?1 AS search").bind(name).execute(db).await?;
            Ok(())
        })
    });
    attached.connect_lazy_with(main)
}

async fn is_empty(db: &mut SqliteConnection) -> Result<bool, Error> {
    let sql = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema) AS is_empty";
    sqlx::query(sql).fetch_one(db).await?.try_get("is_empty")
}

async fn make(db: &mut SqliteConnection) -> Result<(), Error> {
    let header = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};");
    let sql = format!("BEGIN IMMEDIATE; {SCHEMA} {header} COMMIT");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(db).await.map(|_| ())
}

/// Whether it is an index of ours, of this version, and nothing is found wrong in it.
async fn is_sound(db: &mut SqliteConnection, bytes: u64) -> Result<bool, Error> {
    let sql = "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version";
    let row = sqlx::query(sql).fetch_one(&mut *db).await?;
    let header: (i64, i64) = (row.try_get("application_id")?, row.try_get("user_version")?);
    if header != (APPLICATION_ID, VERSION) {
        return Ok(false);
    }
    if bytes > CHECKED_BYTES_MAX {
        return Ok(true);
    }
    let row = sqlx::query("PRAGMA quick_check(1)").fetch_one(db).await?;
    Ok(row.try_get::<&str, _>(0)? == "ok")
}

/// Whether it was written beside this database, in an opening that the database knows of, and is not ahead of it, as
/// it is when the database is a backup that was put back.
async fn belongs(db: &mut SqliteConnection, place: &IndexPlace) -> Result<bool, Error> {
    let row = sqlx::query("SELECT identity, epoch FROM belongs").fetch_one(&mut *db).await?;
    let (identity, epoch): (i64, i64) = (row.try_get("identity")?, row.try_get("epoch")?);
    let now = int(place.epoch.0);
    Ok(identity == place.identity && (epoch == now || (epoch < now && last(db).await? <= place.last)))
}

async fn last(db: &mut SqliteConnection) -> Result<i64, Error> {
    let sql = "SELECT coalesce(max(id), 0) AS last FROM search_index_docsize";
    sqlx::query(sql).fetch_one(db).await?.try_get("last")
}
