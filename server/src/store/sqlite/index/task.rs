//! The task that fills the index, deletes from it, and makes it anew where it is damaged.

use std::borrow::Cow;
use std::sync::Arc;

use agentloop_core::message::Role;
use futures_util::TryStreamExt as _;
use serde::Deserialize;
use sqlx::{Error, Row as _, SqlitePool};
use tokio::sync::{Notify, mpsc, oneshot};

use super::file::{self, IndexFile};
use super::{BATCH_MESSAGES, IndexPlace};
use crate::store::sqlite::rows;
use crate::store::sqlite::write::task::{Job, Op};
use crate::store::{StoreError, search};

/// Messages with a number above the last document's, each once, in the order of their numbers.
pub(in crate::store::sqlite) const UNINDEXED: &str = "
    SELECT i.search_no, coalesce(e.payload, k.payload) AS payload
    FROM session_entries AS i INDEXED BY session_entries_searched
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
    WHERE i.search_no > ?1
    GROUP BY i.search_no ORDER BY i.search_no LIMIT ?2";

/// Documents of deleted sessions that may still be in the index.
const DELETED: &str = "SELECT search_no FROM search_deleted ORDER BY search_no LIMIT 4096";

/// The last number that was given out, and how many documents there are up to this number.
pub(in crate::store::sqlite) const STATE: &str = "
    SELECT (SELECT coalesce(max(search_no), 0) FROM session_entries WHERE search_no IS NOT NULL) AS last,
           (SELECT count(DISTINCT search_no) FROM session_entries INDEXED BY session_entries_searched
            WHERE search_no > 0 AND search_no <= ?1)
           + (SELECT count(*) FROM search_deleted WHERE search_no <= ?1) AS documents";

/// Bytes of events that are read for one batch, give or take the last.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Connections to an index that is filled.
#[derive(Debug, Clone)]
pub(in crate::store::sqlite) struct Searchers {
    /// They find `session_entries` and what it refers to in `main`, the index in `search`.
    pub(in crate::store::sqlite) pool: SqlitePool,
    /// How often an index was opened before this one.
    number: u64,
}

impl Searchers {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

/// What the task is asked for.
#[derive(Debug)]
pub(super) enum Command {
    /// Everything that is acknowledged now is to be in the index. Answered with connections to it.
    Fill(Reply<Searchers>),
    /// What deleted sessions had is to be in it no more.
    Delete(Reply<()>),
    /// A search over connections of this number found it damaged.
    Damaged(u64),
    /// It is to end. Answered when the file is closed.
    Close(Reply<()>),
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
enum StepError {
    /// The index, or what is to be written there.
    #[error("{0}")]
    Index(Error),
    /// The database, which the index is made from.
    #[error("{0}")]
    Database(StoreError),
}

impl From<StepError> for StoreError {
    fn from(error: StepError) -> Self {
        match error {
            StepError::Index(error) => Self::Unavailable { what: format!("search index: {error}") },
            StepError::Database(error) => error,
        }
    }
}

fn of_database(error: Error) -> StepError {
    StepError::Database(rows::failure("filling of the search index", &error))
}

/// What the task owns.
pub(super) struct Filler {
    place: IndexPlace,
    readers: SqlitePool,
    writer: mpsc::WeakSender<Job>,
    commands: mpsc::Receiver<Command>,
    many: Arc<Notify>,
    /// `None` until it is first needed, and after a failure.
    file: Option<IndexFile>,
    /// How often one was opened.
    number: u64,
    /// Whether it was deleted and nothing was added since: then what fails is not mended by deleting it again.
    discarded: bool,
    /// Searches, each with the number up to which the index has to be filled for it.
    waiting: Vec<(i64, Reply<Searchers>)>,
}

impl Filler {
    pub(super) fn new(
        place: IndexPlace,
        readers: SqlitePool,
        writer: mpsc::WeakSender<Job>,
        commands: mpsc::Receiver<Command>,
        many: Arc<Notify>,
    ) -> Self {
        Self {
            place,
            readers,
            writer,
            commands,
            many,
            file: None,
            number: 0,
            discarded: false,
            waiting: Vec::new(),
        }
    }

