//! The rest of large sessions that were deleted, which a task deletes in slices.
//!
//! The deletion itself takes away the rows by which a session and its runs are found, and notes what is left
//! (`write/sessions.rs`). No slice takes long, so the others go on. It needs no fence: any server may delete what nobody finds
//! any more, and one passes over what another has locked.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection as _, Error, PgConnection, Row as _};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::connect::readers::Readers;
use super::connect::settings;
use crate::lifecycle::Tasks;

/// Deleted runs whose events are looked for in one slice.
const SLICE_RUNS: i64 = 64;
/// Rows of a slice: events of runs, or entries of a session.
const SLICE_ROWS: i64 = 2_000;
/// Bytes of the events of a slice, give or take its last one.
const SLICE_BYTES: i64 = 16 * 1024 * 1024;
/// Rows that are left, and that another server may have locked, or had before it died.
const ARE_LEFT: &str = "
    SELECT EXISTS (SELECT 1 FROM deleted_runs) OR EXISTS (SELECT 1 FROM deleted_sessions) AS are_left";
/// Locks what the session of number `$1` shares with others. Each set of events that are shared has the number of the session
/// that they come from, whether that is deleted or not, and so has each set of documents. Other sessions refer to its own
/// events by `owner`, and after its deletion by `keep`.
pub(in crate::store::postgres) const LOCK_SHARED: &str = "
    WITH shared AS MATERIALIZED (
        SELECT coalesce(owner, keep) AS no FROM session_entries
        WHERE session_no = $1 AND (owner IS NOT NULL OR keep IS NOT NULL)
        UNION
        SELECT $1 WHERE EXISTS (SELECT 1 FROM session_entries WHERE owner = $1)
                     OR EXISTS (SELECT 1 FROM session_entries WHERE keep = $1)
        ORDER BY no)
    SELECT pg_advisory_xact_lock(hashtextextended('agentloop shared ' || no || ' ' || current_schema(), 0)) FROM shared";
/// The wait after a slice that failed, or while another server has the rest.
const RETRY_WAIT: Duration = Duration::from_secs(1);
/// Slices that fail in a row until the log says so. A few do while a write has locked what they need.
const FAILURES_TOLD: u32 = 10;

const RUNS: &str = "SELECT run_no FROM deleted_runs ORDER BY run_no LIMIT $1 FOR UPDATE SKIP LOCKED";

