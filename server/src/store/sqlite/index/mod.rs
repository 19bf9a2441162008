//! The index of what was said.
//!
//! An entry's document has its number from the commit of the entry. It is written later, together with others and in the
//! order of the numbers: before anyone searches, before anything is deleted, and at the latest when there are many.
//!
//! **Invariant:** an entry has a document in the index or none. What forks share has one document, which goes with the
//! last of them. Documents that are still to be written are those with numbers above the last in the index, so nothing is
//! lost that is not in memory.
//!
//! The index can be made from the journals at any time. So one that is found damaged is made anew, and what rests on it
//! goes on.

pub(in crate::store::sqlite) mod backfill;

use std::borrow::Cow;
use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, Seq};
use agentloop_core::run::event::{Added, Event};
use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::{Error, Row as _, SqliteConnection};

use crate::store::codec::{int, text};
use crate::store::search;
use crate::store::sqlite::rows;
use crate::store::sqlite::write::accept::Numbered;
use crate::store::sqlite::write::batch::{Form, Statements};

/// A message that was held before it entered the session.
pub(in crate::store::sqlite) const SELECT_HELD: &str = "
    SELECT j.key AS place, e.payload FROM json_each(?1) AS j
    JOIN run_events AS e ON e.run_no = j.value ->> 0 AND e.seq = j.value ->> 1";

pub(in crate::store::sqlite) static INSERT_DOCUMENTS: Form = Form {
    before: "
    INSERT INTO search_index (rowid, text) SELECT * FROM ",
    columns: 2,
    after: " WHERE column1 IS NOT NULL",
    of_two: 2,
};

/// What has a number and no document.
pub(in crate::store::sqlite) const UNWRITTEN: &str = "
    SELECT i.search_no, coalesce(e.payload, k.payload) AS payload
    FROM session_entries AS i INDEXED BY session_entries_searched
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
    WHERE i.search_no > (SELECT coalesce(max(id), 0) FROM search_index_docsize)
    GROUP BY i.search_no ORDER BY i.search_no LIMIT ?1";

/// Documents that are written together.
const UNWRITTEN_MAX: usize = 64;
/// Bytes of their words, give or take the last.
const UNWRITTEN_BYTES_MAX: usize = 256 * 1024;

/// What the session of this number has and no other.
pub(in crate::store::sqlite) const DROP_DOCUMENTS: &str = "
    DELETE FROM search_index
    WHERE rowid IN (
        SELECT i.search_no FROM session_entries AS i
        WHERE i.session_no = ?1 AND i.search_no IS NOT NULL
          AND NOT EXISTS (
              SELECT 1 FROM session_entries AS o INDEXED BY session_entries_searched
              WHERE o.search_no = i.search_no AND o.session_no <> i.session_no))";

/// An index with nothing in it, in the place of one that is damaged: as the schema has it, and no entry has a document
/// any more. What was said comes into it as what was said while nothing was indexed does; whoever is at that when this
/// happens has to begin again, which the count tells.
const RENEW: &str = "
    DROP TABLE search_index;
    CREATE VIRTUAL TABLE search_index USING fts5 (
    text,
    content = '',
    contentless_delete = 1,
    tokenize = 'porter unicode61 remove_diacritics 2'
);
    UPDATE session_entries INDEXED BY session_entries_searched SET search_no = NULL WHERE search_no IS NOT NULL;
    DELETE FROM meta WHERE key = 'search_filled';
    INSERT INTO meta (key, value) VALUES ('search_renewed', 1) ON CONFLICT (key) DO UPDATE SET value = value + 1";

/// What the index keeps in memory is written at once: with a later statement, whichever it is, that one would fail.
const FLUSH: &str = "INSERT INTO search_index (search_index) VALUES ('flush')";

/// `SQLITE_CORRUPT` and `SQLITE_CONSTRAINT`: the index does not find what it wrote, or finds what it did not.
const DAMAGED: [i32; 2] = [11, rows::CONSTRAINT];

/// An error of a statement that writes the index.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct OfIndex(Box<dyn DatabaseError>);

impl DatabaseError for OfIndex {
    fn message(&self) -> &str {
        self.0.message()
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        self.0.code()
    }

    fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn std::error::Error + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn std::error::Error + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        self.0.kind()
    }
}

