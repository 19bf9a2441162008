//! What calls said to their runs, and must not be lost: the hub keeps it until the run has dealt with it. A host says it once on
//! its stream, and the stream outlives the link to the run's owner, and that owner too.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agentloop_core::host::CallUpdate;
use agentloop_core::id::{CallId, TenantId};
use agentloop_core::outcome::Ran;

use super::sink::ended_attempt;

/// Calls whose news are kept. Those of further calls are not: their questions stay open until a deadline.
const CALLS_MAX: usize = 65_536;
/// News that are kept of one call: the newest.
const PER_CALL_MAX: usize = 16;
/// Bytes of all news that are kept. The end of an attempt is small, and is kept beyond this.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of the news of one tenant's calls.
const TENANT_BYTES_MAX: usize = BYTES_MAX / 4;
/// Bytes of one piece of news beside its text, about.
const NEWS_BYTES: usize = 256;

/// The news that are kept, by call.
#[derive(Debug, Default)]
pub(super) struct KeptNews(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    of_calls: BTreeMap<(TenantId, CallId), Vec<Piece>>,
    /// Bytes of the news of each tenant that has any.
    bytes: BTreeMap<TenantId, usize>,
}

#[derive(Debug)]
struct Piece {
    news: CallUpdate,
    bytes: usize,
}

impl KeptNews {
    /// Keeps these news if they must not be lost.
    pub(super) fn keep(&self, tenant: &TenantId, call: &CallId, news: &CallUpdate) {
        match news {
            // The attempt has ended. An owner that reclaims the call is told that it may have run, unless news say more.
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
        let mut kept = self.lock();
        kept.forget(tenant, call, |before| replaces(news, before));
        let bytes = NEWS_BYTES + serde_json::to_vec(news).map_or(0, |text| text.len());
        kept.keep(tenant, call, Piece { news: news.clone(), bytes });
    }

    /// The news of this call.
    pub(super) fn of(&self, tenant: &TenantId, call: &CallId) -> Vec<CallUpdate> {
        let kept = self.lock();
        let of_call = kept.of_calls.get(&(tenant.clone(), call.clone()));
        of_call.into_iter().flatten().map(|piece| piece.news.clone()).collect()
    }

    /// The calls of which such news are kept.
    pub(super) fn calls_with(&self, is_such: impl Fn(&CallUpdate) -> bool) -> Vec<(TenantId, CallId)> {
        let kept = self.lock();
        let has_it = |of_call: &[Piece]| of_call.iter().any(|piece| is_such(&piece.news));
        let fits = kept.of_calls.iter().filter(|(_, of_call)| has_it(of_call));
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
        *self.lock() = Inner::default();
    }

    fn forget(&self, tenant: &TenantId, call: &CallId, which: impl Fn(&CallUpdate) -> bool) {
        self.lock().forget(tenant, call, which);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Keeps a piece of news, unless there is no room for it.
    fn keep(&mut self, tenant: &TenantId, call: &CallId, piece: Piece) {
        let key = (tenant.clone(), call.clone());
        let before = self.of_calls.get(&key).map_or(0, Vec::len);
        if before == 0 && self.of_calls.len() >= CALLS_MAX {
            return;
        }
        let of_tenant = self.bytes.get(tenant).copied().unwrap_or_default();
        let of_all: usize = self.bytes.values().sum();
        let is_full = of_tenant + piece.bytes > TENANT_BYTES_MAX || of_all + piece.bytes > BYTES_MAX;
        if is_full && ended_attempt(&piece.news).is_none() {
            return;
        }
        if before >= PER_CALL_MAX {
            let oldest = self.of_calls.get_mut(&key).map(|of_call| of_call.remove(0));
            self.uncount(tenant, oldest.map_or(0, |oldest| oldest.bytes));
        }
        *self.bytes.entry(tenant.clone()).or_default() += piece.bytes;
        self.of_calls.entry(key).or_default().push(piece);
    }

    fn forget(&mut self, tenant: &TenantId, call: &CallId, which: impl Fn(&CallUpdate) -> bool) {
        if self.of_calls.is_empty() {
            return;
        }
        let key = (tenant.clone(), call.clone());
        let Some(of_call) = self.of_calls.get_mut(&key) else { return };
        let forgotten: usize =
            of_call.extract_if(.., |piece| which(&piece.news)).map(|piece| piece.bytes).sum();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tests::harness::call_id;

    fn state_of(bytes: usize) -> CallUpdate {
        CallUpdate::Resumable { attempt: 1, resume_no: 1, state: vec![7; bytes] }
    }

    fn lost() -> CallUpdate {
        CallUpdate::Lost { attempt: 1, message: "gone".to_owned(), ran: Ran::No, busy: false }
    }

    #[test]
    fn one_tenant_leaves_room_for_the_news_of_others() {
        let [greedy, other] = ["greedy", "other"].map(|tenant| TenantId::parse(tenant).unwrap());
        let kept = KeptNews::default();
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
        assert!(count > 1 && count < 1_000, "its news have a bound: {count}");
        kept.keep(&greedy, &call(count), &lost());
        assert!(is_kept(&greedy, count), "the end of an attempt is kept all the same");
        kept.keep(&other, &call(0), &state_of(256 * 1024));
        assert!(is_kept(&other, 0));
        kept.over(&greedy, &call(0));
        kept.keep(&greedy, &call(1_000), &state_of(256 * 1024));
        assert!(is_kept(&greedy, 1_000), "there is room again");
    }
}
