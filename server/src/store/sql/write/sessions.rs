//! Creating, changing, forking and deleting sessions: the rules, which are the same for both databases.
//!
//! **Invariant:** an event is stored once. A fork's entries refer to the journals of its source. When the source is
//! deleted, the events that forks refer to move to `kept_events`. They go with the last of those forks.

use std::borrow::Cow;
use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use sqlx::Error;

use crate::store::sql::column::{SqlRow, json_if_any, number_if_any, owned_text, run_id};
use crate::store::sql::query::Query;
use crate::store::sql::read::{session_of_user_query, session_query};
use crate::store::sql::reader::Dialect;
use crate::store::sql::row;
use crate::store::sql::write::WriteError;
use crate::store::support::number::int;
use crate::store::support::write::{DeleteSession, NewNotes, NewUpdate, SessionOp, WriteResult};
use crate::store::{NewFork, NewSession, SessionRow, StoreError};

/// A transaction that is open for a write of a session, with the SQL in which the databases differ. `$1` is the tenant and `$2`
/// the session, unless the text says otherwise.
pub(in crate::store) trait SessionWriter: Send {
    /// The SQL of this database for queries.
    type Dialect: Dialect;
    /// A row of its tables.
    type Row: SqlRow + Send;

    /// Executes a statement. Returns how many rows it has written.
    fn execute(&mut self, statement: Query) -> impl Future<Output = Result<u64, Error>> + Send;

    /// The row of a query that has one at most.
    fn row(&mut self, query: Query) -> impl Future<Output = Result<Option<Self::Row>, Error>> + Send;

    /// A text as the database takes it.
    fn clean(text: &str) -> Cow<'_, str>;

    /// The statement that creates a session, unless its id is in use.
    fn insert(&mut self, new: &NewSession) -> Query;

    /// The statement that gives a session another title and other labels. The first change keeps those before it, for a repetition of
    /// the session's creation.
    fn update(before: &TitleAndLabels, new: &NewUpdate, changed: &TitleAndLabels) -> Query;

    /// The statement that creates a session with what the source has up to this entry.
    fn insert_fork(&mut self, new: &NewFork, upto: EntryNo, preview: &str) -> Query;

    /// Deletes the session of this number with everything that belongs to it. What forks share with it is kept.
    fn delete(&mut self, no: i64) -> impl Future<Output = Result<(), Error>> + Send;

    /// Keeps other servers from making a session for the same user and project. A server alone needs no locks.
    fn lock_user(&mut self, _new: &NewSession) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// Keeps other servers from deleting the source of a fork, and the sessions whose journals it refers to.
    fn lock_source(&mut self, _new: &NewFork) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// Waits for the forks that other servers are making, and keeps later ones from seeing the session.
    fn lock_deleted(&mut self, _old: &DeleteSession) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }
}

/// The fields that callers give a session. A title that a model made is not among them.
pub(in crate::store) type TitleAndLabels = (String, BTreeMap<String, String>);

pub(in crate::store) const SET_NOTES: &str = "
    UPDATE sessions
    SET made_title = CASE WHEN title = '' AND made_title = '' THEN coalesce($3, '') ELSE made_title END,
        summary = CASE WHEN $5 > summary_upto THEN $4 ELSE summary END,
        summary_upto = CASE WHEN $5 > summary_upto THEN $5 ELSE summary_upto END
    WHERE tenant = $1 AND session_id = $2";

/// Shares entries of the session of number `$1`, up to entry `$3`, with the session of number `$2`.
pub(in crate::store) const SHARE_ENTRIES: &str = "
    INSERT INTO session_entries (session_no, entry_no, run_no, seq, owner, keep, search_no)
    SELECT $2, entry_no, run_no, seq, CASE WHEN keep IS NULL THEN coalesce(owner, session_no) END, keep, search_no
    FROM session_entries WHERE session_no = $1 AND entry_no <= $3";

/// Gives the session of number `$2` the to-do lists of the entries that it shares with the session of number `$1`.
pub(in crate::store) const SHARE_TODOS: &str = "
    INSERT INTO session_todos (session_no, entry_no, items)
    SELECT $2, entry_no, items FROM session_todos WHERE session_no = $1 AND entry_no <= $3";

