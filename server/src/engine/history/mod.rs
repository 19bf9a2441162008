//! Sessions' histories in memory: a run reads its session once, and the next run of the session finds it here.

mod cache;

use std::collections::BTreeMap;

use agentloop_core::context::build::{Paired, shown};
use agentloop_core::context::view::view;
use agentloop_core::entry::Entry;
use agentloop_core::id::{EntryNo, Seq, SessionId, TenantId};
use agentloop_core::message::SharedMessage;
use agentloop_core::run::event::{Added, Event, Record};

pub(in crate::engine) use self::cache::Histories;
use crate::model::{EncodedPrefix, estimate, has_legacy_signature, with_signature_owner};
use crate::store::{EntryRow, Store, StoreError, StretchMax};

/// Entries read at a time.
const PAGE: StretchMax = StretchMax { records: 500, bytes: 1024 * 1024 };

/// What the model is shown of a session, up to an entry.
#[derive(Debug)]
pub(in crate::engine) struct History {
    entries: Vec<Entry>,
    /// What the model is shown of them.
    view: Vec<SharedMessage>,
    /// The same as it is sent.
    paired: Paired,
    /// The same as it was written for a provider.
    encoded: EncodedPrefix,
    /// Tokens of the first messages of the view, as a provider counted them with everything else that it was sent.
    counted: Option<(usize, u64)>,
    /// The same as estimated, without anything else.
    estimated: (usize, u64),
    /// Messages of the live run that wait to enter.
    held: BTreeMap<Seq, Entry>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            view: Vec::new(),
            paired: Paired::default(),
            encoded: EncodedPrefix::caching(),
            counted: None,
            estimated: (0, 0),
            held: BTreeMap::new(),
        }
    }
}

impl History {
    /// Reads a session.
    pub(in crate::engine) async fn load(
        store: &dyn Store,
        tenant: &TenantId,
        session: &SessionId,
        upto: EntryNo,
    ) -> Result<Self, StoreError> {
        let mut history = Self::default();
        while history.last() < upto {
            let page = store.entry_stretch(tenant, session, history.last(), PAGE).await?.rows;
            if page.is_empty() {
                let what = format!("session {session} ends before entry {}", upto.0);
                return Err(StoreError::Corrupt { what });
            }
            let missing = usize::try_from(upto.0 - history.last().0).unwrap_or(usize::MAX);
            for row in page.into_iter().take(missing) {
                history.entries.push(kept(owned(store, tenant, row).await?));
            }
        }
        history.look_again();
        Ok(history)
    }

    /// Knows what a run that is taken over holds back.
    pub(in crate::engine) fn hold(&mut self, held: &BTreeMap<Seq, SharedMessage>) {
        self.held = held.iter().map(|(seq, message)| (*seq, kept(Entry::Message(message.clone())))).collect();
    }

    /// The last entry in it.
    pub(in crate::engine) fn last(&self) -> EntryNo {
        EntryNo(self.entries.len() as u64)
    }

