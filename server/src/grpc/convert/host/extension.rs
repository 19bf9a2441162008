//! Conversion of extension declarations, of requests to extensions and of their responses. An invalid response does not end
//! the host's stream: the next host that offers the extension gets the request.

use agentloop_core::extension::{
    ExtensionDeclaration, ExtensionKind, HookDeclaration, HookPoint, SourceDeclaration,
};
use agentloop_core::limits::{
    CONTEXT_BYTES_MAX, CONTEXT_ITEMS_MAX, SHORT_TEXT_BYTES_MAX, TOOL_NAME_BYTES_MAX,
};
use agentloop_core::message::{SharedMessage, ToolCall};
use agentloop_core::run::plan::Situation;
use agentloop_core::run::state::RunState;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Millis;
use agentloop_core::tool::Digest;
use agentloop_proto::v1 as wire;
use wire::extension_request::Request;
use wire::extension_response::Response;

use crate::engine::RunView;
use crate::extension::remote::{ExtensionRequest, ExtensionResponse, RequestBody, ResponseBody};
use crate::extension::{ContextItem, ExtensionError, HookVerdict, Occasion, PlanView, RunContext};
use crate::grpc::convert::message::{call_id, input_message, message, tool_result};
use crate::grpc::convert::people::human;
use crate::grpc::convert::{duration, instruction, millis, run, timestamp};
use crate::grpc::status::Violations;
use crate::store::{RunRow, RunSummary};

const PLANNER_TIMEOUT: Millis = Millis::secs(30);
const HOOK_TIMEOUT: Millis = Millis::secs(5);
const SOURCE_TIMEOUT: Millis = Millis::secs(2);
const TIMEOUT_MAX: Millis = Millis::secs(600);
const SOURCE_TIMEOUT_MAX: Millis = Millis::secs(60);

/// An extension's declaration that is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadDeclaration {
    pub(super) name: String,
    /// The fault, for the host's author.
    pub(super) problem: String,
}

/// Parses the declaration of a planner.
pub(super) fn planner(
    declared: wire::PlannerDeclaration,
) -> Result<(String, ExtensionDeclaration), BadDeclaration> {
    let declaration = checked(&declared.name, &declared.description)
        .and_then(|()| timeout(declared.timeout, PLANNER_TIMEOUT, TIMEOUT_MAX))
        .map(|timeout| ExtensionDeclaration::Planner { timeout });
    named(declared.name, declaration)
}

/// Parses the declaration of a hook.
pub(super) fn hook(
    declared: wire::HookDeclaration,
) -> Result<(String, ExtensionDeclaration), BadDeclaration> {
    let declaration = checked(&declared.name, &declared.description)
        .and_then(|()| {
            let points = declared.points.iter().map(|point| hook_point(*point)).collect::<Option<_>>();
            points.ok_or_else(|| "points: this server does not know one of them".to_owned())
        })
        .and_then(|points: std::collections::BTreeSet<_>| match points.is_empty() {
            true => Err("points: at least one is required".to_owned()),
            false => Ok(points),
        })
        .and_then(|points| {
            let timeout = timeout(declared.timeout, HOOK_TIMEOUT, TIMEOUT_MAX)?;
            Ok(ExtensionDeclaration::Hook(HookDeclaration { points, required: declared.required, timeout }))
        });
    named(declared.name, declaration)
}

/// Parses the declaration of a context source.
pub(super) fn source(
    declared: wire::ContextSourceDeclaration,
) -> Result<(String, ExtensionDeclaration), BadDeclaration> {
    let declaration = checked(&declared.name, &declared.description)
        .and_then(|()| timeout(declared.timeout, SOURCE_TIMEOUT, SOURCE_TIMEOUT_MAX))
        .map(|timeout| {
            ExtensionDeclaration::ContextSource(SourceDeclaration { timeout, remembers: declared.remembers })
        });
    named(declared.name, declaration)
}

fn named(
    name: String,
    declaration: Result<ExtensionDeclaration, String>,
) -> Result<(String, ExtensionDeclaration), BadDeclaration> {
    match declaration {
        Ok(declaration) => Ok((name, declaration)),
        Err(problem) => Err(BadDeclaration { name, problem }),
    }
}

