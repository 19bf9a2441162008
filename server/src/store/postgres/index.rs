//! The search index: a table with the words of each message, filled by a task of its own.
//!
//! The writer numbers each message of a user or a model; entries of forks share the number. The index has a document under
//! that number. The task adds the messages above the highest number that it has added. A search first waits until every
//! acknowledged message is in the index.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentloop_core::id::TenantId;
use agentloop_core::message::Role;
use sqlx::postgres::PgRow;
use sqlx::{Error, Row as _};
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use super::readers::Readers;
use super::{rows, words};
use crate::lifecycle::Tasks;
use crate::store::StoreError;
use crate::store::codec::{self, StoredEvent};

/// Messages of a batch. A search does not wait until a batch is full.
const BATCH_MESSAGES: usize = 256;
/// Longest wait of a search for an index that is being filled. Filling may take minutes for a large database.
const FILLED_TIMEOUT: Duration = Duration::from_secs(10);

/// Messages after the last one that the index has, each once, in the order of their numbers.
const UNINDEXED: &str = "
    SELECT DISTINCT ON (i.search_no) i.search_no, coalesce(r.run_id, k.run_id) AS run_id, i.seq,
           coalesce(e.at, k.at) AS at, coalesce(e.status, k.status) AS status, coalesce(e.version, k.version) AS version,
           coalesce(e.payload, k.payload) AS payload,
           CASE WHEN i.keep IS NULL THEN e.checksum ELSE k.checksum END AS checksum
    FROM session_entries AS i
    LEFT JOIN runs AS r ON i.keep IS NULL AND r.run_no = i.run_no
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
    WHERE i.search_no > (SELECT value FROM meta WHERE key = 'documents')
    ORDER BY i.search_no LIMIT $1";

/// Adds documents of entries that are there still. The entries are locked: a deletion that comes later finds the documents.
const ADD: &str = "
    WITH there AS MATERIALIZED (
        SELECT search_no FROM session_entries WHERE search_no = ANY ($1) FOR KEY SHARE)
    INSERT INTO search_documents (search_no, words)
    SELECT v.no, to_tsvector('agentloop', v.words) FROM unnest($1::bigint[], $2::text[]) AS v (no, words)
    WHERE v.no IN (SELECT search_no FROM there)
    ON CONFLICT (search_no) DO NOTHING";

/// A handle to the index and the task that fills it.
#[derive(Debug, Clone)]
pub(in crate::store::postgres) struct Index {
    db: Readers,
    /// Messages that were acknowledged since a batch was last announced.
    unannounced: Arc<AtomicUsize>,
    batch_ready: Arc<Notify>,
    /// Held while the index is filled.
    filling: Arc<Mutex<()>>,
}

impl Index {
    /// Starts the task. It ends when `closing` is cancelled.
    pub(in crate::store::postgres) fn start(db: Readers, closing: CancellationToken, tasks: &Tasks) -> Self {
        let index =
            Self { db, unannounced: Arc::default(), batch_ready: Arc::default(), filling: Arc::default() };
        let _supervised = tasks.spawn("search index", index.clone().run(closing));
        index
    }

    async fn run(self, closing: CancellationToken) {
        while closing.run_until_cancelled(self.batch_ready.notified()).await.is_some() {
            if let Err(error) = self.fill().await
                && !self.db.is_closed()
            {
                tracing::warn!(%error, "messages could not be added to the search index; the next search tries again");
            }
        }
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

    /// Waits until the index has every message that was acknowledged before.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if that takes longer than ten seconds, or fails.
    pub(in crate::store::postgres) async fn filled(&self) -> Result<(), StoreError> {
        match tokio::time::timeout(FILLED_TIMEOUT, self.fill()).await {
            Ok(filled) => filled.map_err(|error| rows::failure("filling of the search index", &error)),
            Err(_) => {
                self.batch_ready.notify_one();
                let what = "the search index is being filled, which takes minutes for a large database; try again later";
                Err(StoreError::Unavailable { what: what.to_owned() })
            }
        }
    }

    async fn fill(&self) -> Result<(), Error> {
        let _filling = self.filling.lock().await;
        while self.add_batch().await? {}
        Ok(())
    }

    /// Adds one batch. True if there may be more.
    async fn add_batch(&self) -> Result<bool, Error> {
        let limit = i64::try_from(BATCH_MESSAGES).unwrap_or(i64::MAX);
        let found = self.db.in_time(sqlx::query(UNINDEXED).bind(limit).fetch_all(&*self.db)).await??;
        let Some(last) = found.last() else { return Ok(false) };
        let last: i64 = last.try_get("search_no")?;
        let (mut nos, mut texts) = (Vec::new(), Vec::new());
        for row in &found {
            if let Some(text) = text_of(row)? {
                nos.push(row.try_get::<i64, _>("search_no")?);
                texts.push(text);
            }
        }
        let mut transaction = self.db.begin().await?;
        sqlx::query(ADD).bind(nos).bind(texts).execute(&mut *transaction).await?;
        let sql = "UPDATE meta SET value = greatest(value, $1) WHERE key = 'documents'";
        sqlx::query(sql).bind(last).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(found.len() == BATCH_MESSAGES)
    }
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
pub(in crate::store::postgres) async fn empty(db: &mut sqlx::PgConnection) -> Result<(), Error> {
    let sql = "WITH emptied AS (UPDATE meta SET value = 0 WHERE key = 'documents' AND value > 0 RETURNING 1)
               DELETE FROM search_documents WHERE EXISTS (SELECT 1 FROM emptied)";
    sqlx::query(sql).execute(db).await.map(|_| ())
}
