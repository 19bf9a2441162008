//! The task that adds documents to the index, deletes them, and replaces an index that is damaged.

use std::borrow::Cow;
use std::sync::Arc;

use agentloop_core::id::TenantId;
use agentloop_core::message::Role;
use futures_util::TryStreamExt as _;
use serde::Deserialize;
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _, SqlitePool};
use tokio::sync::{Notify, mpsc, oneshot};

use super::file::{self, IndexFile};
use super::{BATCH_MESSAGES, IndexLocation};
use crate::store::StoreError;
use crate::store::sqlite::rows;
use crate::store::sqlite::words::TenantWords;
use crate::store::sqlite::write::own::WeakWriteSender;
use crate::store::sqlite::write::own::{SqliteOp, WriteOp};
use crate::store::support::codec;
use crate::store::support::write::closed;

/// Messages with a number above `?1`, each once, in the order of their numbers.
pub(in crate::store::sqlite) const UNINDEXED: &str = "
    SELECT i.search_no, s.tenant, coalesce(r.run_id, k.run_id) AS run_id, i.seq, coalesce(e.at, k.at) AS at,
           coalesce(e.status, k.status) AS status, coalesce(e.version, k.version) AS version,
           coalesce(e.payload, k.payload) AS payload, iif(i.keep IS NULL, e.checksum, k.checksum) AS checksum
    FROM session_entries AS i INDEXED BY session_entries_searched
    CROSS JOIN sessions AS s ON s.session_no = i.session_no
    LEFT JOIN runs AS r ON i.keep IS NULL AND r.run_no = i.run_no
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
    WHERE i.search_no > ?1
    GROUP BY i.search_no ORDER BY i.search_no LIMIT ?2";

/// Numbers of documents that the index has to delete.
const DELETED: &str = "SELECT search_no FROM search_deleted ORDER BY search_no LIMIT 4096";

/// The last number that was given out, and the number of documents up to `?1`.
pub(in crate::store::sqlite) const STATE: &str = "
    SELECT (SELECT coalesce(max(search_no), 0) FROM session_entries WHERE search_no IS NOT NULL) AS last,
           (SELECT count(DISTINCT search_no) FROM session_entries INDEXED BY session_entries_searched
            WHERE search_no > 0 AND search_no <= ?1)
           + (SELECT count(*) FROM search_deleted WHERE search_no <= ?1) AS documents";

/// Bytes of events after which a batch takes no further one.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

type CommandReply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Connections to an index that has all messages up to the time of the search.
#[derive(Debug, Clone)]
pub(in crate::store::sqlite) struct SearchConnections {
    /// The database is their schema `main`, the index their schema `search`.
    pub(in crate::store::sqlite) pool: SqlitePool,
    /// Number of the opening of the index that they are connected to, counted from 1.
    number: u64,
}

