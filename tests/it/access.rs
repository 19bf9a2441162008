//! Credentials and roles, seen from outside.

use std::collections::BTreeSet;

use agentloop_client::{Client, v1 as wire};
use agentloop_tests::contract;
use agentloop_tests::credentials::{Authority, SecurityFiles};
use agentloop_tests::errors::{assert_refused, metadata};
use agentloop_tests::host::{Gate, Host};
use agentloop_tests::input::{in_session, named, prompt};
use agentloop_tests::issuer::Issuer;
use agentloop_tests::model::Model;
use agentloop_tests::process::eventually;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

const ROLES: [&str; 5] = ["caller", "viewer", "approver", "host", "operator"];

/// Every RPC of the contract with the roles that may call it.
const EXPECTED: &[(&str, &str)] = &[
    ("AgentLoop/Run", "caller operator"),
    ("AgentLoop/RunStream", "caller operator"),
    ("AgentLoop/Subscribe", "caller viewer approver operator"),
    ("AgentLoop/Abort", "caller operator"),
    ("AgentLoop/SubmitApproval", "approver operator"),
    ("AgentLoop/SubmitInput", "caller operator"),
    ("AgentLoop/Step", "caller operator"),
    ("AgentLoop/GetRun", "caller viewer approver operator"),
    ("AgentLoop/ListRuns", "caller viewer approver operator"),
    ("AgentLoop/ListPending", "caller viewer approver operator"),
    ("AgentLoop/ResumeRun", "caller operator"),
    ("AgentLoop/ReplayRun", "caller viewer approver operator"),
    ("AgentLoop/WatchRuns", "caller viewer approver operator"),
    ("Blobs/PutBlob", "caller host operator"),
    ("Blobs/GetBlob", "caller viewer approver host operator"),
    ("Server/GetServerInfo", "caller viewer approver host operator"),
    ("Server/ListAgents", "caller viewer approver operator"),
    ("Server/GetUsage", "caller viewer approver operator"),
    ("Server/ListAuditRecords", "operator"),
    ("Server/ListReplicas", "operator"),
    ("Server/VerifyAudit", "operator"),
    ("Sessions/CreateSession", "caller operator"),
    ("Sessions/UpdateSession", "caller operator"),
    ("Sessions/GetOrCreateSession", "caller operator"),
    ("Sessions/ImportEntries", "caller operator"),
    ("Sessions/ExportSession", "caller viewer approver operator"),
    ("Sessions/GetSession", "caller viewer approver operator"),
    ("Sessions/ListSessions", "caller viewer approver operator"),
    ("Sessions/ListEntries", "caller viewer approver operator"),
    ("Sessions/SearchEntries", "caller viewer approver operator"),
    ("Sessions/SubscribeSession", "caller viewer approver operator"),
    ("Sessions/ForkSession", "caller operator"),
    ("Sessions/DeleteSession", "caller operator"),
    ("ToolHost/Connect", "host"),
    ("ToolHost/CompleteCall", "host"),
    ("Tools/ListTools", "caller viewer approver operator"),
    ("Tools/ListHosts", "viewer approver operator"),
    ("Tools/CheckPolicy", "caller viewer approver operator"),
    ("Tools/ListRules", "caller viewer approver operator"),
    ("Tools/DeleteRule", "approver operator"),
    ("Tools/AcceptTool", "operator"),
    ("Tools/ForgetTool", "operator"),
];

/// Calls an RPC with an empty message and these credentials. Only the beginning of the answer counts.
async fn call(server: &TestServer, rpc: &str, authorization: Option<&str>) -> Result<(), Status> {
    call_on(server.channel(), &format!("/agentloop.v1.{rpc}"), authorization).await
}

