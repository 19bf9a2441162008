//! Assigns fragments of tool calls to their calls.
//!
//! According to the protocol, the first fragment of a call has its id and name, and all fragments have its
//! index. Real servers leave out indices and ids, give all calls one index, and repeat ids and names in every fragment.
//! Some send a new id in every fragment, or a complete call in one fragment with the arguments as an object. The rules
//! here, in this order:
//!
//! 1. A fragment with an index belongs to the last call that began with this index. A fragment without index belongs
//!    to the call with its id, or else to the last call.
//! 2. It begins a new call nevertheless if there is no such call. It also does if it has a name, and the call has
//!    another id, or one of the two has no id and the call's arguments are complete.
//! 3. A fragment with an unknown index, a known id and no name continues the call with this id.

use agentloop_core::limits::CALLS_PER_MESSAGE_MAX;
use agentloop_core::message::ProviderState;
use agentloop_core::model::delta::Delta;

use super::arguments::ArgumentsScan;
use super::chunk::{CallFragment, CallFunction};
use crate::model::ModelError;

/// The tool calls of one response.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<PendingCall>,
}

#[derive(Debug)]
struct PendingCall {
    /// Index that the provider gave the call.
    index: Option<u64>,
    id: Option<String>,
    /// Empty until the name has arrived. No delta is sent before.
    name: String,
    /// All arguments so far: some fragments can only be assigned by whether these are complete.
    arguments: String,
    scan: ArgumentsScan,
    /// State that arrived before the name.
    state: Option<ProviderState>,
}

