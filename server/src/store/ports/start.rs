//! The look-up that a request to start a run begins with.

use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};

use super::{RuleRow, SessionRow, Store, StoreError};

/// The ids that a request to start a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartIds<'a> {
    /// The id of the request, and of the run that it starts.
    pub run: Option<&'a RunId>,
    /// The session of the run.
    pub session: Option<&'a SessionId>,
}

/// The state of a run that is to start, and of its session. The write checks again that the run is new, and that the session is
/// free and has this last entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartView {
    /// True if nobody has looked: see [`Store::blind_start`].
    pub is_blind: bool,
    /// True if a run has the id, or if a request of this id handed its messages to a run.
    pub is_known: bool,
    /// The session, if it exists.
    pub session: Option<SessionToEnter>,
    /// The rules that a run takes with it when it enters this session, or a new one. `None`: read them, there may be some.
    pub rules: Option<Vec<RuleRow>>,
}

impl StartView {
    /// A new run in a new session of a tenant without rules, as far as anybody has looked.
    #[must_use]
    pub fn blind() -> Self {
        Self { is_blind: true, is_known: false, session: None, rules: Some(Vec::new()) }
    }
}

/// A session that a run is to enter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionToEnter {
    /// The caller that created it, if that one was authenticated.
    pub created_by: Option<String>,
    /// The last entry.
    pub last_entry: EntryNo,
    /// The run that has neither ended nor waits in the queue.
    pub live_run: Option<RunId>,
    /// The first run in the queue, if there is no live one.
    pub next_queued: Option<RunId>,
}

/// Reads one part of the view after the other.
pub(in crate::store) async fn start_in_parts<S: Store + ?Sized>(
    store: &S,
    tenant: &TenantId,
    StartIds { run, session }: StartIds<'_>,
) -> Result<StartView, StoreError> {
    let is_known = match run {
        Some(id) => store.run(tenant, id).await?.is_some() || store.steered(tenant, id).await?.is_some(),
        None => false,
    };
    let Some(id) = session else {
        let rules = Some(store.rules(tenant, None).await?);
        return Ok(StartView { is_blind: false, is_known, session: None, rules });
    };
    let session = match store.session(tenant, id).await? {
        Some(SessionRow { created_by, last_entry, live_run, .. }) => {
            let next_queued = store.next_queued(tenant, id).await?;
            Some(SessionToEnter { created_by, last_entry, live_run, next_queued })
        }
        None => None,
    };
    // After the session: if it is free, no earlier run of it can add a rule any more.
    let rules = Some(store.rules_for_run(tenant, id).await?);
    Ok(StartView { is_blind: false, is_known, session, rules })
}