/// Deletes the first events of these runs. The database knows the size of an event without reading it.
const DELETE_EVENTS: &str = "
    WITH slice AS MATERIALIZED (
        SELECT n.run_no, n.seq FROM (
            SELECT o.run_no, o.seq, coalesce(sum(o.size) OVER (
                       ORDER BY o.run_no, o.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
            FROM (SELECT e.run_no, e.seq, octet_length(e.payload) AS size FROM run_events AS e
                  WHERE e.run_no = ANY ($1) ORDER BY e.run_no, e.seq LIMIT $2) AS o) AS n
        WHERE n.before < $3)
    DELETE FROM run_events AS e USING slice WHERE e.run_no = slice.run_no AND e.seq = slice.seq";

/// Forgets those of these runs that have no event any more.
const FORGET_RUNS: &str = "
    DELETE FROM deleted_runs AS d
    WHERE d.run_no = ANY ($1) AND NOT EXISTS (SELECT 1 FROM run_events AS e WHERE e.run_no = d.run_no)";

const SESSION: &str =
    "SELECT session_no FROM deleted_sessions ORDER BY session_no LIMIT 1 FOR UPDATE SKIP LOCKED";

/// The last entry of the slice of the session of number `$1`.
const LAST_ENTRY: &str = "
    SELECT max(entry_no) AS last FROM (
        SELECT entry_no FROM session_entries WHERE session_no = $1 ORDER BY entry_no LIMIT $2) AS slice";

/// Documents of entries up to `$2` that the session of number `$1` shares with no other.
const OWN_DOCUMENTS: &str = "
    SELECT i.search_no FROM session_entries AS i
    WHERE i.session_no = $1 AND i.entry_no <= $2 AND i.search_no IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM session_entries AS o
                      WHERE o.search_no = i.search_no AND o.session_no <> i.session_no)";

/// Deletes the entries up to `$2` of the session of number `$1`, and what it shares with no other of what they refer to.
const DELETE_ENTRIES: [&str; 4] = [
    "DELETE FROM kept_events AS k
     USING session_entries AS i
     WHERE i.session_no = $1 AND i.entry_no <= $2 AND i.keep = k.keep AND i.run_no = k.run_no AND i.seq = k.seq
       AND NOT EXISTS (
           SELECT 1 FROM session_entries AS o
           WHERE o.keep = i.keep AND o.run_no = i.run_no AND o.seq = i.seq AND o.session_no <> i.session_no)",
    "DELETE FROM session_entries WHERE session_no = $1 AND entry_no <= $2",
    "DELETE FROM session_todos WHERE session_no = $1 AND entry_no <= $2",
    "DELETE FROM session_blobs WHERE session_no = $1 AND entry_no <= $2",
];

/// A handle to the task.
#[derive(Debug, Clone)]
pub(in crate::store::postgres) struct DeletedRows {
    db: Readers,
    noted: Arc<Notify>,
}

impl DeletedRows {
    /// Starts the task, which first looks for what earlier servers have left. It ends when `closing` is cancelled.
    pub(in crate::store::postgres) fn start(db: Readers, closing: CancellationToken, tasks: &Tasks) -> Self {
        let rows = Self { db, noted: Arc::default() };
        let _supervised = tasks.spawn("deleted rows", rows.clone().run(closing));
        rows.look();
        rows
    }

    /// Has the task look for rows: a session was deleted, or may have been, or a server that deleted some may have died.
    pub(in crate::store::postgres) fn look(&self) {
        self.noted.notify_one();
    }

    async fn run(self, closing: CancellationToken) {
        let working = async {
            let mut failures = Failures::default();
            loop {
                self.noted.notified().await;
                loop {
                    match self.delete_all(&mut failures).await {
                        Ok(true) => break,
                        Ok(false) => {}
                        Err(_) if self.db.is_closed() => return,
                        Err(error) if failures.add() => {
                            let what = "rows of deleted sessions cannot be deleted, and take room; trying again each second";
                            tracing::warn!(%error, failures = FAILURES_TOLD, "{what}");
                        }
                        Err(error) => {
                            tracing::debug!(%error, "rows of deleted sessions are still there; trying again");
                        }
                    }
                    tokio::time::sleep(RETRY_WAIT).await;
                }
            }
        };
        let _closed = closing.run_until_cancelled(working).await;
    }

    /// Deletes all that is not locked. True if nothing is left.
    async fn delete_all(&self, failures: &mut Failures) -> Result<bool, Error> {
        loop {
            let is_more = self.db.in_time(self.delete_slice()).await??;
            if failures.end() {
                tracing::warn!("rows of deleted sessions can be deleted again");
            }
            if !is_more {
                break;
            }
        }
        let row = self.db.in_time(sqlx::query(ARE_LEFT).fetch_one(&*self.db)).await??;
        row.try_get::<bool, _>("are_left").map(|are_left| !are_left)
    }

    /// Deletes one slice. False if there is nothing left that is not locked.
    async fn delete_slice(&self) -> Result<bool, Error> {
        let mut reader = self.db.acquire().await?;
        let mut transaction = reader.begin().await?;
        settings::delete_beside_others(&mut transaction).await?;
        let is_more = delete_events(&mut transaction).await? || delete_entries(&mut transaction).await?;
        let committed = transaction.commit().await;
        reader.settle(&committed);
        committed.map(|()| is_more)
    }
}

/// Slices that have failed in a row.
#[derive(Debug, Default)]
struct Failures(u32);

impl Failures {
    /// Counts one more. True if it is the one that the log tells of.
    fn add(&mut self) -> bool {
        self.0 = self.0.saturating_add(1);
        self.0 == FAILURES_TOLD
    }

    /// Forgets them, since a slice has succeeded. True if the log has told of them.
    fn end(&mut self) -> bool {
        std::mem::take(&mut self.0) >= FAILURES_TOLD
    }
}

/// False if there are none.
async fn delete_events(db: &mut PgConnection) -> Result<bool, Error> {
    let runs = sqlx::query(RUNS).bind(SLICE_RUNS).fetch_all(&mut *db).await?;
    let runs = runs.iter().map(|row| row.try_get("run_no")).collect::<Result<Vec<i64>, _>>()?;
    if runs.is_empty() {
        return Ok(false);
    }
    sqlx::query(DELETE_EVENTS).bind(&runs).bind(SLICE_ROWS).bind(SLICE_BYTES).execute(&mut *db).await?;
    sqlx::query(FORGET_RUNS).bind(runs).execute(db).await.map(|_| true)
}

/// False if there are none.
async fn delete_entries(db: &mut PgConnection) -> Result<bool, Error> {
    let Some(row) = sqlx::query(SESSION).fetch_optional(&mut *db).await? else { return Ok(false) };
    let session: i64 = row.try_get("session_no")?;
    // As in the deletion of a whole session: of several that share something, the last finds that it is the last.
    sqlx::query(LOCK_SHARED).bind(session).execute(&mut *db).await?;
    let row = sqlx::query(LAST_ENTRY).bind(session).bind(SLICE_ROWS).fetch_one(&mut *db).await?;
    let last: Option<i64> = row.try_get("last")?;
    let upto = last.unwrap_or(i64::MAX);
    let documents = sqlx::query(OWN_DOCUMENTS).bind(session).bind(upto).fetch_all(&mut *db).await?;
    let documents = documents.iter().map(|row| row.try_get("search_no")).collect::<Result<Vec<i64>, _>>()?;
    for sql in DELETE_ENTRIES {
        sqlx::query(sql).bind(session).bind(upto).execute(&mut *db).await?;
    }
    // After the entries: whoever adds a document locks its entry first.
    let sql = "DELETE FROM search_documents WHERE search_no = ANY ($1)";
    sqlx::query(sql).bind(documents).execute(&mut *db).await?;
    if last.is_none() {
        let sql = "DELETE FROM deleted_sessions WHERE session_no = $1";
        sqlx::query(sql).bind(session).execute(db).await?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_told_once_and_their_end_once() {
        let mut failures = Failures::default();
        assert!(!failures.add() && !failures.end(), "one alone is not told");
        for _ in 0..2 {
            let told = (1..=3 * FAILURES_TOLD).filter(|_| failures.add());
            assert_eq!(told.collect::<Vec<_>>(), [FAILURES_TOLD]);
            assert!(failures.end() && !failures.end());
        }
    }
}
