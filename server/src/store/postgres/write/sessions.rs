//! Sessions of PostgreSQL: the statements of [`sql::write::sessions`](crate::store::sql::write::sessions) that it has of its own.
//!
//! A fork and its source may be of different replicas, so there a fork and a deletion lock what they look at. The statements
//! after the lock see what the one before has left.
//!
//! - A deletion locks the row of its session, and a fork those of all sessions whose journals its entries refer to. So a
//!   deletion sees the forks that came before it, and a fork does not see a session that is being deleted. A server alone does
//!   not need these locks.
//! - Deletions of sessions that share events lock what they share: the last of them finds that it is the last. A server alone
//!   takes these locks, too: its slices are deleted over another connection.
//!
//! The deletion of a large session takes away the rows by which it and its runs are found, and leaves the others to
//! [`super::super::deleted_rows`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use agentloop_core::cluster::shard::shard_of;
use agentloop_core::id::{EntryNo, SessionId, TenantId};
use sqlx::postgres::PgRow;
use sqlx::{Error, Executor as _, PgConnection, Row as _};

use crate::store::postgres::connect::settings;
use crate::store::postgres::deleted_rows::LOCK_SHARED;
use crate::store::postgres::owner::ServerKind;
use crate::store::postgres::read::{PostgresDialect, keep_usage, prepared};
use crate::store::postgres::rows::{clean, indexed};
use crate::store::sql::query::Query;
use crate::store::sql::write::sessions::{KEEP_EVENTS, SessionWriter, TitleAndLabels, of_session};
use crate::store::support::codec::text;
use crate::store::support::number::int;
use crate::store::support::write::{DeleteSession, NewUpdate};
use crate::store::{NewFork, NewSession, PROJECT_LABEL, USER_LABEL};

const INSERT: &str = "
    INSERT INTO sessions (tenant, session_id, session_no, shard, title, labels, label_user, label_project, created_at,
                          updated_at, created_by)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10)
    ON CONFLICT (tenant, session_id) DO NOTHING";

const UPDATE: &str = "
    UPDATE sessions
    SET created_as = coalesce(created_as, $3), title = $4, labels = $5, label_user = $6, label_project = $7
    WHERE tenant = $1 AND session_id = $2";

const INSERT_FORK: &str = "
    INSERT INTO sessions (session_no, shard, tenant, session_id, title, made_title, labels, label_user, label_project,
                          created_at, updated_at, last_entry, forked_from, forked_at, forked_asked, summary,
                          summary_upto, created_by, preview)
    SELECT $9, $10, tenant, $3, title, made_title, labels, label_user, label_project, $4, $4, $5, session_id, $5, $6,
           CASE WHEN summary_upto <= $5 THEN summary ELSE '' END,
           CASE WHEN summary_upto <= $5 THEN summary_upto ELSE 0 END, $7, $8
    FROM sessions WHERE tenant = $1 AND session_id = $2";

const REFER_TO_KEPT: &str = "UPDATE session_entries SET owner = NULL, keep = $1 WHERE owner = $1";

/// Documents of entries that the session of number `$1` shares with no other.
const OWN_DOCUMENTS: &str = "
    SELECT i.search_no FROM session_entries AS i
    WHERE i.session_no = $1 AND i.search_no IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM session_entries AS o
                      WHERE o.search_no = i.search_no AND o.session_no <> i.session_no)";

/// Deletes the kept events that the session of number `$1` shares with no other.
const DROP_KEPT: &str = "
    DELETE FROM kept_events AS k
    USING session_entries AS i
    WHERE i.session_no = $1 AND i.keep = k.keep AND i.run_no = k.run_no AND i.seq = k.seq
      AND NOT EXISTS (
          SELECT 1 FROM session_entries AS o
          WHERE o.keep = i.keep AND o.run_no = i.run_no AND o.seq = i.seq AND o.session_no <> i.session_no)";

