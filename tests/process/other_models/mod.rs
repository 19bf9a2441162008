//! Model servers that others wrote: what we take for a provider's format is what they take for it.

mod aimock;
mod llmock;

use std::path::Path;

use agentloop_client::v1::RunErrorCode;
use agentloop_client::v1::run_event::Event;
use agentloop_tests::vendor::Format;
use serde_json::json;

use crate::support::follow::Follower;
use crate::support::server::{Server, Setting};

/// A server that asks at this URL in this format.
async fn server_at(url: &str, format: Format, dir: &Path) -> Server {
    let key = dir.join("key");
    std::fs::write(&key, "none").expect("written");
    let (kind, key) = (format.kind(), json!(key));
    let provider = format!("kind = \"{kind}\"\nbase_url = \"{url}\"\napi_key_file = {key}\n");
    Server::start(&Setting { provider, max_parallel: 2, ..Setting::default() }).await
}

/// The calls of the model that failed, in order.
fn failures(run: &Follower) -> Vec<RunErrorCode> {
    let failure = |event: &Event| match event {
        Event::ModelCallFailed(failed) => failed.error.as_ref().map(|error| error.code()),
        _ => None,
    };
    run.seen.iter().filter_map(|event| event.event.as_ref().and_then(failure)).collect()
}
