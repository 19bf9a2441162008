//! Queries for questions to humans.

use std::ops::Range;

use agentloop_core::id::{RequestId, RunId, TenantId};
use agentloop_core::limits::PAGE_BYTES_MAX;
use agentloop_core::run::human::PartialApproval;
use sqlx::Error;

use super::{after, all, filter, one};
use crate::store::sql::column::{SqlRow, number, request_id};
use crate::store::sql::query::Query;
use crate::store::sql::question::{StoredQuestion, approvals_of, decoded, stored_question};
use crate::store::sql::reader::{Dialect, SqlReader, TwoLists};
use crate::store::sql::row::event;
use crate::store::support::damaged::DamagedQuestions;
use crate::store::support::page::{self, Cursor};
use crate::store::{Page, PageRequest, RequestFilter, RequestRow, StoreError};

/// Bytes of events after which a page of questions takes no further one. Half of the limit leaves room for a large last one.
const PAGE_BYTES: u64 = PAGE_BYTES_MAX as u64 / 2;

/// Stretches of the list of questions that are read for one page, at most, while a filter leaves nothing of them.
const STRETCHES_MAX: u32 = 16;

/// Sizes of questions. Databases know the size of an event without reading it.
pub(in crate::store) const SIZES: &str = "SELECT CAST(octet_length(asked.payload) AS bigint) AS size";

/// Questions, each with the event that asks it and the one that answers it.
pub(in crate::store) const REQUESTS: &str = "
    SELECT r.run_id, r.created_by, s.session_id, q.asked_at, q.question, asked.seq, asked.at, asked.status,
           asked.version, asked.payload, asked.checksum,
           answered.seq AS answer_seq, answered.at AS answer_at, answered.status AS answer_status,
           answered.version AS answer_version, answered.payload AS answer_payload, answered.checksum AS answer_checksum";

/// Ids of a run's open questions, without that of the run.
const OPEN_QUESTIONS: &str = "SELECT q.question FROM human_requests AS q WHERE ";

const OF_REQUESTS: &str = "
    FROM human_requests AS q
    JOIN runs AS r ON r.run_no = q.run_no
    JOIN sessions AS s ON s.session_no = r.session_no
    JOIN run_events AS asked ON asked.run_no = q.run_no AND asked.seq = q.asked_seq
    LEFT JOIN run_events AS answered ON answered.run_no = q.run_no AND answered.seq = q.answered_seq
    WHERE ";

/// A question, answered or not.
pub(in crate::store) async fn request<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    request: &RequestId,
) -> Result<Option<RequestRow>, StoreError> {
    let Some((run, which)) = request.parts() else { return Ok(None) };
    let stored = one(db, request_query(tenant, &run, which), stored_question)
        .await
        .map_err(|error| R::failure(format_args!("question {tenant}/{request}"), &error))?;
    match stored {
        Some(stored) => Ok(Some(question(db, tenant, stored).await?)),
        None => Ok(None),
    }
}

pub(in crate::store) fn request_query(tenant: &TenantId, run: &RunId, which: &str) -> Query {
    let mut query = Query::new(REQUESTS);
    query.push(OF_REQUESTS);
    of_run(&mut query, tenant, run).push(" AND q.question = ").bind(which);
    query
}

/// Ids of a run's open questions.
pub(in crate::store) async fn open_questions<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    run: &RunId,
) -> Result<Vec<RequestId>, StoreError> {
    let mut query = Query::new(OPEN_QUESTIONS);
    of_run(&mut query, tenant, run).push(" AND q.answered_seq IS NULL ORDER BY q.asked_seq");
    all(db, query, |row| request_id(run, row))
        .await
        .map_err(|error| R::failure(format_args!("open questions of {tenant}/{run}"), &error))
}

/// A page of open questions. It has fewer rows than requested if they would be larger than a message. Questions that are
/// damaged are left out: they are their runs' alone.
pub(in crate::store) async fn pending<R: SqlReader>(
    db: &R,
    damaged: &DamagedQuestions,
    tenant: &TenantId,
    filter: &RequestFilter,
    page: &PageRequest,
) -> Result<Page<RequestRow>, StoreError> {
    let mut begin = page::begin(page, |id| RequestId::parse(id))?;
    let size = page::size(page);
    for tried in 1.. {
        let (stored, more) = read_pending(db, tenant, filter, begin.clone(), size)
            .await
            .map_err(|error| R::failure(format_args!("questions of {tenant}"), &error))?;
        begin = stored.last().map(|stored| stored.cursor.clone());
        let next = begin.as_ref().filter(|_| more).map(Cursor::token);
        let mut rows = Vec::new();
        for stored in stored {
            let origin = stored.origin();
            let read = question(db, tenant, stored).await;
            rows.extend(origin.listed(tenant, read, filter, damaged)?);
        }
        let page = Page { rows, next };
        if !page.rows.is_empty() || page.next.is_none() || tried == STRETCHES_MAX {
            return Ok(page);
        }
    }
    unreachable!("the last stretch is returned")
}

