//! Tokens of pages are good for the list that gave them.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_invalid;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

fn page(page_token: &str, agent: &str) -> wire::ListRunsRequest {
    let filter = wire::RunFilter { agents: vec![agent.to_owned()], ..Default::default() };
    let page_token = page_token.to_owned();
    wire::ListRunsRequest { page_size: 1, page_token, filter: Some(filter), ..Default::default() }
}

#[tokio::test]
async fn a_token_is_refused_by_another_list_and_under_another_filter() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    for run in ["r1", "r2", "r3"] {
        model.says("fine");
        server.run(named(run, "hi")).await;
    }
    let mut client = server.agent_loop();
    let first = soon(client.list_runs(page("", "default"))).await.expect("listed").into_inner();
    assert_eq!(first.runs[0].run_id, "r3");
    let token = first.next_page_token;
    // The size of the page may change on the way.
    let rest = wire::ListRunsRequest { page_size: 2, ..page(&token, "default") };
    let rest = soon(client.list_runs(rest)).await.expect("listed").into_inner();
    assert_eq!(rest.runs.iter().map(|run| run.run_id.as_str()).collect::<Vec<_>>(), ["r2", "r1"]);

    assert_invalid(soon(client.list_runs(page(&token, "other"))).await, &["page_token"]);
    let pending = wire::ListPendingRequest { page_token: token.clone(), ..Default::default() };
    assert_invalid(soon(client.list_pending(pending)).await, &["page_token"]);
    let tools = wire::ListToolsRequest { page_token: token.clone(), ..Default::default() };
    assert_invalid(soon(server.tools().list_tools(tools)).await, &["page_token"]);
    let hosts = wire::ListHostsRequest { page_token: token.clone(), ..Default::default() };
    assert_invalid(soon(server.tools().list_hosts(hosts)).await, &["page_token"]);
    // Nor is one that somebody has changed.
    let plain = URL_SAFE_NO_PAD.decode(&token).expect("it is encoded");
    for forged in [&plain[..], &plain[1..], b"0123456789ab99999999999999:r1"] {
        let forged = [URL_SAFE_NO_PAD.encode(forged), "A".to_owned()].concat();
        assert_invalid(soon(client.list_runs(page(&forged, "default"))).await, &["page_token"]);
    }
}

#[tokio::test]
async fn a_list_goes_on_after_a_restart() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    for run in ["r1", "r2"] {
        model.says("fine");
        server.run(named(run, "hi")).await;
    }
    let first = soon(server.agent_loop().list_runs(page("", "default"))).await.expect("listed").into_inner();
    server.restart().await;
    let rest = page(&first.next_page_token, "default");
    let rest = soon(server.agent_loop().list_runs(rest)).await.expect("listed").into_inner();
    assert_eq!(rest.runs.iter().map(|run| run.run_id.as_str()).collect::<Vec<_>>(), ["r1"]);
}
