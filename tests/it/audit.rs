//! The audit log: who did what, from where, and whether it was allowed.

use std::collections::BTreeSet;

use agentloop_client::v1::{self as wire, decision::Decision};
use agentloop_client::{Client, Error};
use agentloop_server::audit::{AuditRow, ChainCheck, ChainOutcome};
use agentloop_server::store::sqlite::verify_audit_file;
use agentloop_tests::credentials::{Authority, SecurityFiles};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::Model;
use agentloop_tests::process::eventually;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use agentloop_tests::stored::Stored;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
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
    let known = soon(olga.verify_audit_knowing(&checked.last_hash)).await.expect("checked");
    assert!(known.broken_no == 0 && known.known_hash_found && !checked.known_hash_found, "{known:?}");
    let refused = soon(ada.verify_audit()).await.expect_err("only operators may");
    assert_eq!(refused.code(), Some(Code::PermissionDenied));

    server.stop().await;
    let text = std::fs::read_to_string(lines).expect("the lines are there");
    let mut check = ChainCheck::default();
    for line in text.lines() {
        check.check(&serde_json::from_str::<AuditRow>(line).expect("a row")).expect("it is whole");
    }
    let verdict = check.verdict().expect("it is whole");
    assert!(verdict.rows >= 9);
    if let Stored::File(path) = server.stored() {
        let ChainOutcome::Whole(offline) = verify_audit_file(path, &verdict.hash).await.expect("it is read")
        else {
            panic!("it is whole")
        };
        assert_eq!(verdict.hash, offline.hash, "the file has what the table has");
    }
}

#[tokio::test]
async fn rows_that_are_cut_off_at_the_end_are_noticed_by_a_hash_that_was_kept() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let olga = files.token("olga", "local", &["operator"]);
    let mut server = TestServer::with(&model, &format!("{}[audit]\nenabled = true\n", files.auth())).await;
    for _ in 0..3 {
        let new = wire::CreateSessionRequest::default();
        soon(server.as_caller(&olga).create_session(new)).await.expect("it is made");
    }
    let kept = soon(server.as_caller(&olga).verify_audit()).await.expect("checked");
    assert_eq!((kept.broken_no, kept.last_no), (0, 3));
    assert_eq!(server.change_stored("DELETE FROM audit WHERE no = 3").await, 1);
    let olga = server.as_caller(&olga);
    assert_eq!(soon(olga.verify_audit()).await.expect("checked").broken_no, 0, "no link is broken");
    let known = soon(olga.verify_audit_knowing(&kept.last_hash)).await.expect("checked");
    assert_eq!((known.broken_no, known.known_hash_found), (3, false));
    assert!(known.problem.contains("cut off"), "{known:?}");
    let mistyped = soon(olga.verify_audit_knowing("zz")).await.expect_err("it is no hash");
    assert_eq!(mistyped.code(), Some(Code::InvalidArgument));
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

#[tokio::test]
async fn a_connection_that_is_not_accepted_is_written_with_its_address_and_cause() {
    let (model, authority, files) = (Model::start().await, Authority::new(), SecurityFiles::new());
    files.write_identity(&authority.server());
    files.write("ca.pem", &authority.root());
    let olga = files.token("olga", "local", &["operator"]);
    let tls = format!(
        "client_ca = {:?}\nclient_auth = \"required\"\nallowed_subjects = [\"CN=olga\"]\nhandshake_timeout = \"2s\"",
        files.path("ca.pem")
    );
    let more = format!("{}{}[audit]\nenabled = true\n", files.tls(&tls), files.auth());
    let server = TestServer::with(&model, &more).await;
    let address = server.url().trim_start_matches("https://").to_owned();
    // A probe of the port tries nothing.
    drop(soon(TcpStream::connect(&address)).await.expect("it listens"));
    let mut plain = soon(TcpStream::connect(&address)).await.expect("it listens");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("it is sent");
    let plain = plain.local_addr().expect("an address");
    let _half_open = soon(TcpStream::connect(&address)).await.expect("it listens");
    let client = || server.client_builder().tls_ca(authority.root());
    let presenting = |identity: agentloop_tests::credentials::Identity| {
        client().tls_identity(identity.certificate, identity.key)
    };
    for refused in [
        client(),
        presenting(Authority::new().client("olga")),
        presenting(authority.client_until("olga", 1_000_000_000)),
        presenting(authority.client("bob")),
    ] {
        soon(refused.build().expect("a client").server_info()).await.expect_err("it is not accepted");
    }
    let olga = presenting(authority.client("olga")).token(olga).build().expect("a client");
    let causes = [
        "corrupt message",
        "not completed in time",
        "no certificates",
        "invalid peer certificate",
        "expired",
        "none of allowed_subjects",
    ];
    let rows = eventually("a row of each cause", || async {
        let filter =
            wire::AuditFilter { denied: true, rpc: "TLS handshake".to_owned(), ..Default::default() };
        let rows = records(&olga, filter).await;
        let has = |cause: &&str| rows.iter().any(|row| row.reason.to_lowercase().contains(*cause));
        causes.iter().all(has).then_some(rows)
    })
    .await;
    for row in &rows {
        let known = [&row.principal, &row.tenant].map(String::as_str);
        assert_eq!((known, row.peer.starts_with("127.0.0.1:")), (["", ""], true), "{row:?}");
        assert!(!row.reason.contains("has sent nothing"), "{row:?}");
    }
    let of_plain = rows.iter().find(|row| row.reason.contains("corrupt message")).expect("it is written");
    assert_eq!(of_plain.peer, plain.to_string());
}

