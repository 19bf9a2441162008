//! Tenants are apart: with equal ids everywhere, nothing of one is in the answers to another.

mod answers;
mod apart;
mod compare;
mod hits;
mod steps;

use std::collections::BTreeSet;

use agentloop_client::{Client, Error, v1 as wire};
use agentloop_tests::contract;
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::{Value, json};
use tonic::Code;
use wire::decision::Decision;

/// The word that stands in everything of a tenant, and in nothing of the others.
const WORDS: [&str; 2] = ["apple", "banana"];

/// Runs of each tenant that have ended.
const RUNS: u64 = 3;

/// The reason why one RPC keeps a tenant's own out of reach of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// An id of another tenant is NOT_FOUND: `what_another_tenant_has_is_not_found` tries each.
    NotFound,
    /// An id of another tenant does not exist, so there is nothing to do: the same test tries each.
    Nothing,
    /// It works with the tenant's own: [`Tenant::live`] and [`Tenant::everything`] call each.
    Own,
    /// `blobs.rs::tenants_and_callers_see_their_own` tries it.
    Blob,
    /// Rows of the audit log: `audit.rs::operators_see_the_rows_of_their_tenant` tries it. The check of the chain tells
    /// numbers alone.
    Audit,
    /// Facts about processes, for operators: nothing in them is a tenant's.
    Process,
}

/// Every RPC of the contract.
const ROWS: &[(&str, Reach)] = &[
    ("AgentLoop/Run", Reach::NotFound),
    ("AgentLoop/RunStream", Reach::NotFound),
    ("AgentLoop/Subscribe", Reach::NotFound),
    ("AgentLoop/Abort", Reach::NotFound),
    ("AgentLoop/SubmitApproval", Reach::NotFound),
    ("AgentLoop/SubmitInput", Reach::NotFound),
    ("AgentLoop/Step", Reach::NotFound),
    ("AgentLoop/GetRun", Reach::NotFound),
    ("AgentLoop/ListRuns", Reach::Own),
    ("AgentLoop/ListPending", Reach::Own),
    ("AgentLoop/ResumeRun", Reach::NotFound),
    ("AgentLoop/ReplayRun", Reach::NotFound),
    ("AgentLoop/WatchRuns", Reach::Own),
    ("Blobs/PutBlob", Reach::Blob),
    ("Blobs/GetBlob", Reach::Blob),
    ("Server/GetServerInfo", Reach::Own),
    ("Server/ListAgents", Reach::Own),
    ("Server/ListAuditRecords", Reach::Audit),
    ("Server/VerifyAudit", Reach::Audit),
    ("Server/ListReplicas", Reach::Process),
    ("Server/GetUsage", Reach::Own),
    ("Sessions/CreateSession", Reach::Own),
    ("Sessions/UpdateSession", Reach::NotFound),
    ("Sessions/GetOrCreateSession", Reach::Own),
    ("Sessions/ImportEntries", Reach::NotFound),
    ("Sessions/ExportSession", Reach::NotFound),
    ("Sessions/GetSession", Reach::NotFound),
    ("Sessions/ListSessions", Reach::Own),
    ("Sessions/ListEntries", Reach::NotFound),
    ("Sessions/SearchEntries", Reach::Own),
    ("Sessions/SubscribeSession", Reach::NotFound),
    ("Sessions/ForkSession", Reach::NotFound),
    ("Sessions/DeleteSession", Reach::Nothing),
    ("ToolHost/Connect", Reach::Own),
    ("ToolHost/CompleteCall", Reach::NotFound),
    ("Tools/ListTools", Reach::Own),
    ("Tools/ListHosts", Reach::Own),
    ("Tools/CheckPolicy", Reach::NotFound),
    ("Tools/ListRules", Reach::Own),
    ("Tools/DeleteRule", Reach::Nothing),
    ("Tools/AcceptTool", Reach::NotFound),
    ("Tools/ForgetTool", Reach::Nothing),
];

fn rpcs_of(reach: Reach) -> BTreeSet<&'static str> {
    ROWS.iter().filter(|row| row.1 == reach).map(|row| row.0).collect()
}

#[test]
fn each_rpc_has_a_row() {
    let listed: BTreeSet<String> = ROWS.iter().map(|(rpc, _)| (*rpc).to_owned()).collect();
    assert_eq!(listed, contract::rpcs());
}

