//! Turns a request to import a conversation into a request to start the run that adds it. Checks that every tool call has
//! its result, and gives calls ids of that run.

use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{CallSlot, RunId, SessionId, TenantId};
use agentloop_core::limits::{
    CALLS_PER_MESSAGE_MAX, IMPORTED_MESSAGES_MAX, INPUT_MESSAGE_BYTES_MAX, MODEL_MESSAGE_BYTES_MAX,
    PARTS_PER_MESSAGE_MAX, QUOTED_ARGUMENTS_BYTES_MAX, SHORT_TEXT_BYTES_MAX, TOOL_RESULT_BYTES_MAX,
};
use agentloop_core::message::{
    Image, Message, Part, Reasoning, Role, SharedMessage, ToolCall, ToolResult, ToolStatus,
};
use agentloop_core::tool::Digest;
use agentloop_proto::v1 as wire;
use prost::Message as _;
use serde::de::IgnoredAny;
use tonic::Status;
use wire::part::Content;

use super::input::labels;
use crate::engine::{Author, OnBusy, StartRequest};
use crate::grpc::convert::host::{attachments, result_bytes};
use crate::grpc::convert::message::{contents_bytes, input_image, input_message};
use crate::grpc::status::Violations;

/// Longest name of a model, in bytes.
const MODEL_BYTES_MAX: usize = 256;
/// Size of a result, with what the server may have added to it: edited arguments, or a remark.
const RESULT_BYTES_MAX: usize = TOOL_RESULT_BYTES_MAX + QUOTED_ARGUMENTS_BYTES_MAX + SHORT_TEXT_BYTES_MAX;
/// Longest id of a call that a caller may give, in bytes.
const CALL_ID_BYTES_MAX: usize = 1_024;

/// Builds the request to start the run that adds the messages.
///
/// # Errors
/// INVALID_ARGUMENT with every violation.
pub(crate) fn import_request(
    tenant: TenantId,
    author: Author,
    request: wire::ImportEntriesRequest,
) -> Result<StartRequest, Status> {
    let digest = Digest::of(&[b"import", &request.encode_to_vec()]);
    let mut bad = Violations::default();
    let run = request.run_id.and_then(|id| bad.take("run_id", RunId::parse(id)));
    let session = request.session_id.and_then(|id| bad.take("session_id", SessionId::parse(id)));
    let labels = labels("labels", request.labels, &mut bad);
    if request.model.len() > MODEL_BYTES_MAX {
        bad.add("model", format!("must be at most {MODEL_BYTES_MAX} bytes"));
    }
    let messages = messages(request.messages, &mut bad);
    bad.check()?;
    let spec = RunSpec { model: request.model, labels, ..RunSpec::default() };
    Ok(StartRequest {
        tenant,
        run,
        session,
        create_session: request.auto_create_session,
        spec: Arc::new(spec),
        messages,
        digest,
        author,
        on_busy: OnBusy::Reject,
        traceparent: None,
        imports: true,
    })
}

fn messages(given: Vec<wire::Message>, bad: &mut Violations) -> Vec<SharedMessage> {
    if given.is_empty() || given.len() > IMPORTED_MESSAGES_MAX {
        bad.add("messages", format!("must be 1 to {IMPORTED_MESSAGES_MAX}"));
        return Vec::new();
    }
    let mut conversation = ImportedMessages::default();
    for (at, message) in given.into_iter().enumerate() {
        conversation.add(&format!("messages[{at}]"), message, bad);
    }
    if let Some(call) = conversation.open.first() {
        bad.add("messages", format!("must have a result of call {:?}", call.id));
    }
    if conversation.messages.len() > IMPORTED_MESSAGES_MAX {
        bad.add("messages", format!("must have at most {IMPORTED_MESSAGES_MAX} entries"));
    }
    conversation.messages
}

/// The messages so far, and the calls of the last one that have no result yet.
#[derive(Default)]
struct ImportedMessages {
    messages: Vec<SharedMessage>,
    open: Vec<UnpairedCall>,
    /// Number of messages of the model.
    model_calls: u32,
}

struct UnpairedCall {
    /// The id that the caller gave.
    id: String,
    call: ToolCall,
}

impl ImportedMessages {
    fn add(&mut self, field: &str, message: wire::Message, bad: &mut Violations) {
        if message.role() != wire::Role::Tool
            && let Some(call) = self.open.pop()
        {
            bad.add(field, format!("must not come before the result of call {:?}", call.id));
            self.open.clear();
        }
        // Results are bounded one by one.
        let max = match message.role() {
            wire::Role::Assistant => MODEL_MESSAGE_BYTES_MAX,
            wire::Role::User | wire::Role::System | wire::Role::Unspecified => INPUT_MESSAGE_BYTES_MAX,
            wire::Role::Tool => usize::MAX,
        };
        if contents_bytes(&message) > max {
            bad.add(field, format!("must be at most {max} bytes"));
            return;
        }
        if message.parts.len() > PARTS_PER_MESSAGE_MAX {
            bad.add(format!("{field}.parts"), format!("must be at most {PARTS_PER_MESSAGE_MAX}"));
            return;
        }
        match message.role() {
            wire::Role::User | wire::Role::System => {
                self.messages.extend(input_message(field, message, bad).map(Arc::new));
            }
            wire::Role::Assistant => self.add_answer(field, message.parts, bad),
            wire::Role::Tool => self.add_results(field, message.parts, bad),
            wire::Role::Unspecified => bad.add(format!("{field}.role"), "must be a role"),
        }
    }