fn checked(name: &str, description: &str) -> Result<(), String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > TOOL_NAME_BYTES_MAX || !name.bytes().all(good) {
        return Err(format!("a name is 1 to {TOOL_NAME_BYTES_MAX} letters, digits, '_' and '-'"));
    }
    if description.len() > SHORT_TEXT_BYTES_MAX {
        return Err(format!("description: must be at most {SHORT_TEXT_BYTES_MAX} bytes"));
    }
    Ok(())
}

fn timeout(given: Option<prost_types::Duration>, default: Millis, max: Millis) -> Result<Millis, String> {
    let length = given.map_or(Ok(default), |given| millis(&given));
    match length.map_err(|problem| format!("timeout: {problem}"))? {
        length if length > max => Err(format!("timeout: must be at most {} s", max.0 / 1_000)),
        length => Ok(length),
    }
}

fn hook_point(point: i32) -> Option<HookPoint> {
    match wire::HookPoint::try_from(point).ok()? {
        wire::HookPoint::Unspecified => None,
        wire::HookPoint::PreRun => Some(HookPoint::PreRun),
        wire::HookPoint::PostRun => Some(HookPoint::PostRun),
        wire::HookPoint::PreTool => Some(HookPoint::PreTool),
        wire::HookPoint::PostTool => Some(HookPoint::PostTool),
    }
}

fn wire_point(point: HookPoint) -> wire::HookPoint {
    match point {
        HookPoint::PreRun => wire::HookPoint::PreRun,
        HookPoint::PostRun => wire::HookPoint::PostRun,
        HookPoint::PreTool => wire::HookPoint::PreTool,
        HookPoint::PostTool => wire::HookPoint::PostTool,
    }
}

/// Converts the kind of an extension.
pub(in crate::grpc::convert) fn kind(kind: ExtensionKind) -> wire::ExtensionKind {
    match kind {
        ExtensionKind::Planner => wire::ExtensionKind::Planner,
        ExtensionKind::Hook => wire::ExtensionKind::Hook,
        ExtensionKind::ContextSource => wire::ExtensionKind::ContextSource,
    }
}

/// Converts a request to an extension.
pub(crate) fn request(request: &ExtensionRequest) -> wire::ExtensionRequest {
    let state = &request.run.state;
    let body = match &request.body {
        RequestBody::Plan(view) => Request::Plan(plan_request(state, view)),
        RequestBody::Hook(occasion) => Request::Hook(hook_request(&request.run, occasion)),
        RequestBody::Context { query, max_bytes } => Request::Context(wire::ContextRequest {
            query: query.clone(),
            max_bytes: u32::try_from(*max_bytes).unwrap_or(u32::MAX),
        }),
        RequestBody::Remember { messages: finished } => {
            Request::Remember(wire::RememberRequest { messages: messages(state, finished) })
        }
    };
    wire::ExtensionRequest {
        request_id: request.id.clone(),
        name: request.name.clone(),
        deadline: Some(timestamp(request.deadline)),
        time_left: Some(duration(request.time_left)),
        run: run_view(&request.run).as_ref().map(run::view),
        request: Some(body),
    }
}

fn plan_request(state: &RunState, view: &PlanView) -> wire::PlanRequest {
    wire::PlanRequest {
        situation: situation(&view.situation).into(),
        decision: view.decision,
        messages: messages(state, &view.messages),
        tool_calls: view.calls.iter().map(|call| tool_call(state, call)).collect(),
        answer: view.answer.as_ref().map(human::answer),
    }
}

fn situation(situation: &Situation) -> wire::PlanSituation {
    match situation {
        Situation::Prompted => wire::PlanSituation::Prompted,
        Situation::Responded { .. } => wire::PlanSituation::Answered,
        Situation::CallsWaiting => wire::PlanSituation::ToolsWanted,
        Situation::ToolsSettled => wire::PlanSituation::ToolsSettled,
        Situation::HumanAnswered => wire::PlanSituation::HumanAnswered,
        Situation::Compacted => wire::PlanSituation::Compacted,
    }
}

