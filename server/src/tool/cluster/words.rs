//! What calls said to their runs, and must not be lost: the hub keeps it until the run has dealt with it. A host says it once on
//! its stream, and the stream outlives the link to the run's owner, and that owner too.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agentloop_core::host::CallUpdate;
use agentloop_core::id::{CallId, TenantId};
use agentloop_core::outcome::Ran;

/// Calls of which words are kept. Beyond this, none of further calls are: their questions stay open until a deadline.
const CALLS_MAX: usize = 4_096;
/// Words kept of one call, the newest.
const PER_CALL_MAX: usize = 16;

/// The words of calls.
#[derive(Debug, Default)]
pub(super) struct Words(Mutex<BTreeMap<(TenantId, CallId), Vec<CallUpdate>>>);

impl Words {
    /// Keeps these news if they must not be lost.
    pub(super) fn keep(&self, tenant: &TenantId, call: &CallId, news: &CallUpdate) {
        match news {
            // The end of the attempt. Whoever reclaims the call hears that it may have run, so only better knowledge is kept.
            CallUpdate::Lost { ran: Ran::Maybe, .. } | CallUpdate::Denied { .. } => {
                return self.over(tenant, call);
            }
            CallUpdate::Lost { .. } | CallUpdate::Stopped { .. } => self.over(tenant, call),
            CallUpdate::InputNeeded { .. } | CallUpdate::Resumable { .. } => {}
            CallUpdate::Granted { .. }
            | CallUpdate::Accepted { .. }
            | CallUpdate::Checkpoint { .. }
            | CallUpdate::Progress { .. }
            | CallUpdate::Output { .. } => return,
        }
        let mut words = self.lock();
        let is_full = words.len() >= CALLS_MAX;
        let key = (tenant.clone(), call.clone());
        if is_full && !words.contains_key(&key) {
            return;
        }
        let of_call = words.entry(key).or_default();
        of_call.retain(|before| !replaces(news, before));
        if of_call.len() >= PER_CALL_MAX {
            of_call.remove(0);
        }
        of_call.push(news.clone());
    }

    /// The words of this call.
    pub(super) fn of(&self, tenant: &TenantId, call: &CallId) -> Vec<CallUpdate> {
        self.lock().get(&(tenant.clone(), call.clone())).cloned().unwrap_or_default()
    }

    /// The calls of which such a word is kept.
    pub(super) fn calls_with(&self, word: impl Fn(&CallUpdate) -> bool) -> Vec<(TenantId, CallId)> {
        let words = self.lock();
        let fits = words.iter().filter(|(_, of_call)| of_call.iter().any(&word));
        fits.map(|(key, _)| key.clone()).collect()
    }

    /// The run knows how this attempt ended.
    pub(super) fn heard(&self, tenant: &TenantId, call: &CallId, attempt: u32) {
        self.forget(tenant, call, |news| match news {
            CallUpdate::Lost { attempt: of, .. } | CallUpdate::Stopped { attempt: of, .. } => *of == attempt,
            _ => false,
        });
    }

    /// A question of this call has its answer.
    pub(super) fn answered(&self, tenant: &TenantId, call: &CallId, input: &str) {
        self.forget(tenant, call, |news| input_of(news) == Some(input));
    }

    /// The states of this call are recorded up to this number.
    pub(super) fn recorded(&self, tenant: &TenantId, call: &CallId, up_to: u64) {
        self.forget(
            tenant,
            call,
            |news| matches!(news, CallUpdate::Resumable { resume_no, .. } if *resume_no <= up_to),
        );
    }

    /// The call is over, or at its next attempt.
    pub(super) fn over(&self, tenant: &TenantId, call: &CallId) {
        self.forget(tenant, call, |_| true);
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn forget(&self, tenant: &TenantId, call: &CallId, which: impl Fn(&CallUpdate) -> bool) {
        let mut words = self.lock();
        if words.is_empty() {
            return;
        }
        let key = (tenant.clone(), call.clone());
        if let Some(of_call) = words.get_mut(&key) {
            of_call.retain(|news| !which(news));
            if of_call.is_empty() {
                words.remove(&key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(TenantId, CallId), Vec<CallUpdate>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The host's name for the question in these news.
fn input_of(news: &CallUpdate) -> Option<&str> {
    match news {
        CallUpdate::InputNeeded { question, .. } => question.input.as_deref(),
        _ => None,
    }
}

/// True if nobody needs the earlier news after the later ones.
fn replaces(later: &CallUpdate, earlier: &CallUpdate) -> bool {
    match later {
        CallUpdate::InputNeeded { .. } => input_of(later).is_some() && input_of(later) == input_of(earlier),
        CallUpdate::Resumable { .. } => matches!(earlier, CallUpdate::Resumable { .. }),
        _ => false,
    }
}
