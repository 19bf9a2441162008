//! `agentloop cert`, `agentloop token`, and a server that uses both.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _, path::Path};

use agentloop_client_testing::timeout::soon;
use serde_json::Value;

use crate::process::{Running, agentloop, ended};

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