/// As [`call`], on a connection, by the whole path of the RPC, with any number of credentials.
async fn call_on<'a>(
    channel: Channel,
    path: &str,
    authorization: impl IntoIterator<Item = &'a str>,
) -> Result<(), Status> {
    let path = PathAndQuery::try_from(path).expect("a path");
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.expect("it is reached");
    let mut request = Request::new(tokio_stream::once(()));
    for one in authorization {
        request.metadata_mut().append("authorization", one.parse().expect("a header"));
    }
    let codec = ProstCodec::<(), ()>::default();
    let mut answers = soon(client.streaming(request, path, codec)).await?.into_inner();
    soon(answers.message()).await.map(drop)
}

/// A credential of a kind that proves one role.
struct Presented {
    kind: &'static str,
    role: &'static str,
    channel: Channel,
    authorization: Option<String>,
}

/// A server that takes every kind of credential over TLS, and for each role one of each kind; and a connection without any.
async fn every_kind(model: &Model) -> (TestServer, Vec<Presented>, Channel) {
    let (authority, files, issuer) = (Authority::new(), SecurityFiles::new(), Issuer::start().await);
    files.write_identity(&authority.server());
    files.write("ca.pem", &authority.root());
    files.write("jwks.json", &issuer.jwks());
    let tokens = ROLES.map(|role| files.token(role, "local", &[role]));
    let certificates = ROLES.map(|role| {
        format!("[[auth.certificates]]\nsubject = \"CN={role}\"\nname = \"{role}\"\nroles = [\"{role}\"]\n")
    });
    let jwks = files.path("jwks.json");
    let config = [
        files.tls(&format!("client_ca = {:?}\nclient_auth = \"optional\"", files.path("ca.pem"))),
        files.auth(),
        certificates.concat(),
        Issuer::auth(jwks.to_str().expect("text"), ""),
    ];
    let server = TestServer::with(model, &config.concat()).await;
    let channel = |role: Option<&str>| {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.root()));
        let tls = match role.map(|role| authority.client(role)) {
            Some(own) => tls.identity(Identity::from_pem(own.certificate, own.key)),
            None => tls,
        };
        let endpoint = Endpoint::from_shared(server.url().to_owned()).expect("an address");
        endpoint.tls_config(tls).expect("it is right").connect_lazy()
    };
    let nobody = channel(None);
    let mut presented = Vec::new();
    for (role, token) in ROLES.into_iter().zip(tokens) {
        let bearer = |token: &str| Some(format!("Bearer {token}"));
        let jwt = issuer.token(role, &[role], &serde_json::json!({}));
        for (kind, channel, authorization) in [
            ("token", nobody.clone(), bearer(&token)),
            ("JWT", nobody.clone(), bearer(&jwt)),
            ("certificate", channel(Some(role)), None),
        ] {
            presented.push(Presented { kind, role, channel, authorization });
        }
    }
    (server, presented, nobody)
}

#[tokio::test]
async fn each_rpc_takes_the_roles_of_its_row_and_no_other() {
    let listed: BTreeSet<String> = EXPECTED.iter().map(|(rpc, _)| (*rpc).to_owned()).collect();
    assert_eq!(listed, contract::rpcs(), "each RPC of the contract has a row");

    let model = Model::start().await;
    let (_server, presented, nobody) = every_kind(&model).await;
    for (rpc, roles) in EXPECTED {
        let path = format!("/agentloop.v1.{rpc}");
        for Presented { kind, role, channel, authorization } in &presented {
            let answer = call_on(channel.clone(), &path, authorization.as_deref()).await;
            let code = answer.map_or_else(|status| status.code(), |()| Code::Ok);
            let allowed = roles.split(' ').any(|allowed| allowed == *role);
            assert_ne!(code, Code::Unauthenticated, "{rpc} as {role} by {kind}");
            assert_eq!(code != Code::PermissionDenied, allowed, "{rpc} as {role} by {kind}: {code:?}");
        }
        let refused = call_on(nobody.clone(), &path, None).await.expect_err("nobody calls it");
        assert_eq!(refused.code(), Code::Unauthenticated, "{rpc}");
    }
}

