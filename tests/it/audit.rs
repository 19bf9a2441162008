//! The audit log: who did what, from where, and whether it was allowed.

use agentloop_client::Client;
use agentloop_client::v1::{self as wire, decision::Decision};
use agentloop_server::audit::{AuditRow, ChainCheck};
use agentloop_server::store::sqlite::verify_audit_file;
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::Model;
use agentloop_tests::process::eventually;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use agentloop_tests::stored::Stored;
use serde_json::json;
use tonic::Code;

async fn records(client: &Client, filter: wire::AuditFilter) -> Vec<wire::AuditRecord> {
    let request =
        wire::ListAuditRecordsRequest { filter: Some(filter), page_size: 500, ..Default::default() };
    soon(client.list_audit_records(request)).await.expect("listed").records
}

/// The calls with their callers, oldest first: `ada Run` or `bob Run!` for a refused one.
fn told(records: &[wire::AuditRecord]) -> Vec<String> {
    let one = |record: &wire::AuditRecord| {
        let rpc = record.rpc.rsplit('/').next().unwrap_or_default();
        format!("{} {rpc}{}", record.principal, if record.allowed { "" } else { "!" })
    };
    records.iter().rev().map(one).collect()
}

#[tokio::test]
async fn what_changes_something_and_what_is_refused_is_written_once() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let [ada, bob, olga, tools] =
        [("ada", "caller"), ("bob", "caller"), ("olga", "operator"), ("tools", "host")]
            .map(|(name, role)| files.token(name, "local", &[role]));
    let lines = files.path("audit.jsonl");
    let audit = format!("[audit]\nenabled = true\nrequired = true\npath = {lines:?}\n");
    let mut server = TestServer::with(&model, &format!("{}{audit}", files.auth())).await;
    let host = Host::presenting(&server, "host-1", Some(&tools), |tool| tool == "mail").await;
    let tokens = [ada, bob, olga];
    let [ada, bob, olga] = tokens.each_ref().map(|token| server.as_caller(token));
    model.asks("mail", json!({ "to": "the secret friend" })).says("done");
    let waits = soon(ada.run(named("r1", "mail my secret friend"))).await.expect("it asks");
    soon(ada.get_run("r1")).await.expect("it is read");
    let approval = || wire::SubmitApprovalRequest {
        request_id: waits.pending[0].request_id.clone(),
        decision: Some(wire::Decision { decision: Some(Decision::Approve(wire::Approve {})) }),
        ..Default::default()
    };
    let refused = soon(ada.submit_approval(approval())).await.expect_err("a caller decides nothing");
    assert_eq!(refused.code(), Some(Code::PermissionDenied));
    let hidden = soon(bob.get_run("r1")).await.expect_err("it is another's");
    assert_eq!(hidden.code(), Some(Code::NotFound));
    soon(olga.submit_approval(approval())).await.expect("she approves");
    let wrong = server.client_builder().token("agt_000000000000_x").build().expect("a client");
    soon(wrong.get_run("r1")).await.expect_err("nobody knows it");
    soon(ada.run(named("r1", "mail my secret friend"))).await.expect("it ends");
    model.says("done");
    soon(ada.run(in_session("new", "r2", "hi"))).await.expect("it ends");
    soon(ada.put_blob(&b"a secret"[..], "text/plain")).await.expect("it is stored");
    host.leave().await;
    server.restart().await;
    // It has another address.
    let [ada, _, olga] = tokens.each_ref().map(|token| server.as_caller(token));

    let all = records(&olga, wire::AuditFilter::default()).await;
    let (mut told, mut expected) = (
        told(&all),
        vec![
            "tools Connect",
            "ada Run",
            "ada SubmitApproval!",
            "bob GetRun!",
            "olga SubmitApproval",
            " GetRun!",
            "ada Run",
            "ada Run",
            "ada PutBlob",
        ],
    );
    told.sort_unstable();
    expected.sort_unstable();
    assert_eq!(told, expected);
    let of = |who: &str, rpc: &str| {
        let found = all.iter().find(|record| record.principal == who && record.rpc.ends_with(rpc));
        found.expect("it is written").clone()
    };
    let decided = of("olga", "SubmitApproval");
    assert_eq!((decided.run_id.as_str(), decided.request_id.as_str()), ("r1", "r1:1.0:0"));
    assert_eq!(decided.rpc, "AgentLoop/SubmitApproval");
    assert!(decided.peer.starts_with("127.0.0.1:"), "{decided:?}");
    assert_eq!(of("bob", "GetRun").reason, "the run is another caller's");
    assert_eq!(of("", "GetRun").reason, "unknown token");
    let is_start =
        |row: &&wire::AuditRecord| row.principal == "ada" && row.run_id == "r1" && row.rpc.ends_with("/Run");
    let run = all.iter().rev().find(is_start).expect("its start is written with its run");
    assert!(!run.session_id.is_empty(), "{run:?}");
    let r2 = all.iter().find(|row| row.session_id == "new").expect("a new session is written with its run");
    assert_eq!(r2.run_id, "r2");
    assert!(!format!("{all:?}").contains("secret"), "no prompt and no argument is there");

    let denied = wire::AuditFilter { denied: true, ..Default::default() };
    assert_eq!(records(&olga, denied).await.len(), 3);
    let of_run =
        wire::AuditFilter { run_id: "r1".to_owned(), rpc: "submit".to_owned(), ..Default::default() };
    assert_eq!(records(&olga, of_run).await.len(), 1);
    let checked = soon(olga.verify_audit()).await.expect("checked");
    assert_eq!((checked.broken_no, checked.records), (0, 9));
    let refused = soon(ada.verify_audit()).await.expect_err("only operators may");
    assert_eq!(refused.code(), Some(Code::PermissionDenied));

    server.stop().await;
    let text = std::fs::read_to_string(lines).expect("the lines are there");
    let mut check = ChainCheck::default();
    for line in text.lines() {
        check.check(&serde_json::from_str::<AuditRow>(line).expect("a row")).expect("it is whole");
    }
    let verdict = check.verdict();
    assert!(verdict.rows >= 9);
    if let Stored::File(path) = server.stored() {
        let offline = verify_audit_file(path).await.expect("it is read").expect("it is whole");
        assert_eq!(verdict.hash, offline.hash, "the file has what the table has");
    }
}