/// One tenant, with a token for each role.
struct Tenant {
    word: &'static str,
    operator: Client,
    /// Presents the token of its tool hosts.
    as_host: Client,
    host: Host,
}

/// The word of the tenant that a request to the model is about.
fn word_of(request: &Value) -> &'static str {
    let text = request.to_string();
    WORDS.into_iter().find(|word| text.contains(word)).unwrap_or("nothing")
}

async fn two_tenants(model: &Model) -> (TestServer, [Tenant; 2]) {
    model.answers(|request| {
        let word = word_of(request);
        let last = request["messages"].as_array().and_then(|messages| messages.last()).cloned();
        match last.unwrap_or_default() {
            last if last["role"] == "user" && last.to_string().contains("mail") => {
                Answer::Asks(vec![("mail".to_owned(), json!({ "to": word }))])
            }
            _ => Answer::Says(format!("noted {word}")),
        }
    });
    let files = SecurityFiles::new();
    let tokens = WORDS.map(|word| {
        let operator = files.token("ada", &format!("tenant-of-{word}"), &["operator"]);
        (word, operator, files.token("a-host", &format!("tenant-of-{word}"), &["host"]))
    });
    let more = format!("{}[metrics]\nlisten = \"127.0.0.1:0\"\n", files.auth());
    let server = TestServer::with(model, &more).await;
    let mut tenants = Vec::new();
    for (word, operator, token) in tokens {
        let own_tools = |tool: &str| tool == "mail" || (tool == "fail" && word == WORDS[0]);
        let host = Host::presenting(&server, "host-1", Some(&token), own_tools).await;
        let (operator, as_host) = (server.as_caller(&operator), server.as_caller(&token));
        tenants.push(Tenant { word, operator, as_host, host });
    }
    (server, tenants.try_into().unwrap_or_else(|_| panic!("there are two")))
}

impl Tenant {
    /// The same steps with the same ids for each tenant; only the word differs.
    async fn live(&self) {
        let session = wire::CreateSessionRequest {
            session_id: Some("s".to_owned()),
            title: self.word.to_owned(),
            labels: [("fruit".to_owned(), self.word.to_owned())].into(),
        };
        soon(self.operator.create_session(session)).await.expect("it is made");
        let noted = wire::RunInput {
            labels: [("fruit".to_owned(), self.word.to_owned())].into(),
            ..in_session("s", "r1", &format!("remember {}", self.word))
        };
        soon(self.operator.run(noted)).await.expect("it runs");
        // The model is given what this tenant said before. No request to the model may have the words of both tenants.
        let recalling = wire::RunInput {
            context_sources: Some(wire::Names { names: vec!["recall".to_owned()] }),
            ..in_session("s4", "r4", "What did I tell you to remember?")
        };
        soon(self.operator.run(recalling)).await.expect("it runs");
        for run in ["r2", "r3"] {
            let input = in_session(run, run, &format!("mail {}", self.word));
            soon(self.operator.run(input)).await.expect("it asks");
        }
        let asked = self.pending().await;
        assert_eq!(asked.len(), 2, "{asked:?}");
        let first = asked.into_iter().find(|question| question.run_id == "r2").expect("r2 asks");
        let approval = wire::SubmitApprovalRequest {
            request_id: first.request_id,
            decision: Some(wire::Decision { decision: Some(Decision::Approve(wire::Approve {})) }),
            remember: wire::RememberScope::Rule.into(),
            ..Default::default()
        };
        soon(self.operator.submit_approval(approval)).await.expect("it is approved");
        let done = wire::RunInput { run_id: Some("r2".to_owned()), ..Default::default() };
        soon(self.operator.run(done)).await.expect("it ends");
    }

    async fn pending(&self) -> Vec<wire::HumanRequest> {
        soon(self.operator.list_pending(Default::default())).await.expect("they are listed").requests
    }

