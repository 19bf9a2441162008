//! Whole conversations through the contract, from the first message to the last. Each module plays one design of an agent
//! loop, with the states, events and rows that the design asks for as tables.

mod agent_loop;
mod runtime_loop;
mod session_processor;
mod stepped_runtime;
mod two_loops;

use agentloop_client::host::{CallContext, Tool, ToolBuilder, ToolError};
use agentloop_client::v1 as wire;
use agentloop_tests::events::text;
use serde_json::{Value, json};

/// A tool whose arguments are one text.
fn tool(name: &str, field: &str) -> ToolBuilder {
    Tool::new(name, format!("The tool {name}")).read_only().input_schema(&json!({
        "type": "object",
        "properties": { field: { "type": "string" } },
        "required": [field],
    }))
}

/// A tool that always gives this output.
fn answering(builder: ToolBuilder, output: &Value) -> Tool {
    let output = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
    builder.handler(move |_: Value, _: CallContext| {
        let output = output.clone();
        async move { Ok::<_, ToolError>(output) }
    })
}

/// The messages of a request to the model: role and text.
fn read(request: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let message = |message: &Value| (text(&message["role"]), text(&message["content"]));
    request["messages"].as_array().into_iter().flatten().map(message).collect()
}

fn said(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

/// The names of the tools that a request offers.
fn offered(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["function"]["name"].as_str()).collect()
}

/// The text of a result's final message.
#[track_caller]
fn answer(result: &wire::RunResult) -> String {
    text(result.final_assistant_message.as_ref().unwrap_or_else(|| panic!("no answer: {result:?}")))
}
