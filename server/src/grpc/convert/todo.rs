//! To-do lists of the core as those of the contract.

use agentloop_core::todo::{TodoItem, TodoPriority, TodoStatus};
use agentloop_proto::v1 as wire;

/// Converts an item of a to-do list.
#[must_use]
pub fn todo(item: &TodoItem) -> wire::TodoItem {
    let status = match item.status {
        TodoStatus::Pending => wire::TodoStatus::Pending,
        TodoStatus::InProgress => wire::TodoStatus::InProgress,
        TodoStatus::Completed => wire::TodoStatus::Completed,
        TodoStatus::Cancelled => wire::TodoStatus::Cancelled,
    };
    let priority = match item.priority {
        TodoPriority::Low => wire::TodoPriority::Low,
        TodoPriority::Medium => wire::TodoPriority::Medium,
        TodoPriority::High => wire::TodoPriority::High,
    };
    wire::TodoItem {
        id: item.id.clone(),
        content: item.content.clone(),
        status: status.into(),
        priority: priority.into(),
    }
}