impl SearchConnections {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

/// A command to the task.
#[derive(Debug)]
pub(super) enum IndexCommand {
    /// Fill the index with every message that is acknowledged by now. The reply has connections to it.
    Fill(CommandReply<SearchConnections>),
    /// Delete the documents of deleted sessions.
    Delete(CommandReply<()>),
    /// A search over connections of this opening found the index damaged.
    Damaged(u64),
    /// End the task. The reply comes when the file is closed.
    Close(CommandReply<()>),
}

/// An error of the task, by the file that it came from.
#[derive(Debug, thiserror::Error)]
enum IndexTaskError {
    /// The index cannot be read or written.
    #[error("{0}")]
    Index(Error),
    /// The database, which the index is filled from, cannot be read.
    #[error("{0}")]
    Database(StoreError),
}

impl From<IndexTaskError> for StoreError {
    fn from(error: IndexTaskError) -> Self {
        match error {
            IndexTaskError::Index(error) => Self::Unavailable { what: format!("search index: {error}") },
            IndexTaskError::Database(error) => error,
        }
    }
}

fn of_database(error: Error) -> IndexTaskError {
    IndexTaskError::Database(rows::failure("filling of the search index", &error))
}

/// The documents that the database has numbered.
struct NumberedDocuments {
    /// The last number that was given out.
    last: i64,
    /// Documents that the index is to have, up to a number.
    count: i64,
}

/// The task and everything that only it uses.
pub(super) struct IndexTask {
    location: IndexLocation,
    readers: SqlitePool,
    writer: WeakWriteSender,
    commands: mpsc::Receiver<IndexCommand>,
    batch_ready: Arc<Notify>,
    /// `None` until the index is first needed, and after damage.
    file: Option<IndexFile>,
    /// Number of times that an index was opened.
    number: u64,
    /// True if the index was deleted and nothing was added since. Deleting it again would not repair a failure then.
    discarded: bool,
    /// Searches that wait, each with the number up to which the index has to be filled.
    waiting: Vec<(i64, CommandReply<SearchConnections>)>,
}

impl IndexTask {
    pub(super) fn new(
        location: IndexLocation,
        readers: SqlitePool,
        writer: WeakWriteSender,
        commands: mpsc::Receiver<IndexCommand>,
        batch_ready: Arc<Notify>,
    ) -> Self {
        Self {
            location,
            readers,
            writer,
            commands,
            batch_ready,
            file: None,
            number: 0,
            discarded: false,
            waiting: Vec::new(),
        }
    }

    /// Runs until it is closed or all handles are gone. A command waits for one batch at most.
    pub(super) async fn run(mut self) {
        let mut fills = true;
        let closing = loop {
            let command = if fills { self.commands.try_recv().ok() } else { self.next().await };
            match command {
                Some(IndexCommand::Close(reply)) => break Some(reply),
                Some(command) => {
                    self.handle(command).await;
                    fills = true;
                }
                None if self.commands.is_closed() => break None,
                None => fills = self.fill().await,
            }
        };
        if let Some(file) = self.file.take() {
            file.close().await;
        }
        if let Some(reply) = closing {
            // The caller may be gone.
            let _gone = reply.send(Ok(()));
        }
    }

    /// Waits for a command, or with `None` for a batch of messages.
    async fn next(&mut self) -> Option<IndexCommand> {
        tokio::select! { biased;
            command = self.commands.recv() => command,
            () = self.batch_ready.notified() => None,
        }
    }

    async fn handle(&mut self, command: IndexCommand) {
        match command {
            IndexCommand::Fill(reply) => match self.state(0).await {
                Ok(NumberedDocuments { last, .. }) => self.waiting.push((last, reply)),
                // The caller may be gone.
                Err(error) => drop(reply.send(Err(error.into()))),
            },
            IndexCommand::Delete(reply) => drop(reply.send(self.delete().await.map_err(StoreError::from))),
            IndexCommand::Close(_) => unreachable!("it ends the task"),
            IndexCommand::Damaged(number) => {
                if self.file.is_some() && self.number == number {
                    self.discard().await;
                }
            }
        }
    }

    /// Adds one batch and replies to the searches that waited for it. `false`: there is no more to add, or adding fails
    /// for now.
    async fn fill(&mut self) -> bool {
        match self.add().await {
            Ok(more) => {
                self.discarded = false;
                self.reply(!more);
                more
            }
            Err(IndexTaskError::Index(error)) if file::is_damage(&error) && !self.discarded => {
                tracing::warn!(%error, "the search index is damaged; it is deleted and filled again");
                self.discard().await
            }
            Err(_) if self.readers.is_closed() => false,
            Err(error) => {
                tracing::warn!(%error, "messages could not be added to the search index; the next search tries again");
                self.refuse(&error.into());
                false
            }
        }
    }

    /// Adds one batch. True if there may be more.
    async fn add(&mut self) -> Result<bool, IndexTaskError> {
        self.open().await?;
        let file = self.file.as_mut().expect("it was opened");
        let (documents, more) = read(&self.readers, file.last()).await.map_err(of_database)?;
        file.add(&documents).await.map_err(IndexTaskError::Index)?;
        Ok(more)
    }

