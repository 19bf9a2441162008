//! The built-in tool by which a model keeps the session's to-do list. No host runs it. It always writes the whole list, so
//! that a repeated call changes nothing.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::limits::{TODO_CHARS_MAX, TODO_ID_CHARS_MAX, TODOS_MAX};
use crate::run::built_in::{self, text_schema};
use crate::todo::{TodoItem, TodoPriority, TodoStatus};
use crate::tool::{EffectClass, ToolDeclaration};

/// Name of the tool. No host may declare a tool with this name.
pub const UPDATE_TODOS: &str = "update_todos";

/// Declaration of the tool, as the model reads it.
#[must_use]
pub fn declaration() -> ToolDeclaration {
    let description = "Keeps your to-do list, which the person you work for sees. Use it for work of several steps: write the \
                      list when you begin, and write it again when a step begins or ends. Give the whole list each time; \
                      what you leave out is removed.";
    built_in::declaration(UPDATE_TODOS, description, schema(), EffectClass::Idempotent)
}

fn schema() -> String {
    let id = text_schema("Names the item; keep it while the item is in the list.", TODO_ID_CHARS_MAX);
    let content = text_schema("What is to be done.", TODO_CHARS_MAX);
    format!(
        r#"{{"type":"object","properties":{{"todos":{{"type":"array","description":"The whole list, in order.","maxItems":{TODOS_MAX},"items":{{"type":"object","properties":{{"id":{id},"content":{content},"status":{{"type":"string","enum":["pending","in_progress","completed","cancelled"]}},"priority":{{"type":"string","enum":["low","medium","high"]}}}},"required":["id","content","status"],"additionalProperties":false}}}}}},"required":["todos"],"additionalProperties":false}}"#
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TodoArguments {
    todos: Vec<WrittenItem>,
}

/// An item as the model writes it. The stored one may get further fields, which a model does not set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenItem {
    id: String,
    content: String,
    status: TodoStatus,
    #[serde(default)]
    priority: TodoPriority,
}

/// The list in the arguments of a call.
///
/// # Errors
/// The fault in the arguments, for the model.
pub fn list(arguments: &str) -> Result<Vec<TodoItem>, String> {
    let TodoArguments { todos } =
        serde_json::from_str(arguments).map_err(|error| format!("the arguments are wrong: {error}"))?;
    if todos.len() > TODOS_MAX {
        return Err(format!("todos: at most {TODOS_MAX} items"));
    }
    let mut ids = BTreeSet::new();
    for (at, WrittenItem { id, content, .. }) in todos.iter().enumerate() {
        if !is_within(id, TODO_ID_CHARS_MAX) {
            return Err(format!("todos[{at}].id: 1 to {TODO_ID_CHARS_MAX} characters"));
        }
        if !is_within(content, TODO_CHARS_MAX) {
            return Err(format!("todos[{at}].content: 1 to {TODO_CHARS_MAX} characters"));
        }
        if !ids.insert(id) {
            return Err(format!("todos[{at}].id: another item has it"));
        }
    }
    let stored = |WrittenItem { id, content, status, priority }| TodoItem { id, content, status, priority };
    Ok(todos.into_iter().map(stored).collect())
}

/// True if the text has 1 to `max` characters, as JSON schema counts them.
fn is_within(text: &str, max: usize) -> bool {
    !text.is_empty() && text.chars().take(max + 1).count() <= max
}

/// The result that the model reads.
#[must_use]
pub fn told(items: &[TodoItem]) -> String {
    let open =
        items.iter().filter(|item| matches!(item.status, TodoStatus::Pending | TodoStatus::InProgress));
    format!("The list has {} items, {} of them open.", items.len(), open.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_whole() {
        let items = list(
            r#"{"todos":[{"id":"1","content":"Book the ferry","status":"in_progress","priority":"high"},
                {"id":"2","content":"Pack","status":"pending"}]}"#,
        )
        .unwrap();
        assert_eq!((items[0].status, items[0].priority), (TodoStatus::InProgress, TodoPriority::High));
        assert_eq!((items[1].content.as_str(), items[1].priority), ("Pack", TodoPriority::Medium));
        assert_eq!(told(&items), "The list has 2 items, 2 of them open.");
        assert_eq!(list(r#"{"todos":[]}"#), Ok(Vec::new()), "an empty list clears it");
    }

    #[test]
    fn lengths_are_characters_as_in_the_schema() {
        let arguments = |length| {
            let content = "ä".repeat(length);
            format!(r#"{{"todos":[{{"id":"1","content":"{content}","status":"pending"}}]}}"#)
        };
        assert_eq!(list(&arguments(TODO_CHARS_MAX)).map(|items| items.len()), Ok(1));
        assert!(list(&arguments(TODO_CHARS_MAX + 1)).is_err());
    }

    #[test]
    fn bad_arguments_are_refused() {
        let item =
            |id: &str, content: &str| format!(r#"{{"id":"{id}","content":"{content}","status":"pending"}}"#);
        let todos = |items: &[String]| format!(r#"{{"todos":[{}]}}"#, items.join(","));
        let (long, longer) = ("x".repeat(TODO_ID_CHARS_MAX + 1), "x".repeat(TODO_CHARS_MAX + 1));
        let many: Vec<String> = (0..=TODOS_MAX).map(|at| item(&at.to_string(), "x")).collect();
        for bad in [
            String::new(),
            "{}".to_owned(),
            r#"{"todos":[],"more":1}"#.to_owned(),
            r#"{"todos":[{"id":"1","content":"x","status":"pending","owner":"bob"}]}"#.to_owned(),
            r#"{"todos":[{"id":"1","content":"x"}]}"#.to_owned(),
            r#"{"todos":[{"id":"1","content":"x","status":"later"}]}"#.to_owned(),
            todos(&[item("", "x")]),
            todos(&[item("1", "")]),
            todos(&[item(&long, "x")]),
            todos(&[item("1", &longer)]),
            todos(&[item("1", "x"), item("1", "y")]),
            todos(&many),
        ] {
            assert!(list(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_schema_is_json() {
        let schema: serde_json::Value = serde_json::from_str(&declaration().input_schema).unwrap();
        assert_eq!(schema["properties"]["todos"]["maxItems"], TODOS_MAX);
        assert_eq!(
            schema["properties"]["todos"]["items"]["properties"]["content"]["maxLength"],
            TODO_CHARS_MAX
        );
    }
}
