//! Maps ids of tool calls to ids that a provider accepts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use agentloop_core::tool::Digest;

use super::allowed;

/// Maps ids of tool calls to ids that one provider accepts: unique within the request, and within
/// its alphabet and length.
///
/// A session may hold calls of several providers and runs, whose ids may repeat. The same history always gives
/// the same ids, and a longer history the same ids for its beginning, which keeps prompt caches valid.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct CallIds {
    max_bytes: Option<usize>,
    used: HashSet<Arc<str>>,
    /// Smallest suffix that may make the next call of an id unique.
    copies: HashMap<Arc<str>, usize>,
    /// Id in the history to id sent, for the latest call with that id.
    sent: HashMap<Arc<str>, Arc<str>>,
    /// Total length of all ids.
    text_bytes: usize,
}

/// Bytes of one id beside its text: reference counts, and its slots in hash tables that are never full.
const ID_BYTES: usize = 96;

impl CallIds {
    /// A rule that accepts every id as it is.
    pub(in crate::model) fn any() -> Self {
        Self::default()
    }

    /// Accepts ids of at most `max_bytes` letters, digits, `_` and `-`.
    pub(in crate::model) fn plain(max_bytes: usize) -> Self {
        Self { max_bytes: Some(max_bytes), ..Self::default() }
    }

    /// True if both map the same calls to the same ids.
    pub(in crate::model) fn has_same_limit(&self, other: &Self) -> bool {
        self.max_bytes == other.max_bytes
    }

    /// Approximate memory use in bytes.
    pub(in crate::model) fn bytes(&self) -> usize {
        self.text_bytes + (self.used.len() + self.copies.len()) * ID_BYTES
    }

    /// Returns the id to send for a call.
    pub(in crate::model) fn call(&mut self, id: &str) -> Arc<str> {
        let stored: Arc<str> = id.into();
        let base = if self.fits(id) { Arc::clone(&stored) } else { replaced(id) };
        let mut unique = Arc::clone(&base);
        if self.used.contains(&base) {
            // Some servers number the calls of each response from 0, so a long session repeats an id very often.
            let mut copy = self.copies.get(&base).copied().unwrap_or(2);
            while self.used.contains(&unique) {
                unique = self.fit(&format!("{base}_{copy}"));
                copy += 1;
            }
            self.copies.insert(base, copy);
        }
        self.text_bytes += unique.len() + if Arc::ptr_eq(&stored, &unique) { 0 } else { stored.len() };
        self.used.insert(Arc::clone(&unique));
        self.sent.insert(stored, Arc::clone(&unique));
        unique
    }

    /// True if the next call with this id would be sent with exactly this id.
    pub(in crate::model) fn is_sent_unchanged(&self, id: &str) -> bool {
        self.fits(id) && !self.used.contains(id)
    }

    /// Returns the id to send for the result of the latest call with this id.
    pub(in crate::model) fn result(&self, id: &str) -> Arc<str> {
        self.sent.get(id).cloned().unwrap_or_else(|| self.fit(id))
    }

    fn fit(&self, id: &str) -> Arc<str> {
        if self.fits(id) { id.into() } else { replaced(id) }
    }

    fn fits(&self, id: &str) -> bool {
        let Some(max) = self.max_bytes else { return true };
        !id.is_empty() && id.len() <= max && id.chars().all(|c| allowed(c) == c)
    }
}

/// Derives an acceptable id from one that the provider would refuse. Equal ids give equal results.
fn replaced(id: &str) -> Arc<str> {
    format!("call_{}", Digest::of(&[id.as_bytes()])).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_unless_they_must_not() {
        let mut ids = CallIds::any();
        assert_eq!(&*ids.call("functions.f:0"), "functions.f:0");
        assert_eq!(&*ids.call("functions.f:0"), "functions.f:0_2");
        assert_eq!(&*ids.result("functions.f:0"), "functions.f:0_2");
        assert_eq!(&*ids.call("functions.f:0_3"), "functions.f:0_3", "an id of its own");
        assert_eq!(&*ids.call("functions.f:0"), "functions.f:0_4");
        assert_eq!(&*ids.call("functions.f:0"), "functions.f:0_5");
        assert_eq!(&*ids.call("functions.f:0_3"), "functions.f:0_3_2");
        assert_eq!(&*ids.result("unknown"), "unknown");
    }

    #[test]
    fn ids_are_made_to_fit() {
        let mut ids = CallIds::plain(40);
        assert_eq!(&*ids.call("toolu_1"), "toolu_1");
        let lenient = ids.call("functions.f:0");
        assert_eq!(lenient.len(), 37);
        assert_ne!(ids.call("functions.f:1"), lenient);
        assert_ne!(ids.call("functions.f:0"), lenient);
        assert_eq!(ids.call(&"x".repeat(41)).len(), 37);
        assert!(ids.call("").starts_with("call_"));
        let long = "y".repeat(40);
        assert_eq!(*ids.call(&long), *long);
        assert_eq!(ids.call(&long).len(), 37);
    }
}