#[tokio::test]
async fn a_flood_of_refusals_is_counted_and_does_not_fill_the_disk() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let olga = files.token("olga", "local", &["operator"]);
    let server = TestServer::with(&model, &format!("{}[audit]\nenabled = true\n", files.auth())).await;
    let nobody = server.client_builder().build().expect("a client");
    for _ in 0..400 {
        soon(nobody.get_run("r1")).await.expect_err("nobody is let in");
    }
    let olga = server.as_caller(&olga);
    let summary = async {
        loop {
            let found = records(&olga, wire::AuditFilter { denied: true, ..Default::default() }).await;
            if let Some(counted) = found.iter().find(|record| record.rpc == "refused calls") {
                return (found.len(), counted.reason.clone());
            }
            tokio::task::yield_now().await;
        }
    };
    let (rows, reason) = soon(summary).await;
    assert!(rows < 300, "{rows}");
    assert!(reason.contains("more refused calls: missing"), "{reason}");
}

#[tokio::test]
async fn a_quota_that_is_used_up_an_expired_token_and_a_file_that_is_not_used_are_written() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let [ada, olga] =
        [("ada", "caller"), ("olga", "operator")].map(|(name, role)| files.token(name, "local", &[role]));
    let expired = files.host_token("harry", "local", |record| {
        record.expires = Some("2020-01-01T00:00:00Z".to_owned());
    });
    let more = format!("{}[audit]\nenabled = true\n[quotas]\nsessions = 1\n", files.auth());
    let server = TestServer::with(&model, &more).await;
    let [ada, olga, harry] = [&ada, &olga, &expired].map(|token| server.as_caller(token));
    let new = wire::CreateSessionRequest::default;
    soon(ada.create_session(new())).await.expect("there is room");
    soon(ada.create_session(new())).await.expect_err("there is no room");
    soon(harry.server_info()).await.expect_err("his token has expired");
    files.write("tokens.toml", "nonsense");
    server.reload().await;
    server.reload().await;
    let rows = eventually("the rows", || async {
        let rows = records(&olga, wire::AuditFilter { denied: true, ..Default::default() }).await;
        (rows.len() >= 3).then_some(rows)
    })
    .await;
    let mut told: Vec<(&str, &str)> =
        rows.iter().map(|row| (row.principal.as_str(), row.rpc.as_str())).collect();
    told.sort_unstable();
    let expected =
        [("", "reload tokens"), ("ada", "Sessions/CreateSession"), ("harry", "Server/GetServerInfo")];
    assert_eq!(told, expected, "each problem of a file stands once");
    let why = |principal: &str| {
        let row = rows.iter().find(|row| row.principal == principal).expect("it is written");
        row.reason.clone()
    };
    let id = expired.split('_').nth(1).expect("a token");
    assert_eq!(why("harry"), format!("expired token {id}"));
    assert!(why("ada").contains("sessions") && why("").contains("tokens.toml"), "{rows:?}");
    assert!(!format!("{rows:?}").contains(&expired));
}

#[tokio::test]
async fn operators_see_the_rows_of_their_tenant() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let tokens = [("olga", "apple"), ("omar", "banana")]
        .map(|(name, tenant)| (tenant, files.token(name, tenant, &["operator"])));
    let server = TestServer::with(&model, &format!("{}[audit]\nenabled = true\n", files.auth())).await;
    let callers = tokens.each_ref().map(|(tenant, token)| (*tenant, server.as_caller(token)));
    for (_, caller) in &callers {
        model.says("done");
        soon(caller.run(named("r1", "hi"))).await.expect("it ends");
    }
    for (tenant, caller) in &callers {
        let rows = records(caller, wire::AuditFilter::default()).await;
        assert!(!rows.is_empty() && rows.iter().all(|row| row.tenant == *tenant), "{rows:?}");
    }
}
