//! The file of the search index: opening it, adding and deleting documents, and connections to search it.

use std::io;
use std::path::{Path, PathBuf};

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{ConnectOptions as _, Connection as _, Error, Row as _, SqliteConnection, SqlitePool};

use super::IndexLocation;
use crate::store::sqlite::files::lock::private;
use crate::store::sqlite::{connect, rows};
use crate::store::support::codec::text;
use crate::store::support::number::int;

/// Application id in the header of an index: "AGLS".
const APPLICATION_ID: i64 = 0x4147_4C53;
/// Version of the index's schema and of the form of its words. An index of another version is deleted and filled again.
const VERSION: i64 = 2;

/// The full-text index without the texts, and the database that it belongs to: its identity, and its epoch when the index
/// was last opened.
const SCHEMA: &str = "
    CREATE VIRTUAL TABLE search_index USING fts5 (
        text,
        content = '',
        contentless_delete = 1,
        tokenize = 'porter unicode61 remove_diacritics 2'
    );
    CREATE TABLE belongs (identity INTEGER NOT NULL, epoch INTEGER NOT NULL) STRICT;
    INSERT INTO belongs VALUES (0, 0);";

/// Files up to this size are checked whole before they are used.
const CHECKED_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Connections for searches. Searches may take long, so other reads do not share these.
pub(in crate::store::sqlite) const SEARCHERS: u32 = 2;

/// `SQLITE_ERROR`, `SQLITE_CORRUPT`, `SQLITE_CONSTRAINT` and `SQLITE_NOTADB`: tables are missing, or their content is not
/// what was written.
const DAMAGED: [i32; 4] = [1, 11, rows::CONSTRAINT, 26];

/// True if the index has to be deleted and filled again.
pub(in crate::store::sqlite) fn is_damage(error: &Error) -> bool {
    rows::primary_code(error).is_some_and(|code| DAMAGED.contains(&code))
}

/// The file of the index of a database: the name of the database with `.search` added.
pub(in crate::store::sqlite) fn path_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".search");
    name.into()
}