fn hook_request(context: &RunContext, occasion: &Occasion) -> wire::HookRequest {
    let state = &context.state;
    let request =
        wire::HookRequest { point: wire_point(occasion.point()).into(), ..wire::HookRequest::default() };
    match occasion {
        Occasion::PreRun { messages: input } => {
            wire::HookRequest { input_messages: messages(state, input), ..request }
        }
        Occasion::PreTool { call } => {
            wire::HookRequest { tool_call: Some(tool_call(state, call)), ..request }
        }
        Occasion::PostTool { call, result } => wire::HookRequest {
            tool_call: Some(tool_call(state, call)),
            tool_result: Some(tool_result(state.run(), result)),
            ..request
        },
        Occasion::PostRun => {
            let run_result = state.session().map(|session| run::result(session, state));
            wire::HookRequest { run_result, ..request }
        }
    }
}

fn messages(state: &RunState, messages: &[SharedMessage]) -> Vec<wire::Message> {
    messages.iter().map(|each| message(state.run(), each)).collect()
}

fn tool_call(state: &RunState, call: &ToolCall) -> wire::ToolCall {
    wire::ToolCall {
        call_id: call_id(state.run(), call.slot),
        name: call.name.clone(),
        arguments_json: call.arguments.clone(),
        title: String::new(),
    }
}

/// The run as `GetRun` shows it, built from its state alone; `None` before it started.
fn run_view(context: &RunContext) -> Option<RunView> {
    let state = &context.state;
    let row = RunRow {
        queue_no: None,
        run: state.run().clone(),
        session: state.session()?.clone(),
        request_digest: Digest::of(&[]),
        agent: state.spec().agent.clone(),
        model: state.spec().model.clone(),
        labels: state.spec().labels.clone(),
        preview: String::new(),
        created_by: None,
        created_at: state.started_at(),
        updated_at: state.updated_at(),
        last_seq: state.seq(),
        summary: RunSummary {
            status: state.status().unwrap_or(RunStatus::Preparing),
            wake_at: None,
            at_hosts: state.has_calls_in_flight(),
            error: state.last_error().cloned(),
            usage: state.usage(),
            iterations: state.iterations(),
            tool_calls: state.tool_calls(),
            calls: state.call_counts(),
        },
    };
    Some(RunView { row, state: Box::new(RunState::clone(state)), queue_position: 0, waits_for_memory: false })
}

/// Parses a host's response. One that makes no sense is an error, upon which the next host is called.
pub(crate) fn reply(response: wire::ExtensionResponse) -> ExtensionResponse {
    let result = match response.response {
        Some(Response::Failure(failure)) => {
            Err(ExtensionError::Failed { message: shortened(failure.message), retryable: failure.retryable })
        }
        Some(Response::Hook(reply)) => {
            verdict(reply).map(ResponseBody::Hook).map_err(ExtensionError::Nonsense)
        }
        Some(Response::Context(items)) => {
            context(items).map(ResponseBody::Context).map_err(ExtensionError::Nonsense)
        }
        Some(Response::Remembered(_)) => Ok(ResponseBody::Remembered),
        Some(Response::Instruction(reply)) => {
            instruction::from_wire(reply).map(ResponseBody::Instruction).map_err(ExtensionError::Nonsense)
        }
        None => Err(ExtensionError::Nonsense("the response is empty".to_owned())),
    };
    ExtensionResponse { id: response.request_id, result }
}

fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(SHORT_TEXT_BYTES_MAX));
    text
}

fn verdict(reply: wire::HookVerdict) -> Result<HookVerdict, String> {
    let mut bad = Violations::default();
    let input_messages = reply
        .input_messages
        .into_iter()
        .enumerate()
        .map(|(at, each)| input_message(&format!("input_messages[{at}]"), each, &mut bad))
        .collect::<Option<Vec<_>>>();
    bad.check().map_err(|status| status.message().to_owned())?;
    let input_messages = input_messages.expect("every message that failed added a violation");
    Ok(HookVerdict {
        annotation: reply.annotation,
        veto: reply.veto,
        input_messages,
        system_prompt_addition: reply.system_prompt_addition,
        arguments: reply.arguments_json,
        output: reply.output,
    })
}