    /// Everything that the tenant can read, as text.
    async fn everything(&self, other: &str) -> String {
        let c = &self.operator;
        let mut seen = vec![
            show(c.list_runs(Default::default()).await),
            show(c.list_sessions(Default::default()).await),
            show(c.list_pending(Default::default()).await),
            show(
                c.list_entries(wire::ListEntriesRequest { session_id: "s".into(), ..Default::default() })
                    .await,
            ),
            show(c.get_session("s").await),
            show(c.list_tools().await),
            show(c.list_hosts().await),
            show(c.list_rules("").await),
            show(c.list_rules("s").await),
            show(c.list_agents().await),
            show(c.server_info().await),
        ];
        let usage = wire::GetUsageRequest {
            group_by: vec![wire::UsageGroup::Label.into()],
            label_key: "fruit".to_owned(),
            // One bucket, also if the hour ends meanwhile.
            bucket: Some(prost_types::Duration { seconds: 366 * 86_400, nanos: 0 }),
            ..Default::default()
        };
        let usage = soon(c.get_usage(usage)).await.expect("it is told");
        assert_eq!(usage.rows.iter().map(|row| row.runs).sum::<u64>(), RUNS, "{usage:?}");
        seen.push(format!("{usage:?}"));
        let found = wire::GetOrCreateSessionRequest { user: "ada".to_owned(), ..Default::default() };
        seen.push(show(c.get_or_create_session(found).await));
        let mut watched = soon(c.watch_runs(wire::RunFilter::default())).await.expect("it is watched");
        loop {
            let change = soon(watched.next()).await.expect("it goes on");
            if matches!(change, wire::watch_runs_response::Change::Synced(_)) {
                break;
            }
            seen.push(format!("{change:?}"));
        }
        let mut lines = soon(c.export_session("s")).await.expect("it is exported");
        while let Some(line) = soon(lines.next()).await.expect("it goes on") {
            seen.push(line);
        }
        let follow = wire::SubscribeSessionRequest { session_id: "s".to_owned(), ..Default::default() };
        let followed = soon(c.sessions().subscribe_session(follow)).await.expect("it is followed");
        seen.push(format!("{:?}", soon(followed.into_inner().message()).await.expect("a first item")));
        for run in ["r1", "r2", "r3"] {
            seen.push(show(c.get_run(run).await));
            seen.push(show(c.replay_run(run).await));
        }
        for run in ["r1", "r2"] {
            let mut events = Box::pin(soon(c.subscribe(run, 0))).await.expect("it is followed");
            while let Some(event) = soon(events.next()).await {
                seen.push(show(event));
            }
        }
        for word in WORDS {
            let query = wire::SearchEntriesRequest { query: word.to_owned(), ..Default::default() };
            let hits = soon(c.search_entries(query)).await.expect("it is searched");
            assert_eq!(hits.is_empty(), word == other, "{word}: {hits:?}");
            seen.push(format!("{hits:?}"));
        }
        let candidate = wire::PolicyRule {
            action: wire::PolicyAction::Allow.into(),
            tool: "mail".to_owned(),
            ..Default::default()
        };
        let check = wire::CheckPolicyRequest {
            tool: "mail".to_owned(),
            arguments_json: r#"{"to":"x"}"#.to_owned(),
            candidate: Some(candidate),
            ..Default::default()
        };
        let checked = soon(c.check_policy(check)).await.expect("it is checked");
        assert!(checked.matching_request_ids.len() <= 1, "{checked:?}");
        seen.push(format!("{checked:?}"));
        seen.join("\n")
    }
}

fn show<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    format!("{:?}", answer.expect("it is answered"))
}

#[tokio::test]
async fn with_equal_ids_nothing_of_one_is_shown_to_the_other() {
    let model = Model::start().await;
    let (server, [one, other]) = two_tenants(&model).await;
    // First the steps of one, then those of the other: whatever is found by id alone would be the first one's.
    one.live().await;
    other.live().await;
    for (tenant, stranger) in [(&one, &other), (&other, &one)] {
        let seen = Box::pin(tenant.everything(stranger.word)).await;
        assert!(seen.contains(tenant.word) && !seen.contains(stranger.word), "{seen}");
        let calls = tenant.host.gate.calls();
        assert_eq!(calls, [("mail".to_owned(), json!({ "to": tenant.word }))]);
    }
    for request in model.requests() {
        let text = request.to_string();
        assert!(!(text.contains(WORDS[0]) && text.contains(WORDS[1])), "{text}");
    }
    let recalling = model.requests().iter().filter(|request| request.to_string().contains("recall")).count();
    assert!(recalling >= 2, "each has recalled something");
    let metrics = server.scrape().await.text;
    assert!(!WORDS.iter().any(|word| metrics.contains(word)), "{metrics}");

    // Changes of one tenant leave the other's sessions as they were.
    let before = Box::pin(other.everything(one.word)).await;
    soon(one.operator.abort_run("r3", "enough")).await.expect("it is aborted");
    for session in ["s", "r2", "r3"] {
        assert!(soon(one.operator.delete_session(session)).await.expect("it is deleted"));
    }
    for rule in soon(one.operator.list_rules("")).await.expect("they are listed") {
        assert!(soon(one.operator.delete_rule(rule.rule_id)).await.expect("it is forgotten"));
    }
    let after = Box::pin(other.everything(one.word)).await;
    let still = |text: &str| text.lines().count();
    assert_eq!(still(&before), still(&after));
    assert_eq!(other.pending().await.len(), 1);
}