    /// Opens the index, unless it is open. One whose documents are not those of the database is replaced. After a failure it is
    /// not open, so that the next try compares it again.
    async fn open(&mut self) -> Result<(), IndexTaskError> {
        if self.file.is_some() {
            return Ok(());
        }
        self.number += 1;
        let file = IndexFile::open(&self.location).await.map_err(IndexTaskError::Index)?;
        let last = self.file.insert(file).last();
        let compared = self.compare(last).await;
        if compared.is_err()
            && let Some(file) = self.file.take()
        {
            file.close().await;
        }
        compared
    }

    /// Replaces the index that was opened, whose last document is this one, if its documents are not those of the database.
    async fn compare(&mut self, last: i64) -> Result<(), IndexTaskError> {
        self.delete_documents().await?;
        let count =
            self.file.as_mut().expect("it was opened").count().await.map_err(IndexTaskError::Index)?;
        let NumberedDocuments { last: given_out, count: documents } = self.state(last).await?;
        if last > given_out || count != documents {
            tracing::info!(
                count,
                documents,
                "the search index does not fit the database; it is deleted and filled again"
            );
            self.discard().await;
            self.file = Some(IndexFile::open(&self.location).await.map_err(IndexTaskError::Index)?);
        }
        Ok(())
    }

    /// Deletes the index. `false`: that failed, and searches fail until it succeeds.
    async fn discard(&mut self) -> bool {
        self.discarded = true;
        if let Some(file) = self.file.take() {
            file.close().await;
        }
        let deleted = file::delete(&self.location);
        if let Err(error) = &deleted {
            tracing::warn!(%error, "the search index cannot be deleted; delete the file that ends in .search");
            self.refuse(&IndexTaskError::Index(Error::Protocol(error.to_string())).into());
        }
        deleted.is_ok()
    }

    async fn delete(&mut self) -> Result<(), IndexTaskError> {
        self.open().await?;
        match self.delete_documents().await {
            Err(IndexTaskError::Index(error)) if file::is_damage(&error) => {
                tracing::warn!(%error, "the search index is damaged; it is deleted and filled again");
                self.discard().await;
                self.open().await
            }
            done => done,
        }
    }

    /// Deletes the documents of deleted sessions, then their numbers in the database.
    async fn delete_documents(&mut self) -> Result<(), IndexTaskError> {
        let file = self.file.as_mut().expect("it was opened");
        loop {
            let rows = sqlx::query(DELETED).fetch_all(&self.readers).await.map_err(of_database)?;
            let numbers = rows.iter().map(|row| row.try_get("search_no")).collect::<Result<Vec<i64>, _>>();
            let numbers = numbers.map_err(of_database)?;
            if numbers.is_empty() {
                return Ok(());
            }
            file.delete(&numbers).await.map_err(IndexTaskError::Index)?;
            forget(&self.writer, numbers).await.map_err(IndexTaskError::Database)?;
        }
    }

    /// The last number that was given out, and how many documents the index is to have up to `upto`.
    async fn state(&self, upto: i64) -> Result<NumberedDocuments, IndexTaskError> {
        let row = sqlx::query(STATE).bind(upto).fetch_one(&self.readers).await.map_err(of_database)?;
        let read = |column| row.try_get::<i64, _>(column).map_err(of_database);
        Ok(NumberedDocuments { last: read("last")?, count: read("documents")? })
    }

    /// Replies to the searches whose messages are in the index.
    fn reply(&mut self, all: bool) {
        let Some(file) = &self.file else { return };
        let searchers = SearchConnections { pool: file.searchers().clone(), number: self.number };
        let last = file.last();
        for (_, reply) in self.waiting.extract_if(.., |(upto, _)| all || *upto <= last) {
            // The caller may be gone.
            let _gone = reply.send(Ok(searchers.clone()));
        }
    }

