//! The work of a run of W1 as a service of Restate: two model calls and a tool call, each a durable step.

use std::error::Error;

use futures_util::StreamExt as _;
use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpSocket;

/// The response of a model, as the journal keeps it.
#[derive(Serialize, Deserialize)]
struct Said {
    text: String,
    call: Option<Call>,
}

/// A tool call that a model asks for.
#[derive(Default, Serialize, Deserialize)]
struct Call {
    id: String,
    arguments: String,
}

/// The loop of an agent, with its tool in its own process or in another service.
struct Agent {
    http: reqwest::Client,
    /// The address of the model's endpoint.
    model: String,
}

#[service]
impl Agent {
    /// A run whose tool is a step of the same service.
    #[handler]
    async fn near(&self, ctx: Context<'_>, prompt: String) -> HandlerResult<String> {
        let asked = self.first(&ctx, &prompt).await?;
        let call = asked.call.ok_or_else(|| TerminalError::new("the model asks for no tool"))?;
        let result = ctx.run(|| async { Ok(echo(&call.arguments)?) }).name("tool").await?;
        Ok(self.second(&ctx, &prompt, &call, &result).await?.text)
    }

    /// A run whose tool is a service of its own, which the engine calls.
    #[handler]
    async fn apart(&self, ctx: Context<'_>, prompt: String) -> HandlerResult<String> {
        let asked = self.first(&ctx, &prompt).await?;
        let call = asked.call.ok_or_else(|| TerminalError::new("the model asks for no tool"))?;
        let result = ctx.service_client::<ToolClient>().echo(call.arguments.clone()).call().await?;
        Ok(self.second(&ctx, &prompt, &call, &result).await?.text)
    }
}

impl Agent {
    async fn first(&self, ctx: &Context<'_>, prompt: &str) -> HandlerResult<Said> {
        let messages = json!([{ "role": "user", "content": prompt }]);
        let said = ctx.run(|| async { Ok(Json(self.ask(messages).await?)) }).name("model").await?;
        Ok(said.into_inner())
    }

    async fn second(
        &self,
        ctx: &Context<'_>,
        prompt: &str,
        call: &Call,
        result: &str,
    ) -> HandlerResult<Said> {
        let function = json!({ "name": "echo", "arguments": call.arguments });
        let messages = json!([
            { "role": "user", "content": prompt },
            { "role": "assistant", "content": null, "tool_calls": [{ "id": call.id, "type": "function", "function": function }] },
            { "role": "tool", "tool_call_id": call.id, "content": result },
        ]);
        let said = ctx.run(|| async { Ok(Json(self.ask(messages).await?)) }).name("model").await?;
        Ok(said.into_inner())
    }

    /// Calls the model and reads its answer piece by piece.
    async fn ask(&self, messages: Value) -> Result<Said, reqwest::Error> {
        let request = json!({ "model": "m", "stream": true, "messages": messages });
        let mut chunks =
            self.http.post(&self.model).json(&request).send().await?.error_for_status()?.bytes_stream();
        let (mut said, mut unread) = (Said { text: String::new(), call: None }, Vec::new());
        while let Some(chunk) = chunks.next().await {
            unread.extend_from_slice(&chunk?);
            while let Some(end) = unread.windows(2).position(|two| two == b"\n\n") {
                said.hears(&unread[..end]);
                unread.drain(..end + 2);
            }
        }
        Ok(said)
    }
}

/// An event of a model's answer: the parts that a run needs.
#[derive(Deserialize)]
struct Chunk {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
}

#[derive(Deserialize)]
struct ToolCall {
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    arguments: String,
}

impl Said {
    fn hears(&mut self, event: &[u8]) {
        let data = event.strip_prefix(b"data: ").unwrap_or_default();
        // The event that ends an answer is no JSON.
        let Ok(chunk) = serde_json::from_slice::<Chunk>(data) else { return };
        for Choice { delta } in chunk.choices {
            self.text += delta.content.as_deref().unwrap_or_default();
            for ToolCall { id, function } in delta.tool_calls {
                let call = self.call.get_or_insert_default();
                call.id += id.as_deref().unwrap_or_default();
                call.arguments += &function.arguments;
            }
        }
    }
}

/// The tool as a service of its own.
struct Tool;

#[service]
impl Tool {
    /// Says what it is told.
    #[handler]
    async fn echo(&self, _ctx: Context<'_>, arguments: String) -> HandlerResult<String> {
        Ok(echo(&arguments)?)
    }
}

fn echo(arguments: &str) -> Result<String, serde_json::Error> {
    Ok(serde_json::from_str::<Value>(arguments)?["text"].as_str().unwrap_or_default().to_owned())
}

/// Serves the agent at this port of loopback, with the model server at this address.
pub(crate) async fn serve(port: u16, model: &str) -> Result<(), Box<dyn Error>> {
    let agent = Agent { http: reqwest::Client::new(), model: format!("http://{model}/v1/chat/completions") };
    let socket = TcpSocket::new_v4()?;
    // Connections have it from the socket that accepts them.
    socket.set_nodelay(true)?;
    socket.set_reuseaddr(true)?;
    socket.bind(([127, 0, 0, 1], port).into())?;
    let listener = socket.listen(1024)?;
    HttpServer::new(Endpoint::builder().bind(agent).bind(Tool).build()).serve(listener).await;
    Ok(())
}
