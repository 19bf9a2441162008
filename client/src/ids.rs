//! Ids that the client chooses, so that the server recognizes a repeated call.

use uuid::Uuid;

/// A new random id for a run, a session or a request. Later ids sort after earlier ones.
pub fn fresh() -> String {
    Uuid::now_v7().to_string()
}

/// Fills in an id that is absent or empty, and returns the id.
pub(crate) fn fill_in(id: &mut Option<String>) -> String {
    match id {
        Some(id) if !id.is_empty() => id.clone(),
        absent => absent.insert(fresh()).clone(),
    }
}
