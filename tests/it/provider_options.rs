//! Provider options of a request: what the server itself writes into a provider's request is out of their reach.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_invalid;
use agentloop_tests::input::prompt;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;

const FIELD: &str = "input.model_options.provider_options_json";

/// Every field of a provider's request that the contract names as the server's own.
const OF_THE_SERVER: [&str; 42] = [
    "model",
    "messages",
    "input",
    "contents",
    "prompt",
    "system",
    "instructions",
    "system_instruction",
    "tools",
    "tool_choice",
    "tool_config",
    "functions",
    "function_call",
    "mcp_servers",
    "stream",
    "store",
    "previous_response_id",
    "conversation",
    "cached_content",
    "background",
    "models",
    "route",
    "provider",
    "provider_options",
    "fallbacks",
    "preset",
    "plugins",
    "transforms",
    "truncation",
    "context_management",
    "web_search_options",
    "search_parameters",
    "container",
    "data_sources",
    "anthropic_beta",
    "n",
    "candidate_count",
    "stream_options",
    "prompt_cache_retention",
    "inference_geo",
    "debug",
    "chat_template",
];

fn with_options(options: String) -> wire::RunInput {
    let model_options =
        Some(wire::ModelOptions { provider_options_json: Some(options), ..Default::default() });
    wire::RunInput { model_options, ..prompt("hi") }
}

/// The same name as Google and others write it: `toolChoice`.
fn in_camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| text + &word[..1].to_uppercase() + &word[1..])
}

#[tokio::test]
async fn no_field_that_the_server_writes_is_taken() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    for name in OF_THE_SERVER {
        for name in [name.to_owned(), in_camel_case(name), name.to_uppercase()] {
            let options = format!("{{\"service_tier\": \"flex\", \"{name}\": null}}");
            let refused = server.try_run(with_options(options)).await;
            let told = refused.as_ref().err().map(|status| status.message().to_owned()).unwrap_or_default();
            assert!(told.contains(&format!("{name:?}")), "{name}: {refused:?}");
            assert_invalid(refused, &[FIELD]);
        }
    }
    for nested in ["generationConfig\":{\"candidateCount", "extra_body\":{\"google\":{\"cached_content"] {
        let closed = "}".repeat(nested.matches('{').count());
        let refused = server.try_run(with_options(format!("{{\"{nested}\": 2}}{closed}"))).await;
        assert_invalid(refused, &[FIELD]);
    }
    model.says("done");
    let others = "{\"service_tier\": \"flex\", \"modelled\": 1, \"metadata\": {\"model\": \"m\"}}".to_owned();
    server.try_run(with_options(others)).await.expect("other fields are the caller's");
    assert_eq!(model.last_request()["service_tier"], "flex");
    assert_eq!(model.last_request()["metadata"]["model"], "m");
}
