//! Sessions of SQLite: the statements of [`sql::write::sessions`](crate::store::sql::write::sessions) that it has of its own.

use std::borrow::Cow;

use agentloop_core::id::EntryNo;
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _, SqliteConnection};

use crate::store::sql::query::Query;
use crate::store::sql::write::sessions::{KEEP_EVENTS, SessionWriter, TitleAndLabels, of_session};
use crate::store::sqlite::read::{SqliteDialect, keep_usage_query, prepared};
use crate::store::support::codec::text;
use crate::store::support::number::int;
use crate::store::support::write::NewUpdate;
use crate::store::{NewFork, NewSession};

const INSERT: &str = "
    INSERT INTO sessions (tenant, session_id, title, labels, created_at, updated_at, created_by)
    VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6) ON CONFLICT (tenant, session_id) DO NOTHING";

pub(in crate::store::sqlite) const UPDATE: &str = "
    UPDATE sessions
    SET created_as = coalesce(created_as, ?3), title = ?4, labels = ?5
    WHERE tenant = ?1 AND session_id = ?2";

const INSERT_FORK: &str = "
    INSERT INTO sessions (tenant, session_id, title, made_title, labels, created_at, updated_at, last_entry,
                          forked_from, forked_at, forked_asked, summary, summary_upto, created_by,
                          preview)
    SELECT tenant, ?3, title, made_title, labels, ?4, ?4, ?5, session_id, ?5, ?6,
           iif(summary_upto <= ?5, summary, ''), iif(summary_upto <= ?5, summary_upto, 0), ?7, ?8
    FROM sessions WHERE tenant = ?1 AND session_id = ?2";

pub(in crate::store::sqlite) const REFER_TO_KEPT: &str = "
    UPDATE session_entries INDEXED BY session_entries_lent
    SET owner = NULL, keep = ?2 WHERE owner = ?1";

/// Lists the documents of entries that the session of number `?1` shares with no other.
pub(in crate::store::sqlite) const DELETE_DOCUMENTS: &str = "
    INSERT INTO search_deleted (search_no)
    SELECT i.search_no FROM session_entries AS i
    WHERE i.session_no = ?1 AND i.search_no IS NOT NULL
      AND NOT EXISTS (
          SELECT 1 FROM session_entries AS o INDEXED BY session_entries_searched
          WHERE o.search_no = i.search_no AND o.session_no <> i.session_no)
    ON CONFLICT (search_no) DO NOTHING";

/// Remembers the highest number of a deleted document. No number is given out twice: an index that is older than the
/// database would confuse the two documents.
const KEEP_LAST_DOCUMENT: &str = "
    INSERT INTO meta (key, value)
    SELECT 'last_document', max(search_no) FROM search_deleted HAVING count(*) > 0
    ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)";

/// Remembers the highest numbers of rows that a deletion may take, and counts it, for `files::last_state`.
const KEEP_LAST_NUMBERS: &str = "
    INSERT INTO meta (key, value)
    SELECT column1, column2 FROM (VALUES
        ('last_run', (SELECT coalesce(max(run_no), 0) FROM runs)),
        ('last_session', (SELECT coalesce(max(session_no), 0) FROM sessions)),
        ('last_event', (SELECT coalesce(max(event_no), 0) FROM run_events)),
        ('deletions', 1 + coalesce((SELECT value FROM meta WHERE key = 'deletions'), 0)))
    WHERE true
    ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)";

/// Deletes the kept events that the session of number `?1` shares with no other.
pub(in crate::store::sqlite) const DROP_KEPT: &str = "
    DELETE FROM kept_events
    WHERE (keep, run_no, seq) IN (
        SELECT i.keep, i.run_no, i.seq FROM session_entries AS i
        WHERE i.session_no = ?1 AND i.keep IS NOT NULL
          AND NOT EXISTS (
              SELECT 1 FROM session_entries AS o
              WHERE o.keep = i.keep AND o.run_no = i.run_no AND o.seq = i.seq
                AND o.keep IS NOT NULL AND o.session_no <> i.session_no))";

/// Deletes the specs that only runs of the session of number `?1` have.
pub(in crate::store::sqlite) const DROP_SPECS: &str = "
    DELETE FROM specs
    WHERE spec_no IN (SELECT spec_no FROM runs WHERE session_no = ?1 AND spec_no IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM runs AS o WHERE o.spec_no = specs.spec_no AND o.session_no <> ?1)";

/// The tables of sessions, in a transaction that is open.
pub(in crate::store::sqlite) struct SessionTables<'a> {
    pub(in crate::store::sqlite) db: &'a mut SqliteConnection,
    /// True if there is a search index, which has to delete the documents of deleted sessions.
    pub(in crate::store::sqlite) has_index: bool,
}

impl SessionWriter for SessionTables<'_> {
    type Dialect = SqliteDialect;
    type Row = SqliteRow;

    async fn execute(&mut self, statement: Query) -> Result<u64, Error> {
        Ok(prepared(statement).execute(&mut *self.db).await?.rows_affected())
    }

    async fn row(&mut self, query: Query) -> Result<Option<SqliteRow>, Error> {
        prepared(query).fetch_optional(&mut *self.db).await
    }

    fn clean(text: &str) -> Cow<'_, str> {
        text.into()
    }

    fn insert(&mut self, new: &NewSession) -> Query {
        let query = of_session(INSERT, &new.tenant, &new.session).with(new.title.as_str());
        query.with(text(&new.labels)).with(int(new.created_at.0)).with(new.created_by.as_deref())
    }

    fn update(before: &TitleAndLabels, new: &NewUpdate, (title, labels): &TitleAndLabels) -> Query {
        let query = of_session(UPDATE, &new.tenant, &new.session).with(text(before));
        query.with(title.as_str()).with(text(labels))
    }

    fn insert_fork(&mut self, new: &NewFork, upto: EntryNo, preview: &str) -> Query {
        let query = of_session(INSERT_FORK, &new.tenant, &new.source).with(new.session.as_str());
        let query = query.with(int(new.created_at.0)).with(int(upto.0)).with(int(new.at.0));
        query.with(new.created_by.as_deref()).with(preview)
    }

    /// Foreign keys delete everything that belongs to it. If there is a search index, the numbers of the documents that it has to
    /// delete are kept for it.
    async fn delete(&mut self, no: i64) -> Result<(), Error> {
        let Self { db, has_index } = self;
        let sql = "SELECT coalesce(max(keep), 0) + 1 AS keep FROM kept_events";
        let keep: i64 = sqlx::query(sql).fetch_one(&mut **db).await?.try_get("keep")?;
        for sql in [KEEP_EVENTS, REFER_TO_KEPT] {
            sqlx::query(sql).bind(no).bind(keep).execute(&mut **db).await?;
        }
        prepared(keep_usage_query(no)).execute(&mut **db).await?;
        sqlx::query(KEEP_LAST_NUMBERS).execute(&mut **db).await?;
        if *has_index {
            sqlx::query(DELETE_DOCUMENTS).bind(no).execute(&mut **db).await?;
            sqlx::query(KEEP_LAST_DOCUMENT).execute(&mut **db).await?;
        }
        for sql in [DROP_KEPT, DROP_SPECS, "DELETE FROM sessions WHERE session_no = ?1"] {
            sqlx::query(sql).bind(no).execute(&mut **db).await?;
        }
        Ok(())
    }
}