    /// Runs until nobody can ask any more. A deletion waits for one batch at most.
    pub(super) async fn run(mut self) {
        let mut fills = true;
        let closing = loop {
            let command = if fills { self.commands.try_recv().ok() } else { self.next().await };
            match command {
                Some(Command::Close(reply)) => break Some(reply),
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
            // Whoever asked may be gone.
            let _gone = reply.send(Ok(()));
        }
    }

    /// Waits for a command, or for messages.
    async fn next(&mut self) -> Option<Command> {
        tokio::select! { biased;
            command = self.commands.recv() => command,
            () = self.many.notified() => None,
        }
    }

    async fn handle(&mut self, command: Command) {
        match command {
            Command::Fill(reply) => match self.state(0).await {
                Ok((last, _)) => self.waiting.push((last, reply)),
                // Whoever asked may be gone.
                Err(error) => drop(reply.send(Err(error.into()))),
            },
            Command::Delete(reply) => drop(reply.send(self.delete().await.map_err(StoreError::from))),
            Command::Close(_) => unreachable!("it ends the task"),
            Command::Damaged(number) => {
                if self.file.is_some() && self.number == number {
                    self.discard().await;
                }
            }
        }
    }

    /// Adds one batch and answers the searches that waited for it. `false`: there is nothing more to add, or it cannot
    /// be added now.
    async fn fill(&mut self) -> bool {
        match self.add().await {
            Ok(more) => {
                self.discarded = false;
                self.answer(!more);
                more
            }
            Err(StepError::Index(error)) if file::is_damage(&error) && !self.discarded => {
                tracing::warn!(%error, "the search index is damaged, and is filled again");
                self.discard().await
            }
            Err(_) if self.readers.is_closed() => false,
            Err(error) => {
                tracing::warn!(%error, "what was said is not all in the search index; the next search goes on");
                self.refuse(&error.into());
                false
            }
        }
    }

    /// Whether there may be more.
    async fn add(&mut self) -> Result<bool, StepError> {
        self.open().await?;
        let file = self.file.as_mut().expect("it was opened");
        let (documents, more) = read(&self.readers, file.last()).await.map_err(of_database)?;
        file.add(&documents).await.map_err(StepError::Index)?;
        Ok(more)
    }

    /// Opens the index, unless it is open, and makes sure that it has what the database says.
    async fn open(&mut self) -> Result<(), StepError> {
        if self.file.is_some() {
            return Ok(());
        }
        self.number += 1;
        let file = IndexFile::open(&self.place).await.map_err(StepError::Index)?;
        let last = self.file.insert(file).last();
        self.delete_documents().await?;
        let count = self.file.as_mut().expect("it was opened").count().await.map_err(StepError::Index)?;
        let (given_out, documents) = self.state(last).await?;
        if last > given_out || count != documents {
            tracing::info!(
                count,
                documents,
                "the search index is not that of the database, and is filled again"
            );
            self.discard().await;
            self.file = Some(IndexFile::open(&self.place).await.map_err(StepError::Index)?);
        }
        Ok(())
    }

    /// Deletes the index. `false`: it cannot be deleted, and searches fail until it can.
    async fn discard(&mut self) -> bool {
        self.discarded = true;
        if let Some(file) = self.file.take() {
            file.close().await;
        }
        let deleted = file::delete(&self.place);
        if let Err(error) = &deleted {
            tracing::warn!(%error, "the search index cannot be deleted");
            self.refuse(&StepError::Index(Error::Protocol(error.to_string())).into());
        }
        deleted.is_ok()
    }

    async fn delete(&mut self) -> Result<(), StepError> {
        self.open().await?;
        match self.delete_documents().await {
            Err(StepError::Index(error)) if file::is_damage(&error) => {
                tracing::warn!(%error, "the search index is damaged, and is filled again");
                self.discard().await;
                self.open().await
            }
            done => done,
        }
    }

    /// Deletes what deleted sessions had, and has the database forget the numbers.
    async fn delete_documents(&mut self) -> Result<(), StepError> {
        let file = self.file.as_mut().expect("it was opened");
        loop {
            let rows = sqlx::query(DELETED).fetch_all(&self.readers).await.map_err(of_database)?;
            let numbers = rows.iter().map(|row| row.try_get("search_no")).collect::<Result<Vec<i64>, _>>();
            let numbers = numbers.map_err(of_database)?;
            if numbers.is_empty() {
                return Ok(());
            }
            file.delete(&numbers).await.map_err(StepError::Index)?;
            forget(&self.writer, numbers).await.map_err(StepError::Database)?;
        }
    }

    /// The last number that was given out, and how many documents there are to be up to this number.
    async fn state(&self, upto: i64) -> Result<(i64, i64), StepError> {
        let row = sqlx::query(STATE).bind(upto).fetch_one(&self.readers).await.map_err(of_database)?;
        let read = |column| row.try_get::<i64, _>(column).map_err(of_database);
        Ok((read("last")?, read("documents")?))
    }

    /// Answers the searches whose messages are in the index.
    fn answer(&mut self, all: bool) {
        let Some(file) = &self.file else { return };
        let searchers = Searchers { pool: file.searchers().clone(), number: self.number };
        let last = file.last();
        for (_, reply) in self.waiting.extract_if(.., |(upto, _)| all || *upto <= last) {
            // Whoever asked may be gone.
            let _gone = reply.send(Ok(searchers.clone()));
        }
    }

    fn refuse(&mut self, error: &StoreError) {
        for (_, reply) in self.waiting.drain(..) {
            // Whoever asked may be gone.
            let _gone = reply.send(Err(error.clone()));
        }
    }
}

/// The next documents, and whether there may be more.
async fn read(readers: &SqlitePool, after: i64) -> Result<(Vec<(i64, String)>, bool), Error> {
    let query = sqlx::query(UNINDEXED).bind(after).bind(BATCH_MESSAGES as i64);
    let mut found = query.fetch(readers);
    let (mut documents, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES_MAX
        && let Some(row) = found.try_next().await?
    {
        let payload: &str = row.try_get("payload")?;
        bytes += payload.len();
        // One without words has its number in the index too: it would be looked for again and again.
        documents.push((row.try_get("search_no")?, words(payload)));
    }
    let more = documents.len() == BATCH_MESSAGES || bytes >= BATCH_BYTES_MAX;
    Ok((documents, more))
}

/// Of an event, what may be indexed.
#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    message: SaidMessage<'a>,
}

#[derive(Deserialize)]
struct SaidMessage<'a> {
    role: Role,
    #[serde(borrow)]
    parts: Vec<SaidPart<'a>>,
}

#[derive(Deserialize)]
struct SaidPart<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

/// The words of an event's message that are indexed. An event that cannot be read has none; whoever reads its run is
/// told.
fn words(payload: &str) -> String {
    let Ok(Said { message }) = serde_json::from_str(payload) else { return String::new() };
    if !matches!(message.role, Role::User | Role::Assistant) {
        return String::new();
    }
    let text: String =
        message.parts.iter().filter(|part| part.kind == "text").map(|part| &*part.text).collect();
    search::indexed(&text).unwrap_or_default()
}

/// The sender is taken for as long as the write is on its way, so that a store that is dropped ends.
async fn forget(writer: &mpsc::WeakSender<Job>, numbers: Vec<i64>) -> Result<(), StoreError> {
    let (reply, answer) = oneshot::channel();
    let writer = writer.upgrade().ok_or_else(crate::store::sqlite::closed)?;
    let job = Job { op: Op::ForgetDeleted(numbers), reply };
    writer.send(job).await.map_err(|_| crate::store::sqlite::closed())?;
    drop(writer);
    answer.await.map_err(|_| crate::store::sqlite::closed())?.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a message of this role with these parts, as JSON.
    fn said(role: &str, parts: &str) -> String {
        words(&format!(
            r#"{{"kind":"input_added","entry":1,"message":{{"role":"{role}","parts":[{parts}]}}}}"#
        ))
    }

    #[test]
    fn the_text_of_users_and_models_is_indexed() {
        let rome = r#"{"type":"text","text":"To \"Rome\"","state":{"any":1}}"#;
        assert_eq!(said("user", rome), "To Rome");
        assert_eq!(said("assistant", &format!(r#"{rome},{{"type":"text","text":" now"}}"#)), "To Rome now");
        assert_eq!(said("tool", rome), "");
        assert_eq!(said("system", rome), "");
        let other = r#"{"type":"reasoning","text":"hm"},{"type":"tool_call","slot":[1,0],"name":"f","arguments":"{}"}"#;
        assert_eq!(said("assistant", other), "");
        assert_eq!(said("assistant", &format!("{other},{rome}")), "To Rome");
    }

    #[test]
    fn what_cannot_be_read_has_no_words() {
        for broken in ["", "{", "{\"kind\":\"input_added\"}", "{\"message\":7}", "[]"] {
            assert_eq!(words(broken), "", "{broken}");
        }
    }
}