#[tokio::test]
async fn what_another_tenant_has_is_written_as_not_there_and_tells_nothing_of_it() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let [olga, omar, tools] =
        [("olga", "apple", "operator"), ("omar", "banana", "operator"), ("tools", "apple", "host")]
            .map(|(name, tenant, role)| files.token(name, tenant, &[role]));
    let server = TestServer::with(&model, &format!("{}[audit]\nenabled = true\n", files.auth())).await;
    let _host = Host::presenting(&server, "host-1", Some(&tools), |tool| tool == "mail").await;
    let [olga, omar] = [&olga, &omar].map(|token| server.as_caller(token));
    model.asks("mail", json!({ "to": "bob" }));
    let waits = soon(olga.run(in_session("s1", "r1", "mail bob"))).await.expect("it asks");
    let question = waits.pending[0].request_id.clone();
    let of_olga = records(&olga, wire::AuditFilter::default()).await;

    let approval = wire::SubmitApprovalRequest {
        request_id: question.clone(),
        decision: Some(wire::Decision { decision: Some(Decision::Approve(wire::Approve {})) }),
        ..Default::default()
    };
    let answer = wire::SubmitInputRequest {
        request_id: question.clone(),
        input: Some(wire::submit_input_request::Input::Text("yes".to_owned())),
        ..Default::default()
    };
    let resume = wire::ResumeRunRequest { run_id: "r1".to_owned(), ..Default::default() };
    let step =
        wire::StepRequest { run_id: "r1".to_owned(), request_id: "step-1".to_owned(), ..Default::default() };
    let join = wire::RunInput { run_id: Some("r1".to_owned()), ..Default::default() };
    let update = wire::UpdateSessionRequest {
        session_id: "s1".to_owned(),
        title: Some("mine".to_owned()),
        ..Default::default()
    };
    let fork = wire::ForkSessionRequest { session_id: "s1".to_owned(), ..Default::default() };
    let into_that = wire::RunInput { auto_create_session: Some(false), ..in_session("s1", "r9", "hi") };
    let mut steps = omar.agent_loop();
    let answers: Vec<Result<(), Error>> = vec![
        soon(omar.submit_approval(approval)).await.map(drop),
        soon(omar.submit_input(answer)).await.map(drop),
        soon(omar.abort_run("r1", "")).await.map(drop),
        soon(omar.abort_session("s1", "")).await.map(drop),
        soon(omar.resume_run(resume)).await.map(drop),
        soon(steps.step(step)).await.map(drop).map_err(Error::from),
        soon(omar.run(join)).await.map(drop),
        soon(omar.update_session(update)).await.map(drop),
        soon(omar.fork_session(fork)).await.map(drop),
        soon(omar.run(into_that)).await.map(drop),
    ];
    for answer in &answers {
        let code = answer.as_ref().err().and_then(Error::code);
        assert_eq!(code, Some(Code::NotFound), "{answers:?}");
    }
    assert!(!soon(omar.delete_session("s1")).await.expect("it is confirmed"));
    assert!(!soon(omar.delete_rule("rule-1")).await.expect("it is confirmed"));
    assert!(!soon(omar.forget_tool("mail")).await.expect("it is confirmed"));

    let rows = records(&omar, wire::AuditFilter { denied: true, ..Default::default() }).await;
    let told: Vec<[&str; 4]> = rows
        .iter()
        .rev()
        .map(|row| [&row.rpc, &row.run_id, &row.session_id, &row.request_id].map(String::as_str))
        .collect();
    let expected = [
        ["AgentLoop/SubmitApproval", "r1", "", question.as_str()],
        ["AgentLoop/SubmitInput", "r1", "", question.as_str()],
        ["AgentLoop/Abort", "r1", "", ""],
        ["AgentLoop/Abort", "", "s1", ""],
    ];
    assert_eq!(told[..expected.len()], expected, "{rows:?}");
    let calls: Vec<(&str, &str, &str)> =
        told[expected.len()..].iter().map(|[rpc, run, session, _]| (*rpc, *run, *session)).collect();
    let expected = [
        ("AgentLoop/ResumeRun", "r1", ""),
        ("AgentLoop/Step", "r1", ""),
        ("AgentLoop/Run", "r1", ""),
        ("Sessions/UpdateSession", "", "s1"),
        ("Sessions/ForkSession", "", "s1"),
        ("AgentLoop/Run", "r9", "s1"),
        ("Sessions/DeleteSession", "", "s1"),
        ("Tools/DeleteRule", "", ""),
        ("Tools/ForgetTool", "", ""),
    ];
    assert_eq!(calls, expected, "{rows:?}");
    let reasons: BTreeSet<&str> = rows.iter().map(|row| row.reason.as_str()).collect();
    let expected = ["no such question", "no such rule", "no such run", "no such session", "no such tool"];
    assert_eq!(reasons, BTreeSet::from(expected));
    let named = |request: &str, tool: &str| {
        rows.iter().filter(|row| row.request_id == request && row.tool == tool).count()
    };
    assert_eq!([named("rule-1", ""), named("", "mail")], [1, 1], "{rows:?}");
    let text = format!("{rows:?}");
    assert!(!text.contains("apple") && !text.contains("olga"), "{text}");
    assert_eq!(records(&olga, wire::AuditFilter::default()).await, of_olga, "her log is as it was");
}

