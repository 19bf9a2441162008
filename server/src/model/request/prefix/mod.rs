//! Cache of a conversation in a provider's wire format, so that the session's next request encodes only new messages.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentloop_core::message::{Message, SharedMessage};

/// Cached beginning of a conversation, in the wire format of one provider.
///
/// The owner of the conversation passes it from one [`ModelRequest`](crate::model::ModelRequest) to the next,
/// and the provider encodes only the messages that follow. The cache is used only if it matches the
/// conversation, the format and the options, so a wrong one costs time and nothing else.
///
/// The default caches nothing. Clones share one cache.
#[derive(Clone, Default)]
pub struct EncodedPrefix(Option<Arc<Mutex<Option<CachedPrefix>>>>);

struct CachedPrefix {
    /// The encoded messages, compared by address.
    messages: Vec<SharedMessage>,
    /// The provider's [`Encoder`] of these messages.
    encoder: Box<dyn Any + Send>,
    bytes: usize,
}

/// Encodes a conversation message by message in one wire format.
pub(in crate::model) trait Encoder: Send + 'static {
    /// True if both encoders encode the same messages identically.
    fn is_compatible_with(&self, other: &Self) -> bool;

    /// Encodes one more message.
    fn add(&mut self, message: &Message);

    /// Frees spare capacity.
    fn trim(&mut self);

    /// Approximate memory use in bytes.
    fn bytes(&self) -> usize;
}

impl EncodedPrefix {
    /// Creates an empty cache for one conversation.
    #[must_use]
    pub fn caching() -> Self {
        Self(Some(Arc::default()))
    }

    /// Approximate memory use in bytes.
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
        new.iter().for_each(|message| encoder.add(message));
        if self.0.is_none() {
            return send(&encoder);
        }
        encoder.trim();
        let result = send(&encoder);
        written.extend_from_slice(new);
        let bytes = encoder.bytes() + written.capacity() * size_of::<SharedMessage>();
        if let Some(mut place) = self.lock() {
            *place = Some(CachedPrefix { messages: written, encoder, bytes });
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
        self.0.as_ref().map(|place| place.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for EncodedPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedPrefix").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

/// Shrinks spare capacity to an eighth of the length.
pub(in crate::model) fn trim(text: &mut Vec<u8>) {
    let room = text.len() / 8;
    if text.capacity() - text.len() > 2 * room {
        text.shrink_to(text.len() + room);
    }
}

#[cfg(test)]
mod tests;
