//! The history of a session in memory: its entries, and the messages that the model is shown of them. A run loads it once
//! and adds to it; the session's next run takes it from the cache.

mod cache;
mod load;
mod memory;

use std::collections::BTreeMap;

use agentloop_core::context::build::{PairedHistory, shown};
use agentloop_core::context::view::{last_compaction, view};
use agentloop_core::entry::Entry;
use agentloop_core::id::{EntryNo, Seq, SessionId, TenantId};
use agentloop_core::message::SharedMessage;
use agentloop_core::run::event::{EntryContent, Event, Record};

pub(in crate::engine) use self::cache::HistoryCache;
use self::memory::HistoryCharges;
pub(in crate::engine) use self::memory::HistoryMemory;
use crate::model::{EncodedPrefix, estimate, has_legacy_signature, with_signature_owner};
use crate::store::{EntryRow, Store, StoreError, StretchMax};

/// The most that is read from the store at a time.
const PAGE: StretchMax = StretchMax { records: 500, bytes: 512 * 1024 };

/// A session up to some entry, and what is derived from it for the next model call.
#[derive(Debug)]
pub(in crate::engine) struct History {
    /// The last entry of the session.
    last: EntryNo,
    /// The first entries of the session: all of them, unless the history is still to be loaded.
    entries: Vec<Entry>,
    /// The messages that the model is shown of the entries.
    view: Vec<SharedMessage>,
    view_bytes: usize,
    /// The view with each tool call beside its result, as it is sent.
    paired: PairedHistory,
    /// The provider's encoding of the first messages of `paired`.
    encoded: EncodedPrefix,
    /// The provider's token count. It includes the system prompt and the tools.
    counted: Option<TokenCount>,
    /// Our estimate, of messages only.
    estimated: TokenCount,
    /// Messages of the live run that have not entered the session yet, by the seq of their event.
    waiting: BTreeMap<Seq, Entry>,
    charges: HistoryCharges,
}

/// Tokens of the first messages of the view.
#[derive(Debug, Clone, Copy, Default)]
struct TokenCount {
    messages: usize,
    tokens: u64,
}

impl History {
    /// The history of an empty session.
    pub(in crate::engine) fn new(memory: &HistoryMemory) -> Self {
        Self {
            last: EntryNo(0),
            entries: Vec::new(),
            view: Vec::new(),
            view_bytes: 0,
            paired: PairedHistory::default(),
            encoded: memory.encoded_prefix(),
            counted: None,
            estimated: TokenCount::default(),
            waiting: BTreeMap::new(),
            charges: HistoryCharges::new(memory),
        }
    }

    /// The history of a session up to this entry. Nothing is loaded yet.
    pub(in crate::engine) fn unloaded(memory: &HistoryMemory, last: EntryNo) -> Self {
        Self { last, ..Self::new(memory) }
    }

    /// Reads a session up to this entry from the store.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the session has fewer entries; the store's.
    pub(in crate::engine) async fn load(
        memory: &HistoryMemory,
        store: &dyn Store,
        tenant: &TenantId,
        session: &SessionId,
        upto: EntryNo,
    ) -> Result<Self, StoreError> {
        let mut history = Self::unloaded(memory, upto);
        while !history.is_loaded() {
            history.load_more(store, tenant, session).await?;
        }
        Ok(history)
    }

    /// True if all entries are in memory. Only then may a caller read anything that is derived from them.
    pub(in crate::engine) fn is_loaded(&self) -> bool {
        self.entries.len() as u64 == self.last.0
    }