/// Locks a session against its deletion. Its owner goes on writing to it.
const LOCK_SOURCE: &str =
    "SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2 FOR KEY SHARE";

/// Locks the other sessions whose journals have events of this one. If one of them has just been deleted, these events are
/// kept ones by now.
const LOCK_LENDERS: &str = "
    SELECT session_no FROM sessions
    WHERE session_no IN (SELECT i.owner FROM sessions AS s JOIN session_entries AS i ON i.session_no = s.session_no
                         WHERE s.tenant = $1 AND s.session_id = $2 AND i.owner IS NOT NULL)
    ORDER BY session_no FOR KEY SHARE";

/// Waits for the forks of a session that are under way, and keeps later ones from seeing it.
const LOCK_DELETED: &str = "SELECT 1 FROM sessions WHERE tenant = $1 AND session_id = $2 FOR UPDATE";

/// Locks the sessions of a user and a project, as far as they are looked for to make one where there is none.
const LOCK_USER: &str = "
    SELECT pg_advisory_xact_lock(hashtextextended(
        concat_ws(chr(1), 'agentloop session', $1::text, $2::text, $3::text, current_schema()), 0))";

/// Deletes the specs that only runs of the session of number `$1` have.
const DROP_SPECS: &str = "
    DELETE FROM specs AS p
    WHERE p.digest IN (SELECT spec_digest FROM runs WHERE session_no = $1 AND spec_digest IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM runs AS o WHERE o.spec_digest = p.digest AND o.session_no <> $1)";

/// The specs of the session of number `$1`.
const SPECS: &str =
    "SELECT DISTINCT spec_digest FROM runs WHERE session_no = $1 AND spec_digest IS NOT NULL ORDER BY 1";

/// Notes specs that may be unused from now on.
const NOTE_SPECS: &str =
    "INSERT INTO unused_specs (digest) SELECT * FROM unnest($1::text[]) ON CONFLICT (digest) DO NOTHING";

/// Events and entries of a session up to which it is deleted in one transaction.
const WHOLE_ROWS_MAX: i64 = 10_000;
/// Bytes of its events, likewise.
const WHOLE_BYTES_MAX: i64 = 64 * 1024 * 1024;

/// The size of the session of number `$1`. Events of a run are dense. Those of an earlier version have no count of their bytes.
const SIZE: &str = "
    SELECT s.last_entry + coalesce(sum(t.last_seq), 0)::bigint AS rows, coalesce(sum(t.bytes), 0)::bigint AS bytes
    FROM sessions AS s
    LEFT JOIN (runs AS r JOIN run_states AS t ON t.run_no = r.run_no) ON r.session_no = s.session_no
    WHERE s.session_no = $1
    GROUP BY s.session_no";

/// The contents of the session of number `$1`, which may be large.
const DELETE_CONTENTS: [&str; 5] = [
    DROP_KEPT,
    "DELETE FROM run_events WHERE run_no IN (SELECT run_no FROM runs WHERE session_no = $1)",
    "DELETE FROM session_entries WHERE session_no = $1",
    "DELETE FROM session_todos WHERE session_no = $1",
    "DELETE FROM session_blobs WHERE session_no = $1",
];

/// Leaves that to be deleted in slices.
const LEAVE_CONTENTS: [&str; 2] = [
    "INSERT INTO deleted_runs (run_no) SELECT run_no FROM runs WHERE session_no = $1",
    "INSERT INTO deleted_sessions (session_no) VALUES ($1)",
];

