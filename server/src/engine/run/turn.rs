//! The order in which runs that are taken over ask for memory: of each tenant one at a time, the oldest first.

use std::collections::HashMap;

use agentloop_core::id::TenantId;
use tokio::sync::oneshot;

/// The place of a run among the runs of its tenant that are taken over. The next one's turn comes when this is dropped: when the
/// run has the memory that it needs, when it needs none, or when it ends.
#[derive(Debug)]
pub(in crate::engine) struct Turn {
    /// Closed when the turn before this one is over. `None` for the first one, and after [`Self::begin`].
    before: Option<oneshot::Receiver<()>>,
    _over: oneshot::Sender<()>,
}

/// Gives out turns.
#[derive(Debug, Default)]
pub(in crate::engine) struct Turns(HashMap<TenantId, oneshot::Receiver<()>>);

impl Turns {
    /// The turn after all those that this tenant has been given.
    pub(in crate::engine) fn next(&mut self, tenant: &TenantId) -> Turn {
        let (over, after) = oneshot::channel();
        Turn { before: self.0.insert(tenant.clone(), after), _over: over }
    }
}

impl Turn {
    /// A future that completes when this turn comes. `None` if it has come, or is waited for already.
    pub(in crate::engine) fn begin(&mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let before = self.before.take()?;
        Some(async {
            // Nothing is ever sent.
            let _over = before.await;
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn turns_of_a_tenant_come_one_after_the_other() {
        let (red, blue) = (TenantId::parse("red").unwrap(), TenantId::parse("blue").unwrap());
        let mut turns = Turns::default();
        let (mut first, mut second, mut third) = (turns.next(&red), turns.next(&red), turns.next(&red));
        assert!(turns.next(&blue).begin().is_none() && first.begin().is_none(), "both are the first");
        let mut to_second = Box::pin(second.begin().unwrap());
        let mut to_third = Box::pin(third.begin().unwrap());
        assert!(poll!(to_second.as_mut()).is_pending());
        drop(first);
        assert!(poll!(to_second.as_mut()).is_ready() && poll!(to_third.as_mut()).is_pending());
        drop(second);
        assert!(poll!(to_third.as_mut()).is_ready());
    }
}