#[tokio::test]
async fn reflection_is_for_viewers_and_operators() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let tokens = ROLES.map(|role| (role, format!("Bearer {}", files.token(role, "local", &[role]))));
    let server = TestServer::with(&model, &files.auth()).await;
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        for (role, token) in &tokens {
            let answer = call_on(server.channel(), &path, Some(token.as_str())).await;
            let refused = answer.err().map(|status| status.code());
            let allowed = ["viewer", "operator"].contains(role);
            assert_eq!(refused != Some(Code::PermissionDenied), allowed, "{version} as {role}: {refused:?}");
        }
        let nobody = call_on(server.channel(), &path, None).await.expect_err("nobody calls it");
        assert_eq!(nobody.code(), Code::Unauthenticated, "{version}");
    }
}

#[tokio::test]
async fn wrong_credentials_get_one_message_whatever_is_wrong() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let token = files.token("ada", "local", &["operator"]);
    let server = TestServer::with(&model, &files.auth()).await;
    let ask = async |authorization: Option<&str>| call(&server, "Server/GetServerInfo", authorization).await;
    ask(Some(&format!("Bearer {token}"))).await.expect("it is right");
    ask(Some(&format!("bearer {token}"))).await.expect("the scheme has no case");
    let mut wrong = token.clone();
    wrong.pop();
    let mut messages = BTreeSet::new();
    for authorization in [
        None,
        Some(token.clone()),
        Some("Bearer ".to_owned()),
        Some(format!("Bearer {wrong}")),
        Some(format!("Basic {token}")),
        Some(format!("Bearer {token}{}", "x".repeat(4_000))),
        Some("Bearer agt_000000000000_x".to_owned()),
        Some("Bearer a.b.c".to_owned()),
    ] {
        let refused = ask(authorization.as_deref()).await.expect_err("it is wrong");
        assert_eq!(refused.code(), Code::Unauthenticated, "{authorization:?}");
        messages.insert(refused.message().to_owned());
    }
    let right = format!("Bearer {token}");
    for two in [[&*right, &*right], [&*right, "Bearer x"], ["Bearer x", &*right]] {
        let asked = call_on(server.channel(), "/agentloop.v1.Server/GetServerInfo", two).await;
        let refused = asked.expect_err("others may read another one of them");
        assert_eq!(refused.code(), Code::Unauthenticated, "{two:?}");
        messages.insert(refused.message().to_owned());
    }
    assert_eq!(messages.len(), 1, "{messages:?}");
    files.revoke_all();
    ask(Some(&format!("Bearer {token}"))).await.expect("the file was not read again yet");
    server.reload().await;
    let revoked = ask(Some(&format!("Bearer {token}"))).await.expect_err("it is revoked");
    assert_eq!(revoked.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_file_of_tokens_with_a_mistake_takes_nobody_out() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let ada = format!("Bearer {}", files.token("ada", "local", &["viewer"]));
    let server = TestServer::with(&model, &files.auth()).await;
    let ask = async |authorization: &str| call(&server, "Server/GetServerInfo", Some(authorization)).await;
    for mistake in ["nonsense", "[[tokens]]\nname = \"eve\"\n", "[[tokens]]\nnobody = 1\n"] {
        files.write("tokens.toml", mistake);
        server.reload().await;
        ask(&ada).await.expect("what was read before stays in use");
    }
    files.revoke_all();
    let bob = format!("Bearer {}", files.token("bob", "local", &["viewer"]));
    server.reload().await;
    ask(&bob).await.expect("the next good file is used");
    assert_eq!(ask(&ada).await.expect_err("it is revoked").code(), Code::Unauthenticated);
}

#[tokio::test]
async fn health_is_open_and_tells_nothing_else() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let server = TestServer::with(&model, &files.auth()).await;
    let nobody = server.client_builder().build().expect("a client");
    assert!(soon(nobody.is_ready()).await.expect("health is open"));
    let refused = soon(nobody.server_info()).await.expect_err("nothing else is");
    assert_eq!(refused.code(), Some(Code::Unauthenticated));
}

