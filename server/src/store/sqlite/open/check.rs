//! The checks of a database through SQLite before it is written: it is ours, and it is not damaged.

use std::path::Path;

use sqlx::{Error, Row as _, SqliteConnection};

use crate::store::sqlite::files::error::{OpenError, failure};

/// Application id in the header of a database: "AGLP".
const APPLICATION_ID: i64 = 0x4147_4C50;
/// Databases up to this size are checked whole after an end without a close. Larger ones would delay the restart, and
/// SQLite itself recovers from every end that is not a fault of the disk.
const CHECKED_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Databases up to this size are checked whole at every start.
const ALWAYS_CHECKED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Checks a database whole, and reports 100 findings at most.
const CHECK: &str = "PRAGMA quick_check(100)";
/// Findings that an error message names.
const FINDINGS_SHOWN_MAX: usize = 3;

/// Refuses a database of another program, and a damaged one.
pub(in crate::store::sqlite) async fn inspect(
    path: &Path,
    db: &mut SqliteConnection,
) -> Result<(), OpenError> {
    match identity(db).await.map_err(|error| failure(path, &error))? {
        FileMarks { application: APPLICATION_ID, .. } => {}
        FileMarks { application: 0, objects: 0 } => return Ok(()),
        FileMarks { .. } => {
            let what = "it is a database of another program".to_owned();
            return Err(OpenError::NotOurs { path: path.into(), what });
        }
    }
    let bytes = path.metadata().map_or(u64::MAX, |file| file.len());
    let doubtful =
        bytes <= CHECKED_BYTES_MAX && !is_clean(db).await.map_err(|error| failure(path, &error))?;
    if doubtful || bytes <= ALWAYS_CHECKED_BYTES_MAX { check(path, db).await } else { Ok(()) }
}

/// The marks by which a database of this server, an empty one and one of another program are told apart.
struct FileMarks {
    /// Application id of the header; 0 if none was set.
    application: i64,
    /// Number of tables and other objects, without those that an interrupted first migration leaves.
    objects: i64,
}

async fn identity(db: &mut SqliteConnection) -> Result<FileMarks, Error> {
    let row = sqlx::query(
        "SELECT (SELECT application_id FROM pragma_application_id) AS application,
                (SELECT count(*) FROM sqlite_schema WHERE tbl_name <> '_sqlx_migrations') AS objects",
    )
    .fetch_one(db)
    .await?;
    Ok(FileMarks { application: row.try_get("application")?, objects: row.try_get("objects")? })
}

async fn is_clean(db: &mut SqliteConnection) -> Result<bool, Error> {
    let row = sqlx::query("SELECT value FROM meta WHERE key = 'clean'").fetch_one(db).await?;
    Ok(row.try_get::<i64, _>("value")? == 1)
}

async fn check(path: &Path, db: &mut SqliteConnection) -> Result<(), OpenError> {
    let rows = sqlx::query(CHECK).fetch_all(db).await.map_err(|error| failure(path, &error))?;
    let verdict = rows.iter().map(|row| row.try_get::<String, _>(0)).collect::<Result<Vec<_>, _>>();
    let verdict = verdict.map_err(|error| failure(path, &error))?;
    if verdict == ["ok"] {
        return Ok(());
    }
    // The first line may be a heading.
    let lines = verdict.iter().flat_map(|text| text.lines());
    let found: Vec<&str> = lines.filter(|line| !line.starts_with("***")).collect();
    // Files of older servers contain a search index, which a migration drops.
    if !found.is_empty() && found.iter().all(|line| line.contains("search_index")) {
        return Ok(());
    }
    let shown = &found[..found.len().min(FINDINGS_SHOWN_MAX)];
    Err(OpenError::Damaged { path: path.into(), what: shown.join("; ") })
}
