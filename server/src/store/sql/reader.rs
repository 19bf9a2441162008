//! The reading side of either database, with its SQL where the two differ.

use std::collections::BTreeMap;
use std::fmt::Display;

use sqlx::Error;

use super::column::SqlRow;
use super::query::Query;
use crate::store::StoreError;

/// Connections that read. A query sees every write that was answered before it began.
pub(in crate::store) trait SqlReader: Sync {
    /// The SQL of this database.
    type Dialect: Dialect;
    /// A row of its tables.
    type Row: SqlRow + Send + Sync;

    /// The rows of a query.
    fn rows(&self, query: Query) -> impl Future<Output = Result<Vec<Self::Row>, Error>> + Send;

    /// The row of a query that has one at most.
    fn row(&self, query: Query) -> impl Future<Output = Result<Option<Self::Row>, Error>> + Send;

    /// The rows of a query, and those of a second one that depends on them. Both see the same state.
    fn rows_then(
        &self,
        first: Query,
        second: impl Fn(&[Self::Row]) -> Result<Query, Error> + Send + Sync,
    ) -> impl Future<Output = Result<TwoLists<Self::Row>, Error>> + Send;

    /// Adds the shards of this server as the last value, where the database is shared.
    fn in_scope(&self, query: Query) -> Query;

    /// An error of SQL as an error of the store. `what` names the row or list that was read.
    fn failure(what: impl Display, error: &Error) -> StoreError;
}

/// The rows of two queries that see the same state.
pub(in crate::store) struct TwoLists<T> {
    pub(in crate::store) first: Vec<T>,
    pub(in crate::store) second: Vec<T>,
}

/// The SQL of one database. A text whose name is not explained here is described where it is used.
pub(in crate::store) trait Dialect {
    const ENTRIES: &str;
    const SESSIONS: &str;
    /// The preview in the rows of [`Self::SESSIONS`], for conditions.
    const SHOWN_PREVIEW: &str;
    const STORED_BYTES: &str;
    const STORED_BYTES_OF: &str;
    const RUNS: &str;
    const RECORDS: &str;
    const STRETCH: &str;
    const SESSION_RUNS: &str;
    const CALL_TITLES: &str;
    /// Takes the shards as `$1`.
    const UNFINISHED: &str;
    /// Takes the shards as `$2`.
    const DUE: &str;
    const NEXT_QUEUED: &str;
    /// Takes the shards as `$1`.
    const QUEUE_HEADS: &str;
    /// Takes the shards as `$1`.
    const INTERRUPTED: &str;
    const INTERRUPTED_IN: &str;
    /// Takes the shards as `$4`.
    const TENANTS_WITH_JOBS: &str;
    /// Takes the shards as `$4`.
    const DUE_JOBS: &str;
    /// The operator that finds a pattern in any case of ASCII letters.
    const LIKE: &str;
    /// The function that finds a text in a text: the position from 1, or 0.
    const POSITION: &str;

    /// Adds the condition that a column with a JSON object has all of these labels.
    fn labels(query: &mut Query, column: &str, labels: &BTreeMap<String, String>);

    /// Adds the condition that a session has this label, user or project, for which there is an index.
    fn session_label(query: &mut Query, key: &str, value: &str);

    /// Adds the condition that a session is of this user and project. A project that is empty is not one that is missing. The
    /// sessions of the user are found by their index.
    fn session_of(query: &mut Query, user: &str, project: Option<&str>);
}