    /// Adds what these events add to the session.
    pub(in crate::engine) fn extend<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) {
        for record in records {
            let content = record.event.content().map(kept);
            let content = match record.event.entry() {
                Some((_, Added::Own)) => content,
                Some((_, Added::Held(seq))) => self.held.remove(&seq),
                None => {
                    self.held.extend(content.map(|content| (record.seq, content)));
                    continue;
                }
            };
            self.push(content.expect("what enters a session is there or was held"));
            if let Event::AssistantMessage { usage, .. } = &record.event {
                let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
                self.counted = (tokens > 0).then_some((self.view.len(), tokens));
            }
        }
    }

    fn push(&mut self, entry: Entry) {
        match &entry {
            Entry::Message(message) => {
                self.view.push(message.clone());
                self.paired.add(message);
                self.entries.push(entry);
            }
            Entry::Compaction(_) => {
                self.entries.push(entry);
                self.look_again();
            }
        }
    }

    /// Makes the view anew, and forgets what rests on the one before.
    fn look_again(&mut self) {
        self.view = view(&self.entries);
        self.paired = Paired::default();
        self.paired.extend(&self.view);
        self.forget_encoded();
        self.counted = None;
        self.estimated = (0, 0);
    }

    /// Every entry.
    pub(in crate::engine) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What the model is shown.
    pub(in crate::engine) fn view(&self) -> &[SharedMessage] {
        &self.view
    }

    /// The same as it is sent: every call with its result.
    pub(in crate::engine) fn messages(&self) -> Vec<SharedMessage> {
        self.paired.messages()
    }

    /// What adapters write of the messages, from call to call. It takes about as much memory as the messages, and goes
    /// with them.
    pub(in crate::engine) fn encoded(&self) -> &EncodedPrefix {
        &self.encoded
    }

    /// Gives up what adapters wrote.
    fn forget_encoded(&mut self) {
        self.encoded = EncodedPrefix::caching();
    }

    /// Tokens of what the model is shown: as the provider counted them, as far as it did, and `beside`, which stands
    /// for everything else that is sent, where it did not.
    pub(in crate::engine) fn tokens(&mut self, beside: impl FnOnce() -> u64) -> u64 {
        let estimate = |messages: &[SharedMessage]| -> u64 {
            messages.iter().map(|message| u64::from(estimate::message_tokens(message))).sum()
        };
        match self.counted {
            Some((messages, tokens)) => tokens.saturating_add(estimate(&self.view[messages..])),
            None => {
                let (messages, tokens) = self.estimated;
                let all = tokens.saturating_add(estimate(&self.view[messages..]));
                self.estimated = (self.view.len(), all);
                all.saturating_add(beside())
            }
        }
    }
}

/// An entry whose signed thoughts name their provider. Old journals leave that to the run; of a run that is deleted,
/// nobody knows.
async fn owned(store: &dyn Store, tenant: &TenantId, row: EntryRow) -> Result<Entry, StoreError> {
    match row.content {
        Entry::Message(message) if has_legacy_signature(&message) => {
            let run = store.run(tenant, &row.run).await?;
            let owned = run.map(|run| with_signature_owner(&message, &run.model));
            Ok(Entry::Message(owned.unwrap_or(message)))
        }
        content => Ok(content),
    }
}

/// What is kept of an entry: no more than the model is ever shown.
fn kept(entry: Entry) -> Entry {
    match entry {
        Entry::Message(message) => Entry::Message(shown(&message)),
        Entry::Compaction(compaction) => Entry::Compaction(compaction),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agentloop_core::message::{Message, Part, Reasoning, Role};
    use agentloop_core::run::status::RunStatus;

    use super::*;
    use crate::store::conformance::fixture::{Owner, assistant, session, tenant};
    use crate::store::sqlite::SqliteStore;

    /// A signed thought as journals held it before state named its provider.
    fn old_answer(entry: EntryNo) -> Event {
        let mut event = assistant(entry, "");
        let Event::AssistantMessage { message, .. } = &mut event else { unreachable!() };
        let thought = Reasoning { text: "hm".into(), signature: Some("sig".into()), ..Reasoning::default() };
        let hidden = Reasoning { redacted: Some("xx".into()), ..Reasoning::default() };
        let parts = vec![Part::Reasoning(thought), Part::Reasoning(hidden), Part::text("so")];
        *message = Arc::new(Message { role: Role::Assistant, parts });
        event
    }

    #[tokio::test]
    async fn old_signatures_belong_to_the_provider_of_their_run() {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
        let mut owner = Owner::started(&store, "s", "r").await;
        let entry = owner.entry.next();
        owner.tell(RunStatus::ModelRunning, vec![old_answer(entry)]).await.unwrap();
        let run = store.run(&tenant(), &owner.run).await.unwrap().unwrap();
        let (provider, model) = run.model.split_once('/').unwrap();

        let history = History::load(&*store, &tenant(), &session("s"), entry).await.unwrap();
        let states = history.view().last().unwrap().parts.iter().filter_map(|part| match part {
            Part::Reasoning(Reasoning { signature: None, redacted: None, state, text }) => {
                let state = state.clone().unwrap();
                assert_eq!((state.provider.as_str(), state.family.as_str()), (provider, model));
                Some((text.clone(), state.data))
            }
            _ => None,
        });
        let states = states.collect::<Vec<_>>();
        let expected = [("hm", r#"{"signature":"sig"}"#), ("", r#"{"redacted":"xx"}"#)];
        assert_eq!(states, expected.map(|(text, data)| (text.to_owned(), data.to_owned())));
    }
}
