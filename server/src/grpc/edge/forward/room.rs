//! The memory for requests that are kept until they are answered. All calls of a replica share it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of all requests that are kept at one time, beyond the first ones of each.
const KEPT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes of each request that are not counted, so small calls pass when the room is used up.
const UNCOUNTED_BYTES: usize = 16 * 1024;

/// The room for requests that are kept.
#[derive(Clone)]
pub(super) struct Room(Arc<Semaphore>);

/// The part of the room that one request has. It is given back when this is dropped.
pub(super) struct Taken {
    room: Arc<Semaphore>,
    bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(super) fn new() -> Self {
        Self::of(KEPT_BYTES_MAX)
    }

    pub(super) fn of(bytes_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes_max)))
    }

    /// Room for no bytes, which can grow.
    pub(super) fn nothing(&self) -> Taken {
        Taken { room: self.0.clone(), bytes: 0, permit: None }
    }

    /// Room for so many bytes; `None` if there is not enough.
    pub(super) fn take(&self, bytes: usize) -> Option<Taken> {
        let mut taken = self.nothing();
        taken.grow(bytes).then_some(taken)
    }
}

impl Taken {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes room for so many bytes more. Returns false if there is not enough; then nothing is taken.
    pub(super) fn grow(&mut self, more: usize) -> bool {
        let bytes = self.bytes.saturating_add(more);
        let counted = bytes.saturating_sub(UNCOUNTED_BYTES) - self.bytes.saturating_sub(UNCOUNTED_BYTES);
        let Ok(counted) = u32::try_from(counted) else { return false };
        if counted > 0 {
            let Ok(permit) = self.room.clone().try_acquire_many_owned(counted) else { return false };
            match &mut self.permit {
                Some(all) => all.merge(permit),
                None => self.permit = Some(permit),
            }
        }
        self.bytes = bytes;
        true
    }

    pub(super) fn give_back(&mut self) {
        self.bytes = 0;
        self.permit = None;
    }
}
