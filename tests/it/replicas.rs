//! Replicas in the test's process, with tools of the embedder. Left out without a database, in one line.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentloop_client::v1 as wire;
use agentloop_core::run::input::CallOutcome;
use agentloop_core::tool::EffectClass;
use agentloop_server::app::{ReplicaServer, Server};
use agentloop_server::config::Config;
use agentloop_server::engine::{ToolExecution, ToolExecutor};
use agentloop_tests::events::{Events, results};
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::own_tool::own_tool;
use agentloop_tests::owners::Owners;
use agentloop_tests::{postgres, soon};
use serde_json::json;
use tokio::sync::Notify;
use tonic::transport::Endpoint;
use wire::agent_loop_client::AgentLoopClient;
use wire::{RunStatus, ToolStatus};

/// Opens a gate when it is told to.
#[derive(Clone, Default)]
struct Gate {
    calls: Arc<AtomicUsize>,
    began: Arc<Notify>,
    may_end: Arc<Notify>,
}

#[async_trait::async_trait]
impl ToolExecutor for Gate {
    async fn run(&self, _call: ToolExecution) -> CallOutcome {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.began.notify_one();
        self.may_end.notified().await;
        CallOutcome::Succeeded {
            output: "open".to_owned(),
            images: Vec::new(),
            attachments: Default::default(),
        }
    }
}

impl Gate {
    /// A replica over this database, with the tool.
    async fn join(&self, url: &str, model: &Model) -> ReplicaServer {
        let config = format!(
            r#"
[server]
listen = "127.0.0.1:0"
[store]
url = "{url}"
[cluster]
listen = "127.0.0.1:0"
[providers.fake]
kind = "openai"
base_url = "{}"
[agents.default]
model = "fake/m"
"#,
            model.base_url()
        );
        let config = Config::parse(&config, "test.toml").expect("the configuration is right");
        let gate = own_tool("gate", EffectClass::Unsafe, &json!({ "type": "object" }));
        let builder = Server::builder(config).tool(gate, Arc::new(self.clone()));
        soon(Box::pin(builder.start_replica())).await.expect("the replica starts")
    }
}

/// A session in one of the shards that a replica gives away first: those with the highest numbers.
fn session_to_move() -> String {
    let mut names = (0..).map(|number| format!("s-{number}"));
    names.find(|name| Owners::shard(name).0 > 1_000).expect("there is one")
}

#[tokio::test]
async fn a_tool_in_the_process_of_a_replica_ends_although_another_replica_joins() {
    let Some(url) = postgres::url() else {
        println!("not tested: replicas, because AGENTLOOP_TEST_POSTGRES names no database");
        return;
    };
    let url = postgres::in_new_schema(url);
    let (model, gate) = (Model::start().await, Gate::default());
    model.asks("gate", json!({})).says("It is open.");
    let first = gate.join(&url, &model).await;
    let mut owners = Owners::of(&url).await;
    soon(owners.shared_by(1)).await;
    let url_of_first = format!("http://{}", first.address());
    let endpoint = Endpoint::from_shared(url_of_first).expect("a good address");
    let mut client = AgentLoopClient::new(endpoint.connect_lazy());
    let input = in_session(&session_to_move(), "r-1", "Open the gate");
    let request = wire::RunStreamRequest { input: Some(input), after_seq: 0 };
    let events = Events::of_run(soon(client.run_stream(request)).await.expect("the call succeeds"));
    soon(gate.began.notified()).await;

    let second = gate.join(&url, &model).await;
    soon(owners.shared_by(2)).await;
    gate.may_end.notify_one();

    let events = events.rest().await;
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Completed), "{events:?}");
    let results = results(&events);
    assert_eq!((results[0].status(), &*results[0].output), (ToolStatus::Succeeded, "open"));
    assert_eq!(gate.calls.load(Ordering::Relaxed), 1);
    soon(owners.shared_by(2)).await;
    soon(second.shutdown()).await;
    soon(first.shutdown()).await;
}