/// Notes that a statement writes the index.
pub(in crate::store::sqlite) fn of_index(error: Error) -> Error {
    match error {
        Error::Database(error) => Error::Database(Box::new(OfIndex(error))),
        other => other,
    }
}

/// Whether the index is what is damaged.
pub(in crate::store::sqlite) fn is_damage(error: &Error) -> bool {
    error.as_database_error().is_some_and(|error| error.try_downcast_ref::<OfIndex>().is_some())
        && rows::primary_code(error).is_some_and(|code| DAMAGED.contains(&code))
}

/// Makes the index anew, in a transaction that is open.
pub(in crate::store::sqlite) async fn renew(db: &mut SqliteConnection) -> Result<(), Error> {
    sqlx::raw_sql(RENEW).execute(db).await?;
    tracing::warn!("the index of what was said is damaged, and is made anew");
    Ok(())
}

/// Takes out of the index what the session of this number has and no other.
pub(in crate::store::sqlite) async fn drop_documents(
    db: &mut SqliteConnection,
    session: i64,
) -> Result<(), Error> {
    let dropped = sqlx::query(DROP_DOCUMENTS).bind(session).execute(&mut *db).await.map_err(of_index)?;
    if dropped.rows_affected() > 0 { flush(db).await } else { Ok(()) }
}

async fn flush(db: &mut SqliteConnection) -> Result<(), Error> {
    sqlx::query(FLUSH).execute(db).await.map(|_| ()).map_err(of_index)
}

/// What is indexed of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::sqlite) enum Indexed {
    Nothing,
    /// These words.
    Words(String),
    /// The words of a message that an earlier append held.
    Held(Seq),
}

/// Finds what is indexed in the events of one append.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct Indexing {
    enabled: bool,
    held: BTreeMap<Seq, Indexed>,
}

impl Indexing {
    pub(in crate::store::sqlite) fn new(enabled: bool) -> Self {
        Self { enabled, held: BTreeMap::new() }
    }

    /// What is indexed of the entry that this event adds, if it adds one.
    pub(in crate::store::sqlite) fn note(&mut self, seq: Seq, event: &Event) -> Indexed {
        if !self.enabled {
            return Indexed::Nothing;
        }
        match (event, event.entry()) {
            (Event::InputHeld { .. }, _) => {
                self.held.insert(seq, words(event));
                Indexed::Nothing
            }
            (_, Some((_, Added::Held(held)))) => self.held.remove(&held).unwrap_or(Indexed::Held(held)),
            (_, Some((_, Added::Own))) => words(event),
            (_, None) => Indexed::Nothing,
        }
    }
}

/// What of an event's message is indexed. What a context source said was said elsewhere before.
pub(in crate::store::sqlite) fn words(event: &Event) -> Indexed {
    let message = match event {
        Event::InputAdded { message, .. }
        | Event::InputHeld { message, .. }
        | Event::AssistantMessage { message, .. } => message,
        _ => return Indexed::Nothing,
    };
    search::indexed(message).map_or(Indexed::Nothing, Indexed::Words)
}

/// A document's number and its words.
pub(in crate::store::sqlite) type Document = (i64, String);

/// Documents that are still to be written.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct Unwritten {
    documents: Vec<Document>,
    bytes: usize,
    /// Whether there are others, which are not here.
    more: bool,
}

impl Unwritten {
    /// Those that the database lacks, or as many as are written together.
    pub(in crate::store::sqlite) async fn read(db: &mut SqliteConnection) -> Result<Self, Error> {
        let limit = UNWRITTEN_MAX as i64;
        let rows = sqlx::query(UNWRITTEN).bind(limit).fetch_all(db).await?;
        let (mut unwritten, more) = (Self::default(), rows.len() == UNWRITTEN_MAX);
        for row in rows {
            let words = match words(&rows::json(&row, "payload")?) {
                Indexed::Words(words) => words,
                // It would be looked for again and again.
                Indexed::Nothing | Indexed::Held(_) => String::new(),
            };
            unwritten.add(vec![(row.try_get("search_no")?, words)]);
        }
        unwritten.more = more;
        Ok(unwritten)
    }