/// Two callers of one tenant, a viewer and an operator, and a run of each caller in a session of its name.
async fn neighbours(model: &Model) -> (TestServer, [Client; 4]) {
    let files = SecurityFiles::new();
    let tokens = [("ada", "caller"), ("bob", "caller"), ("eve", "viewer"), ("op", "operator")]
        .map(|(name, role)| files.token(name, "local", &[role]));
    let agent = "[agents.reminded]\nmodel = \"fake/m\"\ncontext_sources = [\"recall\"]\n";
    let server = TestServer::with(model, &format!("{}{agent}", files.auth())).await;
    let clients = tokens.map(|token| server.as_caller(&token));
    (server, clients)
}

#[tokio::test]
async fn a_caller_works_with_its_own_and_others_are_as_if_they_were_not_there() {
    let model = Model::start().await;
    let (_server, [ada, bob, eve, op]) = neighbours(&model).await;
    model.answers(|_| agentloop_tests::model::Answer::Says("noted".to_owned()));
    for (client, name) in [(&ada, "ada"), (&bob, "bob")] {
        let input = in_session(name, &format!("r-{name}"), &format!("the word of {name} is mango"));
        soon(client.run(input)).await.expect("it runs");
        let titled =
            wire::CreateSessionRequest { session_id: Some(format!("own-{name}")), ..Default::default() };
        assert_eq!(soon(client.create_session(titled)).await.expect("it is made").created_by, name);
    }
    let run = soon(ada.get_run("r-ada")).await.expect("her own");
    assert_eq!((run.created_by.as_str(), run.session_id.as_str()), ("ada", "ada"));

    let listed = async |client: &Client| {
        let runs = soon(client.list_runs(Default::default())).await.expect("listed").runs;
        let sessions = soon(client.list_sessions(Default::default())).await.expect("listed").sessions;
        let mut ids: Vec<String> = runs.into_iter().map(|run| run.run_id).collect();
        ids.extend(sessions.into_iter().map(|session| session.session_id));
        ids.sort();
        ids
    };
    assert_eq!(listed(&ada).await, ["ada", "own-ada", "r-ada"]);
    assert_eq!(listed(&bob).await, ["bob", "own-bob", "r-bob"]);
    assert_eq!(listed(&eve).await.len(), 6, "a viewer reads everything");
    let hits = async |client: &Client| {
        let query = wire::SearchEntriesRequest { query: "mango".to_owned(), ..Default::default() };
        soon(client.search_entries(query)).await.expect("searched").len()
    };
    assert_eq!((hits(&ada).await, hits(&bob).await, hits(&eve).await), (1, 1, 2));

    let fork = || wire::ForkSessionRequest { session_id: "ada".to_owned(), ..Default::default() };
    let entries = || wire::ListEntriesRequest { session_id: "ada".to_owned(), ..Default::default() };
    let follow = wire::SubscribeSessionRequest { session_id: "ada".to_owned(), ..Default::default() };
    let join = || wire::RunInput { run_id: Some("r-ada".to_owned()), ..Default::default() };
    let enter = || in_session("ada", "r-new", "what is her word?");
    let steer = || wire::RunInput {
        on_busy_session: wire::BusySessionPolicy::Steer.into(),
        ..in_session("ada", "r-new", "what is her word?")
    };
    let refused = [
        ("GetRun", bob.get_run("r-ada").await.err()),
        ("ReplayRun", bob.replay_run("r-ada").await.err()),
        ("Subscribe", bob.subscribe("r-ada", 0).await.err()),
        ("Abort (run)", bob.abort_run("r-ada", "").await.err()),
        ("Abort (session)", bob.abort_session("ada", "").await.err()),
        ("Run (join)", bob.run(join()).await.err()),
        ("Run (enter)", bob.run(enter()).await.err()),
        ("Run (steer)", bob.run(steer()).await.err()),
        ("GetSession", bob.get_session("ada").await.err()),
        ("ListEntries", bob.list_entries(entries()).await.err()),
        ("ForkSession", bob.fork_session(fork()).await.err()),
        ("SubscribeSession", bob.sessions().subscribe_session(follow).await.err().map(Into::into)),
        ("Abort as a viewer", eve.abort_run("r-ada", "").await.err()),
    ];
    for (rpc, error) in refused {
        let code = error.as_ref().and_then(agentloop_client::Error::code);
        let expected = if rpc == "Abort as a viewer" { Code::PermissionDenied } else { Code::NotFound };
        assert_eq!(code, Some(expected), "{rpc}: {error:?}");
    }
    let reused = soon(bob.run(wire::RunInput { run_id: Some("r-ada".to_owned()), ..prompt("mine") })).await;
    assert_eq!(reused.err().and_then(|error| error.code()), Some(Code::AlreadyExists));
    let taken = wire::CreateSessionRequest { session_id: Some("own-ada".to_owned()), ..Default::default() };
    let taken = soon(bob.create_session(taken)).await;
    assert_eq!(taken.err().and_then(|error| error.code()), Some(Code::AlreadyExists));
    assert!(!soon(bob.delete_session("ada")).await.expect("it is confirmed"));

    // A list that stays live has what a list has.
    let watch = |created_by: &str| {
        let filter = wire::RunFilter { created_by: created_by.to_owned(), ..Default::default() };
        wire::WatchRunsRequest { filter: Some(filter), ..Default::default() }
    };
    let mut watched = soon(bob.agent_loop().watch_runs(watch(""))).await.expect("it is watched").into_inner();
    let mut rows = Vec::new();
    loop {
        use wire::watch_runs_response::Change;
        let change = soon(watched.message()).await.expect("it goes on").expect("a change");
        match change.change.expect("a change") {
            Change::Run(run) => rows.push(run.run_id),
            Change::Synced(_) => break,
            Change::Reset(_) | Change::Removed(_) => {}
        }
    }
    assert_eq!(rows, ["r-bob"]);
    let others = soon(bob.agent_loop().watch_runs(watch("ada"))).await.expect_err("it is another's");
    assert_eq!(others.code(), Code::PermissionDenied);
    let list = |created_by: &str| {
        let filter = wire::RunFilter { created_by: created_by.to_owned(), ..Default::default() };
        wire::ListRunsRequest { filter: Some(filter), ..Default::default() }
    };
    let others = soon(bob.list_runs(list("ada"))).await.expect_err("a list says the same");
    assert_eq!(others.code(), Some(Code::PermissionDenied));
    assert_eq!(soon(bob.list_runs(list("bob"))).await.expect("his own").runs.len(), 1);
    assert_eq!(soon(eve.list_runs(list("ada"))).await.expect("she reads all").runs.len(), 1);
    let sessions = |created_by: &str| {
        let filter = wire::SessionFilter { created_by: created_by.to_owned(), ..Default::default() };
        // A page has as many as there are, whoever made those between them.
        wire::ListSessionsRequest { filter: Some(filter), page_size: 1, ..Default::default() }
    };
    let others = soon(bob.list_sessions(sessions("ada"))).await.expect_err("they are another's");
    assert_eq!(others.code(), Some(Code::PermissionDenied));
    for (client, asked, owner) in [(&bob, "", "bob"), (&bob, "bob", "bob"), (&eve, "ada", "ada")] {
        let page = soon(client.list_sessions(sessions(asked))).await.expect("a list");
        let owners: Vec<_> = page.sessions.iter().map(|session| session.created_by.as_str()).collect();
        assert_eq!(owners, [owner], "asked for {asked:?}");
    }
    assert_eq!(soon(eve.list_sessions(sessions("nobody"))).await.expect("a list").sessions, []);

    // An operator may do all of it, in its own name.
    assert_eq!(soon(op.fork_session(fork())).await.expect("it is forked").created_by, "op");
    soon(op.run(enter())).await.expect("it runs");
    assert!(soon(op.delete_session("bob")).await.expect("it is deleted"));
    assert_eq!(soon(ada.get_session("ada")).await.expect("her own").created_by, "ada");
}

