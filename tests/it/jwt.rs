//! Tokens of an identity provider, and streams whose credential ends while they are open.

use std::collections::BTreeSet;

use agentloop_client::{Error, v1 as wire};
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::host::{Gate, tools};
use agentloop_tests::input::named;
use agentloop_tests::issuer::{Issuer, now_seconds};
use agentloop_tests::model::Model;
use agentloop_tests::process::eventually;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::{Code, Status, Streaming};

/// A server that knows the issuer's keys from a file, and the name of that file.
async fn with_file(model: &Model, issuer: &Issuer, more: &str) -> (TestServer, SecurityFiles) {
    let files = SecurityFiles::new();
    files.write("jwks.json", &issuer.jwks());
    let path = files.path("jwks.json");
    let auth = Issuer::auth(path.to_str().expect("text"), more);
    (TestServer::with(model, &format!("{}{auth}", files.auth())).await, files)
}

async fn who(server: &TestServer, token: &str) -> Result<wire::GetServerInfoResponse, Error> {
    soon(server.as_caller(token).server_info()).await
}

async fn is_refused(server: &TestServer, token: &str) -> bool {
    who(server, token).await.is_err_and(|error| error.code() == Some(Code::Unauthenticated))
}

#[tokio::test]
async fn a_token_proves_the_principal_that_its_claims_describe() {
    let (model, issuer) = (Model::start().await, Issuer::start().await);
    let (server, files) = with_file(&model, &issuer, "").await;
    let token =
        issuer.token("ada", &["offline_access", "viewer", "caller"], &json!({ "org": { "id": "acme" } }));
    let info = who(&server, &token).await.expect("she is known");
    let caller = wire::Caller {
        name: "ada".to_owned(),
        tenant: "acme".to_owned(),
        groups: vec!["a-group".to_owned()],
    };
    assert_eq!((info.caller, info.caller_roles), (Some(caller), vec!["caller".into(), "viewer".into()]));
    // A token without the claim for the tenant is nobody's; a static token is taken, too.
    let bare = issuer.token("bob", &["viewer"], &json!({ "org": null }));
    assert!(is_refused(&server, &bare).await);
    let old = files.token("carl", "local", &["viewer"]);
    server.reload().await;
    assert_eq!(who(&server, &old).await.expect("known").caller.expect("a caller").name, "carl");
    // Somebody without a role here is known, and may do nothing.
    let stranger = issuer.token("dan", &["offline_access"], &json!({}));
    let refused = who(&server, &stranger).await.expect_err("he has no role");
    assert_eq!(refused.code(), Some(Code::PermissionDenied));
}

#[tokio::test]
async fn values_of_a_claim_are_mapped_to_roles() {
    let (model, issuer) = (Model::start().await, Issuer::start().await);
    let map =
        "role_map = { \"team a\" = \"viewer approver\", ops = \"operator\" }\ndefault_roles = [\"caller\"]";
    let (server, _files) = with_file(&model, &issuer, map).await;
    for (values, roles) in [
        (vec!["team a"], vec!["viewer", "approver"]),
        (vec!["ops", "team a"], vec!["viewer", "approver", "operator"]),
        // With a map, names of roles mean nothing of themselves.
        (vec!["operator"], vec!["caller"]),
        (vec![], vec!["caller"]),
    ] {
        let token = issuer.token("ada", &values, &json!({}));
        assert_eq!(who(&server, &token).await.expect("known").caller_roles, roles, "{values:?}");
    }
}

