//! The search index: a table with the words of each message, filled by a task of its own.
//!
//! The writer numbers each message of a user or a model; entries of forks share the number. The index has a document under
//! that number. Each server gives out numbers of a block of its own, in their order, and the index knows the last number that
//! it has of each block. So it finds what it lacks of every server, also of one that has died. A search first waits until
//! every acknowledged message is in the index, whoever wrote it.
//!
//! Several servers may fill the same block at once. A document is added once, and a block goes on only from where the server
//! that added to it has seen it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use agentloop_core::id::TenantId;
use agentloop_core::message::Role;
use sqlx::postgres::PgRow;
use sqlx::{Connection as _, Error, PgConnection, Row as _};
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use super::connect::readers::Readers;
use super::connect::settings;
use super::{rows, words};
use crate::lifecycle::Tasks;
use crate::store::StoreError;
use crate::store::support::codec::{self, StoredEvent};

/// Messages of a batch. A search does not wait until a batch is full.
const BATCH_MESSAGES: usize = 256;
/// Bytes of the events of a batch, give or take its last one.
const BATCH_BYTES: i64 = 1024 * 1024;
/// Longest wait of a search for an index that is being filled. Filling may take minutes for a large database.
const FILLED_TIMEOUT: Duration = Duration::from_secs(10);