#[tokio::test]
async fn the_row_of_a_refused_run_names_what_another_caller_has() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let [ada, bob, olga] = [("ada", "caller"), ("bob", "caller"), ("olga", "operator")]
        .map(|(name, role)| files.token(name, "local", &[role]));
    let server = TestServer::with(&model, &format!("{}[audit]\nenabled = true\n", files.auth())).await;
    let [ada, bob, olga] = [&ada, &bob, &olga].map(|token| server.as_caller(token));
    model.says("done");
    soon(ada.run(in_session("s1", "r1", "hi"))).await.expect("it ends");
    let join = wire::RunInput { run_id: Some("r1".to_owned()), ..Default::default() };
    for refused in [in_session("s1", "r2", "hi"), join] {
        let refused = soon(bob.run(refused)).await.expect_err("it is ada's");
        assert_eq!(refused.code(), Some(Code::NotFound));
    }
    let rows = records(&olga, wire::AuditFilter { denied: true, ..Default::default() }).await;
    let told: BTreeSet<[&str; 3]> =
        rows.iter().map(|row| [&row.run_id, &row.session_id, &row.reason].map(String::as_str)).collect();
    assert_eq!(
        told,
        BTreeSet::from([
            ["r2", "s1", "the session is another caller's"],
            ["r1", "", "the run is another caller's"],
        ])
    );
}

