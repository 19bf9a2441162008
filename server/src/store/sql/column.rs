//! One column of a row as a value of the store.

use agentloop_core::id::{RequestId, RunId, Seq, SessionId, TenantId};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use serde::de::DeserializeOwned;
use sqlx::error::BoxDynError;
use sqlx::{ColumnIndex, Decode, Error, Row, Type};

/// A row of either database. Both have the same types of columns.
pub(in crate::store) trait SqlRow {
    fn text(&self, column: &str) -> Result<&str, Error>;
    fn text_if_any(&self, column: &str) -> Result<Option<&str>, Error>;
    fn integer(&self, column: &str) -> Result<i64, Error>;
    fn integer_if_any(&self, column: &str) -> Result<Option<i64>, Error>;
    fn flag(&self, column: &str) -> Result<bool, Error>;
}

impl<R: Row> SqlRow for R
where
    for<'c> &'c str: ColumnIndex<R>,
    for<'r> &'r str: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> bool: Decode<'r, R::Database> + Type<R::Database>,
{
    fn text(&self, column: &str) -> Result<&str, Error> {
        self.try_get(column)
    }

    fn text_if_any(&self, column: &str) -> Result<Option<&str>, Error> {
        self.try_get(column)
    }

    fn integer(&self, column: &str) -> Result<i64, Error> {
        self.try_get(column)
    }

    fn integer_if_any(&self, column: &str) -> Result<Option<i64>, Error> {
        self.try_get(column)
    }

    fn flag(&self, column: &str) -> Result<bool, Error> {
        self.try_get(column)
    }
}

/// The error of a column whose value is none of its type.
fn misread(column: &str, source: impl Into<BoxDynError>) -> Error {
    Error::ColumnDecode { index: format!("{column:?}"), source: source.into() }
}

/// A column with a text, read by `parse`.
pub(in crate::store) fn parsed<T, E: Into<BoxDynError>>(
    row: &impl SqlRow,
    column: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Error> {
    parse(row.text(column)?).map_err(|source| misread(column, source))
}

/// A column with a text that `parse` reads, or NULL.
fn parsed_if_any<T, E: Into<BoxDynError>>(
    row: &impl SqlRow,
    column: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, Error> {
    row.text_if_any(column)?.map(parse).transpose().map_err(|source| misread(column, source))
}

/// A column with a number that is never negative.
pub(in crate::store) fn number(row: &impl SqlRow, column: &str) -> Result<u64, Error> {
    u64::try_from(row.integer(column)?).map_err(|source| misread(column, source))
}

/// A column with a number that is never negative, or NULL.
pub(in crate::store) fn number_if_any(row: &impl SqlRow, column: &str) -> Result<Option<u64>, Error> {
    let number = row.integer_if_any(column)?.map(u64::try_from);
    number.transpose().map_err(|source| misread(column, source))
}

/// A column with a count of at most 32 bits.
pub(in crate::store) fn count(row: &impl SqlRow, column: &str) -> Result<u32, Error> {
    u32::try_from(row.integer(column)?).map_err(|source| misread(column, source))
}

pub(in crate::store) fn owned_text(row: &impl SqlRow, column: &str) -> Result<String, Error> {
    row.text(column).map(str::to_owned)
}

pub(in crate::store) fn owned_text_if_any(row: &impl SqlRow, column: &str) -> Result<Option<String>, Error> {
    Ok(row.text_if_any(column)?.map(str::to_owned))
}

pub(in crate::store) fn time(row: &impl SqlRow, column: &str) -> Result<Timestamp, Error> {
    number(row, column).map(Timestamp)
}

pub(in crate::store) fn seq(row: &impl SqlRow, column: &str) -> Result<Seq, Error> {
    number(row, column).map(Seq)
}

pub(in crate::store) fn tenant_id(row: &impl SqlRow, column: &str) -> Result<TenantId, Error> {
    parsed(row, column, |text| TenantId::parse(text))
}

pub(in crate::store) fn run_id(row: &impl SqlRow, column: &str) -> Result<RunId, Error> {
    parsed(row, column, |text| RunId::parse(text))
}

/// Id of a question of this run: its column `question` has the rest.
pub(in crate::store) fn request_id(run: &RunId, row: &impl SqlRow) -> Result<RequestId, Error> {
    parsed(row, "question", |rest| RequestId::parse(format!("{run}:{rest}")))
}

pub(in crate::store) fn session_id(row: &impl SqlRow, column: &str) -> Result<SessionId, Error> {
    parsed(row, column, |text| SessionId::parse(text))
}

pub(in crate::store) fn session_id_if_any(
    row: &impl SqlRow,
    column: &str,
) -> Result<Option<SessionId>, Error> {
    parsed_if_any(row, column, |text| SessionId::parse(text))
}

/// Id of a run, or NULL.
pub(in crate::store) fn run_id_if_any(row: &impl SqlRow, column: &str) -> Result<Option<RunId>, Error> {
    parsed_if_any(row, column, |text| RunId::parse(text))
}

/// Id of the live run of a session, if it has one.
pub(in crate::store) fn live_run(row: &impl SqlRow) -> Result<Option<RunId>, Error> {
    run_id_if_any(row, "live_run")
}

pub(in crate::store) fn digest(row: &impl SqlRow, column: &str) -> Result<Digest, Error> {
    parsed(row, column, |text| serde_json::from_value(serde_json::Value::from(text)))
}

/// A column with JSON of this type.
pub(in crate::store) fn json<T: DeserializeOwned>(row: &impl SqlRow, column: &str) -> Result<T, Error> {
    parsed(row, column, |text| serde_json::from_str(text))
}

/// A column with JSON of this type, or NULL.
pub(in crate::store) fn json_if_any<T: DeserializeOwned>(
    row: &impl SqlRow,
    column: &str,
) -> Result<Option<T>, Error> {
    parsed_if_any(row, column, |text| serde_json::from_str(text))
}

/// A column with the code of a run's status.
pub(in crate::store) fn status(row: &impl SqlRow, column: &str) -> Result<RunStatus, Error> {
    status_of(column, row.integer(column)?)
}

/// A column with the code of a run's status, or NULL.
pub(in crate::store) fn status_if_any(row: &impl SqlRow, column: &str) -> Result<Option<RunStatus>, Error> {
    row.integer_if_any(column)?.map(|code| status_of(column, code)).transpose()
}

fn status_of(column: &str, code: i64) -> Result<RunStatus, Error> {
    RunStatus::of_code(code).ok_or_else(|| misread(column, "no such status"))
}
