//! The memory for requests that are kept so that they can be sent again. All RPCs of a replica share it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of all requests that are kept at one time, beyond the first ones of each.
const KEPT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes of each request that are not counted, so small RPCs pass when the budget is used up.
const UNCOUNTED_BYTES: usize = 16 * 1024;

/// The budget for requests that are kept.
#[derive(Clone)]
pub(in crate::grpc::edge::forward) struct BufferBudget(Arc<Semaphore>);

/// The part of the budget that one request has. It is given back when this is dropped.
pub(in crate::grpc::edge::forward) struct BudgetShare {
    budget: Arc<Semaphore>,
    bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl BufferBudget {
    pub(in crate::grpc::edge::forward) fn new() -> Self {
        Self::of(KEPT_BYTES_MAX)
    }

    pub(in crate::grpc::edge::forward) fn of(bytes_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes_max)))
    }

    /// A share of no bytes, which can grow.
    pub(in crate::grpc::edge::forward) fn empty_share(&self) -> BudgetShare {
        BudgetShare { budget: self.0.clone(), bytes: 0, permit: None }
    }

    /// A share of so many bytes; `None` if there is not so much left.
    pub(in crate::grpc::edge::forward) fn take(&self, bytes: usize) -> Option<BudgetShare> {
        let mut share = self.empty_share();
        share.grow(bytes).then_some(share)
    }
}

impl BudgetShare {
    /// Adds so many bytes. Returns false if there is not so much left; then nothing is added.
    pub(in crate::grpc::edge::forward) fn grow(&mut self, more: usize) -> bool {
        let bytes = self.bytes.saturating_add(more);
        let counted = bytes.saturating_sub(UNCOUNTED_BYTES) - self.bytes.saturating_sub(UNCOUNTED_BYTES);
        let Ok(counted) = u32::try_from(counted) else { return false };
        if counted > 0 {
            let Ok(permit) = self.budget.clone().try_acquire_many_owned(counted) else { return false };
            match &mut self.permit {
                Some(all) => all.merge(permit),
                None => self.permit = Some(permit),
            }
        }
        self.bytes = bytes;
        true
    }

    pub(in crate::grpc::edge::forward) fn give_back(&mut self) {
        self.bytes = 0;
        self.permit = None;
    }
}