/// Its first answer may have been lost.
#[tokio::test]
async fn a_fork_is_confirmed_to_its_caller_although_its_source_is_gone() {
    let model = Model::start().await;
    let (_server, [ada, bob, _eve, _op]) = neighbours(&model).await;
    model.says("noted");
    soon(ada.run(in_session("ada", "r-ada", "hello"))).await.expect("it runs");
    let fork = || wire::ForkSessionRequest {
        session_id: "ada".to_owned(),
        new_session_id: Some("fork".to_owned()),
        ..Default::default()
    };
    let made = soon(ada.fork_session(fork())).await.expect("it is made");
    assert!(soon(ada.delete_session("ada")).await.expect("it is deleted"));
    assert_eq!(soon(ada.fork_session(fork())).await.expect("it is confirmed"), made);
    let others = soon(bob.fork_session(fork())).await.expect_err("it is another's");
    assert_eq!(others.code(), Some(Code::NotFound));
    let never_made = wire::ForkSessionRequest { new_session_id: Some("other".to_owned()), ..fork() };
    let refused = soon(ada.fork_session(never_made)).await.expect_err("the source is gone");
    assert_eq!(refused.code(), Some(Code::NotFound));
}

#[tokio::test]
async fn a_caller_is_reminded_of_its_own_words_alone() {
    let model = Model::start().await;
    let (_server, [ada, bob, _eve, _op]) = neighbours(&model).await;
    model.answers(|_| agentloop_tests::model::Answer::Says("noted".to_owned()));
    for (client, name) in [(&ada, "ada"), (&bob, "bob")] {
        let input =
            in_session(name, &format!("r-{name}"), &format!("the secret dessert of {name} is mango pudding"));
        soon(client.run(input)).await.expect("it runs");
    }
    let asks = wire::RunInput {
        agent: Some("reminded".to_owned()),
        ..in_session("new", "r-new", "which secret dessert is a mango pudding?")
    };
    soon(ada.run(asks)).await.expect("it runs");
    let asked = model.last_request().to_string();
    assert!(asked.contains("dessert of ada") && !asked.contains("dessert of bob"), "{asked}");
}

