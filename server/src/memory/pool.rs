//! Large values that several holders share: equal values are one value, and are charged once.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::ledger::{Charge, MemoryLedger};

/// Bytes at each end of a value that its key is made of. The rest is compared.
const KEY_BYTES: usize = 128;

/// Values that are in use, each once. Clones are one pool.
pub struct Pool<T>(Arc<SharedValues<T>>);

struct SharedValues<T> {
    ledger: MemoryLedger,
    hasher: RandomState,
    values: Mutex<HashMap<u64, Weak<Charged<T>>>>,
}

/// A value with the charge for its memory.
pub struct Charged<T> {
    value: T,
    charge: Charge,
    key: u64,
    pool: Weak<SharedValues<T>>,
}

impl<T: PartialEq> Pool<T> {
    /// An empty pool that charges its values to this ledger.
    #[must_use]
    pub fn new(ledger: &MemoryLedger) -> Self {
        Self(Arc::new(SharedValues {
            ledger: ledger.clone(),
            hasher: RandomState::new(),
            values: Mutex::default(),
        }))
    }

    /// The ledger that values are charged to.
    #[must_use]
    pub fn ledger(&self) -> &MemoryLedger {
        &self.0.ledger
    }

    /// The equal value that is in use, or this one, which takes this many bytes. `content` are those that best tell it
    /// from others.
    pub fn share(&self, value: T, bytes: usize, content: impl FnOnce(&T) -> &[u8]) -> Arc<Charged<T>> {
        let content = content(&value);
        let begin = &content[..content.len().min(KEY_BYTES)];
        let end = &content[content.len().saturating_sub(KEY_BYTES)..];
        let key = self.0.hasher.hash_one((content.len(), begin, end));
        // A value that is dropped here locks the values again, so it must outlive the lock.
        let found = self.0.values.lock().get(&key).and_then(Weak::upgrade);
        if let Some(found) = found
            && found.value == value
        {
            return found;
        }
        let charge = self.0.ledger.charge(bytes);
        let made = Arc::new(Charged { value, charge, key, pool: Arc::downgrade(&self.0) });
        self.0.values.lock().insert(key, Arc::downgrade(&made));
        made
    }

    /// True if there are other clones of it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.values.lock().len()
    }
}

impl<T> Charged<T> {
    /// Bytes that the value takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.charge.bytes()
    }
}

impl<T> Deref for Charged<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Charged<T> {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut values = pool.values.lock();
        // Another value may have the key by now.
        if values.get(&self.key).is_some_and(|value| value.strong_count() == 0) {
            values.remove(&self.key);
        }
    }
}

impl<T> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("values", &self.0.values.lock().len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Charged<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charged").field("bytes", &self.charge.bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(pool: &Pool<String>, text: &str) -> Arc<Charged<String>> {
        pool.share(text.to_owned(), text.len(), |text| text.as_bytes())
    }

    #[test]
    fn equal_values_are_one_and_are_charged_once() {
        let ledger = MemoryLedger::new(1_000);
        let pool = Pool::new(&ledger);
        let [first, second] = [(), ()].map(|()| share(&pool, "some text"));
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(ledger.used(), 9);
        let other = share(&pool, "other text");
        assert_eq!((ledger.used(), pool.len()), (19, 2));
        drop((first, second, other));
        assert_eq!((ledger.used(), pool.len()), (0, 0));
        assert_eq!(**share(&pool, "some text"), *"some text");
    }

    #[test]
    fn values_with_one_key_are_not_mistaken_for_each_other() {
        let ledger = MemoryLedger::new(10_000);
        let pool = Pool::new(&ledger);
        let text = |middle: &str| format!("{0}{middle}{0}", "x".repeat(KEY_BYTES));
        let first = share(&pool, &text("a"));
        let second = share(&pool, &text("b"));
        assert_eq!((first.as_str(), second.as_str()), (text("a").as_str(), text("b").as_str()));
        assert_eq!(pool.len(), 1);
        drop(first);
        assert!(Arc::ptr_eq(&second, &share(&pool, &text("b"))), "the second one is still found");
        drop(second);
        assert_eq!((ledger.used(), pool.len()), (0, 0));
    }
}
