//! A conversation as it was sent, kept for the session's next request, which begins the same.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentloop_core::message::{Message, SharedMessage};

/// The beginning of a conversation as a provider's adapter wrote it. Whoever holds the conversation carries this from
/// one [`ModelRequest`](crate::model::ModelRequest) to the next, and the adapter writes only what is new. What does not fit the
/// conversation, the provider's format or its options is never used, so that carrying the wrong one costs time and
/// nothing else.
///
/// The default keeps nothing. Clones are the same place.
#[derive(Clone, Default)]
pub struct EncodedPrefix(Option<Arc<Mutex<Option<Kept>>>>);

struct Kept {
    /// What is written, to know it again.
    messages: Vec<SharedMessage>,
    /// The adapter's own.
    encoding: Box<dyn Any + Send>,
    bytes: usize,
}

/// A conversation in some format, written message by message.
pub(in crate::model) trait Encoding: Send + 'static {
    /// Whether it would have written the same messages in the same way as the other.
    fn writes_like(&self, other: &Self) -> bool;

    /// Adds a message.
    fn add(&mut self, message: &Message);

    /// Gives back memory that it does not need now.
    fn trim(&mut self);

    /// The memory that it holds, about.
    fn bytes(&self) -> usize;
}

impl EncodedPrefix {
    /// A place to keep one conversation in.
    #[must_use]
    pub fn kept() -> Self {
        Self(Some(Arc::default()))
    }

    /// The memory that it holds, about.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().and_then(|kept| kept.as_ref().map(|kept| kept.bytes)).unwrap_or(0)
    }

    /// Writes these messages as `fresh` does, going on from what is kept where they begin with it, has the result sent,
    /// and keeps it. Whoever comes meanwhile finds nothing kept, and writes all of it.
    pub(in crate::model) fn with<E: Encoding, R>(
        &self,
        fresh: E,
        messages: &[SharedMessage],
        send: impl FnOnce(&E) -> R,
    ) -> R {
        let kept = self.take(&fresh, messages);
        let (mut written, mut encoding) = kept.unwrap_or_else(|| (Vec::new(), Box::new(fresh)));
        let new = &messages[written.len()..];
        new.iter().for_each(|message| encoding.add(message));
        if self.0.is_none() {
            return send(&encoding);
        }
        encoding.trim();
        let result = send(&encoding);
        written.extend_from_slice(new);
        let bytes = encoding.bytes() + written.capacity() * size_of::<SharedMessage>();
        if let Some(mut place) = self.lock() {
            *place = Some(Kept { messages: written, encoding, bytes });
        }
        result
    }

    /// What is kept, where it is the beginning of these messages as `fresh` would write it.
    fn take<E: Encoding>(
        &self,
        fresh: &E,
        messages: &[SharedMessage],
    ) -> Option<(Vec<SharedMessage>, Box<E>)> {
        let kept = self.lock()?.take()?;
        // Shared messages never change, and those kept here keep their addresses.
        let begins = kept.messages.len() <= messages.len()
            && kept.messages.iter().zip(messages).all(|(kept, sent)| Arc::ptr_eq(kept, sent));
        let encoding: Box<E> = kept.encoding.downcast().ok()?;
        (begins && encoding.writes_like(fresh)).then_some((kept.messages, encoding))
    }

    fn lock(&self) -> Option<MutexGuard<'_, Option<Kept>>> {
        self.0.as_ref().map(|place| place.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for EncodedPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedPrefix").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

/// Gives back room for growth beyond an eighth.
pub(in crate::model) fn trim(text: &mut Vec<u8>) {
    let room = text.len() / 8;
    if text.capacity() - text.len() > 2 * room {
        text.shrink_to(text.len() + room);
    }
}

#[cfg(test)]
mod tests;