#[tokio::test]
async fn a_row_about_a_question_has_its_session_and_tool_also_where_it_is_refused() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let [ada, ann, olga, tools] =
        [("ada", "caller"), ("ann", "approver"), ("olga", "operator"), ("tools", "host")]
            .map(|(name, role)| files.token(name, "local", &[role]));
    let rule = "[[policy.rules]]\naction = 'ask'\ntool = 'mail'\napprovers = ['ann']\n";
    let more = format!("{}[audit]\nenabled = true\nreads = true\n{rule}", files.auth());
    let server = TestServer::with(&model, &more).await;
    let _host = Host::presenting(&server, "host-1", Some(&tools), |tool| tool == "mail").await;
    let [ada, ann, olga] = [&ada, &ann, &olga].map(|token| server.as_caller(token));
    model.asks("mail", json!({ "to": "bob" })).says("done");
    let waits = soon(ada.run(in_session("s1", "r1", "mail bob"))).await.expect("it asks");
    let question = waits.pending[0].request_id.clone();
    let approval = || wire::SubmitApprovalRequest {
        request_id: question.clone(),
        decision: Some(wire::Decision { decision: Some(Decision::Approve(wire::Approve {})) }),
        ..Default::default()
    };
    let step = wire::StepRequest {
        run_id: "r1".to_owned(),
        request_id: "step-1".to_owned(),
        approve_request_id: question.clone(),
    };
    let refused = soon(ada.agent_loop().step(step)).await.expect_err("a caller approves nothing");
    assert_eq!(refused.code(), Code::PermissionDenied);
    let refused = soon(olga.submit_approval(approval())).await.expect_err("the question is for ann");
    assert_eq!(refused.code(), Some(Code::PermissionDenied));
    soon(ann.submit_approval(approval())).await.expect("she approves");
    let check = wire::CheckPolicyRequest { tool: "mail".to_owned(), ..Default::default() };
    soon(olga.check_policy(check)).await.expect("checked");
    let list = wire::ListToolsRequest { name: "mail".to_owned(), ..Default::default() };
    soon(olga.tools().list_tools(list)).await.expect("listed");

    let rows = records(&olga, wire::AuditFilter::default()).await;
    let told: Vec<[&str; 5]> = rows
        .iter()
        .rev()
        .filter(|row| !row.tool.is_empty())
        .map(|row| [&row.rpc, &row.session_id, &row.run_id, &row.request_id, &row.tool].map(String::as_str))
        .collect();
    assert_eq!(
        told,
        [
            ["AgentLoop/Step", "s1", "r1", &question, "mail"],
            ["AgentLoop/SubmitApproval", "s1", "r1", &question, "mail"],
            ["AgentLoop/SubmitApproval", "s1", "r1", &question, "mail"],
            ["Tools/CheckPolicy", "", "", "", "mail"],
            ["Tools/ListTools", "", "", "", "mail"],
        ],
        "{rows:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_recorded_does_not_happen() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let ada = files.token("ada", "local", &["caller"]);
    let audit = "[audit]\nenabled = true\nrequired = true\n";
    let mut server = TestServer::with(&model, &format!("{}{audit}", files.auth())).await;
    let create = async |server: &TestServer, session: &str| {
        let new = wire::CreateSessionRequest { session_id: Some(session.to_owned()), ..Default::default() };
        soon(server.as_caller(&ada).create_session(new)).await
    };
    create(&server, "s1").await.expect("it is recorded");
    // No other row about such a call can be written.
    server.change_stored("CREATE UNIQUE INDEX one_row_of_each ON audit (what)").await;
    let refused = create(&server, "s2").await.expect_err("it cannot be recorded");
    assert_ne!(refused.code(), Some(Code::NotFound), "{refused}");
    let missing = soon(server.as_caller(&ada).get_session("s2")).await.expect_err("it was not made");
    assert_eq!(missing.code(), Some(Code::NotFound));
    server.change_stored("DROP INDEX one_row_of_each").await;
    create(&server, "s2").await.expect("it is recorded");
}

#[tokio::test]
async fn calls_that_only_read_are_written_where_that_is_wanted() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let [ada, bob, olga] = [("ada", "caller"), ("bob", "caller"), ("olga", "operator")]
        .map(|(name, role)| files.token(name, "local", &[role]));
    let more = "[audit]\nenabled = true\nreads = true\n[metrics]\nlisten = \"127.0.0.1:0\"\n";
    let server = TestServer::with(&model, &format!("{}{more}", files.auth())).await;
    let [ada, bob, olga] = [&ada, &bob, &olga].map(|token| server.as_caller(token));
    model.says("done");
    soon(ada.run(in_session("s1", "r1", "hi"))).await.expect("it ends");
    soon(ada.get_run("r1")).await.expect("it is read");
    soon(ada.list_runs(Default::default())).await.expect("listed");
    soon(bob.get_run("r1")).await.expect_err("it is another's");
    soon(bob.get_run("r2")).await.expect_err("nobody has it");
    let rows = records(&olga, wire::AuditFilter::default()).await;
    assert_eq!(told(&rows), ["ada Run", "ada GetRun", "ada ListRuns", "bob GetRun!", "bob GetRun!"]);
    let reasons: Vec<_> = rows.iter().map(|row| (row.run_id.as_str(), row.reason.as_str())).collect();
    assert_eq!(reasons[..2], [("r2", "no such run"), ("r1", "the run is another caller's")]);
    // The list that was read above has its row, too.
    let scraped = server.scrape().await;
    let written = records(&olga, wire::AuditFilter::default()).await.len();
    assert_eq!((scraped.get("audit_rows_total{outcome=\"written\"}"), written), (6.0, 6));
    assert_eq!(scraped.get("audit_rows_total{outcome=\"failed\"}"), 0.0);
}
