//! Parameters that some models refuse: callers may ask for them, whatever the model is.

use agentloop_client::v1 as wire;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::server::TestServer;
use agentloop_tests::vendor::{Asked, Format, Vendor};
use wire::{ReasoningEffort, ToolChoiceMode};

use super::{GEMINI, Kind, MESSAGES, RESPONSES, completes_with, weather};

/// Each with and without a tool that is demanded.
const EFFORTS: [(ReasoningEffort, bool); 5] = [
    (ReasoningEffort::Unspecified, true),
    (ReasoningEffort::None, false),
    (ReasoningEffort::Low, false),
    (ReasoningEffort::Medium, true),
    (ReasoningEffort::High, false),
];

fn options(effort: ReasoningEffort, forces: bool) -> wire::ModelOptions {
    let mode = if forces { ToolChoiceMode::Required } else { ToolChoiceMode::Auto };
    let choice = wire::tool_choice::Choice::Mode(mode.into());
    wire::ModelOptions {
        temperature: Some(0.5),
        top_p: Some(0.9),
        stop: vec!["END".to_owned()],
        tool_choice: Some(wire::ToolChoice { choice: Some(choice) }),
        reasoning_effort: effort.into(),
        ..Default::default()
    }
}

/// Requests every parameter from each of these models, in many combinations. If the server sends a parameter that the
/// model does not accept, the vendor's refusal fails the test.
async fn are_left_out(kind: Kind, models: &[&str]) -> Vec<Asked> {
    let vendor = Vendor::start("a").await;
    let default = format!("a/{}", kind.model);
    let server = TestServer::asking(&[kind.provider("a", &vendor)], &default, "").await;
    let _host = Host::with(&server, "h1", |tool| tool == "weather").await;
    for model in models {
        for (effort, forces) in EFFORTS {
            vendor.thinks_and_asks("weather", weather("Rome")).says("Sunny.");
            let run = format!("{model}-{}", effort.as_str_name());
            let input = wire::RunInput {
                model: Some(format!("a/{model}")),
                model_options: Some(options(effort, forces)),
                ..in_session(&format!("s-{run}"), &format!("r-{run}"), "weather?")
            };
            completes_with(&server, input).await;
        }
    }
    vendor.requests()
}

/// The number of requests to this model that have this field.
fn with(requests: &[Asked], model: &str, field: &str) -> usize {
    requests.iter().filter(|asked| asked.model == model && asked.body.pointer(field).is_some()).count()
}

#[tokio::test]
async fn of_openai_are_left_out_where_the_model_refuses_them() {
    let models = [
        "gpt-6.2-astra",
        "gpt-6.1-sol",
        "gpt-6-luna",
        "gpt-5.6",
        "gpt-5.5",
        "gpt-5.5-pro",
        "gpt-5.4",
        "gpt-5.1",
        "gpt-5-mini",
        "gpt-5-pro",
        "gpt-4.1",
    ];
    let requests = are_left_out(RESPONSES, &models).await;
    assert_eq!(with(&requests, "gpt-6.1-sol", "/temperature"), 0);
    assert_eq!(with(&requests, "gpt-4.1", "/temperature"), 10, "it takes it");
    assert_eq!(with(&requests, "gpt-5.6", "/temperature"), 2, "it takes it when it does not think");
    assert_eq!(with(&requests, "gpt-5.6", "/tool_choice"), 8, "it must call a tool once");
}

#[tokio::test]
async fn of_anthropic_are_left_out_where_the_model_refuses_them() {
    let models = [
        "claude-haiku-4-5",
        "claude-sonnet-4-5-20250929",
        "claude-opus-4-5",
        "claude-opus-4-6",
        "claude-opus-4-7",
        "claude-opus-5",
        "claude-haiku-5-5",
        "claude-sonnet-5-5",
        "claude-opus-5-5",
        "claude-fable-5",
        "claude-fable-5-2",
    ];
    let requests = are_left_out(MESSAGES, &models).await;
    assert_eq!(with(&requests, "claude-opus-5-5", "/temperature"), 0);
    assert_eq!(with(&requests, "claude-haiku-4-5", "/thinking"), 5, "unless it is to call a tool");
    assert_eq!(with(&requests, "claude-opus-5", "/thinking"), 10);
}

#[tokio::test]
async fn of_google_are_left_out_where_the_model_refuses_them() {
    let models = [
        "gemini-4-argon",
        "gemini-3.8-flash",
        "gemini-3.6-flash",
        "gemini-3.5-flash-lite",
        "gemini-3.1-pro-preview",
        "gemini-2.5-pro",
        "gemini-2.5-flash",
        "gemini-2.0-flash",
    ];
    let requests = are_left_out(GEMINI, &models).await;
    assert_eq!(with(&requests, "gemini-3.8-flash", "/generationConfig/temperature"), 0);
    assert_eq!(with(&requests, "gemini-2.5-flash", "/generationConfig/temperature"), 10);
    assert_eq!(with(&requests, "gemini-2.0-flash", "/generationConfig/thinkingConfig"), 0);
}

/// At Chat Completions the caller's word is sent as it is, since nobody knows whose model it is; the vendor's refusal says
/// which word it was, and is not asked again.
#[tokio::test]
async fn at_chat_completions_are_sent_as_asked_and_refused_once() {
    let kind = Kind { format: Format::Chat, model: "gpt-5.5", other_model: "gpt-5.4", keys: "" };
    let vendor = Vendor::start("a").await;
    let server = TestServer::asking(&[kind.provider("a", &vendor)], "a/gpt-5.5", "").await;
    vendor.expects_refusal();
    let input = wire::RunInput {
        model_options: Some(options(ReasoningEffort::Low, false)),
        ..in_session("s1", "r1", "weather?")
    };
    let result = server.run(input).await;
    let error = result.last_error.clone().expect("why");
    assert_eq!((result.status(), error.http_status), (wire::RunStatus::Failed, 400));
    assert!(error.message.contains("'temperature'"), "{}", error.message);
    assert_eq!(vendor.requests().len(), 1);
}
