//! `GetUsage`: what runs have used, and who sees it.

use std::collections::HashMap;

use agentloop_client::v1 as wire;
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::errors::assert_invalid;
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use wire::{RunStatus, UsageGroup};

const PRICED: &str = "
[agents.priced]
model = \"fake/priced\"
retry = { initial_backoff = \"1ms\" }
[providers.fake.models.priced]
prices = { input = 1.0, output = 2.0 }
";

async fn usage(server: &TestServer, request: wire::GetUsageRequest) -> Vec<wire::UsageRow> {
    soon(server.server_service().get_usage(request)).await.expect("it adds up").into_inner().rows
}

fn by(groups: &[UsageGroup]) -> wire::GetUsageRequest {
    wire::GetUsageRequest {
        group_by: groups.iter().map(|group| (*group).into()).collect(),
        // One bucket for whatever the test takes.
        bucket: Some(prost_types::Duration { seconds: 366 * 86_400, nanos: 0 }),
        ..Default::default()
    }
}

fn of_team(team: &str, run: &str) -> wire::RunInput {
    let labels = HashMap::from([("team".to_owned(), team.to_owned())]);
    wire::RunInput { labels: labels.into_iter().collect(), ..in_session(team, run, "go") }
}

/// A run of the agent `priced` with a tool call, a failed attempt and an answer, and one of `default` that fails.
async fn busy(server: &TestServer, model: &Model) {
    let _host = Host::start(server).await;
    let busy = Answer::Fails(503, None, "busy".to_owned());
    model.asks("weather", json!({ "city": "Rome" })).then(busy).says("sunny");
    let priced = wire::RunInput { agent: Some("priced".to_owned()), ..of_team("a", "r1") };
    assert_eq!(server.run(priced).await.status(), RunStatus::Completed);
    model.then(Answer::Fails(400, None, "no".to_owned()));
    assert_eq!(server.run(of_team("b", "r2")).await.status(), RunStatus::Failed);
}

#[tokio::test]
async fn is_added_up_by_group_and_outlives_restarts_and_sessions() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, PRICED).await;
    busy(&server, &model).await;
    let request = by(&[UsageGroup::Agent, UsageGroup::Model]);
    let found = usage(&server, request.clone()).await;
    let [default, priced] = &found[..] else { panic!("two agents: {found:#?}") };
    assert_eq!((priced.agent.as_str(), priced.model.as_str()), ("priced", "fake/priced"));
    assert_eq!((priced.runs, priced.model_calls, priced.failed_model_attempts), (1, 2, 1));
    assert_eq!((priced.tool_calls, priced.failed_tool_calls, priced.model_calls_without_price), (1, 0, 0));
    let used = priced.usage.expect("usage");
    assert_eq!(Some(used), server.get_run("r1").await.usage);
    assert!(used.cost_micros > 0 && used.input_tokens == 20, "{used:?}");
    assert_eq!((default.runs, default.model_calls, default.failed_model_attempts), (1, 0, 1));
    assert_eq!(
        default.run_errors,
        HashMap::from([("MODEL_BAD_REQUEST".to_owned(), 1)]).into_iter().collect()
    );

    server.restart().await;
    assert_eq!(usage(&server, request.clone()).await, found);
    for session in ["a", "b"] {
        let request = wire::DeleteSessionRequest { session_id: session.to_owned() };
        assert!(soon(server.sessions().delete_session(request)).await.expect("deleted").into_inner().existed);
    }
    assert_eq!(usage(&server, request.clone()).await, found, "an account keeps what was used");
    server.restart().await;
    assert_eq!(usage(&server, request).await, found);
}

#[tokio::test]
async fn is_filtered_and_kept_apart_by_label() {
    let model = Model::start().await;
    let server = TestServer::with(&model, PRICED).await;
    busy(&server, &model).await;
    model.says("hello");
    server.run(named("r3", "no team")).await;
    let request = wire::GetUsageRequest { label_key: "team".to_owned(), ..by(&[UsageGroup::Label]) };
    let rows = usage(&server, request.clone()).await;
    let teams: Vec<_> = rows.iter().map(|row| (row.label_value.as_str(), row.model_calls)).collect();
    assert_eq!(teams, [("", 1), ("a", 2), ("b", 0)]);
    assert_eq!(rows[0].model_calls_without_price, 1, "cost is never guessed");
    let labels = HashMap::from([("team".to_owned(), "a".to_owned())]).into_iter().collect();
    let of_a = usage(&server, wire::GetUsageRequest { labels, ..by(&[]) }).await;
    assert_eq!((of_a.len(), of_a[0].runs), (1, 1));
    let of_model = wire::GetUsageRequest { model: "fake/m".to_owned(), ..by(&[]) };
    assert_eq!(usage(&server, of_model).await[0].runs, 2);
    let none = wire::GetUsageRequest { agent: "nobody".to_owned(), ..by(&[]) };
    assert_eq!(usage(&server, none).await, []);
    // Without anything, the last 24 hours by the hour, up to the hour that is under way.
    let day = usage(&server, wire::GetUsageRequest::default()).await;
    assert_eq!(day.iter().map(|row| row.runs).sum::<u64>(), 3);
    assert!(day.iter().all(|row| row.start.is_some_and(|start| start.seconds % 3_600 == 0)), "{day:?}");
    let label = wire::GetUsageRequest { label_key: String::new(), ..request };
    let refused = soon(server.server_service().get_usage(label)).await;
    assert_invalid(refused, &["label_key"]);
}

#[tokio::test]
async fn a_caller_sees_what_it_used_and_a_viewer_what_all_did() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let tokens = [("ada", "caller"), ("bob", "caller"), ("eve", "viewer")]
        .map(|(name, role)| files.token(name, "local", &[role]));
    let other = files.token("zoe", "other", &["operator"]);
    let server = TestServer::with(&model, &files.auth()).await;
    let [ada, bob, eve] = tokens.map(|token| server.as_caller(&token));
    let zoe = server.as_caller(&other);
    for (client, runs) in [(&ada, 2), (&bob, 1)] {
        for _ in 0..runs {
            model.says("hello");
            soon(client.run(agentloop_tests::input::prompt("hi"))).await.expect("it runs");
        }
    }
    let request = by(&[UsageGroup::CreatedBy]);
    let seen = async |client: &agentloop_client::Client| {
        let rows = soon(client.get_usage(request.clone())).await.expect("it adds up").rows;
        rows.into_iter().map(|row| (row.created_by, row.runs)).collect::<Vec<_>>()
    };
    let both = [("ada".to_owned(), 2), ("bob".to_owned(), 1)];
    assert_eq!(seen(&eve).await, both);
    assert_eq!(seen(&ada).await, both[..1]);
    assert_eq!(seen(&bob).await, both[1..]);
    assert_eq!(seen(&zoe).await, []);
}