/// The open questions that fit, and whether there are more. Both queries see the same state.
async fn read_pending<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    filter: &RequestFilter,
    begin: Option<Cursor>,
    size: u32,
) -> Result<(Vec<StoredQuestion>, bool), Error> {
    let sizes = pending_query::<R::Dialect>(SIZES, tenant, filter, begin.clone(), size + 1);
    let those = |sizes: &[R::Row]| {
        let fitting = how_many_fit(sizes, size)?;
        Ok(pending_query::<R::Dialect>(REQUESTS, tenant, filter, begin.clone(), fitting))
    };
    let TwoLists { first: sizes, second: stored } = db.rows_then(sizes, those).await?;
    let more = sizes.len() > how_many_fit(&sizes, size)? as usize;
    Ok((stored.iter().map(stored_question).collect::<Result<_, _>>()?, more))
}

/// The number of questions that fit into a page, of those with these sizes.
fn how_many_fit(sizes: &[impl SqlRow], size: u32) -> Result<u32, Error> {
    let (mut fitting, mut bytes) = (0, 0);
    for row in sizes.iter().take(size as usize) {
        if bytes >= PAGE_BYTES {
            break;
        }
        bytes += number(row, "size")?;
        fitting += 1;
    }
    Ok(fitting)
}

/// A query for open questions. `columns` is [`SIZES`] or [`REQUESTS`].
pub(in crate::store) fn pending_query<D: Dialect>(
    columns: &'static str,
    tenant: &TenantId,
    filter: &RequestFilter,
    begin: Option<Cursor>,
    limit: u32,
) -> Query {
    let mut query = Query::new(columns);
    query.push(OF_REQUESTS);
    match &filter.run {
        Some(run) => of_run(&mut query, tenant, run),
        None => query.push("q.tenant = ").bind(tenant.as_str()),
    };
    query.push(" AND q.answered_seq IS NULL");
    if let Some(session) = &filter.session {
        query.push(" AND s.session_id = ").bind(session.as_str());
    }
    filter::one_of(&mut query, "r.agent", filter.agents.iter().map(String::as_str));
    filter::one_of(&mut query, "r.model", filter.models.iter().map(String::as_str));
    filter::times(&mut query, "q.asked_at", &filter.asked);
    D::labels(&mut query, "r.labels", &filter.labels);
    if let Some(by) = &filter.created_by {
        query.push(" AND r.created_by = ").bind(by.as_str());
    }
    after(&mut query, " AND (q.asked_at, r.run_id || ':' || q.question) > (", begin);
    query.push(" ORDER BY q.asked_at, r.run_id || ':' || q.question LIMIT ").bind(limit);
    query
}

/// Adds the condition that a run asks.
fn of_run<'q>(query: &'q mut Query, tenant: &TenantId, run: &RunId) -> &'q mut Query {
    query.push("q.run_no = (SELECT run_no FROM runs WHERE tenant = ").bind(tenant.as_str());
    query.push(" AND run_id = ").bind(run.as_str()).push(")")
}

async fn question<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    stored: StoredQuestion,
) -> Result<RequestRow, StoreError> {
    let open = stored.open();
    let row = decoded(tenant, stored)?;
    if row.question.approvers.people() == 1 {
        return Ok(row);
    }
    let approvals = approvals(db, tenant, &row, open).await?;
    Ok(RequestRow { approvals, ..row })
}

/// The approvals of a question that needs several, from the journal of its run. `open` is the stretch from the event that
/// asks it to the one that answers it.
async fn approvals<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    row: &RequestRow,
    open: Range<i64>,
) -> Result<Vec<PartialApproval>, StoreError> {
    let mut query = Query::new(
        "SELECT q.seq, q.at, q.status, q.version, q.payload, q.checksum FROM run_events AS q WHERE ",
    );
    of_run(&mut query, tenant, &row.run).push(" AND q.seq > ").bind(open.start);
    query.push(" AND q.seq < ").bind(open.end);
    // Payloads are searched as texts: reading them as JSON here would fail the whole list for one that is damaged.
    query.push(&format!(" AND {}(q.payload, 'human_approved') > 0 ORDER BY q.seq", R::Dialect::POSITION));
    let found = all(db, query, event).await.map_err(|error| {
        R::failure(format_args!("approvals of {tenant}/{}", row.question.request), &error)
    })?;
    approvals_of(tenant, row, &found)
}