fn context(items: wire::ContextItems) -> Result<Vec<ContextItem>, String> {
    if items.items.len() > CONTEXT_ITEMS_MAX {
        return Err(format!("{} items, which is more than {CONTEXT_ITEMS_MAX}", items.items.len()));
    }
    let long = items.items.iter().find(|item| item.text.len() > CONTEXT_BYTES_MAX);
    if long.is_some() || items.items.iter().any(|item| item.origin.len() > SHORT_TEXT_BYTES_MAX) {
        return Err("an item is too long".to_owned());
    }
    Ok(items.items.into_iter().map(|item| ContextItem { text: item.text, origin: item.origin }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(points: Vec<i32>, timeout: Option<i64>) -> wire::HookDeclaration {
        wire::HookDeclaration {
            name: "audit".to_owned(),
            points,
            timeout: timeout.map(|seconds| prost_types::Duration { seconds, nanos: 0 }),
            ..wire::HookDeclaration::default()
        }
    }

    #[test]
    fn invalid_declarations_are_refused_with_a_reason() {
        let pre_run = wire::HookPoint::PreRun.into();
        let (name, declaration) = hook(declared(vec![pre_run], None)).expect("a good one");
        let points = std::collections::BTreeSet::from([HookPoint::PreRun]);
        let good = HookDeclaration { points, required: false, timeout: HOOK_TIMEOUT };
        assert_eq!((name.as_str(), declaration), ("audit", ExtensionDeclaration::Hook(good)));
        for (bad, words) in [
            (declared(vec![], None), "at least one"),
            (declared(vec![0], None), "does not know"),
            (declared(vec![99], None), "does not know"),
            (declared(vec![pre_run], Some(601)), "at most 600 s"),
            (declared(vec![pre_run], Some(-1)), "negative"),
            (wire::HookDeclaration { name: "a b".into(), ..declared(vec![pre_run], None) }, "letters"),
            (wire::HookDeclaration { name: String::new(), ..declared(vec![pre_run], None) }, "letters"),
            (
                wire::HookDeclaration { description: "x".repeat(4_097), ..declared(vec![pre_run], None) },
                "description",
            ),
        ] {
            let BadDeclaration { problem, .. } = hook(bad).expect_err(words);
            assert!(problem.contains(words), "{problem}");
        }
        let long = wire::ContextSourceDeclaration {
            name: "s".into(),
            timeout: Some(prost_types::Duration { seconds: 61, nanos: 0 }),
            ..Default::default()
        };
        assert!(source(long).is_err());
    }

    fn nonsense(response: Response) -> String {
        let response = wire::ExtensionResponse { request_id: "x1".into(), response: Some(response) };
        match reply(response) {
            ExtensionResponse { result: Err(ExtensionError::Nonsense(why)), .. } => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_that_makes_no_sense_says_why() {
        let item = |bytes| wire::ContextItem { text: "x".repeat(bytes), origin: String::new() };
        let context = |items| Response::Context(wire::ContextItems { items });
        assert!(nonsense(context(vec![item(CONTEXT_BYTES_MAX + 1)])).contains("too long"));
        assert!(nonsense(context(vec![item(1); CONTEXT_ITEMS_MAX + 1])).contains("more than 64"));
        let assistant = wire::Message { role: wire::Role::Assistant.into(), parts: Vec::new() };
        let said = wire::HookVerdict { input_messages: vec![assistant], ..Default::default() };
        assert!(nonsense(Response::Hook(said)).contains("ROLE_USER"));
        assert!(nonsense(Response::Instruction(wire::Instruction::default())).contains("what to do"));
        let empty = reply(wire::ExtensionResponse { request_id: "x1".into(), response: None });
        assert!(matches!(empty.result, Err(ExtensionError::Nonsense(_))));
    }
}
