//! `agentloop cert`, `agentloop token`, and a server that uses both.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use agentloop_client::{
    Client,
    v1::{
        Approve, AuditFilter, Decision, ListAuditRecordsRequest, ListPendingRequest, ListRunsRequest,
        ListSessionsRequest, RunInput, RunResult, RunStatus, SubmitApprovalRequest, SubmitInputRequest,
        decision::Decision::Approve as Approved, submit_input_request::Input,
    },
};
use agentloop_client_testing::timeout::soon;
use serde_json::Value;

use crate::{
    process::{Running, agentloop, ended},
    served::Server,
};

const NOWHERE: &str = "unused";

/// Runs a command that must succeed, and returns its output.
async fn done(args: &[&str]) -> String {
    let (code, out, err) = ended(NOWHERE, args).await;
    assert_eq!(code, 0, "{args:?}: {err}");
    out
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().expect("text").to_owned()
}

async fn token(file: &str, args: &[&str]) -> String {
    let all = [&["token", "new", "--file", file][..], args].concat();
    done(&all).await.trim().to_owned()
}

#[tokio::test]
async fn certificates_and_tokens_protect_a_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let (certs, tokens) = (path(dir, "certs"), path(dir, "tokens.toml"));
    done(&["cert", "dev", "--dir", &certs, "--client", "ada"]).await;
    for key in ["ca.key", "server.key", "ada.key"] {
        let mode = fs::metadata(dir.join("certs").join(key)).expect("it is made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }
    let bob =
        token(&tokens, &["--name", "bob", "--tenant", "blue", "--role", "viewer", "--expires", "1h"]).await;
    let listed = done(&["token", "list", "--file", &tokens]).await;
    let id = listed.lines().nth(1).expect("one token").split(' ').next().expect("an id").to_owned();
    assert!(listed.contains("bob") && bob.contains(&id), "{listed}");
    assert!(!fs::read_to_string(&tokens).expect("it is there").contains(&bob));
    let (code, _, err) =
        ended(NOWHERE, &["token", "new", "--file", &tokens, "--name", "x", "--role", "admin"]).await;
    assert!(code == 2 && err.contains("there is no role"), "{err}");
    let (code, _, err) =
        ended(NOWHERE, &["token", "new", "--file", &tokens, "--name", "b\u{43e}b", "--role", "viewer"]).await;
    assert!(code == 2 && err.contains("several scripts"), "{err}");

    let free = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
    let address = free.local_addr().expect("a bound socket has an address");
    drop(free);
    let config = format!(
        r#"
[server]
listen = "{address}"
[store]
path = "agentloop.db"
[tls]
certificate = "certs/server.pem"
key = "certs/server.key"
client_ca = "certs/ca.pem"
client_auth = "optional"
[auth]
tokens = "tokens.toml"
[[auth.certificates]]
subject = "CN=ada"
name = "ada"
roles = ["operator"]
"#
    );
    fs::write(dir.join("agentloop.toml"), config).expect("written");
    let file = path(dir, "agentloop.toml");
    let server =
        Running::start_and_wait_for(agentloop(NOWHERE, &["serve", "--config", &file]), "listens on https://");
    let server = server.await;

    let url = format!("https://localhost:{}", address.port());
    let ca = path(dir, "certs/ca.pem");
    let info = async |token: &str| {
        let mut command = agentloop(&url, &["info", "--json", "--tls-ca", &ca]);
        command.env("AGENTLOOP_TOKEN", token);
        soon(command.output()).await.expect("the command was built")
    };
    let known = info(&bob).await;
    let told: Value = serde_json::from_slice(&known.stdout).unwrap_or_else(|_| panic!("{known:?}"));
    assert_eq!((&told["caller"]["name"], &told["caller"]["tenant"]), (&"bob".into(), &"blue".into()));

    // Asked without TLS, and without the root of its certificate.
    let plain = url.replace("https://", "http://");
    let (code, _, err) = ended(&plain, &["info"]).await;
    assert!(code == 5 && err.contains("has TLS, its address begins with https://"), "{err}");
    let (code, _, err) = ended(&url, &["info"]).await;
    assert!(code == 5 && err.contains("--tls-ca names the root"), "{err}");

    // By a certificate, whose key alone proves nothing.
    let (cert, key) = (path(dir, "certs/ada.pem"), path(dir, "certs/ada.key"));
    let presented = ["info", "--json", "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    let (code, out, err) = ended(&url, &presented).await;
    assert!(code == 0 && out.contains("operator"), "{out}{err}");
    let (code, _, err) = ended(&url, &["info", "--tls-ca", &ca]).await;
    assert!(code == 1 && err.contains("credentials"), "{err}");

    // A revoked token is refused at once after SIGHUP.
    done(&["token", "revoke", "--file", &tokens, &id]).await;
    server.signal("HUP").await;
    soon(async { while info(&bob).await.status.success() {} }).await;
    server.signal("TERM").await;
    assert_eq!(server.code().await, 0);
}

#[tokio::test]
async fn the_file_of_tokens_behind_a_link_is_changed_and_the_link_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let (file, link) = (path(dir, "real/tokens.toml"), path(dir, "tokens.toml"));
    fs::create_dir(dir.join("real")).expect("made");
    symlink("real/tokens.toml", &link).expect("made");
    for name in ["ada", "bob"] {
        token(&link, &["--name", name, "--role", "caller"]).await;
    }
    let listed = done(&["token", "list", "--file", &file]).await;
    assert!(listed.contains("ada") && listed.contains("bob"), "{listed}");
    let id =
        listed.lines().find(|line| line.contains("bob")).expect("a row").split(' ').next().expect("an id");
    done(&["token", "revoke", "--file", &link, id]).await;
    let left = done(&["token", "list", "--file", &file]).await;
    assert!(left.contains("ada") && !left.contains("bob"), "{left}");
    assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
}

#[tokio::test]
async fn a_file_or_folder_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = path(dir.path(), "file");
    fs::write(&file, "").expect("written");
    let below = format!("{file}/below");
    let folder = |path: &str| format!("cannot make the folder {path}: ");
    for (args, told) in [
        (&["demo", "--scripted", "--dir", &file][..], folder(&file)),
        (&["demo", "--scripted"], format!("cannot make the folder {file}/agentloop-demo-")),
        (&["cert", "dev", "--dir", &below], folder(&below)),
        (
            &["token", "new", "--file", &below, "--name", "a", "--role", "caller"],
            format!("cannot write {below}.lock: "),
        ),
        (&["serve"], folder(&format!("{below}/agentloop"))),
    ] {
        let mut command = agentloop(NOWHERE, args);
        command.current_dir(dir.path()).env("TMPDIR", &file).env("XDG_DATA_HOME", &below);
        command.env_remove("AGENTLOOP_CONFIG").env_remove("AGENTLOOP_STORE_PATH");
        let output = soon(command.output()).await.expect("the command was built");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && err.contains(&told), "{args:?}: {err}");
    }
}

