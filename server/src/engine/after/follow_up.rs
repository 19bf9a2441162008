//! What follows a run's end: hooks are told how it ended, and sources that remember are handed what it added to its
//! session. Each is a job of its own, done until it succeeds; nothing of it changes the run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{Seq, TenantId};
use agentloop_core::limits::EXTENSION_MESSAGES_BYTES_MAX;
use agentloop_core::message::SharedMessage;
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::state::State;
use async_trait::async_trait;

use crate::clock::Clock;
use crate::engine::effect::extensions::{Asking, within};
use crate::engine::error::EngineError;
use crate::engine::ports::{JobError, JobExecutor};
use crate::engine::run::recover::fold;
use crate::extension::{ExtensionError, Extensions, Occasion, RememberRequest, RunContext};
use crate::store::{Job, JobKind, Store, StoreError};
use crate::tool::Tools;

/// How long a job waits for an extension that nobody offers: it is tried again later, and others wait for its place.
const UNKNOWN_WAIT: Duration = Duration::from_secs(2);

/// Asks extensions about runs that are over.
pub(in crate::engine) struct FollowUps {
    pub(in crate::engine) store: Arc<dyn Store>,
    pub(in crate::engine) extensions: Arc<dyn Extensions>,
    pub(in crate::engine) tools: Arc<dyn Tools>,
    pub(in crate::engine) clock: Arc<dyn Clock>,
}

#[async_trait]
impl JobExecutor for FollowUps {
    /// Which hooks have a say then, and which sources remember, is known when they are asked.
    fn wanted(&self, _tenant: &TenantId, ended: &State) -> Vec<JobKind> {
        let hooks = ended.spec.hooks.iter().map(|hook| JobKind::PostRun { hook: hook.clone() });
        let sources = ended.spec.context_sources.iter();
        hooks.chain(sources.map(|source| JobKind::Memory { source: source.clone() })).collect()
    }

    fn takes(&self, kind: &JobKind) -> bool {
        matches!(kind, JobKind::PostRun { .. } | JobKind::Memory { .. })
    }

    async fn execute(&self, job: &Job, _spec: &RunSpec) -> Result<(), JobError> {
        let records = self.store.records(&job.id.tenant, &job.id.run, Seq(0), u32::MAX).await?;
        let asking = self.asking(job, &records)?;
        match &job.id.kind {
            JobKind::PostRun { hook } => tell(&asking, hook).await,
            JobKind::Memory { source } => {
                let done = have_remembered(&asking, source, &records).await;
                done.map_err(|error| failed(&error))
            }
            JobKind::Title | JobKind::Summary => Ok(()),
        }
    }
}

impl FollowUps {
    fn asking(&self, job: &Job, records: &[Record]) -> Result<Asking, JobError> {
        let machine = fold(&job.id.run, records).map_err(|error| match error {
            EngineError::Store(error @ StoreError::Unavailable { .. }) => JobError::from(error),
            error => JobError::Fatal { why: error.to_string() },
        })?;
        let run = RunContext { tenant: job.id.tenant.clone(), state: Arc::new(machine.state().clone()) };
        let (extensions, tools) = (self.extensions.clone(), self.tools.clone());
        Ok(Asking { extensions, tools, clock: self.clock.clone(), run })
    }
}

async fn tell(asking: &Asking, hook: &str) -> Result<(), JobError> {
    let known = tokio::time::timeout(UNKNOWN_WAIT, asking.extensions.hook(&asking.run.tenant, hook)).await;
    if !matches!(known, Ok(Ok(_))) {
        return Err(failed(&ExtensionError::Unknown));
    }
    let Some(said) = asking.hook(hook, Occasion::PostRun).await else { return Ok(()) };
    match said.applied.error {
        Some(why) if said.again => Err(JobError::Retryable { why, after: None }),
        Some(why) => Err(JobError::Fatal { why }),
        None => {
            tracing::debug!(run.id = %asking.run.state.run, hook, said = said.applied.outcome, "after the run");
            Ok(())
        }
    }
}

async fn have_remembered(asking: &Asking, name: &str, records: &[Record]) -> Result<(), ExtensionError> {
    let found = asking.extensions.context_source(&asking.run.tenant, name);
    let found = tokio::time::timeout(UNKNOWN_WAIT, found).await;
    let source = found.map_err(|_late| ExtensionError::Unknown)??;
    let terms = source.terms();
    let messages = said_in(records);
    if !terms.remembers || messages.is_empty() {
        return Ok(());
    }
    let deadline = asking.now().after(terms.timeout);
    let request = RememberRequest { run: asking.run.clone(), deadline, messages };
    within(terms.timeout, source.remember(request)).await
}

fn failed(error: &ExtensionError) -> JobError {
    let why = error.to_string();
    match error {
        ExtensionError::Failed { retryable: false, .. } => JobError::Fatal { why },
        ExtensionError::Unknown
        | ExtensionError::Timeout
        | ExtensionError::Lost
        | ExtensionError::Nonsense(_)
        | ExtensionError::Failed { retryable: true, .. } => JobError::Retryable { why, after: None },
    }
}

/// What was said in a run, without what its sources had it read: the end of it, where it is long.
fn said_in(journal: &[Record]) -> Vec<SharedMessage> {
    let mut held: BTreeMap<Seq, &SharedMessage> = BTreeMap::new();
    let mut said = Vec::new();
    for record in journal {
        match &record.event {
            Event::InputHeld { message, .. } => drop(held.insert(record.seq, message)),
            Event::InputEntered { held: seq, .. } => said.extend(held.remove(seq).cloned()),
            Event::InputAdded { message, .. }
            | Event::AssistantMessage { message, .. }
            | Event::CallSettled { message, .. } => said.push(message.clone()),
            _ => {}
        }
    }
    let mut bytes = 0;
    let fits = |message: &&SharedMessage| {
        bytes += message.size();
        bytes <= EXTENSION_MESSAGES_BYTES_MAX
    };
    let kept = said.iter().rev().take_while(fits).count();
    said.split_off(said.len() - kept)
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::EntryNo;
    use agentloop_core::message::{Message, Role};
    use agentloop_core::run::status::RunStatus;
    use agentloop_core::time::Timestamp;

    use super::*;

    fn journal(events: Vec<Event>) -> Vec<Record> {
        let record =
            |(seq, event)| Record { seq: Seq(seq), at: Timestamp(0), status: RunStatus::Preparing, event };
        (1..).zip(events).map(record).collect()
    }

    #[test]
    fn what_was_said_is_what_entered_without_the_context() {
        let text = |text: &str| Arc::new(Message::text(Role::User, text));
        let added = |text| Event::InputAdded { entry: EntryNo(1), message: text };
        let events = vec![
            Event::InputHeld { message: text("held"), steer: None },
            Event::InputHeld { message: text("never let in"), steer: None },
            Event::ContextAdded { source: "m".to_owned(), entry: EntryNo(1), message: text("known") },
            Event::InputEntered { entry: EntryNo(2), held: Seq(1) },
            added(text("more")),
        ];
        assert_eq!(said_in(&journal(events)), [text("held"), text("more")]);
        let long = text(&"x".repeat(EXTENSION_MESSAGES_BYTES_MAX));
        assert_eq!(
            said_in(&journal(vec![added(text("old")), added(long), added(text("new"))])),
            [text("new")]
        );
    }
}
