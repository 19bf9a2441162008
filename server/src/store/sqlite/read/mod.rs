//! Queries of SQLite. Most are those of [`sql::read`](crate::store::sql::read). A search and the sums of usage differ in more than
//! their words.

pub(super) mod audit;
mod dialect;
mod search;
mod usage;

use std::fmt::Display;

use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Error, Sqlite, SqlitePool};

pub(super) use self::dialect::SqliteDialect;
pub(super) use self::search::find;
#[cfg(test)]
pub(super) use self::search::{HITS, LENGTHS, MATCHES};
#[cfg(test)]
pub(super) use self::usage::usage_query;
pub(super) use self::usage::{keep_usage_query, usage};
use crate::store::StoreError;
use crate::store::sql::query::{Query, Value};
use crate::store::sql::reader::{SqlReader, TwoLists};
use crate::store::sqlite::rows;

impl SqlReader for SqlitePool {
    type Dialect = SqliteDialect;
    type Row = SqliteRow;

    async fn rows(&self, query: Query) -> Result<Vec<SqliteRow>, Error> {
        prepared(query).fetch_all(self).await
    }

    async fn row(&self, query: Query) -> Result<Option<SqliteRow>, Error> {
        prepared(query).fetch_optional(self).await
    }

    async fn rows_then(
        &self,
        first: Query,
        second: impl Fn(&[SqliteRow]) -> Result<Query, Error> + Send + Sync,
    ) -> Result<TwoLists<SqliteRow>, Error> {
        let mut state = self.begin().await?;
        let first = prepared(first).fetch_all(&mut *state).await?;
        let second = prepared(second(&first)?).fetch_all(&mut *state).await?;
        Ok(TwoLists { first, second })
    }

    /// A file has one server, and all of it is its own.
    fn in_scope(&self, query: Query) -> Query {
        query
    }

    fn failure(what: impl Display, error: &Error) -> StoreError {
        rows::failure(what, error)
    }
}

/// The query as sqlx takes it.
pub(super) fn prepared(query: Query) -> sqlx::query::Query<'static, Sqlite, SqliteArguments> {
    let (text, values) = query.into_parts();
    values.into_iter().fold(sqlx::query(text), |query, value| match value {
        Value::Text(text) => query.bind(text),
        Value::Number(number) => query.bind(number),
    })
}