#[tokio::test]
async fn with_equal_ids_at_once_nothing_of_one_is_shown_to_the_other() {
    let model = Model::start().await;
    let (_server, [one, other]) = two_tenants(&model).await;
    tokio::join!(one.live(), other.live());
    for (tenant, stranger) in [(&one, &other), (&other, &one)] {
        let seen = Box::pin(tenant.everything(stranger.word)).await;
        assert!(seen.contains(tenant.word) && !seen.contains(stranger.word), "{seen}");
    }
}

#[tokio::test]
async fn what_is_open_shows_nothing_of_what_another_tenant_does_later() {
    let model = Model::start().await;
    let (_server, [one, other]) = two_tenants(&model).await;
    one.live().await;
    let c = &one.operator;
    let mut runs = soon(c.watch_runs(wire::RunFilter::default())).await.expect("it is watched");
    while !matches!(
        soon(runs.next()).await.expect("it goes on"),
        wire::watch_runs_response::Change::Synced(_)
    ) {}
    let follow = wire::SubscribeSessionRequest { session_id: "s".to_owned(), ..Default::default() };
    let mut session =
        soon(c.sessions().subscribe_session(follow)).await.expect("it is followed").into_inner();
    other.live().await;
    soon(other.operator.run(in_session("s", "r9", "more of banana"))).await.expect("it runs");
    // The streams have it all once they show the end of this.
    soon(c.run(in_session("s", "r8", "the end"))).await.expect("it runs");
    let mut seen = Vec::new();
    loop {
        let change = format!("{:?}", soon(runs.next()).await.expect("it goes on"));
        let is_last = change.contains("\"r8\"") && change.contains("Completed");
        seen.push(change);
        if is_last {
            break;
        }
    }
    loop {
        let item = soon(session.message()).await.expect("it goes on").expect("it is open");
        let item = format!("{item:?}");
        let is_last = item.contains("\"r8\"") && item.contains("RunFinished");
        seen.push(item);
        if is_last {
            break;
        }
    }
    let seen = seen.join("\n");
    assert!(!seen.contains(other.word) && !seen.contains("\"r9\""), "{seen}");
}