#[tokio::test]
async fn a_wrong_token_gets_the_message_of_every_wrong_credential() {
    let (model, issuer) = (Model::start().await, Issuer::start().await);
    let (server, _files) = with_file(&model, &issuer, "[metrics]\nlisten = \"127.0.0.1:0\"").await;
    let now = now_seconds();
    let good = issuer.token("ada", &["operator"], &json!({}));
    who(&server, &good).await.expect("it is right");
    let (signed, signature) = good.rsplit_once('.').expect("three parts");
    let turned: String = signature.chars().rev().collect();
    let evil = Issuer::start().await;
    let header = json!({ "alg": "ES256", "kid": "key-0", "jku": evil.url(), "x5u": evil.url() });
    let mut messages = BTreeSet::new();
    for token in [
        "agt_000000000000_x".to_owned(),
        "a.b.c".to_owned(),
        format!("{signed}."),
        format!("{signed}.{turned}"),
        format!("{good}.{signature}"),
        format!("{good}{}", "x".repeat(12 * 1024)),
        issuer.forged(json!({ "alg": "ES256", "kid": "key-1" }), "ada"),
        issuer.forged(json!({ "alg": "HS256", "kid": "key-1" }), "ada"),
        issuer.forged(json!({ "alg": "none" }), "ada"),
        issuer.forged(header, "ada"),
        issuer.token("ada", &["operator"], &json!({ "exp": now - 61 })),
        issuer.token("ada", &["operator"], &json!({ "nbf": now + 120 })),
        issuer.token("ada", &["operator"], &json!({ "aud": "another" })),
        issuer.token("ada", &["operator"], &json!({ "iss": "https://another.example" })),
        issuer.token("", &["operator"], &json!({})),
        issuer.token("ada", &["operator"], &json!({ "org": { "id": "not a tenant" } })),
    ] {
        let refused = who(&server, &token).await.expect_err("it is wrong");
        assert_eq!(refused.code(), Some(Code::Unauthenticated), "{token}");
        messages.insert(refused.to_string());
    }
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(evil.requests(), 0, "no token says where its key is");
    let scraped = server.scrape().await;
    for cause in ["wrong_audience", "wrong_issuer", "bad_signature", "expired_token", "not_yet_valid"] {
        let count = scraped.get(&format!("rejections_total{{cause=\"{cause}\"}}"));
        assert!(count >= 1.0, "{cause}: {count}");
    }
}

#[tokio::test]
async fn a_name_that_looks_like_another_is_nobodys() {
    let (model, issuer) = (Model::start().await, Issuer::start().await);
    let (server, _files) = with_file(&model, &issuer, "[audit]\nenabled = true").await;
    let ada = issuer.token("ada", &["operator"], &json!({ "org": { "id": "local" } }));
    let known = who(&server, &ada).await.expect("she is known");
    assert_eq!(known.caller.expect("a caller").name, "ada");
    let unlike = ["Ada Lovelace", "José", "Сергей", "田中"];
    for name in unlike {
        who(&server, &issuer.token(name, &["viewer"], &json!({}))).await.expect("nobody looks like this one");
    }
    let alike = ["ada ", "ad\u{200b}a", "\u{202e}ada", "\u{430}da", "ａda", "ada\u{e000}", "ada\u{301}b"];
    for name in alike {
        let token = issuer.token(name, &["operator"], &json!({}));
        assert!(is_refused(&server, &token).await, "{name:?}");
    }
    let ada = server.as_caller(&ada);
    let rows = eventually("a row for each of them", || async {
        let filter = wire::AuditFilter { denied: true, ..Default::default() };
        let request = wire::ListAuditRecordsRequest { filter: Some(filter), ..Default::default() };
        let rows = soon(ada.list_audit_records(request)).await.expect("listed").records;
        (rows.len() == alike.len()).then_some(rows)
    })
    .await;
    assert!(rows.iter().all(|row| row.reason.contains("taken for another name")), "{rows:?}");
}

