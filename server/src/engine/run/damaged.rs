//! Ends runs whose own journal is damaged. Nothing can be decided for such a run, and while it is live its session takes
//! no other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use agentloop_core::id::{EntryNo, RunId, RunKey, SessionId};
use agentloop_core::run::event::{Event, Outcome, Record, Totals};
use agentloop_core::run::human::{Answer, Decision};
use agentloop_core::run::status::{RunError, RunErrorCode, RunStatus};
use agentloop_core::time::Timestamp;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::fold::fold;
use crate::engine::run::table::{Lookup, StartPermit};
use crate::store::{Append, ClaimedRow, RunRow, StoreError};

impl Engine {
    /// Ends a run as FAILED if its journal is really damaged, so that its session is free. Results of its calls are
    /// STALE from now on.
    ///
    /// # Errors
    /// Always: the damage, for whoever needed the run; or the failure that kept the run from being ended.
    pub(in crate::engine) async fn end_damaged<T>(
        &self,
        permit: StartPermit,
        damage: EngineError,
    ) -> Result<T, EngineError> {
        let key = permit.key().clone();
        let claimed = self.store().claim_row(&key.tenant, &key.run).await?.ok_or(EngineError::RunNotFound)?;
        if claimed.row.summary.status.is_terminal() {
            return Err(damage);
        }
        if !is_damaged(&key.run, self.journal(&key).await)? {
            let what = format!("the journal of run {} could not be read", key.run);
            return Err(StoreError::Unavailable { what }.into());
        }
        tracing::error!(run.id = %key.run, error = %damage, "the journal of this run is damaged; the run fails");
        self.append_end(&key, claimed, "stored data of the run is damaged").await?;
        self.deps().tools.release(&key.tenant, &key.run);
        Err(damage)
    }

    /// Ends a run as FAILED that panics whatever is done with it.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::engine) async fn end_after_panic(&self, key: &RunKey) -> Result<(), EngineError> {
        let Lookup::NotLive(_permit) = self.0.live_runs.find(key).await else { return Ok(()) };
        let Some(claimed) = self.store().claim_row(&key.tenant, &key.run).await? else { return Ok(()) };
        if !claimed.row.summary.status.is_terminal() {
            self.append_end(key, claimed, "a fault of the server; its log has the details").await?;
        }
        self.deps().failures.panics.forget(key);
        Ok(())
    }

    async fn append_end(
        &self,
        key: &RunKey,
        claimed: ClaimedRow,
        why: &'static str,
    ) -> Result<(), EngineError> {
        let ClaimedRow { epoch, mut row } = claimed;
        let now = self.now().max(row.updated_at);
        let open = self.store().open_questions(&key.tenant, &key.run).await?;
        let withdrawn = open.into_iter().map(|request| Event::HumanResolved {
            request,
            slot: None,
            answer: Answer::new(Decision::Withdrawn, String::new(), now),
        });
        let error = RunError::new(RunErrorCode::Internal, why);
        let mut events: Vec<Event> = withdrawn.collect();
        events.push(end_of(&row, &error, now));
        let after = row.last_seq;
        let records: Vec<Record> = std::iter::successors(Some(after.next()), |seq| Some(seq.next()))
            .zip(events)
            .map(|(seq, event)| Record { seq, at: now, status: RunStatus::Failed, event })
            .collect();
        row.summary.status = RunStatus::Failed;
        row.summary.error = Some(error);
        (row.summary.wake_at, row.summary.at_hosts) = (None, false);
        let last = records.last().expect("the end").clone();
        let append = Append {
            tenant: key.tenant.clone(),
            run: key.run.clone(),
            session: row.session.clone(),
            epoch,
            after,
            records,
            summary: row.summary.clone(),
            create: None,
            enter: None,
            jobs: Vec::new(),
        };
        let records = append.records.clone();
        self.store().append(append).await?;
        self.deps().feeds.publish_last(key, &row.session, &last);
        self.observe_end(key, &row.session, &records);
        (row.last_seq, row.updated_at, row.queue_no) = (last.seq, now, None);
        self.tell_watchers_of_claimed(&key.tenant, &row, None);
        self.advance_queue_later(&key.tenant, &row.session);
        Ok(())
    }

    /// Tells observers of the last events of a run. Those of one run do not know what came before: it is damaged.
    fn observe_end(&self, key: &RunKey, session: &SessionId, records: &[Record]) {
        let RunKey { tenant, run } = key;
        for observer in &self.deps().observers {
            // It may be what panics whatever is done with the run.
            let observed = catch_unwind(AssertUnwindSafe(|| {
                let mut of_run = observer.follow(tenant, run, session, &[]);
                for record in records {
                    observer.event(tenant, run, session, record);
                    of_run.iter_mut().for_each(|of_run| of_run.event(record));
                }
            }));
            if observed.is_err() {
                tracing::error!(run.id = %run, "an observer has panicked at the end of this run");
            }
        }
    }
}

/// True if a second look at the journal finds damage too. Only that is damage for good.
///
/// # Errors
/// The failure of a store that could not look: it says nothing about the journal.
fn is_damaged(run: &RunId, journal: Result<Vec<Record>, EngineError>) -> Result<bool, EngineError> {
    match journal {
        Ok(records) => Ok(fold(run, &records).is_err()),
        Err(EngineError::Store(error)) if error.is_damage() => Ok(true),
        Err(error) => Err(error),
    }
}

/// The last event of a run of which only the row is known.
fn end_of(row: &RunRow, error: &RunError, now: Timestamp) -> Event {
    let totals = Totals {
        usage: row.summary.usage,
        iterations: row.summary.iterations,
        tool_calls: row.summary.tool_calls,
        duration: now.since(row.created_at),
        last_entry: EntryNo(0),
        model_time: Default::default(),
        tool_time: Default::default(),
        final_entry: None,
    };
    Event::Finished { outcome: Outcome::Failed, error: Some(error.clone()), totals }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_cannot_look_finds_no_damage() {
        let run = RunId::parse("r").unwrap();
        let failed = |error: StoreError| is_damaged(&run, Err(error.into()));
        let away = StoreError::Unavailable { what: "the disk".to_owned() };
        assert!(matches!(failed(away), Err(EngineError::Store(StoreError::Unavailable { .. }))));
        assert!(matches!(failed(StoreError::Corrupt { what: "an event".to_owned() }), Ok(true)));
    }
}
