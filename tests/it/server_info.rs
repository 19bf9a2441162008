//! A server's facts about itself: `GetServerInfo` and `ListAgents`.

use agentloop_client::v1 as wire;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use agentloop_tests::stored::Stored;

const AGENTS: &str = r#"
[agents.reviewer]
description = "Reviews a change."
model = "fake/priced"
system_prompt = "A secret of the house."
tools = ["read_file", "grep"]
tool_policy = { allow_list = ["grep", "write_file"] }
limits = { max_iterations = 3, max_cost_micros = 5 }
[providers.fake.models.priced]
context_window = 1000
prices = { input = 1.0, output = 2.0 }
"#;

#[tokio::test]
async fn a_server_says_what_it_is_and_can_do() {
    let model = Model::start().await;
    let server = TestServer::with_server(&model, "max_live_runs = 7").await;
    let request = wire::GetServerInfoRequest {};
    let info = soon(server.server_service().get_server_info(request)).await.expect("it says").into_inner();
    let store = match server.stored() {
        Stored::File(_) => "sqlite",
        Stored::Postgres(_) => "postgresql",
    };
    assert_eq!((info.version.as_str(), info.store.as_str()), (env!("CARGO_PKG_VERSION"), store));
    assert!(info.started_at.is_some());
    assert!(info.features.iter().any(|feature| feature == "server_info"), "{:?}", info.features);
    let limits = info.limits.expect("limits");
    assert_eq!((limits.live_runs_max, limits.message_bytes_max), (7, 4 * 1024 * 1024));
    assert!(limits.live_bytes_max > 0 && limits.queued_runs_max > 0 && limits.hosts_max > 0);
    let nobody = wire::Caller { tenant: "local".to_owned(), ..wire::Caller::default() };
    assert_eq!((info.caller, info.caller_roles.len()), (Some(nobody), 0));
    assert!(!info.authentication_required);
}

#[tokio::test]
async fn the_bounds_of_retention_are_told_each_by_itself() {
    let model = Model::start().await;
    for (keys, age, sessions) in
        [("max_age = \"48h\"", Some(48 * 3_600), None), ("max_sessions = 5", None, Some(5))]
    {
        let server = TestServer::with(&model, &format!("[retention]\n{keys}\n")).await;
        let asked = server.server_service().get_server_info(wire::GetServerInfoRequest {}).await;
        let info = asked.expect("it says").into_inner();
        assert_eq!((info.retention.map(|age| age.seconds), info.retained_sessions_max), (age, sessions));
    }
}

#[tokio::test]
async fn providers_are_listed_with_the_models_that_are_configured() {
    let model = Model::start().await;
    let server = TestServer::with(&model, AGENTS).await;
    let request = wire::GetServerInfoRequest {};
    let info = soon(server.server_service().get_server_info(request)).await.expect("it says").into_inner();
    let [fake] = info.providers.as_slice() else { panic!("{:?}", info.providers) };
    assert_eq!(fake.name, "fake");
    assert!(fake.models.contains(&"fake/priced".to_owned()), "{fake:?}");
    assert!(info.features.iter().any(|feature| feature == "model_providers"), "{:?}", info.features);
}

#[tokio::test]
async fn agents_are_listed_without_their_prompts() {
    let model = Model::start().await;
    let server = TestServer::with(&model, AGENTS).await;
    let request = wire::ListAgentsRequest {};
    let answer = soon(server.server_service().list_agents(request)).await.expect("it lists").into_inner();
    assert!(!format!("{answer:?}").contains("secret of the house"));
    let [default, reviewer] = answer.agents.as_slice() else { panic!("{answer:?}") };
    assert_eq!((default.name.as_str(), default.model.as_str()), ("default", "fake/m"));
    assert_eq!((&default.allow_list, default.cost_known, default.context_window), (&None, false, 0));
    assert_eq!((reviewer.name.as_str(), reviewer.model.as_str()), ("reviewer", "fake/priced"));
    assert_eq!(reviewer.description, "Reviews a change.");
    assert_eq!(reviewer.allow_list.as_ref().map(|list| list.names.clone()), Some(vec!["grep".to_owned()]));
    let limits = reviewer.loop_limits.expect("limits");
    assert_eq!((limits.max_iterations, limits.max_cost_micros), (Some(3), Some(5)));
    assert_eq!((reviewer.cost_known, reviewer.context_window), (true, 1000));
}