    /// Adds what a commit gave numbers to; they are behind those that are not here, if there are such. Where there are
    /// enough already, which could not be written, only the database has them.
    pub(in crate::store::sqlite) fn add(&mut self, documents: Vec<Document>) {
        self.more |= self.is_full() && !documents.is_empty();
        if self.more {
            return;
        }
        self.bytes += documents.iter().map(|(_, words)| words.len()).sum::<usize>();
        self.documents.extend(documents);
    }

    pub(in crate::store::sqlite) fn is_empty(&self) -> bool {
        self.documents.is_empty() && !self.more
    }

    /// Whether there are enough to be written.
    pub(in crate::store::sqlite) fn is_full(&self) -> bool {
        self.more || self.documents.len() >= UNWRITTEN_MAX || self.bytes >= UNWRITTEN_BYTES_MAX
    }

    /// Writes them in a transaction that is open, and whatever else there is.
    pub(in crate::store::sqlite) async fn write(mut self, db: &mut SqliteConnection) -> Result<(), Error> {
        let writes = !self.is_empty();
        while !self.is_empty() {
            let mut statements = Statements::default();
            let rows = self.documents.into_iter().map(|(number, words)| [number.into(), words.into()]);
            statements.push(&INSERT_DOCUMENTS, rows);
            statements.execute(db).await.map_err(of_index)?;
            self = if self.more { Self::read(db).await? } else { Self::default() };
        }
        if writes {
            flush(db).await?;
        }
        Ok(())
    }
}

/// Gives the entries of these appends documents, numbered from the one after `last`, which then is the last of them.
/// The numbers are in the order of the entries.
pub(in crate::store::sqlite) async fn number(
    db: &mut SqliteConnection,
    appends: &[Numbered<'_>],
    last: &mut i64,
) -> Result<(Vec<Option<i64>>, Vec<Document>), Error> {
    let held = held(db, held_places(appends)).await?;
    let (numbers, documents) = documents(appends, &held, *last);
    *last = documents.last().map_or(*last, |(number, _)| *number);
    Ok((numbers, documents))
}

/// The number of each entry's document, and the documents.
fn documents(
    appends: &[Numbered<'_>],
    held: &[Option<String>],
    last: i64,
) -> (Vec<Option<i64>>, Vec<Document>) {
    let mut held = held.iter();
    let (mut numbers, mut documents) = (Vec::new(), Vec::new());
    for NewEntry { indexed, .. } in appends.iter().flat_map(|new| &new.append.entries) {
        let words = match indexed {
            Indexed::Nothing => None,
            Indexed::Words(words) => Some(words.as_str()),
            Indexed::Held(_) => held.next().and_then(Option::as_deref),
        };
        numbers.push(words.map(|words| {
            let number = last.saturating_add(1 + int(documents.len() as u64));
            documents.push((number, words.to_owned()));
            number
        }));
    }
    (numbers, documents)
}

/// Where those messages are that earlier appends held. Few entries are such.
fn held_places(appends: &[Numbered<'_>]) -> Vec<(i64, i64)> {
    let held = |run: i64, new: &NewEntry| match new.indexed {
        Indexed::Held(seq) => Some((run, int(seq.0))),
        Indexed::Nothing | Indexed::Words(_) => None,
    };
    let entries = appends.iter().flat_map(|new| new.append.entries.iter().map(|entry| (new.run, entry)));
    entries.filter_map(|(run, entry)| held(run, entry)).collect()
}

/// What is indexed of the messages in these places.
async fn held(db: &mut SqliteConnection, places: Vec<(i64, i64)>) -> Result<Vec<Option<String>>, Error> {
    let mut found = vec![None; places.len()];
    if places.is_empty() {
        return Ok(found);
    }
    for row in sqlx::query(SELECT_HELD).bind(text(&places)).fetch_all(db).await? {
        if let Indexed::Words(words) = words(&rows::json(&row, "payload")?) {
            found[row.try_get::<u32, _>("place")? as usize] = Some(words);
        }
    }
    Ok(found)
}

/// An entry to be written.
#[derive(Debug)]
pub(in crate::store::sqlite) struct NewEntry {
    pub(in crate::store::sqlite) entry: EntryNo,
    /// The event that has it.
    pub(in crate::store::sqlite) seq: Seq,
    pub(in crate::store::sqlite) indexed: Indexed,
}
