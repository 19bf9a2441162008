//! The to-do list of a session, which the model keeps. Stored as JSON: fields are only ever added, with a default.

use serde::{Deserialize, Serialize};

/// One item of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    /// Names it within the list, as the model chose.
    pub id: String,
    /// The thing to be done.
    pub content: String,
    /// Its state.
    pub status: TodoStatus,
    /// Its urgency.
    #[serde(default)]
    pub priority: TodoPriority,
}

/// The state of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Done.
    Completed,
    /// Given up.
    Cancelled,
}

/// The urgency of an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoPriority {
    /// Can wait.
    Low,
    /// In its turn.
    #[default]
    Medium,
    /// First.
    High,
}