/// Deletes the index, if there is one.
///
/// # Errors
/// The operating system's own.
pub(in crate::store::sqlite) fn delete(location: &IndexLocation) -> io::Result<()> {
    if location.in_memory {
        return Ok(());
    }
    // The log goes first. SQLite would apply a log that is left over to the next file of this name.
    for ending in ["-wal", "-shm", ""] {
        let mut name = location.path.as_os_str().to_owned();
        name.push(ending);
        match std::fs::remove_file(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// An open index, with the one connection that writes it.
#[derive(Debug)]
pub(super) struct IndexFile {
    db: SqliteConnection,
    /// The number of the last document.
    last: i64,
    searchers: SqlitePool,
}

impl IndexFile {
    /// Opens the index if it is intact and of this database. Otherwise makes an empty one.
    ///
    /// # Errors
    /// SQL's or the operating system's own, if neither is possible.
    pub(super) async fn open(location: &IndexLocation) -> Result<Self, Error> {
        match Self::open_as_it_is(location).await {
            Ok(Some(file)) => return Ok(file),
            Ok(None) => {
                tracing::info!(
                    "the search index is of another database or version; it is deleted and filled again"
                )
            }
            Err(error) if is_damage(&error) => {
                tracing::warn!(%error, "the search index is damaged; it is deleted and filled again");
            }
            Err(error) => return Err(error),
        }
        delete(location).map_err(Error::Io)?;
        Self::open_as_it_is(location).await?.ok_or(Error::RowNotFound)
    }

    /// `None`: it is damaged, of another version or not the index of this database.
    async fn open_as_it_is(location: &IndexLocation) -> Result<Option<Self>, Error> {
        if !location.in_memory {
            // SQLite gives its log the same permissions.
            private().write(true).create(true).truncate(false).open(&location.path).map_err(Error::Io)?;
        }
        let mut db = writing(location).connect().await?;
        let bytes = location.path.metadata().map_or(0, |file| file.len());
        if is_empty(&mut db).await? {
            make(&mut db).await?;
        } else if !is_sound(&mut db, bytes).await? || !belongs(&mut db, location).await? {
            db.close().await?;
            return Ok(None);
        }
        let sql = "UPDATE belongs SET identity = ?1, epoch = ?2";
        sqlx::query(sql).bind(location.identity).bind(int(location.epoch.0)).execute(&mut db).await?;
        let last = last(&mut db).await?;
        Ok(Some(Self { db, last, searchers: searchers(location) }))
    }

    /// The highest number of a document; 0 if there is none.
    pub(super) fn last(&self) -> i64 {
        self.last
    }

    /// Connections to search with. The database is their schema `main`, the index their schema `search`.
    pub(super) fn searchers(&self) -> &SqlitePool {
        &self.searchers
    }

    /// The number of documents in the index.
    pub(super) async fn count(&mut self) -> Result<i64, Error> {
        let sql = "SELECT count(*) AS documents FROM search_index_docsize";
        sqlx::query(sql).fetch_one(&mut self.db).await?.try_get("documents")
    }

    /// Adds documents in the order of their numbers.
    pub(super) async fn add(&mut self, documents: &[(i64, String)]) -> Result<(), Error> {
        let Some((last, _)) = documents.last() else { return Ok(()) };
        let sql = "INSERT INTO search_index (rowid, text)
                   SELECT value ->> 0, value ->> 1 FROM json_each(?1)";
        sqlx::query(sql).bind(text(&documents)).execute(&mut self.db).await?;
        self.last = *last;
        Ok(())
    }

    /// Deletes the documents of these numbers, as far as they exist.
    pub(super) async fn delete(&mut self, numbers: &[i64]) -> Result<(), Error> {
        let sql = "DELETE FROM search_index WHERE rowid IN (SELECT value FROM json_each(?1))";
        sqlx::query(sql).bind(text(&numbers)).execute(&mut self.db).await?;
        self.last = last(&mut self.db).await?;
        Ok(())
    }

    /// Closes the file, once running searches have ended.
    pub(super) async fn close(self) {
        self.searchers.close().await;
        // An error loses nothing: what is not in the file is in its log.
        let _ = self.db.close().await;
    }
}

fn writing(location: &IndexLocation) -> SqliteConnectOptions {
    let options = connect::base().filename(&location.path).create_if_missing(true);
    if location.in_memory {
        return options.vfs("memdb").journal_mode(SqliteJournalMode::Memory);
    }
    connect::limited(
        options.journal_mode(SqliteJournalMode::Wal),
        location.max_bytes,
        connect::DEFAULT_PAGE_BYTES,
    )
}

/// Connections for searches. Each connects when it is first needed.
fn searchers(location: &IndexLocation) -> SqlitePool {
    let main = connect::base().filename(&location.database).pragma("query_only", "ON");
    let (main, name) = if location.in_memory {
        (main.vfs("memdb"), format!("file:{}?vfs=memdb", location.path.display()))
    } else {
        (main, location.path.display().to_string())
    };
    let files = location.files.clone();
    let attached = connect::pool(SEARCHERS).after_connect(move |db, _| {
        let (name, same) = (name.clone(), files.check());
        Box::pin(async move {
            same?;
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

/// True if it is an index of this version, and a check finds no damage.
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

/// True if it was written beside this database, in an epoch that the database has had, and is not ahead of it. An index is
/// ahead if the database was replaced by an older backup.
async fn belongs(db: &mut SqliteConnection, location: &IndexLocation) -> Result<bool, Error> {
    let row = sqlx::query("SELECT identity, epoch FROM belongs").fetch_one(&mut *db).await?;
    let (identity, epoch): (i64, i64) = (row.try_get("identity")?, row.try_get("epoch")?);
    let now = int(location.epoch.0);
    Ok(identity == location.identity && (epoch == now || (epoch < now && last(db).await? <= location.last)))
}

async fn last(db: &mut SqliteConnection) -> Result<i64, Error> {
    let sql = "SELECT coalesce(max(id), 0) AS last FROM search_index_docsize";
    sqlx::query(sql).fetch_one(db).await?.try_get("last")
}