#[tokio::test]
async fn the_credentials_name_decides_and_not_the_requests() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let [caller, approver, host] = [("ada", "caller"), ("ann", "approver"), ("tools", "host")]
        .map(|(name, role)| files.token(name, "local", &[role]));
    let server = TestServer::with(&model, &files.auth()).await;
    let _host = Host::presenting(&server, "host-1", Some(&host), |tool| tool == "mail").await;
    model.asks("mail", serde_json::json!({ "to": "bob" })).says("done");
    let (ada, ann) = (server.as_caller(&caller), server.as_caller(&approver));
    let waits = soon(ada.run(named("r1", "mail bob"))).await.expect("it asks");
    let approval = || wire::SubmitApprovalRequest {
        request_id: waits.pending[0].request_id.clone(),
        decision: Some(wire::Decision {
            decision: Some(wire::decision::Decision::Approve(wire::Approve {})),
        }),
        decided_by: "the president".to_owned(),
        ..Default::default()
    };
    let own = soon(ada.submit_approval(approval())).await.expect_err("a caller decides no approval");
    assert_eq!(own.code(), Some(Code::PermissionDenied));
    let decided = soon(ann.submit_approval(approval())).await.expect("she approves");
    assert_eq!(decided.answer.expect("an answer").decided_by, "ann");
}

