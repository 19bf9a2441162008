//! The ids that make a repeated call the same call.

use uuid::Uuid;

/// An id that sorts by time: what a caller gets who names none.
pub(crate) fn fresh() -> String {
    Uuid::now_v7().to_string()
}

/// Fills in an optional id that is absent or empty, and returns what it is then.
pub(crate) fn ensure(id: &mut Option<String>) -> String {
    match id {
        Some(id) if !id.is_empty() => id.clone(),
        absent => absent.insert(fresh()).clone(),
    }
}
