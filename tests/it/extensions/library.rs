//! The Rust host's side of extensions and runtimes.

use std::convert::Infallible;
use std::sync::Arc;

use agentloop_client::host::{
    CallContext, Extension, ExtensionError, ExtensionInput, HostEvent, NoArguments, Runtimes, Tool,
    ToolError, ToolHost,
};
use agentloop_tests::events::results;
use serde_json::json;
use tokio::sync::mpsc;
use wire::HookPoint::PreTool;

use super::*;

struct Browser(String);

async fn browse(_: NoArguments, ctx: CallContext) -> Result<String, ToolError> {
    let browser = ctx.runtime::<Browser>().ok_or_else(|| ToolError::failed("no browser"))?;
    Ok(format!("seen in {}", browser.0))
}

async fn guard(input: ExtensionInput<wire::HookRequest>) -> Result<wire::HookVerdict, ExtensionError> {
    let call = input.request.tool_call.ok_or_else(|| ExtensionError::failed("no call"))?;
    Ok(wire::HookVerdict { annotation: format!("{} may run", call.name), ..Default::default() })
}

async fn wiki(input: ExtensionInput<wire::ContextRequest>) -> Result<Vec<wire::ContextItem>, ExtensionError> {
    let text = format!("about: {}", input.request.query);
    Ok(vec![wire::ContextItem { text, origin: "wiki".to_owned() }])
}

#[tokio::test]
async fn a_host_offers_them_as_functions() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let (told, mut happened) = mpsc::unbounded_channel::<String>();
    let (closed, remembered, connected) = (told.clone(), told.clone(), told);
    let runtimes = Runtimes::new(
        |asked: wire::OpenRuntime| async move { Ok::<_, Infallible>(Browser(asked.runtime_id)) },
        move |browser: Arc<Browser>| {
            let closed = closed.clone();
            async move { closed.send(format!("closed {}", browser.0)).expect("the test listens") }
        },
    );
    let memory = Extension::context_source("wiki", wiki).remembering(move |input| {
        let (remembered, said) = (remembered.clone(), input.request.messages.len());
        async move {
            remembered.send(format!("remembered {said}")).expect("the test listens");
            Ok(())
        }
    });
    let host = ToolHost::builder(server.url())
        .tool(Tool::new("browse", "Looks").read_only().requires_runtime().handler(browse))
        .runtimes(runtimes)
        .extension(Extension::hook("guard", [PreTool], guard).required())
        .extension(memory)
        .on_event(move |event| {
            if matches!(event, HostEvent::Connected { refused, .. } if refused.is_empty()) {
                connected.send("connected".to_owned()).expect("the test listens");
            }
        })
        .build()
        .expect("it is right");
    let serving = tokio::spawn(host.run_until(std::future::pending()));
    assert_eq!(soon(happened.recv()).await.as_deref(), Some("connected"));

    model.asks("browse", json!({})).says("done");
    let input = wire::RunInput { run_id: Some("r1".to_owned()), ..extended(&["guard"], &["wiki"]) };
    let seen = all(server.stream(input).await).await;
    let expected = [told_of("wiki", "gave 1"), told_of("guard", "pre_tool: browse may run")];
    assert_eq!(applied(&seen), expected);
    assert_eq!(results(&seen)[0].output, "seen in r1/rt1");
    let first = &model.requests()[0];
    assert!(first.to_string().contains("about: which city?"), "{first}");
    let mut after = [soon(happened.recv()).await, soon(happened.recv()).await].map(Option::unwrap_or_default);
    after.sort();
    assert_eq!(after, ["closed r1/rt1", "remembered 4"]);
    serving.abort();
}

fn told_of(name: &str, outcome: &str) -> (String, String, String) {
    told(name, outcome, "")
}