#[tokio::test]
async fn a_host_offers_what_its_principal_may_and_keeps_its_id() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let narrow = files.host_token("narrow", "local", |record| {
        record.host_tools = Some(vec!["w*".to_owned(), "hold".to_owned()]);
        record.host_effect = Some("keyed".to_owned());
    });
    let other = files.token("other", "local", &["host"]);
    let viewer = files.token("eve", "local", &["viewer"]);
    let operator = files.token("olga", "local", &["operator"]);
    let reserved = "reserved_tools = { \"ma*\" = \"post\" }\n";
    let auth = format!("{}{reserved}[audit]\nenabled = true\n", files.auth());
    let server = TestServer::with(&model, &auth).await;
    let wanted = |tool: &str| ["weather", "hold", "fail", "mail"].contains(&tool);
    let host = Host::presenting(&server, "host-1", Some(&narrow), wanted).await;
    let mut refused: Vec<&str> = host.refused.iter().map(|refused| refused.name.as_str()).collect();
    refused.sort_unstable();
    assert_eq!(refused, ["fail", "mail"]);
    let eve = server.as_caller(&viewer);
    let tools = soon(eve.list_tools()).await.expect("they are listed");
    for tool in &tools {
        let declared = tool.declaration.as_ref().expect("a declaration");
        assert_eq!(declared.effect(), wire::EffectClass::Keyed, "{}", declared.name);
    }
    assert_eq!(tools.len(), 2, "{tools:?}");

    // Nobody else takes its id, and a name that is reserved is for its principal.
    let stranger = agentloop_client::host::ToolHost::builder(server.url()).host_id("host-1").token(&other);
    let gate = Gate::default();
    let tools = agentloop_tests::host::tools(&gate).into_iter().filter(|tool| tool.name() == "weather");
    let stranger = tools.fold(stranger, agentloop_client::host::ToolHostBuilder::tool);
    let ended = soon(stranger.build().expect("a host").run_until(std::future::pending())).await;
    let refused = ended.expect_err("the id is another's").to_string();
    assert!(refused.contains("another principal"), "{refused}");
    let beside =
        Host::presenting(&server, "host-2", Some(&other), |tool| ["mail", "fail"].contains(&tool)).await;
    assert_eq!(beside.refused.len(), 1, "{:?}", beside.refused);
    assert_eq!(soon(eve.list_hosts()).await.expect("they are listed").len(), 2);

    // The audit log has what was refused after the stream began.
    let olga = server.as_caller(&operator);
    let rows = eventually("the rows", || async {
        let filter = Some(wire::AuditFilter { denied: true, ..Default::default() });
        let request = wire::ListAuditRecordsRequest { filter, ..Default::default() };
        let rows = olga.list_audit_records(request).await.ok()?.records;
        (rows.len() >= 4).then_some(rows)
    })
    .await;
    let mut told: Vec<[&str; 3]> =
        rows.iter().map(|row| [&row.principal, &row.tool, &row.reason].map(String::as_str)).collect();
    told.sort_unstable();
    assert_eq!(
        told.iter().map(|[who, tool, _]| (*who, *tool)).collect::<Vec<_>>(),
        [("narrow", "fail"), ("narrow", "mail"), ("other", ""), ("other", "mail"),]
    );
    assert!(told[2][2].starts_with("host host-1: a host of another principal"), "{told:?}");
}

#[tokio::test]
async fn who_calls_too_often_waits_and_others_do_not() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let [ada, bob] = ["ada", "bob"].map(|name| files.token(name, "local", &["viewer"]));
    let quotas = "[quotas]\nrequests_per_second = 2\n[metrics]\nlisten = \"127.0.0.1:0\"\n";
    let server = TestServer::with(&model, &format!("{}{quotas}", files.auth())).await;
    let call = async |token: &str| {
        let bearer = format!("Bearer {token}");
        call(&server, "Tools/ListTools", Some(&bearer)).await
    };
    let refused = loop {
        if let Err(refused) = call(&ada).await {
            break refused;
        }
    };
    let refused = assert_refused::<()>(Err(refused), Code::ResourceExhausted, "QUOTA_EXCEEDED");
    assert_eq!(metadata(&refused, "quota"), "requests_per_second");
    call(&bob).await.expect("another's calls do not count");
    assert!(server.scrape().await.get("rejections_total{cause=\"quota\"}") >= 1.0);
}
