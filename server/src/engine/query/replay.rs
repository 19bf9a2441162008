//! A run is folded anew from its journal, and compared with where it stands.

use agentloop_core::context::build;
use agentloop_core::id::{EntryNo, RunId, RunKey, SessionId, TenantId};
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::replay::replay;
use agentloop_core::run::state::State;
use agentloop_core::tool::Digest;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::history::History;
use crate::store::RunRow;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayReport {
    /// Events that were folded.
    pub events: u64,
    /// The first thing that does not fit; `None` where the journal leads to where the run stands.
    pub difference: Option<String>,
    /// Of the state at the end.
    pub state_digest: Digest,
    /// Of what the last model call was sent; `None` before the first.
    pub context_digest: Option<Digest>,
}

impl Engine {
    /// Folds a run's journal and compares each event's status, the run's row and, where the run lives here, its state
    /// in memory. Changes nothing.
    ///
    /// # Errors
    /// [`EngineError::RunNotFound`], or the store's: a journal that cannot be read is not folded.
    pub async fn replay(&self, tenant: &TenantId, run: &RunId) -> Result<ReplayReport, EngineError> {
        let key = RunKey::new(tenant.clone(), run.clone());
        // What is read first is contained in what is read later, however the run moves meanwhile.
        let live = match self.0.table.live(&key) {
            Some(mailbox) => mailbox.look().await,
            None => None,
        };
        let row = self.store().run(tenant, run).await?.ok_or(EngineError::RunNotFound)?;
        let records = self.journal(&key).await?;
        let folded = replay(run, &records, |state| {
            against_row(state, &row)?;
            match &live {
                Some(live) if live.seq == state.seq && **live != *state => {
                    Err("the state in memory is another".to_owned())
                }
                Some(_) | None => Ok(()),
            }
        });
        let short = (folded.difference.is_none() && folded.state.seq < row.last_seq).then(|| {
            format!("the journal ends after {} events, its row names {}", folded.events, row.last_seq.0)
        });
        Ok(ReplayReport {
            events: folded.events,
            difference: folded.difference.or(short),
            state_digest: folded.state.digest(),
            context_digest: self.context_digest(tenant, &row.session, &folded.state, &records).await?,
        })
    }

    /// Of the prompt and the messages that the last model call was sent.
    async fn context_digest(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        state: &State,
        records: &[Record],
    ) -> Result<Option<Digest>, EngineError> {
        let last_read = records.iter().rev().find_map(|record| match record.event {
            Event::ModelCallStarted { last_entry, .. } => Some(last_entry),
            _ => None,
        });
        let Some(EntryNo(last)) = last_read else { return Ok(None) };
        let history = History::load(&**self.store(), tenant, session, EntryNo(last)).await?;
        let sent = serde_json::to_vec(&build::messages(history.view())).expect("plain data serialises");
        Ok(Some(Digest::of(&[state.spec.system_prompt.as_bytes(), &sent])))
    }
}

/// What the row says of the run at its last event.
fn against_row(state: &State, row: &RunRow) -> Result<(), String> {
    if state.seq != row.last_seq {
        return Ok(());
    }
    let summary = &row.summary;
    let same = state.status() == Some(summary.status)
        && state.session.as_ref() == Some(&row.session)
        && (state.usage, state.iterations, state.tool_calls)
            == (summary.usage, summary.iterations, summary.tool_calls);
    if same { Ok(()) } else { Err("the run's row says otherwise".to_owned()) }
}
