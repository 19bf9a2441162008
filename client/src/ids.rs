//! The ids that make a repeated call the same call.

use uuid::Uuid;

/// A new id for a run, a session or a request. Ids sort by time.
pub fn fresh() -> String {
    Uuid::now_v7().to_string()
}

/// Fills in an optional id that is absent or empty, and returns what it is then.
pub(crate) fn ensure(id: &mut Option<String>) -> String {
    match id {
        Some(id) if !id.is_empty() => id.clone(),
        absent => absent.insert(fresh()).clone(),
    }
}
