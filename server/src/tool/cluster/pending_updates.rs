//! Updates of calls that must not be lost: the hub keeps each until the run has dealt with it. A host sends an update once on its
//! stream, and the stream outlives the link to the run's owner, and that owner too.

use std::collections::BTreeMap;

use agentloop_core::host::CallUpdate;
use agentloop_core::id::{Attempt, CallId, CallKey, TenantId};
use agentloop_core::outcome::Ran;
use agentloop_core::text::json::encoded_len;
use parking_lot::Mutex;

use super::sink::ended_attempt;

/// Calls whose updates are kept. Those of further calls are not: their questions stay open until a deadline.
const CALLS_MAX: usize = 65_536;
/// Updates that are kept of one call: the newest.
const PER_CALL_MAX: usize = 16;
/// Bytes of all updates that are kept. The end of an attempt is small, and is kept beyond this.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of the updates of one tenant's calls.
const TENANT_BYTES_MAX: usize = BYTES_MAX / 4;
/// Bytes of one update beside its text, about.
const UPDATE_BYTES: usize = 256;

/// Updates that are kept, by call.
#[derive(Debug, Default)]
pub(super) struct PendingUpdates(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    of_calls: BTreeMap<CallKey, Vec<KeptUpdate>>,
    /// Bytes of the updates of each tenant that has any.
    bytes: BTreeMap<TenantId, usize>,
}

#[derive(Debug)]
struct KeptUpdate {
    update: CallUpdate,
    bytes: usize,
}

impl PendingUpdates {
    /// Keeps this update if it must not be lost.
    pub(super) fn keep(&self, tenant: &TenantId, call: &CallId, update: &CallUpdate) {
        match update {
            // The attempt has ended. An owner that reclaims the call is told that it may have run, unless an update says more.
            CallUpdate::Lost { attempt, ran: Ran::Maybe, .. } => {
                return self.forget_up_to(tenant, call, *attempt);
            }
            CallUpdate::Denied { .. } => return self.forget_call(tenant, call),
            CallUpdate::Lost { attempt, .. } | CallUpdate::Stopped { attempt, .. } => {
                self.forget_up_to(tenant, call, *attempt);
            }
            CallUpdate::InputNeeded { .. } | CallUpdate::Resumable { .. } => {}
            CallUpdate::Granted { .. }
            | CallUpdate::Accepted { .. }
            | CallUpdate::Checkpoint { .. }
            | CallUpdate::Progress { .. }
            | CallUpdate::Output { .. } => return,
        }
        let mut kept = self.0.lock();
        kept.forget(tenant, call, |before| replaces(update, before));
        let bytes = UPDATE_BYTES + encoded_len(update);
        kept.keep(tenant, call, KeptUpdate { update: update.clone(), bytes });
    }

    /// The updates of this call.
    pub(super) fn of(&self, tenant: &TenantId, call: &CallId) -> Vec<CallUpdate> {
        let kept = self.0.lock();
        let of_call = kept.of_calls.get(&CallKey::new(tenant.clone(), call.clone()));
        of_call.into_iter().flatten().map(|kept| kept.update.clone()).collect()
    }

    /// The calls of which such updates are kept.
    pub(super) fn calls_with(&self, is_such: impl Fn(&CallUpdate) -> bool) -> Vec<CallKey> {
        let kept = self.0.lock();
        let has_it = |of_call: &[KeptUpdate]| of_call.iter().any(|kept| is_such(&kept.update));
        let fits = kept.of_calls.iter().filter(|(_, of_call)| has_it(of_call));
        fits.map(|(key, _)| key.clone()).collect()
    }

    /// Forgets the end of this attempt: the run knows it.
    pub(super) fn forget_end(&self, tenant: &TenantId, call: &CallId, attempt: Attempt) {
        self.forget(tenant, call, |update| match update {
            CallUpdate::Lost { attempt: of, .. } | CallUpdate::Stopped { attempt: of, .. } => *of == attempt,
            _ => false,
        });
    }

    /// Forgets a question of this call that has its answer.
    pub(super) fn forget_question(&self, tenant: &TenantId, call: &CallId, input: &str) {
        self.forget(tenant, call, |update| input_of(update) == Some(input));
    }

    /// Forgets the states of this call up to this number: they are recorded.
    pub(super) fn forget_resume_states(&self, tenant: &TenantId, call: &CallId, up_to: u64) {
        self.forget(
            tenant,
            call,
            |update| matches!(update, CallUpdate::Resumable { resume_no, .. } if *resume_no <= up_to),
        );
    }

    /// Forgets the updates of a call's attempts up to this one, which is over. A later one may be under way.
    pub(super) fn forget_up_to(&self, tenant: &TenantId, call: &CallId, attempt: Attempt) {
        self.forget(tenant, call, |update| attempt_of(update).is_none_or(|of| of <= attempt));
    }

    /// Forgets all updates of a call that is over, or at its next attempt.
    pub(super) fn forget_call(&self, tenant: &TenantId, call: &CallId) {
        self.forget(tenant, call, |_| true);
    }

    pub(super) fn clear(&self) {
        *self.0.lock() = Inner::default();
    }

    fn forget(&self, tenant: &TenantId, call: &CallId, which: impl Fn(&CallUpdate) -> bool) {
        self.0.lock().forget(tenant, call, which);
    }
}

