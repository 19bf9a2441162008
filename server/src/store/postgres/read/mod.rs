//! Queries of PostgreSQL. Most are those of [`sql::read`](crate::store::sql::read). A search and the sums of usage differ in more
//! than their words.

pub(super) mod audit;
mod dialect;
mod search;
mod shard;
mod start;
pub(super) mod usage;

use std::borrow::Cow;
use std::fmt::Display;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Connection as _, Error, Postgres};

pub(super) use self::dialect::PostgresDialect;
pub(super) use self::search::find;
pub(super) use self::start::start_view;
pub(super) use self::usage::{keep_usage, usage};
use crate::store::StoreError;
use crate::store::postgres::connect::readers::Readers;
use crate::store::postgres::rows::{self, clean};
use crate::store::sql::query::{Query, Value};
use crate::store::sql::reader::{SqlReader, TwoLists};

/// Each query is bounded in time, and made again if its connection is lost.
impl SqlReader for Readers {
    type Dialect = PostgresDialect;
    type Row = PgRow;

    async fn rows(&self, query: Query) -> Result<Vec<PgRow>, Error> {
        self.retried(|| prepared(query.clone()).fetch_all(&**self)).await
    }

    async fn row(&self, query: Query) -> Result<Option<PgRow>, Error> {
        self.retried(|| prepared(query.clone()).fetch_optional(&**self)).await
    }

    async fn rows_then(
        &self,
        first: Query,
        second: impl Fn(&[PgRow]) -> Result<Query, Error> + Send + Sync,
    ) -> Result<TwoLists<PgRow>, Error> {
        let (first, second) = (&first, &second);
        self.retried(|| async move {
            let mut reader = self.acquire().await?;
            let mut state = reader.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
            let first = prepared(first.clone()).fetch_all(&mut *state).await?;
            let second = prepared(second(&first)?).fetch_all(&mut *state).await?;
            Ok(TwoLists { first, second })
        })
        .await
    }

    fn in_scope(&self, query: Query) -> Query {
        query.with(self.shards().as_deref())
    }

    fn failure(what: impl Display, error: &Error) -> StoreError {
        rows::failure(what, error)
    }
}

/// The query as sqlx takes it. PostgreSQL knows no text with NUL.
pub(super) fn prepared(query: Query) -> sqlx::query::Query<'static, Postgres, PgArguments> {
    let (text, values) = query.into_parts();
    values.into_iter().fold(sqlx::query(text), |query, value| match value {
        Value::Text(text) => query.bind(text.map(cleaned)),
        Value::Number(number) => query.bind(number),
    })
}

fn cleaned(text: String) -> String {
    match clean(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(clean) => clean,
    }
}