/// The rows by which the session of number `$1` and its runs are found, the session last.
const DELETE: [&str; 7] = [
    "DELETE FROM steers WHERE run_no IN (SELECT run_no FROM runs WHERE session_no = $1)",
    "DELETE FROM human_requests WHERE run_no IN (SELECT run_no FROM runs WHERE session_no = $1)",
    "DELETE FROM jobs WHERE run_no IN (SELECT run_no FROM runs WHERE session_no = $1)",
    "DELETE FROM run_states WHERE run_no IN (SELECT run_no FROM runs WHERE session_no = $1)",
    "DELETE FROM runs WHERE session_no = $1",
    "DELETE FROM remembered_rules AS r USING sessions AS s
     WHERE s.session_no = $1 AND r.tenant = s.tenant AND r.session_id = s.session_id",
    "DELETE FROM sessions WHERE session_no = $1",
];

/// The tables of sessions, in a transaction that is open.
pub(in crate::store::postgres) struct SessionTables<'a> {
    pub(in crate::store::postgres) db: &'a mut PgConnection,
    pub(in crate::store::postgres) server: ServerKind,
    /// The statement that gives the transaction its waits for locks again.
    pub(in crate::store::postgres) waits: &'static str,
    /// The number that was given to a session last.
    pub(in crate::store::postgres) last_no: &'a mut i64,
}

impl SessionWriter for SessionTables<'_> {
    type Dialect = PostgresDialect;
    type Row = PgRow;

    async fn execute(&mut self, statement: Query) -> Result<u64, Error> {
        Ok(prepared(statement).execute(&mut *self.db).await?.rows_affected())
    }

    async fn row(&mut self, query: Query) -> Result<Option<PgRow>, Error> {
        prepared(query).fetch_optional(&mut *self.db).await
    }

    fn clean(text: &str) -> Cow<'_, str> {
        clean(text)
    }

    fn insert(&mut self, new: &NewSession) -> Query {
        let query = of_session(INSERT, &new.tenant, &new.session).with(self.next_no());
        let query = query.with(shard(&new.tenant, &new.session)).with(new.title.as_str());
        let query = with_indexed(query.with(text(&new.labels)), &new.labels);
        query.with(int(new.created_at.0)).with(new.created_by.as_deref())
    }

    fn update(before: &TitleAndLabels, new: &NewUpdate, (title, labels): &TitleAndLabels) -> Query {
        let query = of_session(UPDATE, &new.tenant, &new.session).with(text(before));
        with_indexed(query.with(title.as_str()).with(text(labels)), labels)
    }

    fn insert_fork(&mut self, new: &NewFork, upto: EntryNo, preview: &str) -> Query {
        let query = of_session(INSERT_FORK, &new.tenant, &new.source).with(new.session.as_str());
        let query = query.with(int(new.created_at.0)).with(int(upto.0)).with(int(new.at.0));
        let query = query.with(new.created_by.as_deref()).with(preview);
        query.with(self.next_no()).with(shard(&new.tenant, &new.session))
    }

    async fn delete(&mut self, no: i64) -> Result<(), Error> {
        self.must_lock_soon(Query::new(LOCK_SHARED).with(no)).await?;
        let Self { db, server, .. } = self;
        // They are kept by the number of their session.
        sqlx::query(KEEP_EVENTS).bind(no).bind(no).execute(&mut **db).await?;
        sqlx::query(REFER_TO_KEPT).bind(no).execute(&mut **db).await?;
        keep_usage(db, no).await?;
        let unused_specs = match server {
            ServerKind::Alone => {
                sqlx::query(DROP_SPECS).bind(no).execute(&mut **db).await?;
                Vec::new()
            }
            ServerKind::Replica => {
                let specs = sqlx::query(SPECS).bind(no).fetch_all(&mut **db).await?;
                specs.iter().map(|row| row.try_get("spec_digest")).collect::<Result<Vec<String>, _>>()?
            }
        };
        if is_large(db, no).await? {
            execute_all(db, &LEAVE_CONTENTS, no).await?;
        } else {
            delete_contents(db, no).await?;
        }
        execute_all(db, &DELETE, no).await?;
        if !unused_specs.is_empty() {
            // Last: another replica that notes one of them waits until this transaction ends.
            sqlx::query(NOTE_SPECS).bind(unused_specs).execute(&mut **db).await?;
        }
        Ok(())
    }

    async fn lock_user(&mut self, new: &NewSession) -> Result<(), Error> {
        let [user, project] = found_by(&new.labels).map(Option::unwrap_or_default);
        self.lock(Query::new(LOCK_USER).with(new.tenant.as_str()).with(user).with(project)).await
    }

    async fn lock_source(&mut self, new: &NewFork) -> Result<(), Error> {
        self.lock_or_fail(of_session(LOCK_SOURCE, &new.tenant, &new.source)).await?;
        self.lock_or_fail(of_session(LOCK_LENDERS, &new.tenant, &new.source)).await
    }

    async fn lock_deleted(&mut self, old: &DeleteSession) -> Result<(), Error> {
        self.lock_or_fail(of_session(LOCK_DELETED, &old.tenant, &old.session)).await
    }
}