    fn refuse(&mut self, error: &StoreError) {
        for (_, reply) in self.waiting.drain(..) {
            // The caller may be gone.
            let _gone = reply.send(Err(error.clone()));
        }
    }
}

/// The next documents, and whether there may be more.
async fn read(readers: &SqlitePool, after: i64) -> Result<(Vec<(i64, String)>, bool), Error> {
    let query = sqlx::query(UNINDEXED).bind(after).bind(BATCH_MESSAGES as i64);
    let mut found = query.fetch(readers);
    let (mut documents, mut bytes) = (Vec::new(), 0);
    // Rows of one tenant mostly come together.
    let mut last: Option<(TenantId, TenantWords)> = None;
    while bytes < BATCH_BYTES_MAX
        && let Some(row) = found.try_next().await?
    {
        // A message without words gets a document too. Without one it would be read again and again.
        let words = match whole_event(&row) {
            Some(payload) => {
                bytes += payload.len();
                let tenant = rows::tenant_id(&row, "tenant")?;
                let same = last.take().filter(|(last, _)| *last == tenant);
                let (_, tenant_words) =
                    last.insert(same.unwrap_or_else(|| (tenant.clone(), TenantWords::of(&tenant))));
                tenant_words.indexed(&said(&payload))
            }
            None => String::new(),
        };
        documents.push((row.try_get("search_no")?, words));
    }
    let more = documents.len() == BATCH_MESSAGES || bytes >= BATCH_BYTES_MAX;
    Ok((documents, more))
}

/// The payload of an entry's event. `None` if it is damaged: words that nobody said are not found.
fn whole_event(row: &SqliteRow) -> Option<String> {
    let (run, event) = (rows::run_id(row, "run_id").ok()?, rows::event(row).ok()?);
    codec::verify(&run, &event).ok()?;
    Some(event.payload)
}

/// The part of an event that may be indexed.
#[derive(Deserialize)]
struct IndexedEvent<'a> {
    #[serde(borrow)]
    message: IndexedMessage<'a>,
}

#[derive(Deserialize)]
struct IndexedMessage<'a> {
    role: Role,
    #[serde(borrow)]
    parts: Vec<IndexedPart<'a>>,
}

#[derive(Deserialize)]
struct IndexedPart<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

/// The text of an event's message that is indexed. An event that cannot be decoded has none; reading its run reports that.
fn said(payload: &str) -> String {
    let Ok(IndexedEvent { message }) = serde_json::from_str(payload) else { return String::new() };
    if !matches!(message.role, Role::User | Role::Assistant) {
        return String::new();
    }
    message.parts.iter().filter(|part| part.kind == "text").map(|part| &*part.text).collect()
}

/// Forgets numbers in the database. The task holds a strong sender only during the write, so that a dropped store ends.
async fn forget(writer: &WeakWriteSender, numbers: Vec<i64>) -> Result<(), StoreError> {
    let writer = writer.upgrade().ok_or_else(closed)?;
    writer.done(WriteOp::Own(SqliteOp::ForgetDeleted(numbers))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a message of this role with these parts, as JSON.
    fn text_of(role: &str, parts: &str) -> String {
        said(&format!(
            r#"{{"kind":"input_added","entry":1,"message":{{"role":"{role}","parts":[{parts}]}}}}"#
        ))
    }

    #[test]
    fn the_text_of_users_and_models_is_indexed() {
        let rome = r#"{"type":"text","text":"To \"Rome\"","state":{"any":1}}"#;
        assert_eq!(text_of("user", rome), "To \"Rome\"");
        let more = format!(r#"{rome},{{"type":"text","text":" now"}}"#);
        assert_eq!(text_of("assistant", &more), "To \"Rome\" now");
        assert_eq!(text_of("tool", rome), "");
        assert_eq!(text_of("system", rome), "");
        let other = r#"{"type":"reasoning","text":"hm"},{"type":"tool_call","slot":[1,0],"name":"f","arguments":"{}"}"#;
        assert_eq!(text_of("assistant", other), "");
        assert_eq!(text_of("assistant", &format!("{other},{rome}")), "To \"Rome\"");
    }

    #[test]
    fn what_cannot_be_read_has_no_text() {
        for broken in ["", "{", "{\"kind\":\"input_added\"}", "{\"message\":7}", "[]"] {
            assert_eq!(said(broken), "", "{broken}");
        }
    }
}
