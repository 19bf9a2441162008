//! Checks that each tool call in a request is followed by its result, as every provider requires.

use std::collections::BTreeSet;

use serde_json::Value;

/// The first fault of a conversation, if there is one.
pub(super) fn fault(request: &Value) -> Option<String> {
    let messages = request["messages"].as_array()?;
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        match message["role"].as_str() {
            Some("tool") => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                if !open.remove(id) {
                    return Some(format!("message {at}: result {id} without a call: {messages:#?}"));
                }
            }
            Some("assistant") if open.is_empty() => {
                let calls = message["tool_calls"].as_array();
                open.extend(calls.into_iter().flatten().filter_map(|call| call["id"].as_str()));
            }
            Some(_) if open.is_empty() => {}
            _ => return Some(format!("message {at}: calls {open:?} have no result: {messages:#?}")),
        }
    }
    (!open.is_empty()).then(|| format!("calls {open:?} have no result: {messages:#?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(roles: &[&str]) -> Option<String> {
        let messages: Vec<Value> = roles
            .iter()
            .map(|role| match role.split_once(' ') {
                Some(("call", id)) => json!({ "role": "assistant", "tool_calls": [{ "id": id }] }),
                Some(("result", id)) => json!({ "role": "tool", "tool_call_id": id }),
                _ => json!({ "role": role }),
            })
            .collect();
        fault(&json!({ "messages": messages }))
    }

    #[test]
    fn pairs_pass_and_halves_do_not() {
        assert_eq!(of(&["user", "call a", "result a", "user"]), None);
        for bad in [
            &["user", "call a"][..],
            &["user", "result a"],
            &["call a", "user", "result a"],
            &["call a", "assistant", "result a"],
            &["call a", "result a", "result a"],
            &["call a", "result b"],
        ] {
            assert!(of(bad).is_some(), "{bad:?}");
        }
    }
}
