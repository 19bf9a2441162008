//! Errors of SQL as errors of the store; and how its rows become values of the store, which is the same for both databases.

use sqlx::Error;

use crate::store::StoreError;

pub(in crate::store::sqlite) use crate::store::sql::column::{
    live_run, number, run_id, seq, session_id, tenant_id, time,
};
pub(in crate::store::sqlite) use crate::store::sql::row::{event, run};

/// `SQLITE_CONSTRAINT`. Appends are checked before they are written, so this error means that tables contradict each
/// other.
pub(in crate::store::sqlite) const CONSTRAINT: i32 = 19;
/// Result codes of a damaged database: `SQLITE_CORRUPT`, `SQLITE_CONSTRAINT` and `SQLITE_NOTADB`.
const DAMAGED: [i32; 3] = [11, CONSTRAINT, 26];

/// SQLite's primary result code. `None` for errors that are not SQLite's.
pub(in crate::store::sqlite) fn primary_code(error: &Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?.parse::<i32>().ok()?;
    Some(code & 0xff)
}

/// An error of SQL as an error of the store. `what` names the row or list that was read or written.
pub(in crate::store::sqlite) fn failure(what: impl std::fmt::Display, error: &Error) -> StoreError {
    let damaged = matches!(error, Error::ColumnDecode { .. } | Error::Decode(_))
        || primary_code(error).is_some_and(|code| DAMAGED.contains(&code));
    let what = format!("{what}: {error}");
    if damaged { StoreError::Corrupt { what } } else { StoreError::Unavailable { what } }
}
