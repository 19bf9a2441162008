//! What was said while nothing was indexed comes into the index: in the background, a few messages at a time, through
//! the writer and between the writes of others.
//!
//! **Invariant:** a file that says it is filled has every message in the index that was said before it said so. One
//! that was interrupted is gone through again; what has a document already is passed over.

use futures_util::TryStreamExt as _;
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _, SqliteConnection, SqlitePool};
use tokio::sync::{mpsc, oneshot};

use crate::store::StoreError;
use crate::store::sqlite::index::{self, Indexed};
use crate::store::sqlite::rows;
use crate::store::sqlite::write::task::{Job, Op};

/// Messages that are indexed in one write.
const BATCH_MESSAGES_MAX: u32 = 64;
/// Bytes of events that are read for one write, give or take the last.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// What has no document, in the order of the sessions' entries. Events without words are passed over here.
pub(in crate::store::sqlite) const UNINDEXED: &str = "
    SELECT i.session_no, i.entry_no, i.run_no, i.seq, coalesce(e.payload, k.payload) AS payload
    FROM session_entries AS i
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
    WHERE (i.session_no, i.entry_no) > (?1, ?2) AND i.search_no IS NULL
      AND coalesce(e.payload, k.payload) ->> '$.kind' IN ('input_added', 'input_held', 'assistant_message')
    ORDER BY i.session_no, i.entry_no LIMIT ?3";

/// Where the event of an entry stands, if the entry is still there and has no document.
pub(in crate::store::sqlite) const STANDING: &str = "
    SELECT coalesce(owner, session_no) AS home, keep FROM session_entries
    WHERE session_no = ?1 AND entry_no = ?2 AND run_no = ?3 AND seq = ?4 AND search_no IS NULL";

/// The entry in the session that its event belongs to: forks have it under the same number.
pub(in crate::store::sqlite) const NUMBER_OWN: &str = "
    UPDATE session_entries SET search_no = ?1
    WHERE session_no = ?2 AND entry_no = ?5 AND run_no = ?3 AND seq = ?4 AND keep IS NULL";

/// The entries of its forks.
pub(in crate::store::sqlite) const NUMBER_LENT: &str = "
    UPDATE session_entries INDEXED BY session_entries_lent SET search_no = ?1
    WHERE owner = ?2 AND run_no = ?3 AND seq = ?4";

/// The entries of what is kept of a deleted session.
pub(in crate::store::sqlite) const NUMBER_KEPT: &str = "
    UPDATE session_entries INDEXED BY session_entries_kept SET search_no = ?1
    WHERE keep = ?2 AND run_no = ?3 AND seq = ?4";

/// A few messages to be indexed.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct Batch {
    documents: Vec<(Place, String)>,
    /// Whether nothing follows.
    last: bool,
    /// How often the index had been made anew when the filling began.
    renewed: i64,
}

#[cfg(test)]
impl Batch {
    /// One with nothing in it and nothing behind it.
    pub(in crate::store::sqlite) fn last(renewed: i64) -> Self {
        Self { documents: Vec::new(), last: true, renewed }
    }
}

/// An entry and its event, by the numbers of its session and run.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    session: i64,
    entry: i64,
    run: i64,
    seq: i64,
}

/// Fills the index, unless the file says that it is filled. Ends early with the store; the next start goes on.
pub(in crate::store::sqlite) async fn run(readers: SqlitePool, jobs: mpsc::WeakSender<Job>) {
    match fill(&readers, &jobs).await {
        Ok(0) => {}
        Ok(messages) => tracing::info!(messages, "what was said before is in the index"),
        Err(_) if readers.is_closed() => {}
        Err(error) => {
            tracing::warn!(%error, "not all that was said before is in the index; the next start goes on")
        }
    }
}

/// How many messages were indexed.
async fn fill(readers: &SqlitePool, jobs: &mpsc::WeakSender<Job>) -> Result<usize, StoreError> {
    let failed = |error: Error| rows::failure("filling of the index", &error);
    let Some(renewed) = unfilled(readers).await.map_err(failed)? else { return Ok(0) };
    let (mut place, mut messages) = (Place::default(), 0);
    loop {
        let (mut batch, read_to) = next(readers, place).await.map_err(failed)?;
        batch.renewed = renewed;
        let is_last = batch.last;
        messages += batch.documents.len();
        if is_last || !batch.documents.is_empty() {
            write(jobs, batch).await?;
        }
        if is_last {
            return Ok(messages);
        }
        place = read_to;
    }
}

/// How often the index was made anew; `None` where it is filled.
async fn unfilled(readers: &SqlitePool) -> Result<Option<i64>, Error> {
    let sql = "SELECT iif(EXISTS (SELECT 1 FROM meta WHERE key = 'search_filled'), NULL,
                          coalesce((SELECT value FROM meta WHERE key = 'search_renewed'), 0)) AS renewed";
    sqlx::query(sql).fetch_one(readers).await?.try_get("renewed")
}