/// Has the session of number `$2` refer to the blobs that the entries name which it shares with that of number `$1`.
const SHARE_BLOBS: &str = "
    INSERT INTO session_blobs (session_no, entry_no, digest)
    SELECT $2, entry_no, digest FROM session_blobs WHERE session_no = $1 AND entry_no <= $3";

/// Copies the events that forks share with the session of number `$1`. They are kept as number `$2`. Two forks may share one.
pub(in crate::store) const KEEP_EVENTS: &str = "
    INSERT INTO kept_events (keep, run_no, seq, run_id, at, status, version, payload, checksum, model)
    SELECT $2, e.run_no, e.seq, r.run_id, e.at, e.status, e.version, e.payload, e.checksum, r.model
    FROM session_entries AS i
    JOIN runs AS r ON r.run_no = i.run_no
    JOIN run_events AS e ON e.run_no = i.run_no AND e.seq = i.seq
    WHERE i.owner = $1
    ON CONFLICT (keep, run_no, seq) DO NOTHING";

/// Carries out a write.
///
/// # Errors
/// [`WriteError`].
pub(in crate::store) async fn write<W: SessionWriter, R>(
    db: &mut W,
    op: &SessionOp,
) -> Result<WriteResult<R>, WriteError> {
    let session = |row: SessionRow| WriteResult::Session(Box::new(row));
    Ok(match op {
        SessionOp::Create(new) => session(create(db, new).await?),
        SessionOp::GetOrCreate(new) => session(get_or_create(db, new).await?),
        SessionOp::Update(new) => session(update(db, new).await?),
        SessionOp::Fork(new) => session(fork(db, new).await?),
        SessionOp::Delete(old) => WriteResult::Existed(delete(db, old).await?),
        SessionOp::SetNotes(new) => WriteResult::Existed(set_notes(db, new).await?),
    })
}

/// Creates a session, or confirms one with the same content.
async fn create<W: SessionWriter>(db: &mut W, new: &NewSession) -> Result<SessionRow, WriteError> {
    let insert = db.insert(new);
    db.execute(insert).await?;
    let Stored { row, title, created_as, .. } = must_find(db, &new.tenant, &new.session).await?;
    let (title, labels) =
        created_as.as_ref().map_or((&title, &row.labels), |(title, labels)| (title, labels));
    // A copy of an SQLite database has the title as it was given there.
    let same = *labels == new.labels
        && W::clean(title) == new.title
        && row.forked_from.is_none()
        && row.created_by == new.created_by;
    same.then_some(row).ok_or(WriteError::Refused(StoreError::SessionExists))
}

/// The session of a user and a project that was touched last, or a new one.
async fn get_or_create<W: SessionWriter>(db: &mut W, new: &NewSession) -> Result<SessionRow, WriteError> {
    db.lock_user(new).await?;
    let query = session_of_user_query::<W::Dialect>(&new.tenant, &new.labels, new.created_by.as_deref());
    match db.row(query).await? {
        Some(row) => Ok(row::session(&row)?),
        None => create(db, new).await,
    }
}

/// Changes a session's title and labels.
async fn update<W: SessionWriter>(db: &mut W, new: &NewUpdate) -> Result<SessionRow, WriteError> {
    let Some(Stored { row, title, .. }) = find(db, &new.tenant, &new.session).await? else {
        return Err(WriteError::Refused(StoreError::NoSession));
    };
    let labels = new.update.labels(&row.labels)?;
    let changed = (new.update.title.clone().unwrap_or_else(|| title.clone()), labels);
    if changed.0 == title && changed.1 == row.labels {
        return Ok(row);
    }
    db.execute(W::update(&(title, row.labels), new, &changed)).await?;
    Ok(must_find(db, &new.tenant, &new.session).await?.row)
}

/// Writes a title if there is none, and a summary if it covers more than the one that is there. `false`: there is no such
/// session.
async fn set_notes<W: SessionWriter>(db: &mut W, new: &NewNotes) -> Result<bool, Error> {
    let (summary, upto) = match &new.notes.summary {
        Some((summary, upto)) => (summary.as_str(), *upto),
        None => ("", EntryNo(0)),
    };
    let statement = of_session(SET_NOTES, &new.tenant, &new.session).with(new.notes.title.as_deref());
    Ok(db.execute(statement.with(summary).with(int(upto.0))).await? > 0)
}

