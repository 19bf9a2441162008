//! Cache of a conversation in a provider's wire format, so that the session's next request encodes only new messages.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use agentloop_core::message::{Message, SharedMessage};
use parking_lot::{Mutex, MutexGuard};

use super::encoded_text::{EncodedText, PiecePool};
use crate::memory::{Charge, MemoryLedger};

/// Cached beginning of a conversation, in the wire format of one provider.
///
/// The owner of the conversation passes it from one [`ModelRequest`](crate::model::ModelRequest) to the next,
/// and the provider encodes only the messages that follow. The cache is used only if it matches the
/// conversation, the format and the options, so a wrong one costs time and nothing else.
///
/// Large pieces are shared with other conversations that have the same messages. All of it is charged to a ledger.
///
/// The default caches nothing and charges nobody. Clones share one cache.
#[derive(Clone, Default)]
pub struct EncodedPrefix {
    cache: Option<Arc<Mutex<Option<CachedPrefix>>>>,
    pool: EncodedPool,
}

/// Encoded pieces that conversations share, and the ledger that they are charged to. Clones are one pool.
#[derive(Debug, Clone)]
pub struct EncodedPool(PiecePool);

/// A pool of its own, without a bound.
impl Default for EncodedPool {
    fn default() -> Self {
        Self::new(&MemoryLedger::unbounded())
    }
}

impl EncodedPool {
    /// A pool that has no text yet.
    #[must_use]
    pub fn new(ledger: &MemoryLedger) -> Self {
        Self(PiecePool::new(ledger))
    }
}

struct CachedPrefix {
    /// The encoded messages, compared by address.
    messages: Vec<SharedMessage>,
    /// The provider's [`Encoder`] of these messages.
    encoder: Box<dyn Any + Send>,
    /// Bytes that are encoded, shared ones included.
    bytes: usize,
    /// For what is not shared.
    _charge: Charge,
}

/// Encodes a conversation message by message in one wire format.
pub(in crate::model) trait Encoder: Send + 'static {
    /// True if both encoders encode the same messages identically.
    fn is_compatible_with(&self, other: &Self) -> bool;

    /// Encodes one more message.
    fn add(&mut self, message: &Message);

    /// The encoded text, to add to it.
    fn text_mut(&mut self) -> &mut EncodedText;

    /// Approximate memory use in bytes, without what is shared.
    fn own_bytes(&self) -> usize;
}

impl EncodedPrefix {
    /// Creates an empty cache for one conversation.
    #[must_use]
    pub fn caching(pool: &EncodedPool) -> Self {
        Self { cache: Some(Arc::default()), pool: pool.clone() }
    }

    /// The same without a cache, for a request that the next one does not continue.
    pub(in crate::model) fn without_cache(&self) -> Self {
        Self { cache: None, pool: self.pool.clone() }
    }

    /// Approximate bytes in the cache, shared ones included.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().and_then(|kept| kept.as_ref().map(|kept| kept.bytes)).unwrap_or(0)
    }

    /// Encodes `messages`, reusing the cached beginning if it matches `fresh`, calls `send` with the encoder,
    /// and caches the result. A concurrent caller finds the cache empty and encodes all messages.
    pub(in crate::model) fn write_and_send<E: Encoder, R>(
        &self,
        fresh: E,
        messages: &[SharedMessage],
        send: impl FnOnce(&E) -> R,
    ) -> R {
        let kept = self.take(&fresh, messages);
        let (mut written, mut encoder) = kept.unwrap_or_else(|| (Vec::new(), Box::new(fresh)));
        let new = &messages[written.len()..];
        let EncodedPool(pool) = &self.pool;
        for message in new {
            encoder.add(message);
            encoder.text_mut().close_piece(pool);
        }
        if self.cache.is_none() {
            return send(&encoder);
        }
        encoder.text_mut().trim();
        let result = send(&encoder);
        written.extend_from_slice(new);
        let own_bytes = encoder.own_bytes() + written.capacity() * size_of::<SharedMessage>();
        let bytes = own_bytes + encoder.text_mut().complete_bytes();
        if let Some(mut place) = self.lock() {
            *place = Some(CachedPrefix {
                messages: written,
                encoder,
                bytes,
                _charge: pool.ledger().charge(own_bytes),
            });
        }
        result
    }

    /// Takes the cached encoder if it holds a beginning of `messages` and is compatible with `fresh`.
    fn take<E: Encoder>(
        &self,
        fresh: &E,
        messages: &[SharedMessage],
    ) -> Option<(Vec<SharedMessage>, Box<E>)> {
        let kept = self.lock()?.take()?;
        // Shared messages never change, and cached ones keep their addresses.
        let begins = kept.messages.len() <= messages.len()
            && kept.messages.iter().zip(messages).all(|(kept, sent)| Arc::ptr_eq(kept, sent));
        let encoder: Box<E> = kept.encoder.downcast().ok()?;
        (begins && encoder.is_compatible_with(fresh)).then_some((kept.messages, encoder))
    }

    fn lock(&self) -> Option<MutexGuard<'_, Option<CachedPrefix>>> {
        self.cache.as_ref().map(|place| place.lock())
    }
}

impl fmt::Debug for EncodedPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedPrefix").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