/// Messages that the index lacks: the next ones of each block, each once, in the order of their numbers, with at most `$3` bytes
/// before the last one. With `$2`, only of the blocks of that server. `$4` and `$5` have blocks and numbers that are passed over
/// in them. The limits of one row keep PostgreSQL from reading whole tables to find the few that are meant. `has_more` is true
/// of the last one if the block may have more. The database knows the size of an event without reading it. Entries of deleted
/// sessions are left out: their messages cannot be read any more, but a fork may have the same ones.
const UNINDEXED: &str = "
    SELECT *, place < found OR found = $1 AS has_more FROM (
    SELECT g.first, g.upto, i.search_no, coalesce(r.run_id, k.run_id) AS run_id, i.seq,
           coalesce(e.at, k.at) AS at, coalesce(e.status, k.status) AS status, coalesce(e.version, k.version) AS version,
           coalesce(e.payload, k.payload) AS payload,
           CASE WHEN i.keep IS NULL THEN e.checksum ELSE k.checksum END AS checksum,
           row_number() OVER (PARTITION BY g.first ORDER BY i.search_no) AS place,
           count(*) OVER (PARTITION BY g.first) AS found,
           coalesce(sum(octet_length(coalesce(e.payload, k.payload))) OVER (
               PARTITION BY g.first ORDER BY i.search_no ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM search_blocks AS g
    LEFT JOIN unnest($4::bigint[], $5::bigint[]) AS p (first, after) ON p.first = g.first
    CROSS JOIN LATERAL (
        SELECT DISTINCT ON (o.search_no) o.search_no, o.run_no, o.seq, o.keep
        FROM session_entries AS o
        WHERE o.search_no > greatest(g.upto, p.after) AND o.search_no < g.until
          AND (SELECT d.session_no FROM deleted_sessions AS d WHERE d.session_no = o.session_no) IS NULL
        ORDER BY o.search_no LIMIT $1) AS i
    LEFT JOIN LATERAL (
        SELECT * FROM runs AS t WHERE i.keep IS NULL AND t.run_no = i.run_no LIMIT 1) AS r ON true
    LEFT JOIN LATERAL (
        SELECT * FROM run_events AS t
        WHERE i.keep IS NULL AND t.run_no = i.run_no AND t.seq = i.seq LIMIT 1) AS e ON true
    LEFT JOIN LATERAL (
        SELECT * FROM kept_events AS t
        WHERE t.keep = i.keep AND t.run_no = i.run_no AND t.seq = i.seq LIMIT 1) AS k ON true
    WHERE NOT g.is_done AND ($2::bigint IS NULL OR g.owner_no = $2)
    ) AS n
    WHERE before < $3
    ORDER BY first, search_no";

/// Adds documents of entries that are there still, and tells which are. The entries are locked: a deletion that comes later
/// finds the documents. Those that a deletion has locked are left out: it may take long.
const ADD: &str = "
    WITH there AS MATERIALIZED (
        SELECT search_no FROM session_entries WHERE search_no = ANY ($1) FOR KEY SHARE SKIP LOCKED),
    added AS (
        INSERT INTO search_documents (search_no, words)
        SELECT v.no, to_tsvector('agentloop', v.words) FROM unnest($1::bigint[], $2::text[]) AS v (no, words)
        WHERE v.no IN (SELECT search_no FROM there)
        ORDER BY v.no
        ON CONFLICT (search_no) DO NOTHING)
    SELECT DISTINCT search_no FROM there";

/// The first of these messages that is there, and was left out: a deletion has locked it, or a fork of it has just come.
const FIRST_LEFT_OUT: &str = "SELECT min(search_no) AS first FROM session_entries WHERE search_no = ANY ($1)";

/// Blocks that are at their end, of which the index has everything, are looked at no more. An owner takes its next block after
/// its last commit with numbers of the one before, and its row goes after its last commit of all. So a look that finds it so
/// finds all messages of the block.
const CLOSE_BLOCKS: &str = "
    UPDATE search_blocks AS g SET is_done = true
    WHERE NOT g.is_done AND g.owner_no IS NOT NULL
      AND (NOT EXISTS (SELECT 1 FROM owners AS o WHERE o.owner_no = g.owner_no)
           OR EXISTS (SELECT 1 FROM search_blocks AS n WHERE n.owner_no = g.owner_no AND n.first > g.first))
      AND NOT EXISTS (SELECT 1 FROM session_entries AS i WHERE i.search_no > g.upto AND i.search_no < g.until)";

/// A handle to the index and the task that fills it.
#[derive(Debug, Clone)]
pub(in crate::store::postgres) struct Index {
    db: Readers,
    /// The server whose blocks the task fills. The others are filled by theirs, and by searches. `None`: all, of a server alone.
    own: Option<i64>,
    /// Messages that were acknowledged since a batch was last announced.
    unannounced: Arc<AtomicUsize>,
    batch_ready: Arc<Notify>,
    /// True after a search that could not wait for all blocks: the task fills them once.
    is_behind: Arc<AtomicBool>,
    /// Locked while the index is filled.
    filling: Arc<Mutex<()>>,
}

/// Messages of one block that are to be added.
#[derive(Debug, Default)]
struct Batch {
    /// The block, by the number before its first one.
    first: i64,
    /// The last number that the index had of the block.
    seen: i64,
    /// The last number of these messages.
    last: i64,
    /// True if the block may have more messages.
    has_more: bool,
    nos: Vec<i64>,
    texts: Vec<String>,
}

/// The outcome of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Added {
    /// The index has it, and the block goes on after it.
    All,
    /// The index has it but for messages of sessions that are being deleted, in this batch or an earlier one.
    WithoutLocked,
    /// Another server has changed the block since it was read.
    ReadAgain,
}

impl Index {
    /// Starts the task. It ends when `closing` is cancelled. `own` is the number of this server if there may be others.
    pub(in crate::store::postgres) fn start(
        db: Readers,
        own: Option<i64>,
        closing: CancellationToken,
        tasks: &Tasks,
    ) -> Self {
        let (unannounced, batch_ready, is_behind, filling) = Default::default();
        let index = Self { db, own, unannounced, batch_ready, is_behind, filling };
        let _supervised = tasks.spawn("search index", index.clone().run(closing));
        index
    }

    async fn run(self, closing: CancellationToken) {
        loop {
            self.close_blocks().await;
            if closing.run_until_cancelled(self.batch_ready.notified()).await.is_none() {
                return;
            }
            let own = if self.is_behind.swap(false, Ordering::Relaxed) { None } else { self.own };
            if let Err(error) = self.fill(own).await
                && !self.db.is_closed()
            {
                tracing::warn!(%error, "messages could not be added to the search index; the next search tries again");
            }
        }
    }

    /// Closes blocks, each of which every search would look at. The server begins one whenever it gains shards.
    async fn close_blocks(&self) {
        let closed = self.db.in_time(sqlx::query(CLOSE_BLOCKS).execute(&*self.db)).await;
        if let Err(error) = closed.map_err(Error::from).and_then(|done| done) {
            tracing::debug!(%error, "blocks of numbers that are at their end stay open until the next batch");
        }
    }

    /// Has the task add what there is, and close blocks that are at their end.
    pub(in crate::store::postgres) fn look(&self) {
        self.batch_ready.notify_one();
    }

    /// Counts messages that were acknowledged, and wakes the task once they make a batch.
    pub(in crate::store::postgres) fn note(&self, messages: usize) {
        if messages > 0
            && self.unannounced.fetch_add(messages, Ordering::Relaxed) + messages >= BATCH_MESSAGES
        {
            self.unannounced.store(0, Ordering::Relaxed);
            self.batch_ready.notify_one();
        }
    }

    /// Waits until the index has every message that any server acknowledged before.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if that takes longer than ten seconds, or fails.
    pub(in crate::store::postgres) async fn filled(&self) -> Result<(), StoreError> {
        match tokio::time::timeout(FILLED_TIMEOUT, self.fill(None)).await {
            Ok(filled) => filled.map_err(|error| rows::failure("filling of the search index", &error)),
            Err(_) => {
                self.is_behind.store(true, Ordering::Relaxed);
                self.batch_ready.notify_one();
                let what = "the search index is being filled, which takes minutes for a large database; try again later";
                Err(StoreError::Unavailable { what: what.to_owned() })
            }
        }
    }

    /// Adds everything that the blocks of `own` have, or those of all servers.
    async fn fill(&self, own: Option<i64>) -> Result<(), Error> {
        let _filling = self.filling.lock().await;
        let mut passed = BTreeMap::new();
        loop {
            match self.add_batches(own, &mut passed).await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // A deletion takes the same locks in another order. One of both is ended, and may come again.
                Err(error) if rows::code(&error).as_deref() == Some("40P01") => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds one batch of each block. True if there may be more. `passed` has, by block, the last number of the batches that
    /// follow a message that was left out. The index has them, but the block goes on from that message the next time.
    async fn add_batches(&self, own: Option<i64>, passed: &mut BTreeMap<i64, i64>) -> Result<bool, Error> {
        let limit = i64::try_from(BATCH_MESSAGES).unwrap_or(i64::MAX);
        let query = sqlx::query(UNINDEXED).bind(limit).bind(own).bind(BATCH_BYTES);
        let (blocks, after): (Vec<i64>, Vec<i64>) = passed.iter().unzip();
        let query = query.bind(blocks).bind(after);
        let found = self.db.in_time(query.fetch_all(&*self.db)).await??;
        let mut more = false;
        for batch in batches(&found)? {
            more |= batch.has_more;
            let (first, last, is_passed) = (batch.first, batch.last, passed.contains_key(&batch.first));
            match self.db.in_time(self.add(batch, is_passed)).await?? {
                Added::All => {}
                Added::WithoutLocked => drop(passed.insert(first, last)),
                Added::ReadAgain => more = true,
            }
        }
        Ok(more)
    }

    /// Adds a batch. If an earlier one of its block `is_passed`, the block stays where it is.
    async fn add(&self, batch: Batch, is_passed: bool) -> Result<Added, Error> {
        let Batch { first, seen, last, nos, texts, .. } = batch;
        let mut reader = self.db.acquire().await?;
        let mut transaction = reader.begin().await?;
        // Also for a server alone: its searches fill the index at the same time.
        settings::write_beside_others(&mut transaction).await?;
        let mut left_out = None;
        if !nos.is_empty() {
            let there = sqlx::query(ADD).bind(&nos).bind(&texts).fetch_all(&mut *transaction).await?;
            let there = there.iter().map(|row| row.try_get("search_no"));
            let there = there.collect::<Result<HashSet<i64>, _>>()?;
            let missing: Vec<i64> = nos.into_iter().filter(|no| !there.contains(no)).collect();
            if !missing.is_empty() {
                let row = sqlx::query(FIRST_LEFT_OUT).bind(missing).fetch_one(&mut *transaction).await?;
                left_out = row.try_get::<Option<i64>, _>("first")?;
            }
        }
        let upto = match left_out {
            _ if is_passed => seen,
            Some(no) => no - 1,
            None => last,
        };
        let sql = "UPDATE search_blocks SET upto = $3 WHERE first = $1 AND upto = $2";
        let query = sqlx::query(sql).bind(first).bind(seen).bind(upto);
        let is_added = query.execute(&mut *transaction).await?.rows_affected() == 1;
        let committed = transaction.commit().await;
        reader.settle(&committed);
        committed.map(|()| match is_added {
            false => Added::ReadAgain,
            true if is_passed || left_out.is_some() => Added::WithoutLocked,
            true => Added::All,
        })
    }
}

/// The messages, by their blocks.
fn batches(found: &[PgRow]) -> Result<Vec<Batch>, Error> {
    let mut all: Vec<Batch> = Vec::new();
    for row in found {
        let (first, no) = (row.try_get("first")?, row.try_get("search_no")?);
        if all.last().is_none_or(|batch| batch.first != first) {
            all.push(Batch { first, seen: row.try_get("upto")?, ..Batch::default() });
        }
        let Some(batch) = all.last_mut() else { continue };
        batch.last = no;
        batch.has_more = row.try_get("has_more")?;
        if let Some(text) = text_of(row)? {
            batch.nos.push(no);
            batch.texts.push(text);
        }
    }
    Ok(all)
}

/// The words of a message. `None` if it has none, or is damaged: then whoever reads the entry is told.
fn text_of(row: &PgRow) -> Result<Option<String>, Error> {
    let event: Result<StoredEvent, _> = rows::event(row);
    let (Ok(run), Ok(event)) = (rows::run_id(row, "run_id"), event) else { return Ok(None) };
    // The tenant is only for messages of errors.
    let Ok(record) = codec::decode(&TenantId::local(), &run, &event) else { return Ok(None) };
    let Some(content) = record.event.content() else { return Ok(None) };
    let said = content.message().filter(|message| matches!(message.role, Role::User | Role::Assistant));
    Ok(said.map(|message| message.plain_text()).map(Cow::from).and_then(|text| words::indexed(&text)))
}

/// Empties the index of a store that is opened without search.
pub(in crate::store::postgres) async fn empty(db: &mut PgConnection) -> Result<(), Error> {
    let sql = "WITH emptied AS (UPDATE search_blocks SET upto = first, is_done = false WHERE upto > first RETURNING 1)
               DELETE FROM search_documents WHERE EXISTS (SELECT 1 FROM emptied)";
    sqlx::query(sql).execute(db).await.map(|_| ())
}