impl Inner {
    /// Keeps an update, unless there is no room for it.
    fn keep(&mut self, tenant: &TenantId, call: &CallId, kept: KeptUpdate) {
        let key = CallKey::new(tenant.clone(), call.clone());
        let before = self.of_calls.get(&key).map_or(0, Vec::len);
        if before == 0 && self.of_calls.len() >= CALLS_MAX {
            return;
        }
        let of_tenant = self.bytes.get(tenant).copied().unwrap_or_default();
        let of_all: usize = self.bytes.values().sum();
        let is_full = of_tenant + kept.bytes > TENANT_BYTES_MAX || of_all + kept.bytes > BYTES_MAX;
        if is_full && ended_attempt(&kept.update).is_none() {
            return;
        }
        if before >= PER_CALL_MAX {
            let oldest = self.of_calls.get_mut(&key).map(|of_call| of_call.remove(0));
            self.uncount(tenant, oldest.map_or(0, |oldest| oldest.bytes));
        }
        *self.bytes.entry(tenant.clone()).or_default() += kept.bytes;
        self.of_calls.entry(key).or_default().push(kept);
    }

    fn forget(&mut self, tenant: &TenantId, call: &CallId, which: impl Fn(&CallUpdate) -> bool) {
        if self.of_calls.is_empty() {
            return;
        }
        let key = CallKey::new(tenant.clone(), call.clone());
        let Some(of_call) = self.of_calls.get_mut(&key) else { return };
        let forgotten: usize =
            of_call.extract_if(.., |kept| which(&kept.update)).map(|kept| kept.bytes).sum();
        if of_call.is_empty() {
            self.of_calls.remove(&key);
        }
        self.uncount(tenant, forgotten);
    }

    fn uncount(&mut self, tenant: &TenantId, bytes: usize) {
        if let Some(of_tenant) = self.bytes.get_mut(tenant) {
            *of_tenant -= bytes;
            if *of_tenant == 0 {
                self.bytes.remove(tenant);
            }
        }
    }
}

/// The attempt that an update is about. `None`: it is about the call's next one.
fn attempt_of(update: &CallUpdate) -> Option<Attempt> {
    match update {
        CallUpdate::Granted { .. } | CallUpdate::Denied { .. } => None,
        CallUpdate::Accepted { attempt, .. }
        | CallUpdate::Checkpoint { attempt, .. }
        | CallUpdate::InputNeeded { attempt, .. }
        | CallUpdate::Resumable { attempt, .. }
        | CallUpdate::Lost { attempt, .. }
        | CallUpdate::Stopped { attempt, .. }
        | CallUpdate::Progress { attempt, .. }
        | CallUpdate::Output { attempt, .. } => Some(*attempt),
    }
}

/// The host's name for the question in this update.
fn input_of(update: &CallUpdate) -> Option<&str> {
    match update {
        CallUpdate::InputNeeded { question, .. } => question.input.as_deref(),
        _ => None,
    }
}

/// True if nobody needs the earlier update after the later ones.
fn replaces(later: &CallUpdate, earlier: &CallUpdate) -> bool {
    match later {
        CallUpdate::InputNeeded { .. } => input_of(later).is_some() && input_of(later) == input_of(earlier),
        CallUpdate::Resumable { .. } => matches!(earlier, CallUpdate::Resumable { .. }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tests::harness::call_id;

    fn state_of(bytes: usize) -> CallUpdate {
        CallUpdate::Resumable { attempt: Attempt(1), resume_no: 1, state: vec![7; bytes] }
    }

    /// Reports about an attempt may come when the next one is under way.
    #[test]
    fn the_end_of_an_attempt_leaves_the_updates_of_a_later_one() {
        let (tenant, call, kept) = (TenantId::local(), call_id("r/1.0"), PendingUpdates::default());
        let state =
            |attempt| CallUpdate::Resumable { attempt: Attempt(attempt), resume_no: 1, state: vec![] };
        let stopped =
            |attempt| CallUpdate::Stopped { attempt: Attempt(attempt), lease: "l".to_owned(), begun: false };
        let maybe =
            CallUpdate::Lost { attempt: Attempt(1), message: String::new(), ran: Ran::Maybe, busy: false };
        kept.keep(&tenant, &call, &state(2));
        kept.forget_up_to(&tenant, &call, Attempt(1));
        kept.keep(&tenant, &call, &maybe);
        assert_eq!(kept.of(&tenant, &call), [state(2)]);
        kept.keep(&tenant, &call, &stopped(1));
        assert_eq!(kept.of(&tenant, &call), [state(2), stopped(1)]);
        kept.keep(&tenant, &call, &stopped(2));
        assert_eq!(kept.of(&tenant, &call), [stopped(2)]);
        kept.forget_up_to(&tenant, &call, Attempt(2));
        assert_eq!(kept.of(&tenant, &call), []);
    }

    fn lost() -> CallUpdate {
        CallUpdate::Lost { attempt: Attempt(1), message: "gone".to_owned(), ran: Ran::No, busy: false }
    }

    #[test]
    fn one_tenant_leaves_room_for_the_updates_of_others() {
        let [greedy, other] = ["greedy", "other"].map(|tenant| TenantId::parse(tenant).unwrap());
        let kept = PendingUpdates::default();
        let call = |number: usize| call_id(&format!("r/1.{number}"));
        let is_kept = |tenant: &TenantId, number: usize| !kept.of(tenant, &call(number)).is_empty();
        let mut count = 0;
        while count < 1_000 {
            kept.keep(&greedy, &call(count), &state_of(256 * 1024));
            if !is_kept(&greedy, count) {
                break;
            }
            count += 1;
        }
        assert!(count > 1 && count < 1_000, "its updates have a bound: {count}");
        kept.keep(&greedy, &call(count), &lost());
        assert!(is_kept(&greedy, count), "the end of an attempt is kept all the same");
        kept.keep(&other, &call(0), &state_of(256 * 1024));
        assert!(is_kept(&other, 0));
        kept.forget_call(&greedy, &call(0));
        kept.keep(&greedy, &call(1_000), &state_of(256 * 1024));
        assert!(is_kept(&greedy, 1_000), "there is room again");
    }
}