#[tokio::test]
async fn a_rotated_file_of_keys_is_read_when_a_token_names_another() {
    let (model, issuer) = (Model::start().await, Issuer::start().await);
    let (server, files) = with_file(&model, &issuer, "").await;
    let old = issuer.token("ada", &["viewer"], &json!({}));
    who(&server, &old).await.expect("it is right");
    issuer.rotate();
    files.write("jwks.json", &issuer.jwks());
    let new = issuer.token("ada", &["viewer"], &json!({}));
    who(&server, &new).await.expect("the file was read again");
    assert!(is_refused(&server, &old).await, "its key is gone");
    // A file that is half written changes nothing.
    files.write("jwks.json", "{\"keys\":[");
    server.reload().await;
    who(&server, &new).await.expect("the keys before stay in use");
}

#[tokio::test]
async fn the_keys_of_a_server_are_fetched_once_and_used_while_it_is_down() {
    let (model, issuer) = (Model::start().await, Issuer::start().await);
    let server = TestServer::with(&model, &Issuer::auth(issuer.url(), "")).await;
    let old = issuer.token("ada", &["viewer"], &json!({}));
    who(&server, &old).await.expect("the keys were fetched at the start, or for this call");
    assert_eq!(issuer.requests(), 1);
    // Tokens that nobody made do not make the server ask again and again.
    for _ in 0..20 {
        let forged = issuer.forged(json!({ "alg": "ES256", "kid": "key-0" }), "ada");
        assert!(is_refused(&server, &forged).await);
    }
    assert_eq!(issuer.requests(), 1, "not more often than jwks_refresh_min");
    issuer.set_down(true);
    server.reload().await;
    assert_eq!(issuer.requests(), 2, "an operator asks at once");
    who(&server, &old).await.expect("the keys before stay in use");
    issuer.set_down(false);
    issuer.rotate();
    server.reload().await;
    who(&server, &issuer.token("ada", &["viewer"], &json!({}))).await.expect("the new key is known");
    assert!(is_refused(&server, &old).await);
}

#[tokio::test]
async fn a_server_starts_while_its_issuer_is_down_and_lets_nobody_in() {
    let (model, issuer) = (Model::start().await, Issuer::start().await);
    issuer.set_down(true);
    let server = TestServer::with(&model, &Issuer::auth(issuer.url(), "")).await;
    let token = issuer.token("ada", &["viewer"], &json!({}));
    assert!(is_refused(&server, &token).await);
    issuer.set_down(false);
    server.reload().await;
    who(&server, &token).await.expect("the keys are there");
}

#[tokio::test]
async fn the_audit_log_has_each_new_set_of_keys_and_each_that_is_not_used() {
    let (model, issuer) = (Model::start().await, Issuer::start().await);
    let (server, files) = with_file(&model, &issuer, "[audit]\nenabled = true").await;
    server.reload().await;
    issuer.rotate();
    files.write("jwks.json", &issuer.jwks());
    server.reload().await;
    for _ in 0..2 {
        files.write("jwks.json", "{\"keys\":[");
        server.reload().await;
    }
    let olga = server.as_caller(&issuer.token("olga", &["operator"], &json!({})));
    let rows = eventually("the rows", || async {
        let filter = Some(wire::AuditFilter { rpc: "keys of tokens".to_owned(), ..Default::default() });
        let request = wire::ListAuditRecordsRequest { filter, ..Default::default() };
        let rows = olga.list_audit_records(request).await.ok()?.records;
        (rows.len() >= 2).then_some(rows)
    })
    .await;
    let told: Vec<_> = rows.iter().rev().map(|row| (row.rpc.as_str(), row.allowed)).collect();
    assert_eq!(told, [("reload keys of tokens", true), ("reload keys of tokens", false)]);
    assert!(rows[0].reason.contains("jwks.json"), "{rows:?}");
}

