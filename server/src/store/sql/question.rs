//! Questions to humans: their events in the journal, and the approvals that one already has.

use std::ops::Range;

use agentloop_core::id::{RequestId, RunId, SessionId, TenantId};
use agentloop_core::run::event::Event;
use agentloop_core::run::human::PartialApproval;
use sqlx::Error;

use super::column::{SqlRow, owned_text, owned_text_if_any, request_id, run_id, session_id};
use super::row::event;
use crate::store::support::codec::{self, StoredEvent};
use crate::store::support::damaged::DamagedQuestions;
use crate::store::support::page::Cursor;
use crate::store::{RequestFilter, RequestRow, StoreError};

/// The run and session of a question, and its events, not decoded yet.
pub(in crate::store) struct StoredQuestion {
    /// Its place in lists.
    pub(in crate::store) cursor: Cursor,
    run: RunId,
    created_by: Option<String>,
    session: SessionId,
    asked: StoredEvent,
    answered: Option<StoredEvent>,
}

/// A question from the columns of itself, its run, and its events.
pub(in crate::store) fn stored_question(row: &impl SqlRow) -> Result<StoredQuestion, Error> {
    let run = run_id(row, "run_id")?;
    let id = request_id(&run, row)?.to_string();
    Ok(StoredQuestion {
        cursor: Cursor { key: row.integer("asked_at")?, id },
        run,
        created_by: owned_text_if_any(row, "created_by")?,
        session: session_id(row, "session_id")?,
        asked: event(row)?,
        answered: row.integer_if_any("answer_seq")?.map(|seq| answered(row, seq)).transpose()?,
    })
}

fn answered(row: &impl SqlRow, seq: i64) -> Result<StoredEvent, Error> {
    Ok(StoredEvent {
        seq,
        at: row.integer("answer_at")?,
        status: row.integer("answer_status")?,
        version: row.integer("answer_version")?,
        payload: owned_text(row, "answer_payload")?,
        checksum: row.integer_if_any("answer_checksum")?,
        spec: None,
    })
}

/// Decodes the events of a question.
pub(in crate::store) fn decoded(tenant: &TenantId, stored: StoredQuestion) -> Result<RequestRow, StoreError> {
    let StoredQuestion { cursor: _, run, session, asked, answered, created_by: _ } = stored;
    let misplaced = |event: &StoredEvent, is_not: &str| StoreError::Corrupt {
        what: format!("event {tenant}/{run}/{}: is not {is_not}", event.seq),
    };
    let Event::HumanRequested { question, .. } = codec::decode(tenant, &run, &asked)?.event else {
        return Err(misplaced(&asked, "a question"));
    };
    let answer = match answered {
        None => None,
        Some(event) => match codec::decode(tenant, &run, &event)?.event {
            Event::HumanResolved { answer, .. } => Some(answer),
            _ => return Err(misplaced(&event, "an answer")),
        },
    };
    Ok(RequestRow { run, session, question, answer, approvals: Vec::new() })
}

impl StoredQuestion {
    pub(in crate::store) fn origin(&self) -> QuestionOrigin {
        let id = RequestId::parse(self.cursor.id.as_str()).ok();
        QuestionOrigin { run: self.run.clone(), created_by: self.created_by.clone(), id }
    }

    /// The stretch of the journal from the event that asks to the one that answers.
    pub(in crate::store) fn open(&self) -> Range<i64> {
        self.asked.seq..self.answered.as_ref().map_or(i64::MAX, |answered| answered.seq)
    }
}

/// The run that asks, its caller, and the id of the question, if it has one.
pub(in crate::store) struct QuestionOrigin {
    run: RunId,
    created_by: Option<String>,
    id: Option<RequestId>,
}

impl QuestionOrigin {
    /// The question as a list has it; `None` if the filter leaves it out or it is damaged, which is noted and logged.
    ///
    /// # Errors
    /// The error of the read, unless it is damage.
    pub(in crate::store) fn listed(
        self,
        tenant: &TenantId,
        read: Result<RequestRow, StoreError>,
        filter: &RequestFilter,
        damaged: &DamagedQuestions,
    ) -> Result<Option<RequestRow>, StoreError> {
        let Self { run, created_by, id } = self;
        match read {
            Ok(row) => {
                let shown = filter.matches_content(&row.question)
                    && filter.may_be_answered(&row, created_by.as_deref());
                Ok(shown.then_some(row))
            }
            Err(error) if error.is_damage() => {
                if id.is_some_and(|id| damaged.note(tenant, &id)) {
                    tracing::error!(
                        run.id = %run, %error,
                        "a damaged question is left out of lists; abort its run, or answer it by its id, to end the run"
                    );
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The approvals of this question among events of its run.
pub(in crate::store) fn approvals_of(
    tenant: &TenantId,
    row: &RequestRow,
    events: &[StoredEvent],
) -> Result<Vec<PartialApproval>, StoreError> {
    let mut approvals = Vec::new();
    for event in events {
        let record = codec::decode(tenant, &row.run, event)?;
        if let Event::HumanApproved { request, by, .. } = record.event
            && request == row.question.request
        {
            approvals.push(PartialApproval { by, at: record.at });
        }
    }
    Ok(approvals)
}
