//! The to-do list of a session, which the model keeps. Stored as JSON: fields are only ever added, with a default.

use serde::{Deserialize, Serialize};

/// One item of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    /// Names it within the list, as the model chose.
    pub id: String,
    /// The thing to be done.
    pub content: String,
    /// The progress of the item.
    pub status: TodoStatus,
    /// The urgency of the item.
    #[serde(default)]
    pub priority: TodoPriority,
}

/// The state of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Nobody has begun it.
    Pending,
    /// The model works on it.
    InProgress,
    /// Nothing of it is left to do.
    Completed,
    /// It will not be done.
    Cancelled,
}

/// The urgency of an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoPriority {
    /// It can wait for all others.
    Low,
    /// It is done when its turn comes.
    #[default]
    Medium,
    /// It is done before all others.
    High,
}
