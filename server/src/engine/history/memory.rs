//! The memory of histories: what it is charged to, and the messages that histories share.

use std::collections::HashMap;
use std::sync::Arc;

use agentloop_core::id::TenantId;
use agentloop_core::message::{Image, Message, Part, SharedMessage};
use parking_lot::Mutex;

use crate::memory::{Charge, Charged, MemoryLedger, Pool};
use crate::model::{EncodedPool, EncodedPrefix};

/// Messages of this size are shared: a session, its forks and other sessions with an equal message hold it once.
const SHARED_BYTES_MIN: usize = 1024;
/// Bytes that a history holds beside each message.
const ENTRY_BYTES: usize = 128;

/// Tenants whose memory is kept before that of those without a history is dropped.
const TENANTS_MAX: usize = 1_024;

/// The account of all histories, and what they share. Clones are the same.
#[derive(Debug, Clone)]
pub(in crate::engine) struct HistoryMemory {
    ledger: MemoryLedger,
    messages: Pool<SharedMessage>,
    encoded: EncodedPool,
    /// In an account that is divided between tenants: what the histories of each share.
    tenants: Option<Arc<Mutex<HashMap<TenantId, HistoryMemory>>>>,
}

/// The memory that one history holds.
#[derive(Debug)]
pub(super) struct HistoryCharges {
    memory: HistoryMemory,
    /// For everything that is not shared.
    own: Charge,
    shared: Vec<Arc<Charged<SharedMessage>>>,
    shared_bytes: usize,
    /// For messages that stay in memory while the history is not loaded.
    standing: Charge,
}

impl HistoryMemory {
    pub(in crate::engine) fn new(ledger: &MemoryLedger) -> Self {
        let tenants = ledger.is_divided().then(Arc::default);
        Self { tenants, ..Self::of_one(ledger) }
    }

    fn of_one(ledger: &MemoryLedger) -> Self {
        let (messages, encoded) = (Pool::new(ledger), EncodedPool::new(ledger));
        Self { ledger: ledger.clone(), messages, encoded, tenants: None }
    }

    /// The memory of one tenant's histories. Values that they share are charged to that tenant, so no other tenant shares them.
    pub(in crate::engine) fn of(&self, tenant: &TenantId) -> Self {
        let Some(tenants) = &self.tenants else { return self.clone() };
        let mut tenants = tenants.lock();
        if let Some(memory) = tenants.get(tenant) {
            return memory.clone();
        }
        if tenants.len() >= TENANTS_MAX {
            tenants.retain(|_, memory| memory.messages.is_shared());
        }
        let memory = Self::of_one(&self.ledger.of(tenant));
        tenants.insert(tenant.clone(), memory.clone());
        memory
    }

    pub(in crate::engine) fn ledger(&self) -> &MemoryLedger {
        &self.ledger
    }

    /// An empty encoding for one conversation.
    pub(super) fn encoded_prefix(&self) -> EncodedPrefix {
        EncodedPrefix::caching(&self.encoded)
    }
}

impl HistoryCharges {
    pub(super) fn new(memory: &HistoryMemory) -> Self {
        let (own, standing) = (memory.ledger.charge(0), memory.ledger.charge_standing(0));
        Self { memory: memory.clone(), own, shared: Vec::new(), shared_bytes: 0, standing }
    }

    pub(super) fn memory(&self) -> &HistoryMemory {
        &self.memory
    }

    /// Charges a message. Returns the equal one that another history holds, if there is one.
    pub(super) fn add(&mut self, message: SharedMessage) -> SharedMessage {
        let bytes = message.size();
        if bytes < SHARED_BYTES_MIN {
            self.own.grow(bytes + ENTRY_BYTES);
            return message;
        }
        self.own.grow(ENTRY_BYTES);
        let shared = self.memory.messages.share(message, bytes, |message| longest_text(message));
        let message = SharedMessage::clone(&shared);
        self.shared.push(shared);
        self.shared_bytes += bytes;
        message
    }

    /// Charges messages that stay in memory while the history is not loaded.
    pub(super) fn keep(&mut self, bytes: usize) {
        self.standing.grow(bytes);
    }

    /// Charges bytes that no other history holds.
    pub(super) fn grow(&mut self, bytes: usize) {
        self.own.grow(bytes);
    }

    /// Bytes in all, shared ones included.
    pub(super) fn bytes(&self) -> usize {
        self.own.bytes() + self.shared_bytes + self.standing.bytes()
    }
}

/// The longest text of a message, which tells it from others.
fn longest_text(message: &Message) -> &[u8] {
    let texts = message.parts.iter().flat_map(|part| match part {
        Part::Text { text, .. } => vec![text],
        Part::Reasoning(reasoning) => vec![&reasoning.text],
        Part::Opaque(state) => vec![&state.data],
        Part::Image { image } => vec![image_text(image)],
        Part::ToolCall(call) => vec![&call.arguments],
        Part::ToolResult(result) => {
            result.images.iter().map(image_text).chain([&result.output]).collect::<Vec<_>>()
        }
    });
    texts.max_by_key(|text| text.len()).map_or(&[], |text| text.as_bytes())
}

fn image_text(image: &Image) -> &String {
    match image {
        Image::Url { url } => url,
        Image::Inline { base64, .. } => base64,
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::message::Role;

    use super::*;

    #[test]
    fn equal_messages_of_several_histories_are_held_once() {
        let ledger = MemoryLedger::unbounded();
        let memory = HistoryMemory::new(&ledger);
        let message = |text: &str| Arc::new(Message::text(Role::User, text.repeat(10_000)));
        let [mut first, mut second] = [HistoryCharges::new(&memory), HistoryCharges::new(&memory)];
        let kept = [first.add(message("x")), second.add(message("x"))];
        assert!(Arc::ptr_eq(&kept[0], &kept[1]));
        assert!((10_000..10_500).contains(&ledger.used()), "{}", ledger.used());
        assert_eq!(first.bytes(), second.bytes());
        let other = second.add(message("y"));
        assert_eq!(other, message("y"));
        assert!(ledger.used() > 20_000);
        drop((first, second));
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn small_messages_are_charged_to_each() {
        let ledger = MemoryLedger::unbounded();
        let memory = HistoryMemory::new(&ledger);
        let mut charges = [HistoryCharges::new(&memory), HistoryCharges::new(&memory)];
        for holding in &mut charges {
            holding.add(Arc::new(Message::text(Role::User, "hi")));
        }
        assert_eq!(ledger.used(), charges.iter().map(HistoryCharges::bytes).sum::<usize>());
        assert!(ledger.used() > 2 * ENTRY_BYTES);
    }
}