/// Makes a session from another, or confirms the same fork.
async fn fork<W: SessionWriter>(db: &mut W, new: &NewFork) -> Result<SessionRow, WriteError> {
    if let Some(found) = find(db, &new.tenant, &new.session).await? {
        let same = found.row.created_by == new.created_by && found.is_fork_by(new);
        return same.then_some(found.row).ok_or(WriteError::Refused(StoreError::SessionExists));
    }
    db.lock_source(new).await?;
    let Some(source) = find(db, &new.tenant, &new.source).await? else {
        return Err(WriteError::Refused(StoreError::NoSession));
    };
    if new.source_of.is_some() && new.source_of != source.row.created_by {
        return Err(WriteError::Refused(StoreError::NoSession));
    }
    let last = source.row.last_entry;
    if new.at > last {
        return Err(WriteError::Refused(StoreError::EntryAhead { last }));
    }
    let upto = if new.at == EntryNo(0) { last } else { new.at };
    let insert = db.insert_fork(new, upto, &source.row.preview);
    db.execute(insert).await?;
    let made = must_find(db, &new.tenant, &new.session).await?;
    for sql in [SHARE_ENTRIES, SHARE_TODOS, SHARE_BLOBS] {
        db.execute(Query::new(sql).with(source.no).with(made.no).with(int(upto.0))).await?;
    }
    Ok(made.row)
}

/// Deletes a session that has neither a live run, other than the damaged one, nor a queue.
async fn delete<W: SessionWriter>(db: &mut W, old: &DeleteSession) -> Result<bool, WriteError> {
    db.lock_deleted(old).await?;
    let Some(Stored { no, row, .. }) = find(db, &old.tenant, &old.session).await? else {
        return Ok(false);
    };
    let live = row.live_run.filter(|run| Some(run) != old.damaged.as_ref());
    if let Some(run) = live.or(first_queued(db, no).await?) {
        return Err(WriteError::Refused(StoreError::SessionBusy { run }));
    }
    db.delete(no).await?;
    Ok(true)
}

async fn first_queued<W: SessionWriter>(db: &mut W, no: i64) -> Result<Option<RunId>, Error> {
    let row = db.row(Query::new(W::Dialect::FIRST_QUEUED).with(no)).await?;
    row.map(|row| run_id(&row, "run_id")).transpose()
}

/// A session that is there, with the columns that nobody is shown.
struct Stored {
    no: i64,
    row: SessionRow,
    /// The title that a caller gave it.
    title: String,
    /// The fields with which it was created, if they were changed since.
    created_as: Option<TitleAndLabels>,
    /// The last entry that the request for a fork named; 0 for all of them.
    forked_asked: Option<EntryNo>,
}

impl Stored {
    /// True if it was forked by the same request, or shares exactly as much as this one names.
    fn is_fork_by(&self, new: &NewFork) -> bool {
        self.row.forked_from.as_ref().is_some_and(|(source, shared)| {
            let shares_as_much = *shared == new.at && *shared != EntryNo(0);
            *source == new.source && (self.forked_asked == Some(new.at) || shares_as_much)
        })
    }
}

async fn find<W: SessionWriter>(
    db: &mut W,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<Stored>, Error> {
    let Some(row) = db.row(session_query::<W::Dialect>(tenant, session)).await? else { return Ok(None) };
    Ok(Some(Stored {
        no: row.integer("session_no")?,
        row: row::session(&row)?,
        title: owned_text(&row, "title")?,
        created_as: json_if_any(&row, "created_as")?,
        forked_asked: number_if_any(&row, "forked_asked")?.map(EntryNo),
    }))
}

/// A session that this transaction has written.
async fn must_find<W: SessionWriter>(
    db: &mut W,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Stored, Error> {
    find(db, tenant, session).await?.ok_or(Error::RowNotFound)
}

/// A statement whose first two values are a session's key.
pub(in crate::store) fn of_session(sql: &'static str, tenant: &TenantId, session: &SessionId) -> Query {
    Query::new(sql).with(tenant.as_str()).with(session.as_str())
}