/// The stream's end, after what it has sent.
async fn end_of<T>(mut stream: Streaming<T>) -> Status {
    loop {
        match soon(stream.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ended well"),
            Err(status) => return status,
        }
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let (model, issuer) = (Model::start().await, Issuer::start().await);
    let (server, _files) = with_file(&model, &issuer, "leeway = \"0s\"").await;
    let soon_over = json!({ "exp": now_seconds() + 3 });
    let short = server.as_caller(&issuer.token("ada", &["viewer"], &soon_over));
    let watched = soon(short.agent_loop().watch_runs(wire::WatchRunsRequest::default())).await;
    let ended = end_of(watched.expect("it is watched").into_inner()).await;
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    assert!(ended.message().contains("expired"), "{ended}");
    let over = soon(short.server_info()).await.expect_err("it is over");
    assert_eq!(over.code(), Some(Code::Unauthenticated));
}

#[tokio::test]
async fn a_stream_ends_when_the_key_of_its_token_is_taken_back() {
    let (model, issuer) = (Model::start().await, Issuer::start().await);
    let (server, files) = with_file(&model, &issuer, "").await;
    let watch = async |token: &str| {
        let mut client = server.as_caller(token).agent_loop();
        soon(client.watch_runs(wire::WatchRunsRequest::default())).await.expect("watched").into_inner()
    };
    let of_old = watch(&issuer.token("ada", &["viewer"], &json!({}))).await;
    issuer.rotate();
    files.write("jwks.json", &issuer.jwks());
    server.reload().await;
    let ended = end_of(of_old).await;
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    let mut of_new = watch(&issuer.token("ada", &["viewer"], &json!({}))).await;
    server.reload().await;
    assert!(soon(of_new.message()).await.expect("it goes on").is_some());
}

#[tokio::test]
async fn a_call_that_waits_is_answered_after_its_token_expired() {
    let (model, issuer) = (Model::start().await, Issuer::start().await);
    let (server, _files) = with_file(&model, &issuer, "leeway = \"0s\"").await;
    let short = issuer.token("ada", &["caller"], &json!({ "exp": now_seconds() + 3 }));
    let (client, mut speech) = (server.as_caller(&short), model.speaks());
    let running = tokio::spawn(async move { client.run(named("r1", "hi")).await });
    soon(speech.asked()).await;
    while !is_refused(&server, &short).await {
        tokio::task::yield_now().await;
    }
    speech.say("done");
    speech.end();
    let done = soon(running).await.expect("it ends").expect("it is answered");
    assert_eq!(done.status(), wire::RunStatus::Completed);
}

#[tokio::test]
async fn streams_of_a_revoked_token_end_and_those_of_others_go_on() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let (ada, tools_of) =
        (files.token("ada", "local", &["viewer"]), files.token("tools", "local", &["host"]));
    let server = TestServer::with(&model, &files.auth()).await;
    let gate = Gate::default();
    let host = agentloop_client::host::ToolHost::builder(server.url()).host_id("host-1").token(&tools_of);
    let weather = tools(&gate).into_iter().filter(|tool| tool.name() == "weather");
    let host = weather.fold(host, agentloop_client::host::ToolHostBuilder::tool).build().expect("a host");
    let serving = tokio::spawn(async move { host.run_until(std::future::pending()).await });
    let watch = |token: &str| {
        let client = server.as_caller(token).agent_loop();
        async move {
            let mut client = client;
            soon(client.watch_runs(wire::WatchRunsRequest::default())).await.expect("watched").into_inner()
        }
    };
    let of_ada = watch(&ada).await;
    while soon(server.as_caller(&ada).list_hosts()).await.expect("listed").is_empty() {
        tokio::task::yield_now().await;
    }
    files.revoke_all();
    let bob = files.token("bob", "local", &["viewer"]);
    server.reload().await;
    let mut of_bob = watch(&bob).await;
    assert_eq!(end_of(of_ada).await.code(), Code::Unauthenticated);
    let ended = soon(serving).await.expect("it ends").expect_err("its token was revoked").to_string();
    assert!(ended.contains("revoked"), "{ended}");
    assert!(soon(of_bob.message()).await.expect("it goes on").is_some());
    files.token("carl", "local", &["viewer"]);
    server.reload().await;
    assert!(soon(of_bob.message()).await.expect("it goes on").is_some(), "another's token is new");
}