async fn run(client: &Client, id: &str, prompt: &str) -> RunResult {
    let input = RunInput { run_id: Some(id.into()), prompt: prompt.into(), ..RunInput::default() };
    soon(client.run(input)).await.expect("a caller without credentials runs")
}

#[tokio::test]
async fn without_configuration_everything_stays_open_on_loopback() {
    let mut server = Server::start().await;
    server.kill().await;
    let file = server.file("agentloop.toml");
    let config = fs::read_to_string(&file).expect("it is there");
    fs::write(&file, format!("{config}[audit]\nenabled = true\n")).expect("written");
    let file = file.to_str().expect("text");
    let serve = agentloop("unused", &["serve", "--config", file]);
    let said = [
        "the server runs without authentication: whoever reaches the port may do everything",
        "listens on http://",
    ];
    let _running = Running::start_and_wait_for_each(serve, &said).await;

    let client = Client::builder(server.url()).build().expect("a client without credentials");
    let info = soon(client.server_info()).await.expect("told");
    assert!(!info.authentication_required && info.caller_roles.is_empty(), "{info:?}");
    let _host = server.host().await;

    let encrypted = server.url().replace("http://", "https://");
    let (code, _, err) = ended(&encrypted, &["info"]).await;
    assert!(code == 5 && err.contains("no TLS; then its address begins with http://"), "{err}");

    // It runs, and answers the questions of both kinds.
    let waits = run(&client, "asks", "which town").await;
    assert_eq!((waits.status(), waits.pending.len()), (RunStatus::AwaitingHuman, 1));
    let pending = soon(client.list_pending(ListPendingRequest::default())).await.expect("listed").requests;
    assert_eq!(pending, waits.pending);
    let request_id = waits.pending[0].request_id.clone();
    let input = Some(Input::Text("Oslo".into()));
    let answer = SubmitInputRequest { request_id, input, ..SubmitInputRequest::default() };
    soon(client.submit_input(answer)).await.expect("answered");
    assert_eq!(run(&client, "asks", "which town").await.status(), RunStatus::Completed);
    let waits = run(&client, "mails", "mail").await;
    assert_eq!((waits.status(), waits.pending.len()), (RunStatus::AwaitingHuman, 1));
    let request_id = waits.pending[0].request_id.clone();
    let decision = Some(Decision { decision: Some(Approved(Approve {})) });
    let answer = SubmitApprovalRequest { request_id, decision, ..SubmitApprovalRequest::default() };
    soon(client.submit_approval(answer)).await.expect("approved");
    assert_eq!(run(&client, "mails", "mail").await.status(), RunStatus::Completed);

    // It reads, changes and deletes what any caller has made.
    let other = Client::builder(server.url()).build().expect("another client");
    let runs = soon(other.list_runs(ListRunsRequest::default())).await.expect("listed").runs;
    let sessions = soon(other.list_sessions(ListSessionsRequest::default())).await.expect("listed").sessions;
    assert_eq!((runs.len(), sessions.len()), (2, 2));
    let hosts = soon(other.list_hosts()).await.expect("listed");
    assert!(matches!(&hosts[..], [host] if host.host_id == "h-1"), "{hosts:?}");
    assert!(soon(other.delete_session(&sessions[0].session_id)).await.expect("deleted"));
    let request = ListAuditRecordsRequest {
        filter: Some(AuditFilter::default()),
        page_size: 500,
        ..ListAuditRecordsRequest::default()
    };
    let audit = soon(other.list_audit_records(request)).await.expect("read").records;
    for rpc in ["/Run", "/SubmitInput", "/SubmitApproval", "/DeleteSession"] {
        assert!(audit.iter().any(|row| row.rpc.ends_with(rpc) && row.allowed), "{rpc}: {audit:?}");
    }
    assert!(audit.iter().all(|row| row.allowed), "{audit:?}");
    let checked = soon(other.verify_audit()).await.expect("checked");
    assert_eq!(checked.broken_no, 0);
    // A hash that was kept is looked for, and one that no row has means that rows were cut off.
    let verify = ["audit", "verify", "--known-hash"];
    let (code, out, err) = ended(&server.url(), &[&verify[..], &[&checked.last_hash]].concat()).await;
    assert!(code == 0 && out.starts_with("whole: "), "{out}{err}");
    let (code, out, err) = ended(&server.url(), &[&verify[..], &[&"0f".repeat(32)]].concat()).await;
    assert!(code != 0 && err.contains("cut off"), "{out}{err}");
    let (code, out, err) = ended(&server.url(), &[&verify[..], &["00ff"]].concat()).await;
    assert!(code == 2 && err.contains("64 hexadecimal digits"), "{out}{err}");
    // The log is read by an abbreviated id, and by one of what is there no longer.
    let kept = &sessions[1].session_id;
    for filter in [["--session", &kept[24..]], ["--run", "mails"]] {
        let (code, out, err) = ended(&server.url(), &["audit", filter[0], filter[1]]).await;
        assert!(code == 0 && out.lines().count() > 1, "{filter:?}: {out}{err}");
    }

    // Only other machines keep it from starting like this.
    let address = server.url().replace("http://", "");
    let remote = config.replace(&address, "0.0.0.0:0");
    fs::write(file, remote).expect("written");
    let (code, _, err) = ended(NOWHERE, &["serve", "--config", file]).await;
    assert!(code != 0 && err.contains("there is no authentication"), "{code}: {err}");
}
