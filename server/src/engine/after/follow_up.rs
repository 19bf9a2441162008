//! Jobs that call extensions after a run's end: `post_run` hooks, and context sources that remember. Each extension is a
//! job of its own and is retried until it succeeds. Nothing of it changes the run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{Seq, TenantId};
use agentloop_core::limits::EXTENSION_MESSAGES_BYTES_MAX;
use agentloop_core::message::SharedMessage;
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::state::RunState;
use async_trait::async_trait;

use crate::clock::Clock;
use crate::engine::effect::extensions::{RunExtensions, with_timeout};
use crate::engine::error::EngineError;
use crate::engine::fold::fold;
use crate::engine::ports::{JobError, JobExecutor};
use crate::extension::{ExtensionError, Extensions, Occasion, RememberRequest, RunContext};
use crate::store::{Job, JobKind, Store, StoreError};
use crate::tool::Tools;

/// The longest wait of a job for an extension that is not registered. The job is retried later; only few jobs run at a
/// time.
const UNKNOWN_WAIT: Duration = Duration::from_secs(2);

/// Calls extensions about runs that have ended.
pub(in crate::engine) struct FollowUps {
    pub(in crate::engine) store: Arc<dyn Store>,
    pub(in crate::engine) extensions: Arc<dyn Extensions>,
    pub(in crate::engine) tools: Arc<dyn Tools>,
    pub(in crate::engine) clock: Arc<dyn Clock>,
}

#[async_trait]
impl JobExecutor for FollowUps {
    /// A job for every hook and source that the run names. Their terms, which say if they want to be called, are known
    /// only once they are registered.
    fn wanted(&self, _tenant: &TenantId, ended: &RunState) -> Vec<JobKind> {
        let hooks = ended.spec().hooks.iter().map(|hook| JobKind::PostRun { hook: hook.clone() });
        let sources = ended.spec().context_sources.iter();
        hooks.chain(sources.map(|source| JobKind::Memory { source: source.clone() })).collect()
    }

    fn takes(&self, kind: &JobKind) -> bool {
        matches!(kind, JobKind::PostRun { .. } | JobKind::Memory { .. })
    }

    async fn execute(&self, job: &Job, _spec: &RunSpec) -> Result<(), JobError> {
        let records = self.store.records(&job.id.tenant, &job.id.run, Seq(0), u32::MAX).await?;
        let extensions = self.run_extensions(job, &records)?;
        match &job.id.kind {
            JobKind::PostRun { hook } => call_hook(&extensions, hook).await,
            JobKind::Memory { source } => {
                let done = remember(&extensions, source, &records).await;
                done.map_err(|error| job_error(&error))
            }
            JobKind::Title | JobKind::Summary => Ok(()),
        }
    }
}

impl FollowUps {
    fn run_extensions(&self, job: &Job, records: &[Record]) -> Result<RunExtensions, JobError> {
        let machine = fold(&job.id.run, records).map_err(|error| match error {
            EngineError::Store(error @ StoreError::Unavailable { .. }) => JobError::from(error),
            error => JobError::Fatal { why: error.to_string() },
        })?;
        let run = RunContext { tenant: job.id.tenant.clone(), state: Arc::new(machine.state().clone()) };
        let (extensions, tools) = (self.extensions.clone(), self.tools.clone());
        Ok(RunExtensions { extensions, tools, clock: self.clock.clone(), run })
    }
}

async fn call_hook(extensions: &RunExtensions, hook: &str) -> Result<(), JobError> {
    let known =
        tokio::time::timeout(UNKNOWN_WAIT, extensions.extensions.hook(&extensions.run.tenant, hook)).await;
    if !matches!(known, Ok(Ok(_))) {
        return Err(job_error(&ExtensionError::Unknown));
    }
    let Some(result) = extensions.call_hook(hook, Occasion::PostRun).await else { return Ok(()) };
    match result.applied.error {
        Some(why) if result.is_retryable => Err(JobError::Retryable { why, after: None }),
        Some(why) => Err(JobError::Fatal { why }),
        None => {
            tracing::debug!(run.id = %extensions.run.state.run(), hook, said = result.applied.outcome, "post_run hook called");
            Ok(())
        }
    }
}

/// Hands a context source the messages that the run added to its session.
async fn remember(extensions: &RunExtensions, name: &str, records: &[Record]) -> Result<(), ExtensionError> {
    let found = extensions.extensions.context_source(&extensions.run.tenant, name);
    let found = tokio::time::timeout(UNKNOWN_WAIT, found).await;
    let source = found.map_err(|_late| ExtensionError::Unknown)??;
    let declaration = source.declaration();
    let messages = session_messages(records);
    if !declaration.remembers || messages.is_empty() {
        return Ok(());
    }
    let deadline = extensions.now().after(declaration.timeout);
    let request = RememberRequest { run: extensions.run.clone(), deadline, messages };
    with_timeout(declaration.timeout, source.remember(request)).await
}

fn job_error(error: &ExtensionError) -> JobError {
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

/// The messages that a run added to its session, without the context from its sources. If they are too long, the last
/// ones.
fn session_messages(journal: &[Record]) -> Vec<SharedMessage> {
    let mut waiting: BTreeMap<Seq, &SharedMessage> = BTreeMap::new();
    let mut messages = Vec::new();
    for record in journal {
        match &record.event {
            Event::MessageHeld { message, .. } => drop(waiting.insert(record.seq, message)),
            Event::MessageEntered { held: seq, .. } => messages.extend(waiting.remove(seq).cloned()),
            Event::MessageAdded { message, .. }
            | Event::Imported { message, .. }
            | Event::AssistantMessage { message, .. }
            | Event::CallSettled { message, .. } => messages.push(message.clone()),
            _ => {}
        }
    }
    let mut bytes = 0;
    let fits = |message: &&SharedMessage| {
        bytes += message.size();
        bytes <= EXTENSION_MESSAGES_BYTES_MAX
    };
    let last = messages.iter().rev().take_while(fits).count();
    messages.split_off(messages.len() - last)
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
        let added = |text| Event::MessageAdded { entry: EntryNo(1), message: text };
        let events = vec![
            Event::MessageHeld { message: text("held"), steer: None },
            Event::MessageHeld { message: text("never let in"), steer: None },
            Event::ContextAdded { source: "m".to_owned(), entry: EntryNo(1), message: text("known") },
            Event::MessageEntered { entry: EntryNo(2), held: Seq(1) },
            added(text("more")),
        ];
        assert_eq!(session_messages(&journal(events)), [text("held"), text("more")]);
        let long = text(&"x".repeat(EXTENSION_MESSAGES_BYTES_MAX));
        assert_eq!(
            session_messages(&journal(vec![added(text("old")), added(long), added(text("new"))])),
            [text("new")]
        );
    }
}
