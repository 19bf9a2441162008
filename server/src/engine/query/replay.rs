//! Folds a run's journal again and compares the result with the run's row and with its state in memory.

use agentloop_core::context::build;
use agentloop_core::id::{EntryNo, RunId, RunKey, SessionId, TenantId};
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::replay::replay;
use agentloop_core::run::state::RunState;
use agentloop_core::tool::Digest;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::history::History;
use crate::store::RunRow;

/// The result of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayReport {
    /// Number of events that were folded.
    pub events: u64,
    /// The first difference, for people. `None` if everything agrees.
    pub difference: Option<String>,
    /// Number of events without a checksum, which an earlier version of the server stored.
    pub unverified: u64,
    /// Digest of the state after the last event.
    pub state_digest: Digest,
    /// Digest of the prompt and messages of the last model call. `None` if there was no call.
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
        // In this order each reading is at least as new as the one before, even while the run goes on.
        let live = match self.0.live_runs.live(&key) {
            Some(mailbox) => mailbox.state().await,
            None => None,
        };
        let row = self.store().run(tenant, run).await?.ok_or(EngineError::RunNotFound)?;
        let _entered = self.deps().memory.journal_gate.enter(tenant).await;
        let records = self.journal(&key).await?;
        let folded = replay(run, &records, |state| {
            compare_with_row(state, &row)?;
            match &live {
                Some(live) if live.seq() == state.seq() && **live != *state => {
                    Err("the state in memory differs from the journal's".to_owned())
                }
                Some(_) | None => Ok(()),
            }
        });
        let short = (folded.difference.is_none() && folded.state.seq() < row.last_seq).then(|| {
            format!("the journal has {} events, but the run's row names {}", folded.events, row.last_seq.0)
        });
        Ok(ReplayReport {
            events: folded.events,
            unverified: self.store().unverified_events(tenant, run).await?,
            difference: folded.difference.or(short),
            state_digest: folded.state.digest(),
            context_digest: self.context_digest(tenant, &row.session, &folded.state, &records).await?,
        })
    }

    /// The digest of the prompt and the messages of the last model call. A reader of the run may not be
    /// allowed to see all of them. So the digest includes the seed, and a reader cannot find the text by guessing.
    async fn context_digest(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        state: &RunState,
        records: &[Record],
    ) -> Result<Option<Digest>, EngineError> {
        let last_read = records.iter().rev().find_map(|record| match record.event {
            Event::ModelCallStarted { last_entry, .. } => Some(last_entry),
            _ => None,
        });
        let Some(EntryNo(last)) = last_read else { return Ok(None) };
        let history = History::load(
            &self.deps().memory.histories.memory().of(tenant),
            &**self.store(),
            tenant,
            session,
            EntryNo(last),
        )
        .await?;
        let sent = serde_json::to_vec(&build::messages(history.view())).expect("plain data serialises");
        Ok(Some(Digest::of(&[&state.seed().to_le_bytes(), state.spec().system_prompt.as_bytes(), &sent])))
    }
}

/// Compares the state with the run's row, if it is the state after the row's last event.
fn compare_with_row(state: &RunState, row: &RunRow) -> Result<(), String> {
    if state.seq() != row.last_seq {
        return Ok(());
    }
    let summary = &row.summary;
    let same = state.status() == Some(summary.status)
        && state.session() == Some(&row.session)
        && (state.usage(), state.iterations(), state.tool_calls())
            == (summary.usage, summary.iterations, summary.tool_calls);
    if same { Ok(()) } else { Err("the run's row differs from the journal".to_owned()) }
}