impl Calls {
    /// True if the response has no tool call.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Adds one fragment and returns the number of its call.
    ///
    /// # Errors
    /// If there are too many calls.
    pub(super) fn add(
        &mut self,
        fragment: CallFragment<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<u32, ModelError> {
        let at = match self.at(&fragment) {
            Some(at) => at,
            None => self.start(&fragment)?,
        };
        let index = u32::try_from(at).expect("the number of calls is bounded");
        let call = &mut self.calls[at];
        let CallFunction { name, arguments } = fragment.function;
        call.arguments.push_str(&arguments);
        if !call.name.is_empty() {
            push_arguments(deltas, index, arguments.into_owned());
        } else if let Some(name) = name {
            call.name = name.into_owned();
            push_start(deltas, index, call);
        }
        Ok(index)
    }

    /// Attaches the state that must be sent back with a call.
    pub(super) fn attach_state(&mut self, index: u32, state: Option<ProviderState>, deltas: &mut Vec<Delta>) {
        let call = usize::try_from(index).ok().and_then(|at| self.calls.get_mut(at));
        let (Some(call), Some(state)) = (call, state) else { return };
        if call.name.is_empty() {
            call.state = Some(state);
        } else {
            deltas.push(Delta::ToolCallState { index, state });
        }
    }

    /// Starts the calls that never got a name. The model is then told that there is no such tool.
    pub(super) fn end(&mut self, deltas: &mut Vec<Delta>) {
        for (call, index) in self.calls.iter().zip(0..) {
            if call.name.is_empty() {
                push_start(deltas, index, call);
            }
        }
    }

    fn at(&mut self, fragment: &CallFragment<'_>) -> Option<usize> {
        let last = |wanted: &dyn Fn(&PendingCall) -> bool| self.calls.iter().rposition(wanted);
        let by_id = || {
            let id = fragment.id.as_deref()?;
            last(&|call| call.id.as_deref() == Some(id))
        };
        let at = match fragment.index {
            Some(index) => last(&|call| call.index == Some(index))
                .or_else(|| by_id().filter(|_| fragment.function.name.is_none()))?,
            None => by_id().or_else(|| self.calls.len().checked_sub(1))?,
        };
        (!self.calls[at].is_ended_by(fragment)).then_some(at)
    }

    fn start(&mut self, fragment: &CallFragment<'_>) -> Result<usize, ModelError> {
        if self.calls.len() >= CALLS_PER_MESSAGE_MAX {
            return Err(ModelError::too_many(CALLS_PER_MESSAGE_MAX, "tool calls"));
        }
        self.calls.push(PendingCall {
            index: fragment.index,
            id: fragment.id.as_deref().map(str::to_owned),
            name: String::new(),
            arguments: String::new(),
            scan: ArgumentsScan::default(),
            state: None,
        });
        Ok(self.calls.len() - 1)
    }
}

impl PendingCall {
    fn is_ended_by(&mut self, fragment: &CallFragment<'_>) -> bool {
        if fragment.function.name.is_none() || self.name.is_empty() {
            return false;
        }
        match (self.id.as_deref(), fragment.id.as_deref()) {
            (Some(mine), Some(other)) => mine != other,
            (Some(_), None) | (None, Some(_)) | (None, None) => self.scan.is_complete(&self.arguments),
        }
    }
}

fn push_start(deltas: &mut Vec<Delta>, index: u32, call: &PendingCall) {
    deltas.push(Delta::ToolCallStart { index, provider_id: call.id.clone(), name: call.name.clone() });
    push_arguments(deltas, index, call.arguments.clone());
    deltas.extend(call.state.clone().map(|state| Delta::ToolCallState { index, state }));
}

fn push_arguments(deltas: &mut Vec<Delta>, index: u32, fragment: String) {
    if !fragment.is_empty() {
        deltas.push(Delta::ToolCallArguments { index, fragment });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::ModelErrorKind;
    use crate::model::response::fields::read;

    fn add(calls: &mut Calls, fragment: &Value, deltas: &mut Vec<Delta>) -> Result<u32, ModelError> {
        calls.add(read(&fragment.to_string()).unwrap(), deltas)
    }

    /// The calls made of these fragments: id, name, arguments.
    fn calls(fragments: &[Value]) -> Vec<(Option<String>, String, String)> {
        let (mut calls, mut deltas) = (Calls::default(), Vec::new());
        for fragment in fragments {
            let _index = add(&mut calls, fragment, &mut deltas).unwrap();
        }
        calls.end(&mut deltas);
        let mut made = Vec::new();
        for delta in deltas {
            match delta {
                Delta::ToolCallStart { index, provider_id, name } => {
                    assert_eq!(index as usize, made.len());
                    made.push((provider_id, name, String::new()));
                }
                Delta::ToolCallArguments { index, fragment } => made[index as usize].2.push_str(&fragment),
                other => panic!("{other:?}"),
            }
        }
        made
    }

    #[track_caller]
    fn check(fragments: &[Value], expected: &[(Option<&str>, &str, &str)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(id, name, arguments)| (id.map(str::to_owned), (*name).to_owned(), (*arguments).to_owned()))
            .collect();
        assert_eq!(calls(fragments), expected);
    }

    fn fragment(index: Option<u64>, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
        json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn by_the_book() {
        check(
            &[
                fragment(Some(0), Some("a"), Some("f"), ""),
                fragment(Some(0), None, None, "{\"x\""),
                fragment(Some(1), Some("b"), Some("g"), ""),
                fragment(Some(1), None, None, "{}"),
                fragment(Some(0), None, None, ":1}"),
            ],
            &[(Some("a"), "f", "{\"x\":1}"), (Some("b"), "g", "{}")],
        );
    }

    #[test]
    fn without_an_index() {
        check(
            &[
                json!({"id": "a", "function": {"name": "f", "arguments": "{\"x\""}}),
                json!({"function": {"arguments": ":1}"}}),
                json!({"id": "b", "function": {"name": "f", "arguments": "{}"}}),
            ],
            &[(Some("a"), "f", "{\"x\":1}"), (Some("b"), "f", "{}")],
        );
        check(
            &[
                json!({"function": {"name": "f", "arguments": {"x": 1}}}),
                json!({"function": {"name": "f", "arguments": {"x": 2}}}),
            ],
            &[(None, "f", "{\"x\":1}"), (None, "f", "{\"x\":2}")],
        );
        check(
            &[
                json!({"id": "a", "function": {"name": "f", "arguments": "{"}}),
                json!({"id": "b", "function": {"name": "g", "arguments": "{"}}),
                json!({"id": "a", "function": {"arguments": "}"}}),
                json!({"id": "b", "function": {"arguments": "}"}}),
            ],
            &[(Some("a"), "f", "{}"), (Some("b"), "g", "{}")],
        );
    }

    #[test]
    fn one_index_for_all() {
        check(
            &[
                fragment(Some(0), Some("a"), Some("f"), "{\"x\":1}"),
                fragment(Some(0), Some("b"), Some("f"), "{\"x\":2}"),
            ],
            &[(Some("a"), "f", "{\"x\":1}"), (Some("b"), "f", "{\"x\":2}")],
        );
        check(
            &[
                fragment(Some(0), None, Some("f"), "{\"x\":1}"),
                fragment(Some(0), None, Some("g"), "{\"x\":2}"),
            ],
            &[(None, "f", "{\"x\":1}"), (None, "g", "{\"x\":2}")],
        );
    }

    #[test]
    fn repeated_ids_and_names() {
        check(
            &[
                fragment(Some(0), Some("a"), Some("f"), "{\"x\""),
                fragment(Some(0), Some("a"), Some("f"), ":1}"),
                fragment(Some(0), Some("a"), Some("f"), ""),
            ],
            &[(Some("a"), "f", "{\"x\":1}")],
        );
        check(
            &[fragment(Some(0), None, Some("f"), "{\"x\""), fragment(Some(0), None, Some("f"), ":1}")],
            &[(None, "f", "{\"x\":1}")],
        );
        check(
            &[
                fragment(Some(0), Some("a"), Some("f"), "{\"x\""),
                fragment(Some(0), Some("other"), None, ":1}"),
            ],
            &[(Some("a"), "f", "{\"x\":1}")],
        );
    }

    #[test]
    fn one_id_under_several_indices() {
        check(
            &[fragment(Some(0), Some("a"), Some("f"), "{\"x\""), fragment(Some(1), Some("a"), None, ":1}")],
            &[(Some("a"), "f", "{\"x\":1}")],
        );
        check(
            &[fragment(Some(0), Some("a"), Some("f"), "{}"), fragment(Some(1), Some("a"), Some("g"), "{}")],
            &[(Some("a"), "f", "{}"), (Some("a"), "g", "{}")],
        );
    }

    #[test]
    fn late_and_missing_names() {
        check(
            &[
                fragment(Some(0), Some("a"), None, "{\"x\""),
                fragment(Some(0), None, Some("f"), ":1"),
                fragment(Some(0), None, None, "}"),
            ],
            &[(Some("a"), "f", "{\"x\":1}")],
        );
        check(&[fragment(Some(0), Some("a"), None, "{}")], &[(Some("a"), "", "{}")]);
    }

    #[test]
    fn nonsense_is_bounded() {
        check(&[json!(null), json!(7), json!("x")], &[(None, "", "")]);
        let (mut calls, mut deltas) = (Calls::default(), Vec::new());
        let error = (0..=CALLS_PER_MESSAGE_MAX as u64)
            .try_for_each(|i| {
                let one = fragment(Some(u64::MAX - i), None, Some("f"), "");
                add(&mut calls, &one, &mut deltas).map(drop)
            })
            .unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::TooLarge);
    }
}
