//! The appends of a commit: their rows are read as far as the cache does not have them, and checked. No writes.

use std::collections::HashMap;

use agentloop_core::id::{EntryNo, Epoch, Seq};
use sqlx::postgres::PgRow;
use sqlx::{Error, PgConnection, Row as _};

use crate::store::StoreError;
use crate::store::postgres::rows;
use crate::store::support::append::{
    CachedRows, CommitRows, EncodedAppend, LastNumbers, LiveRun, NumberedAppend, RunHead, RunInCommit,
    SessionHead, SessionInCommit, SessionValues, WriterCache,
};

/// True if the blind start `j` has overlooked something. In place of these queries, PostgreSQL might read whole tables for an
/// EXISTS.
macro_rules! has_overlooked {
    () => {
        "coalesce(
        (SELECT true FROM steers AS k WHERE k.tenant = j.tenant AND k.request_id = j.run_id LIMIT 1),
        (SELECT true FROM remembered_rules AS m WHERE m.tenant = j.tenant AND m.session_id IS NULL LIMIT 1),
        false)"
    };
}
pub(in crate::store::postgres) use has_overlooked;

/// The rows of runs and sessions that appends are checked against. `$more` is columns more.
macro_rules! select_heads {
    ($($more:tt)*) => {
        concat!(
            "SELECT j.place, t.run_no, t.epoch, t.last_seq, t.queue_no, o.session_id, s.session_no, s.last_entry,
                    s.live_run_no, s.last_queue_no, greatest(s.updated_at, s.last_entry_at) AS updated_at,
                    live.run_id AS live_run",
            $($more)*,
            "
    FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS j (tenant, run_id, session_id, place)
    LEFT JOIN runs AS r ON r.tenant = j.tenant AND r.run_id = j.run_id
    LEFT JOIN run_states AS t ON t.run_no = r.run_no
    LEFT JOIN sessions AS o ON o.session_no = r.session_no
    LEFT JOIN sessions AS s ON s.tenant = j.tenant AND s.session_id = j.session_id
    LEFT JOIN runs AS live ON live.run_no = s.live_run_no"
        )
    };
}

/// For appends of which none is of a blind start.
pub(in crate::store::postgres) const SELECT_HEADS: &str = select_heads!("");

/// For others. Tells too if a blind start has overlooked something.
pub(in crate::store::postgres) const SELECT_HEADS_OF_BLIND: &str =
    select_heads!(", ", has_overlooked!(), " AS overlooked");

/// The appends of a commit: which are accepted, and the rows as they are then.
pub(in crate::store::postgres) struct CommitPlan<'a> {
    /// One for each append, in order.
    pub(in crate::store::postgres) replies: Vec<Result<(), StoreError>>,
    pub(in crate::store::postgres) accepted: Vec<NumberedAppend<'a>>,
    /// The sessions that were there, by their numbers, as they were before the commit.
    pub(in crate::store::postgres) sessions_before: HashMap<i64, SessionValues>,
    /// Numbers of search documents: one for each entry of the accepted appends, in order.
    pub(in crate::store::postgres) documents: Vec<Option<i64>>,
    /// The rows with everything that is accepted.
    pub(in crate::store::postgres) rows: CommitRows<'a>,
    /// Blind starts for which nothing was read. The write is refused if one of them has overlooked something.
    pub(in crate::store::postgres) guessed: Vec<&'a EncodedAppend>,
}

/// Checks appends. Reads only the rows that are not in the cache, and of blind starts none if it `guesses`. `numbers` are those
/// that were given out last.
///
/// # Errors
/// SQL's own.
pub(in crate::store::postgres) async fn plan<'a>(
    db: &mut PgConnection,
    cache: &mut WriterCache,
    numbers: LastNumbers,
    appends: &[&'a EncodedAppend],
    guesses: bool,
) -> Result<CommitPlan<'a>, Error> {
    cache.set_numbers(numbers);
    let CachedRows { mut rows, missing, guessed } = cache.rows(appends, guesses);
    if !missing.is_empty() {
        read_rows(db, &missing, &mut rows).await?;
    }
    let before = |session: &SessionInCommit| (session.head.no, SessionValues::of(&session.head));
    let sessions_before = rows.sessions.values().map(before).collect();
    let replies: Vec<_> = appends.iter().map(|append| rows.accept(append)).collect();
    let accepted: Vec<_> = appends
        .iter()
        .zip(&replies)
        .filter(|(_, reply)| reply.is_ok())
        .map(|(append, _)| rows.numbered(append))
        .collect();
    rows.collect_specs(|digest| cache.has_spec(digest));
    let documents = rows.number_documents(&accepted);
    Ok(CommitPlan { replies, accepted, sessions_before, documents, rows, guessed })
}

/// Adds the rows of these appends' runs and sessions.
async fn read_rows(
    db: &mut PgConnection,
    appends: &[&EncodedAppend],
    rows: &mut CommitRows<'_>,
) -> Result<(), Error> {
    let tenants: Vec<_> = appends.iter().map(|append| append.run.tenant.as_str()).collect();
    let runs: Vec<_> = appends.iter().map(|append| append.run.run.as_str()).collect();
    let sessions: Vec<_> = appends.iter().map(|append| append.session.session.as_str()).collect();
    let is_blind = |append: &&EncodedAppend| append.create.as_ref().is_some_and(|create| create.is_blind);
    let any_blind = appends.iter().any(is_blind);
    let query = sqlx::query(if any_blind { SELECT_HEADS_OF_BLIND } else { SELECT_HEADS })
        .bind(tenants)
        .bind(runs)
        .bind(sessions);
    for row in query.fetch_all(db).await? {
        let place = usize::try_from(rows::number(&row, "place")?).unwrap_or(usize::MAX);
        let append = appends[place - 1];
        if any_blind && is_blind(&append) && row.try_get("overlooked")? {
            rows.overlooked.insert(append.run.clone());
        }
        if let Some(head) = run_head(&row)? {
            rows.runs.insert(append.run.clone(), RunInCommit::unchanged(head));
        }
        if let Some(head) = session_head(&row)? {
            rows.sessions.insert(append.session.clone(), SessionInCommit::unchanged(head));
        }
    }
    Ok(())
}

/// `None`: there is no such run.
fn run_head(row: &PgRow) -> Result<Option<RunHead>, Error> {
    let Some(no) = row.try_get("run_no")? else { return Ok(None) };
    Ok(Some(RunHead {
        no,
        epoch: Epoch(rows::number(row, "epoch")?),
        last_seq: Seq(rows::number(row, "last_seq")?),
        session: rows::session_id(row, "session_id")?,
        queue_no: rows::number_if_any(row, "queue_no")?,
    }))
}

/// `None`: there is no such session.
fn session_head(row: &PgRow) -> Result<Option<SessionHead>, Error> {
    let Some(no) = row.try_get("session_no")? else { return Ok(None) };
    let live_run = match rows::live_run(row)? {
        Some(id) => Some(LiveRun { no: row.try_get("live_run_no")?, id }),
        None => None,
    };
    Ok(Some(SessionHead {
        no,
        last_entry: EntryNo(rows::number(row, "last_entry")?),
        live_run,
        last_queue_no: rows::number(row, "last_queue_no")?,
        updated_at: rows::time(row, "updated_at")?,
    }))
}
