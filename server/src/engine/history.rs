//! Sessions' histories in memory: a run reads its session once, and the next run of the session finds it here.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use agentloop_core::context::build::shown;
use agentloop_core::context::view::view;
use agentloop_core::entry::Entry;
use agentloop_core::id::{EntryNo, Seq, SessionId, TenantId};
use agentloop_core::message::SharedMessage;
use agentloop_core::run::event::{Added, Event, Record};

use crate::model::estimate;
use crate::store::{Store, StoreError};

/// Histories kept for runs to come.
const KEPT_MAX: usize = 1_024;
/// Entries read at a time.
const PAGE: u32 = 500;

/// What the model is shown of a session, up to an entry.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    entries: Vec<Entry>,
    /// What the model is shown of them.
    view: Vec<SharedMessage>,
    /// Tokens of the first messages of the view, as a provider counted them with everything else that it was sent.
    counted: Option<(usize, u64)>,
    /// The same as estimated, without anything else.
    estimated: (usize, u64),
    /// Messages of the live run that wait to enter.
    held: BTreeMap<Seq, Entry>,
}

impl History {
    /// Reads a session.
    pub(super) async fn load(
        store: &dyn Store,
        tenant: &TenantId,
        session: &SessionId,
        upto: EntryNo,
    ) -> Result<Self, StoreError> {
        let mut history = Self::default();
        while history.last() < upto {
            let page = store.entries(tenant, session, history.last(), PAGE).await?;
            if page.is_empty() {
                let what = format!("session {session} ends before entry {}", upto.0);
                return Err(StoreError::Corrupt { what });
            }
            let missing = usize::try_from(upto.0 - history.last().0).unwrap_or(usize::MAX);
            history.entries.extend(page.into_iter().take(missing).map(|row| kept(row.content)));
        }
        history.view = view(&history.entries);
        Ok(history)
    }

    /// Knows what a run that is taken over holds back.
    pub(super) fn hold(&mut self, held: &BTreeMap<Seq, SharedMessage>) {
        self.held = held.iter().map(|(seq, message)| (*seq, kept(Entry::Message(message.clone())))).collect();
    }

    /// The last entry in it.
    pub(super) fn last(&self) -> EntryNo {
        EntryNo(self.entries.len() as u64)
    }

    /// Adds what these events add to the session.
    pub(super) fn extend<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) {
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
                self.entries.push(entry);
            }
            Entry::Compaction(_) => {
                self.entries.push(entry);
                self.view = view(&self.entries);
                self.counted = None;
                self.estimated = (0, 0);
            }
        }
    }

    /// Every entry.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What the model is shown.
    pub(super) fn view(&self) -> &[SharedMessage] {
        &self.view
    }

    /// Tokens of what the model is shown: as the provider counted them, as far as it did, and `beside`, which stands
    /// for everything else that is sent, where it did not.
    pub(super) fn tokens(&mut self, beside: impl FnOnce() -> u64) -> u64 {
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

/// What is kept of an entry: no more than the model is ever shown.
fn kept(entry: Entry) -> Entry {
    match entry {
        Entry::Message(message) => Entry::Message(shown(&message)),
        Entry::Compaction(compaction) => Entry::Compaction(compaction),
    }
}

/// Histories of sessions that have no live run, for the next one.
#[derive(Debug, Default)]
pub(super) struct Histories(Mutex<HashMap<(TenantId, SessionId), History>>);

impl Histories {
    /// The session's history up to exactly this entry, from memory or from the store.
    pub(super) async fn take(
        &self,
        store: &dyn Store,
        tenant: &TenantId,
        session: &SessionId,
        upto: EntryNo,
    ) -> Result<History, StoreError> {
        let key = (tenant.clone(), session.clone());
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        match kept.filter(|history| history.last() == upto) {
            Some(history) => Ok(history),
            None => History::load(store, tenant, session, upto).await,
        }
    }

    /// Keeps a history for the next run.
    pub(super) fn keep(&self, tenant: TenantId, session: SessionId, history: History) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX
            && let Some(any) = kept.keys().next().cloned()
        {
            kept.remove(&any);
        }
        kept.insert((tenant, session), history);
    }

    /// Forgets a deleted session.
    pub(super) fn forget(&self, tenant: &TenantId, session: &SessionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(tenant.clone(), session.clone()));
    }
}
