//! What follows a run's end: hooks are told how it ended, and sources that remember are handed what it added to its
//! session. Nobody waits for it, and nothing of it changes the run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::id::Seq;
use agentloop_core::limits::EXTENSION_MESSAGES_BYTES_MAX;
use agentloop_core::message::SharedMessage;
use agentloop_core::run::event::{Event, Record};

use crate::engine::Engine;
use crate::engine::asking::{Asking, within};
use crate::engine::feed::RunKey;
use crate::extension::remote::message_size;
use crate::extension::{ContextSource, ExtensionError, Occasion, RememberRequest, RunContext};

/// Before a source that failed to remember is asked again.
const REMEMBER_WAITS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(60)];

impl Engine {
    /// Starts what follows a run's end, if anything does.
    pub(super) fn after_run(&self, run: RunContext) {
        if !run.state.spec.prepares() {
            return;
        }
        let engine = self.clone();
        let asking = Asking { deps: self.deps().clone(), run };
        drop(self.deps().tasks.spawn("after a run", async move {
            let stop = engine.deps().tasks.soft().clone();
            // What is cut short by a shutdown is not made up for.
            let _cut = stop.run_until_cancelled(engine.follow_up(asking)).await;
        }));
    }

    async fn follow_up(&self, asking: Asking) {
        for name in asking.hooks() {
            let Some(said) = asking.hook(&name, Occasion::PostRun).await else { continue };
            let run = &asking.run.state.run;
            match said.applied.error {
                Some(error) => {
                    tracing::warn!(run.id = %run, hook = name, error, "a hook failed after the run")
                }
                None => {
                    tracing::debug!(run.id = %run, hook = name, said = said.applied.outcome, "after the run")
                }
            }
        }
        for name in asking.sources() {
            if let Err(error) = self.have_remembered(&asking, &name).await {
                tracing::warn!(run.id = %asking.run.state.run, source = name, %error, "a source did not remember a run");
            }
        }
    }

    async fn have_remembered(&self, asking: &Asking, name: &str) -> Result<(), ExtensionError> {
        let source = asking.deps.extensions.context_source(&asking.run.tenant, name).await?;
        if !source.terms().remembers {
            return Ok(());
        }
        let key: RunKey = (asking.run.tenant.clone(), asking.run.state.run.clone());
        let journal = self
            .journal(&key)
            .await
            .map_err(|error| ExtensionError::Failed { message: error.to_string(), retryable: false })?;
        let messages = said_in(&journal);
        let mut waits = REMEMBER_WAITS.into_iter();
        loop {
            match remember(asking, &source, messages.clone()).await {
                Err(error) => match waits.next() {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => return Err(error),
                },
                Ok(()) => return Ok(()),
            }
        }
    }
}

async fn remember(
    asking: &Asking,
    source: &Arc<dyn ContextSource>,
    messages: Vec<SharedMessage>,
) -> Result<(), ExtensionError> {
    let timeout = source.terms().timeout;
    let deadline = asking.now().after(timeout);
    let request = RememberRequest { run: asking.run.clone(), deadline, messages };
    within(timeout, source.remember(request)).await
}

/// What was said in a run, without what its sources had it read: the end of it, where it is long.
fn said_in(journal: &[Record]) -> Vec<SharedMessage> {
    let mut held: BTreeMap<Seq, &SharedMessage> = BTreeMap::new();
    let mut said = Vec::new();
    for record in journal {
        match &record.event {
            Event::InputHeld { message } => drop(held.insert(record.seq, message)),
            Event::InputEntered { held: seq, .. } => said.extend(held.remove(seq).cloned()),
            Event::InputAdded { message, .. }
            | Event::AssistantMessage { message, .. }
            | Event::CallSettled { message, .. } => said.push(message.clone()),
            _ => {}
        }
    }
    let mut bytes = 0;
    let fits = |message: &&SharedMessage| {
        bytes += message_size(message);
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
            Event::InputHeld { message: text("held") },
            Event::InputHeld { message: text("never let in") },
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
