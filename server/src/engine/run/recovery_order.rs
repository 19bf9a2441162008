//! The order in which the runs of a tenant that are taken over request memory: one at a time, the oldest first.

use tokio::sync::oneshot;

/// The place of a run among the runs of its tenant that are taken over. The next one may request it when this is
/// dropped: when the run has the memory that it needs, when it needs none, or when it ends.
#[derive(Debug)]
pub(in crate::engine) struct RecoveryPlace {
    /// Closed when the run before this one is done. `None` for the first one, and after [`Self::begin`].
    before: Option<oneshot::Receiver<()>>,
    _done: oneshot::Sender<()>,
}

/// The end of a tenant's queue. `None` while it is empty.
#[derive(Debug, Default)]
pub(in crate::engine) struct RecoveryOrder(Option<oneshot::Receiver<()>>);

impl RecoveryOrder {
    /// The place after all those that were given.
    pub(in crate::engine) fn next(&mut self) -> RecoveryPlace {
        let (done, after) = oneshot::channel();
        RecoveryPlace { before: self.0.replace(after), _done: done }
    }
}

impl RecoveryPlace {
    /// A future that completes when the run before is done. `None` if it is, or is waited for already.
    pub(in crate::engine) fn begin(&mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let before = self.before.take()?;
        Some(async {
            // Nothing is ever sent: the other end is dropped.
            let _dropped = before.await;
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn runs_of_a_tenant_ask_one_after_the_other() {
        let mut order = RecoveryOrder::default();
        let (mut first, mut second, mut third) = (order.next(), order.next(), order.next());
        assert!(first.begin().is_none());
        let mut to_second = Box::pin(second.begin().unwrap());
        let mut to_third = Box::pin(third.begin().unwrap());
        assert!(poll!(to_second.as_mut()).is_pending());
        drop(first);
        assert!(poll!(to_second.as_mut()).is_ready() && poll!(to_third.as_mut()).is_pending());
        drop(second);
        assert!(poll!(to_third.as_mut()).is_ready());
    }
}