/// The messages after this place, and how far was read for them.
async fn next(readers: &SqlitePool, after: Place) -> Result<(Batch, Place), Error> {
    let query = sqlx::query(UNINDEXED).bind(after.session).bind(after.entry).bind(BATCH_MESSAGES_MAX);
    let mut found = query.fetch(readers);
    let (mut batch, mut place, mut rows, mut bytes) = (Batch::default(), after, 0, 0);
    while bytes < BATCH_BYTES_MAX
        && let Some(row) = found.try_next().await?
    {
        let here = read_place(&row)?;
        rows += 1;
        bytes += row.try_get::<&str, _>("payload")?.len();
        if let Indexed::Words(words) = index::words(&rows::json(&row, "payload")?) {
            batch.documents.push((here, words));
        }
        place = here;
    }
    batch.last = rows < BATCH_MESSAGES_MAX && bytes < BATCH_BYTES_MAX;
    Ok((batch, place))
}

fn read_place(row: &SqliteRow) -> Result<Place, Error> {
    Ok(Place {
        session: row.try_get("session_no")?,
        entry: row.try_get("entry_no")?,
        run: row.try_get("run_no")?,
        seq: row.try_get("seq")?,
    })
}

/// The sender is taken for as long as the write is on its way, so that a store that is dropped ends.
async fn write(jobs: &mpsc::WeakSender<Job>, batch: Batch) -> Result<(), StoreError> {
    let (reply, answer) = oneshot::channel();
    let jobs = jobs.upgrade().ok_or_else(crate::store::sqlite::closed)?;
    jobs.send(Job { op: Op::Index(batch), reply }).await.map_err(|_| crate::store::sqlite::closed())?;
    drop(jobs);
    answer.await.map_err(|_| crate::store::sqlite::closed())?.map(drop)
}

/// Gives each message that is still there and has no document one, and says so when all have; not where the index was
/// made anew meanwhile, with which those before have none again.
///
/// Whoever numbers documents beside the appends has to make the writer forget the last number: see
/// [`Op::invalidate`].
pub(in crate::store::sqlite) async fn index(db: &mut SqliteConnection, batch: &Batch) -> Result<(), Error> {
    let sql = "SELECT coalesce(max(search_no), 0) AS last FROM session_entries WHERE search_no IS NOT NULL";
    let mut last: i64 = sqlx::query(sql).fetch_one(&mut *db).await?.try_get("last")?;
    for (place, words) in &batch.documents {
        if number(db, *place, last + 1).await? {
            last += 1;
            let sql = "INSERT INTO search_index (rowid, text) VALUES (?1, ?2)";
            sqlx::query(sql).bind(last).bind(words.as_str()).execute(&mut *db).await?;
        }
    }
    if batch.last {
        let sql = "INSERT OR REPLACE INTO meta (key, value)
                   SELECT 'search_filled', 1
                   WHERE coalesce((SELECT value FROM meta WHERE key = 'search_renewed'), 0) = ?1";
        sqlx::query(sql).bind(batch.renewed).execute(db).await?;
    }
    Ok(())
}

/// Without search, the file is filled no longer: what is said from here on is not indexed. With it, one that has
/// nothing to index is filled.
pub(in crate::store::sqlite) async fn begin(db: &mut SqliteConnection, search: bool) -> Result<(), Error> {
    let sql = match search {
        true => {
            "INSERT OR IGNORE INTO meta (key, value)
             SELECT 'search_filled', 1 WHERE NOT EXISTS (SELECT 1 FROM session_entries)"
        }
        false => "DELETE FROM meta WHERE key = 'search_filled'",
    };
    sqlx::query(sql).execute(db).await?;
    Ok(())
}

/// Gives the entry, and every other that shares its event, this document. `false`: it is gone, or has one.
async fn number(db: &mut SqliteConnection, place: Place, number: i64) -> Result<bool, Error> {
    let Place { session, entry, run, seq } = place;
    let standing = sqlx::query(STANDING).bind(session).bind(entry).bind(run).bind(seq);
    let Some(row) = standing.fetch_optional(&mut *db).await? else { return Ok(false) };
    let of_event = |sql, owner: i64| sqlx::query(sql).bind(number).bind(owner).bind(run).bind(seq);
    if let Some(keep) = row.try_get("keep")? {
        of_event(NUMBER_KEPT, keep).execute(db).await?;
        return Ok(true);
    }
    let home = row.try_get("home")?;
    of_event(NUMBER_OWN, home).bind(entry).execute(&mut *db).await?;
    of_event(NUMBER_LENT, home).execute(db).await?;
    Ok(true)
}