    /// A message of the model. It may be empty, as a model's own may.
    fn add_answer(&mut self, field: &str, parts: Vec<wire::Part>, bad: &mut Violations) {
        self.model_calls += 1;
        let mut message = Message { role: Role::Assistant, parts: Vec::with_capacity(parts.len()) };
        for (at, part) in parts.into_iter().enumerate() {
            let field = format!("{field}.parts[{at}]");
            match part.content {
                Some(Content::Text(text)) if text.is_empty() => {
                    bad.add(format!("{field}.text"), "must not be empty");
                }
                Some(Content::Text(text)) => message.parts.push(Part::text(text)),
                Some(Content::Reasoning(wire::Reasoning { text, .. })) => {
                    let reasoning = Part::Reasoning(Reasoning { text, ..Reasoning::default() });
                    message.parts.extend((!is_empty(&reasoning)).then_some(reasoning));
                }
                Some(Content::ToolCall(call)) => {
                    message.parts.extend(self.open_call(&field, call, bad).map(Part::ToolCall));
                }
                Some(Content::Image(_) | Content::ToolResult(_)) | None => {
                    bad.add(field, "must be text, reasoning or a tool call");
                }
            }
        }
        self.messages.push(Arc::new(message));
    }

    /// The call with an id of this run. `None` if something is wrong with it. A model may have called a tool by a name that none has,
    /// or with arguments that are too long for one. So the bound of the message is the only one on these.
    fn open_call(&mut self, field: &str, call: wire::ToolCall, bad: &mut Violations) -> Option<ToolCall> {
        let wire::ToolCall { call_id: id, name, arguments_json: arguments, title: _ } = call;
        let position = self.open.len();
        let problem = if id.is_empty() || id.len() > CALL_ID_BYTES_MAX {
            Some(("call_id", format!("must be 1 to {CALL_ID_BYTES_MAX} bytes")))
        } else if self.open.iter().any(|open| open.id == id) {
            Some(("call_id", "must not be that of another call of the message".to_owned()))
        } else if position >= CALLS_PER_MESSAGE_MAX {
            Some(("call_id", format!("must be one of at most {CALLS_PER_MESSAGE_MAX}")))
        } else {
            None
        };
        if let Some((part, problem)) = problem {
            bad.add(format!("{field}.tool_call.{part}"), problem);
            return None;
        }
        let slot =
            CallSlot { model_call: self.model_calls, position: u32::try_from(position).unwrap_or(u32::MAX) };
        let provider_id = format!("call_{}_{}", slot.model_call, slot.position);
        let call = ToolCall { slot, provider_id, name, arguments, state: None };
        self.open.push(UnpairedCall { id, call: call.clone() });
        Some(call)
    }

    /// Results of open calls, each as a message of its own.
    fn add_results(&mut self, field: &str, parts: Vec<wire::Part>, bad: &mut Violations) {
        if parts.is_empty() {
            bad.add(format!("{field}.parts"), "must not be empty");
        }
        for (at, part) in parts.into_iter().enumerate() {
            let field = format!("{field}.parts[{at}]");
            let Some(Content::ToolResult(result)) = part.content else {
                bad.add(field, "must be a tool result");
                continue;
            };
            let Some(place) = self.open.iter().position(|open| open.id == result.call_id) else {
                bad.add(
                    format!("{field}.tool_result.call_id"),
                    "must be that of a call of the message before that has no result yet",
                );
                continue;
            };
            let UnpairedCall { call, .. } = self.open.remove(place);
            if !result.name.is_empty() && result.name != call.name {
                bad.add(format!("{field}.tool_result.name"), "must be that of the call, or empty");
                continue;
            }
            if let Some(result) = tool_result(&format!("{field}.tool_result"), call, result, bad) {
                let message = Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] };
                self.messages.push(Arc::new(message));
            }
        }
    }
}

fn tool_result(
    field: &str,
    call: ToolCall,
    result: wire::ToolResult,
    bad: &mut Violations,
) -> Option<ToolResult> {
    let status = match usize::try_from(result.status) {
        Ok(0) => Some(ToolStatus::Succeeded),
        Ok(number) => ToolStatus::ALL.get(number - 1).copied(),
        Err(_) => None,
    };
    let status =
        bad.take(&format!("{field}.status"), status.ok_or("is not a value that this server knows"))?;
    let wire::ToolResult { output, images, structured_json, files, links, .. } = &result;
    if result_bytes(output, images, structured_json, files, links) > RESULT_BYTES_MAX {
        bad.add(format!("{field}.output"), format!("must be at most {TOOL_RESULT_BYTES_MAX} bytes"));
        return None;
    }
    if !structured_json.is_empty()
        && let Err(fault) = serde_json::from_str::<IgnoredAny>(structured_json)
    {
        bad.add(format!("{field}.structured_json"), format!("must be JSON: {fault}"));
        return None;
    }
    let images: Option<Vec<Image>> = result
        .images
        .into_iter()
        .enumerate()
        .map(|(at, image)| bad.take(&format!("{field}.images[{at}]"), input_image(image)))
        .collect();
    let attachments = attachments(result.structured_json, result.files, result.links)
        .map_err(|_| "has a file or a link that no result may have");
    let attachments = bad.take(field, attachments)?;
    let ToolCall { slot, provider_id, name, .. } = call;
    Some(ToolResult { slot, provider_id, name, status, output: result.output, images: images?, attachments })
}

/// True for reasoning whose text its provider hid.
fn is_empty(part: &Part) -> bool {
    matches!(part, Part::Reasoning(reasoning) if reasoning.text.is_empty())
}