impl SessionTables<'_> {
    fn next_no(&mut self) -> i64 {
        *self.last_no += 1;
        *self.last_no
    }

    /// Locks all rows of a query against other replicas. A server alone has nobody to lock them against.
    async fn lock(&mut self, query: Query) -> Result<(), Error> {
        if self.server == ServerKind::Replica {
            self.execute(query).await?;
        }
        Ok(())
    }

    /// The same for rows that another replica may have locked for as long as the deletion of a large session takes.
    async fn lock_or_fail(&mut self, query: Query) -> Result<(), Error> {
        if self.server == ServerKind::Replica {
            self.must_lock_soon(query).await?;
        }
        Ok(())
    }

    /// Locks what a query names. While one write waits, no other goes on. So it fails soon, and the writing task puts it off.
    async fn must_lock_soon(&mut self, query: Query) -> Result<(), Error> {
        self.db.execute(settings::SHORT_WAITS).await?;
        self.execute(query).await?;
        self.db.execute(self.waits).await.map(|_| ())
    }
}

/// True for a session whose deletion in one transaction would hold up other writes.
async fn is_large(db: &mut PgConnection, no: i64) -> Result<bool, Error> {
    let row = sqlx::query(SIZE).bind(no).fetch_one(db).await?;
    let (rows, bytes): (i64, i64) = (row.try_get("rows")?, row.try_get("bytes")?);
    Ok(rows > WHOLE_ROWS_MAX || bytes > WHOLE_BYTES_MAX)
}

async fn delete_contents(db: &mut PgConnection, no: i64) -> Result<(), Error> {
    let documents = sqlx::query(OWN_DOCUMENTS).bind(no).fetch_all(&mut *db).await?;
    let documents = documents.iter().map(|row| row.try_get("search_no")).collect::<Result<Vec<i64>, _>>()?;
    execute_all(db, &DELETE_CONTENTS, no).await?;
    // After the entries: whoever adds a document locks its entry first.
    let sql = "DELETE FROM search_documents WHERE search_no = ANY ($1)";
    sqlx::query(sql).bind(documents).execute(db).await.map(|_| ())
}

/// Executes statements about the session of this number.
async fn execute_all(db: &mut PgConnection, statements: &[&'static str], no: i64) -> Result<(), Error> {
    for sql in statements {
        sqlx::query(*sql).bind(no).execute(&mut *db).await?;
    }
    Ok(())
}

fn shard(tenant: &TenantId, session: &SessionId) -> i64 {
    shard_of(tenant, session).0.into()
}

/// Adds the labels by which a session is found.
fn with_indexed(query: Query, labels: &BTreeMap<String, String>) -> Query {
    let [user, project] = found_by(labels);
    query.with(user.as_deref()).with(project.as_deref())
}

/// The labels of a session by which it is found, as its indexed columns have them.
fn found_by(labels: &BTreeMap<String, String>) -> [Option<String>; 2] {
    [USER_LABEL, PROJECT_LABEL].map(|key| labels.get(key).map(|value| indexed(value).into_owned()))
}
