//! Client certificates as credentials: the principal that one proves, and its end.

use agentloop_client::{Backoff, v1 as wire};
use agentloop_tests::credentials::{Authority, SecurityFiles};
use agentloop_tests::issuer::now_seconds;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use tonic::Code;

#[tokio::test]
async fn a_certificate_proves_its_principal_and_the_server_says_who_that_is() {
    let (model, authority, files) = (Model::start().await, Authority::new(), SecurityFiles::new());
    files.write_identity(&authority.server());
    files.write("ca.pem", &authority.root());
    let optional = format!("client_ca = {:?}\nclient_auth = \"optional\"", files.path("ca.pem"));
    let token = files.token("bob", "acme", &["viewer"]);
    let auth = r#"
[[auth.certificates]]
subject = "CN=ada"
name = "ada@example.com"
tenant = "acme"
roles = ["caller", "approver"]
groups = ["sre"]
"#;
    let more = format!("{}{}{auth}", files.tls(&optional), files.auth());
    let server = TestServer::with(&model, &more).await;
    let client = || server.client_builder().tls_ca(authority.root());
    let with = |name: &str| {
        let identity = authority.client(name);
        client().tls_identity(identity.certificate, identity.key)
    };
    let info = soon(with("ada").build().expect("a client").server_info()).await.expect("she is known");
    let caller = wire::Caller {
        name: "ada@example.com".to_owned(),
        tenant: "acme".to_owned(),
        groups: vec!["sre".to_owned()],
    };
    assert_eq!((info.caller, info.caller_roles), (Some(caller), vec!["caller".into(), "approver".into()]));
    assert!(info.authentication_required);
    // A token counts more than the certificate.
    let both = soon(with("ada").token(token).build().expect("a client").server_info()).await.expect("known");
    assert_eq!(both.caller.expect("a caller").name, "bob");
    for unknown in [with("mallory").build(), client().build(), with("ada").token("agt_x_y").build()] {
        let refused = soon(unknown.expect("a client").server_info()).await.expect_err("unknown");
        assert_eq!(refused.code(), Some(Code::Unauthenticated));
    }
}

#[tokio::test]
async fn a_certificate_that_ends_ends_its_streams_and_its_connection_proves_nobody() {
    let (model, authority, files) = (Model::start().await, Authority::new(), SecurityFiles::new());
    files.write_identity(&authority.server());
    files.write("ca.pem", &authority.root());
    let optional = format!("client_ca = {:?}\nclient_auth = \"optional\"", files.path("ca.pem"));
    let auth = "[[auth.certificates]]\nsubject = \"CN=ada\"\nname = \"ada\"\nroles = [\"viewer\"]\n";
    let server = TestServer::with(&model, &format!("{}{}{auth}", files.tls(&optional), files.auth())).await;
    let identity = authority.client_until("ada", now_seconds() + 4);
    let backoff = Backoff::NEVER;
    let ada = server.client_builder().tls_ca(authority.root()).backoff(backoff);
    let ada = ada.tls_identity(identity.certificate, identity.key).build().expect("a client");
    let mut calls = ada.agent_loop();
    let watching = calls.watch_runs(wire::WatchRunsRequest::default());
    let mut changes = soon(watching).await.expect("she is known").into_inner();
    let ended = loop {
        match soon(changes.message()).await {
            Ok(change) => assert!(change.is_some(), "the stream ends with a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unauthenticated);
    let refused = soon(ada.server_info()).await.expect_err("the connection is the same");
    assert_eq!(refused.code(), Some(Code::Unauthenticated));
}
