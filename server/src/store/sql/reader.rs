//! The reading side of either database, with its SQL where the two differ.

use std::collections::BTreeMap;
use std::fmt::Display;

use sqlx::Error;

use super::column::SqlRow;
use super::query::Query;
use crate::store::StoreError;

/// Connections that read. A query sees every write that was acknowledged before it began.
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

/// The SQL of one database, where it differs. `$1` is the tenant, and `$2` the session, run or caller, unless the text says
/// otherwise. The shards are those of this server; NULL means all.
pub(in crate::store) trait Dialect {
    /// Entries of a session after `$3`, at most `$4` rows whose events have at most `$5` bytes before the last one. The event of
    /// an entry is in a journal, or among the kept events if the journal was deleted. The database knows the size of an event
    /// without reading it. `upto` is the last entry that exists, at most one more than the number of records admits.
    const ENTRIES: &str;
    /// Sessions with the ids of their live runs, what their last runs say, and a preview. It ends where the tenant follows.
    /// `touched_at` is the time of the last entry. `updated_at` has an index, and may be earlier while a run goes on.
    const SESSIONS: &str;
    /// `touched_at` of a row `s` of `sessions`, to sort by.
    const TOUCHED_AT: &str;
    /// The preview in the rows of [`Self::SESSIONS`], for conditions.
    const SHOWN_PREVIEW: &str;
    /// Bytes of the events and blobs of a tenant.
    const STORED_BYTES: &str;
    /// The same of one caller.
    const STORED_BYTES_OF: &str;
    /// Runs with the ids of their sessions. It ends where the tenant follows.
    const RUNS: &str;
    /// Events of a run after `$3`, at most `$4` rows. The first one has the run's spec beside it.
    const RECORDS: &str;
    /// The same, with at most `$5` bytes before the last one. `upto` is the last event that the number of records admits.
    const STRETCH: &str;
    /// A session's newest number, and its runs that are live or wait in its queue, with the first `$4` that come after `$3`.
    const SESSION_RUNS: &str;
    /// The proposals of calls between the events of a session's entries after `$3` up to `$4`, and up to `$5` events behind the
    /// last one of each run. Journals that were deleted while forks share their entries are not there. The kind comes first in
    /// each payload.
    const CALL_TITLES: &str;
    /// Runs that a start of the server has to continue. `$1` are the shards.
    const UNFINISHED: &str;
    /// The first `$1` parked runs by the time at which they are due. `$2` are the shards.
    const DUE: &str;
    /// The first run in the queue of the session of number `$1`.
    const FIRST_QUEUED: &str;
    /// The run that may enter a session now.
    const NEXT_QUEUED: &str;
    /// One row with a flag: some run is in a queue. The query looks for one row and stops.
    const ANY_QUEUED: &str;
    /// The runs that may enter their sessions now, one for each session. `$1` are the shards.
    const QUEUE_HEADS: &str;
    /// Live runs that a queued run interrupts: its number is below that of ordinary ones. `$1` are the shards.
    const INTERRUPTED: &str;
    /// The same of one session.
    const INTERRUPTED_IN: &str;
    /// The first `$3` tenants after `$1` with jobs that are due at `$2`, by their ids. The query goes from tenant to tenant by the
    /// index, whatever the number of their jobs. `$4` are the shards.
    const TENANTS_WITH_JOBS: &str;
    /// The first `$3` jobs of a tenant that are due at `$2`. `$4` are the shards.
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