    /// True if there are entries in memory.
    pub(in crate::engine) fn has_entries(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Reads the next entries from the store.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if there are none; the store's.
    pub(in crate::engine) async fn load_more(
        &mut self,
        store: &dyn Store,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<(), StoreError> {
        let loaded = EntryNo(self.entries.len() as u64);
        let page = store.entry_stretch(tenant, session, loaded, PAGE).await?.rows;
        if page.is_empty() {
            let what = format!("session {session} ends before entry {}", self.last.0);
            return Err(StoreError::Corrupt { what });
        }
        let missing = usize::try_from(self.last.0 - loaded.0).unwrap_or(usize::MAX);
        for row in page.into_iter().take(missing) {
            let entry = with_owner(store, tenant, row).await?;
            let entry = self.charge_entry(entry);
            self.entries.push(entry);
        }
        if self.is_loaded() {
            self.rebuild_view();
        }
        Ok(())
    }

    /// Gives the memory back. The entries are read from the store when they are needed again.
    pub(in crate::engine) fn unload(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        *self = Self::unloaded(self.charges.memory(), self.last);
        let waiting_bytes = waiting.values().filter_map(Entry::message).map(|message| message.size()).sum();
        self.charges.keep(waiting_bytes);
        self.waiting = waiting;
    }

    /// Bytes that it holds, shared ones included.
    pub(in crate::engine) fn bytes(&self) -> usize {
        self.charges.bytes() + self.encoded.bytes()
    }

    /// About as many bytes as the next request encodes anew.
    pub(in crate::engine) fn unencoded_bytes(&self) -> usize {
        self.view_bytes.saturating_sub(self.encoded.bytes())
    }

    /// Sets the messages that have not entered the session yet, from the state of a run that is taken over.
    pub(in crate::engine) fn set_waiting<'m>(
        &mut self,
        waiting: impl Iterator<Item = (Seq, &'m SharedMessage)>,
    ) {
        self.waiting =
            waiting.map(|(seq, message)| (seq, Entry::Message(self.charges.add(shown(message))))).collect();
    }

    /// The number of the session's last entry.
    pub(in crate::engine) fn last(&self) -> EntryNo {
        self.last
    }

    /// Adds the entries that these events add to the session.
    pub(in crate::engine) fn extend<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) {
        for record in records {
            let is_own = matches!(record.event.entry(), Some((_, EntryContent::Own)));
            let content = record.event.content();
            // Messages that enter the session at once are read from the store with the rest.
            let content = if is_own && !self.is_loaded() {
                content
            } else {
                content.map(|content| self.charge_new_entry(content))
            };
            let content = match record.event.entry() {
                Some((_, EntryContent::Own)) => content,
                Some((_, EntryContent::Held(seq))) => self.waiting.remove(&seq),
                None => {
                    self.waiting.extend(content.map(|content| (record.seq, content)));
                    continue;
                }
            };
            self.push(content.expect("an event that adds an entry has its content, or names a held message"));
            if let Event::AssistantMessage { usage, .. } = &record.event {
                let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
                // Without the tokens of the request, the count does not cover what is sent.
                let count = TokenCount { messages: self.view.len(), tokens };
                self.counted = (usage.input_tokens > 0).then_some(count);
            }
        }
    }

    /// As [`Self::charge_entry`], for a message of the live run. It may have to wait here while the history is not loaded.
    fn charge_new_entry(&mut self, entry: Entry) -> Entry {
        if self.is_loaded() {
            return self.charge_entry(entry);
        }
        match entry {
            Entry::Message(message) => {
                let message = shown(&message);
                self.charges.keep(message.size());
                Entry::Message(message)
            }
            Entry::Compaction(_) => entry,
        }
    }

    /// The entry as it is held: without parts that the model is never shown, and shared with other histories.
    fn charge_entry(&mut self, entry: Entry) -> Entry {
        match entry {
            Entry::Message(message) => Entry::Message(self.charges.add(shown(&message))),
            Entry::Compaction(compaction) => {
                self.charges.grow(compaction.summary.len());
                Entry::Compaction(compaction)
            }
        }
    }

    fn push(&mut self, entry: Entry) {
        let is_loaded = self.is_loaded();
        self.last = self.last.next();
        if !is_loaded {
            // It is read from the store with the entries before it.
            return;
        }
        match &entry {
            Entry::Message(message) => {
                self.view_bytes += message.size();
                self.view.push(message.clone());
                self.paired.add(message);
                self.entries.push(entry);
            }
            Entry::Compaction(_) => {
                self.entries.push(entry);
                self.rebuild_view();
            }
        }
    }

    /// Rebuilds the view, and drops everything that was derived from the old one.
    fn rebuild_view(&mut self) {
        self.view = view(&self.entries);
        self.view_bytes = self.view.iter().map(|message| message.size()).sum();
        if last_compaction(&self.entries).is_some_and(|compaction| compaction.cut.is_some()) {
            // Messages that were cut are copies.
            self.charges.grow(self.view_bytes);
        }
        self.paired = PairedHistory::default();
        self.paired.extend(&self.view);
        self.forget_encoded();
        self.counted = None;
        self.estimated = TokenCount::default();
    }

    /// All entries of the session, the first one first.
    pub(in crate::engine) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The messages that the model is shown.
    pub(in crate::engine) fn view(&self) -> &[SharedMessage] {
        &self.view
    }

    /// The messages as they are sent: every tool call with its result.
    pub(in crate::engine) fn messages(&self) -> Vec<SharedMessage> {
        self.paired.messages()
    }

    /// The encoding that providers reuse from call to call. It takes about as much memory as the messages.
    pub(in crate::engine) fn encoded(&self) -> &EncodedPrefix {
        &self.encoded
    }

    /// Drops the encoding, to free its memory.
    fn forget_encoded(&mut self) {
        self.encoded = self.charges.memory().encoded_prefix();
    }

    /// Estimated tokens of the next request. Starts from the provider's last count, which covers everything that is sent.
    /// Without one, `beside` estimates what is sent beside the messages.
    pub(in crate::engine) fn tokens(&mut self, beside: impl FnOnce() -> u64) -> u64 {
        let estimate = |messages: &[SharedMessage]| -> u64 {
            messages.iter().map(|message| u64::from(estimate::message_tokens(message))).sum()
        };
        match self.counted {
            Some(TokenCount { messages, tokens }) => tokens.saturating_add(estimate(&self.view[messages..])),
            None => {
                let TokenCount { messages, tokens } = self.estimated;
                let tokens = tokens.saturating_add(estimate(&self.view[messages..]));
                self.estimated = TokenCount { messages: self.view.len(), tokens };
                tokens.saturating_add(beside())
            }
        }
    }
}

/// The row's entry, with the provider's name in its signed reasoning. Old journals do not have the name in the message,
/// so it is taken from the run. If the run was deleted, the entry stays as it is.
async fn with_owner(store: &dyn Store, tenant: &TenantId, row: EntryRow) -> Result<Entry, StoreError> {
    match row.content {
        Entry::Message(message) if has_legacy_signature(&message) => {
            let run = store.run(tenant, &row.run).await?;
            let owned = run.map(|run| with_signature_owner(&message, &run.model));
            Ok(Entry::Message(owned.unwrap_or(message)))
        }
        content => Ok(content),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agentloop_core::message::{Message, Part, Reasoning, Role};
    use agentloop_core::run::status::RunStatus;

    use super::*;
    use crate::memory::MemoryLedger;
    use crate::store::conformance::fixture::{Owner, assistant, session, tenant};
    use crate::store::sqlite::SqliteStore;

    /// An answer with signed reasoning, as old journals have it: without the provider's name.
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

        let memory = HistoryMemory::new(&MemoryLedger::unbounded());
        let history = History::load(&memory, &*store, &tenant(), &session("s"), entry).await.unwrap();
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