#[tokio::test]
async fn what_another_tenant_has_is_not_found() {
    let model = Model::start().await;
    let (_server, [one, other]) = two_tenants(&model).await;
    one.live().await;
    let question = one.pending().await.remove(0).request_id;
    let rule = soon(one.operator.list_rules("")).await.expect("listed").remove(0).rule_id;
    let c = &other.operator;
    let decision = Some(wire::Decision { decision: Some(Decision::Approve(wire::Approve {})) });
    let approval =
        wire::SubmitApprovalRequest { request_id: question.clone(), decision, ..Default::default() };
    let input = wire::SubmitInputRequest {
        request_id: question,
        input: Some(wire::submit_input_request::Input::Text("x".to_owned())),
        ..Default::default()
    };
    let join = wire::RunInput { run_id: Some("r1".to_owned()), ..Default::default() };
    let enter = wire::RunInput {
        session_id: Some("s".to_owned()),
        prompt: "what did I say?".to_owned(),
        ..Default::default()
    };
    let fork = wire::ForkSessionRequest { session_id: "s".to_owned(), ..Default::default() };
    let entries = wire::ListEntriesRequest { session_id: "s".to_owned(), ..Default::default() };
    let check =
        wire::CheckPolicyRequest { run_id: "r1".to_owned(), tool: "mail".to_owned(), ..Default::default() };
    let resume =
        wire::ResumeRunRequest { run_id: "r1".to_owned(), request_id: "x".to_owned(), ..Default::default() };
    let step =
        wire::StepRequest { run_id: "r1".to_owned(), request_id: "x".to_owned(), ..Default::default() };
    let text = |text: &str| text.to_owned();
    let update = wire::UpdateSessionRequest {
        session_id: text("s"),
        title: Some(text("mine now")),
        ..Default::default()
    };
    let follow = wire::SubscribeSessionRequest { session_id: text("s"), ..Default::default() };
    let import = wire::ImportEntriesRequest {
        session_id: Some(text("s")),
        messages: vec![wire::Message {
            role: wire::Role::User.into(),
            parts: vec![wire::Part { content: Some(wire::part::Content::Text(text("x"))) }],
        }],
        ..Default::default()
    };
    let result = wire::CallResult {
        call_id: "r3/1.0".to_owned(),
        attempt: 1,
        lease_token: "x".to_owned(),
        ..Default::default()
    };
    let outcome = Some(wire::complete_call_request::Outcome::Result(result));
    let completed = other.as_host.tool_host().complete_call(wire::CompleteCallRequest { outcome }).await;
    let refused = [
        ("AgentLoop/GetRun", c.get_run("r1").await.err()),
        ("AgentLoop/ReplayRun", c.replay_run("r1").await.err()),
        ("AgentLoop/Subscribe", c.subscribe("r1", 0).await.err()),
        ("AgentLoop/Run", c.run(join.clone()).await.err()),
        ("AgentLoop/Run", c.run(enter).await.err()),
        ("AgentLoop/RunStream", c.run_stream(join).await.err()),
        ("AgentLoop/Abort", c.abort_run("r1", "").await.err()),
        ("AgentLoop/Abort", c.abort_session("s", "").await.err()),
        ("AgentLoop/ResumeRun", c.agent_loop().resume_run(resume).await.err().map(Error::from)),
        ("AgentLoop/Step", c.agent_loop().step(step).await.err().map(Error::from)),
        ("AgentLoop/SubmitApproval", c.submit_approval(approval).await.err()),
        ("AgentLoop/SubmitInput", c.submit_input(input).await.err()),
        ("Sessions/GetSession", c.get_session("s").await.err()),
        ("Sessions/UpdateSession", c.update_session(update).await.err()),
        ("Sessions/ListEntries", c.list_entries(entries).await.err()),
        ("Sessions/ForkSession", c.fork_session(fork).await.err()),
        ("Sessions/ExportSession", c.export_session("s").await.err()),
        ("Sessions/ImportEntries", c.sessions().import_entries(import).await.err().map(Error::from)),
        ("Sessions/SubscribeSession", c.sessions().subscribe_session(follow).await.err().map(Error::from)),
        ("Tools/CheckPolicy", c.check_policy(check).await.err()),
        ("ToolHost/CompleteCall", completed.err().map(Error::from)),
        ("Tools/AcceptTool", c.accept_tool("fail", "").await.err()),
    ];
    let tried: BTreeSet<&str> = refused.iter().map(|(rpc, _)| *rpc).collect();
    assert_eq!(tried, rpcs_of(Reach::NotFound), "each RPC that names something of a tenant is tried");
    for (rpc, error) in refused {
        let code = error.as_ref().and_then(Error::code);
        assert_eq!(code, Some(Code::NotFound), "{rpc}: {error:?}");
    }
    let nothing = [
        ("Sessions/DeleteSession", soon(c.delete_session("s")).await.expect("it is confirmed")),
        ("Tools/DeleteRule", soon(c.delete_rule(rule)).await.expect("it is confirmed")),
        ("Tools/ForgetTool", soon(c.forget_tool("fail")).await.expect("it is confirmed")),
    ];
    let tried: BTreeSet<&str> = nothing.iter().map(|(rpc, _)| *rpc).collect();
    assert_eq!(tried, rpcs_of(Reach::Nothing), "each is tried");
    for (rpc, existed) in nothing {
        assert!(!existed, "{rpc}: there was nothing");
    }
    assert!(soon(one.operator.get_session("s")).await.is_ok());
    assert_eq!(soon(one.operator.list_rules("")).await.expect("listed").len(), 1);
}
