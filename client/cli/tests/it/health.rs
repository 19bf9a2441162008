//! `agentloop health`: of the configured address, and of a server that is named.

use agentloop_client_testing::timeout::soon;

use crate::{
    process::{agentloop, ended},
    served::Server,
};

/// A container's health check must find the server wherever its configuration puts it.
#[tokio::test]
async fn health_follows_the_configuration_of_this_machine() {
    let server = Server::start().await;
    let local = |variables: &[(&str, String)]| {
        let mut command = agentloop("http://127.0.0.1:1", &["health", "--local"]);
        command.envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
        command
    };
    let file = server.file("agentloop.toml").to_str().expect("text").to_owned();
    let listen = server.url().replace("http://127.0.0.1", "0.0.0.0");
    let by_file = [("AGENTLOOP_CONFIG", file)];
    let by_variable =
        [("AGENTLOOP_SERVER_LISTEN", listen), ("AGENTLOOP_SERVER_ALLOW_INSECURE_REMOTE", "true".to_owned())];
    for variables in [&by_file[..], &by_variable[..]] {
        let output = soon(local(variables).output()).await.expect("the command was built");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(output.stdout, b"ready\n");
    }
    let nowhere = [("AGENTLOOP_SERVER_LISTEN", "127.0.0.1:1".to_owned())];
    let output = soon(local(&nowhere).output()).await.expect("the command was built");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}

#[tokio::test]
async fn health_says_where_it_asked_and_asks_one_server() {
    let (code, _, err) = ended("http://127.0.0.1:1", &["health"]).await;
    assert_eq!(code, 5, "{err}");
    assert!(err.contains("asked at http://127.0.0.1:1: `agentloop serve` starts a server"), "{err}");
    let local = ["health", "--local", "--server", "http://127.0.0.1:1"];
    let (code, _, err) = ended("http://127.0.0.1:1", &local).await;
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("--server names another"), "{err}");
    for bad in ["http://127.0.0.1:99999", "ftp://127.0.0.1:1"] {
        let (code, _, err) = ended(bad, &["health"]).await;
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(bad), "{err}");
    }
    let (code, _, err) = ended("https://127.0.0.1:1", &["--tls-ca", "/dev/null", "health"]).await;
    assert_eq!(code, 2, "{err}");
    assert!(err.starts_with("agentloop: /dev/null has no certificate in PEM"), "{err}");
    let (code, _, err) = ended("https://127.0.0.1:1", &["--tls-ca", "/nowhere.pem", "health"]).await;
    assert_eq!(code, 2, "{err}");
    assert!(err.starts_with("agentloop: cannot read /nowhere.pem: "), "{err}");
}

#[tokio::test]
async fn variables_that_are_empty_count_as_not_set() {
    let server = Server::start().await;
    let empty = |command: &mut tokio::process::Command| {
        for name in ["CA_FILE", "CERT_FILE", "KEY_FILE", "SERVER", "TOKEN"] {
            command.env(format!("AGENTLOOP_{name}"), "");
        }
    };
    let mut health = agentloop(&server.url(), &["health"]);
    empty(&mut health);
    let output = soon(health.output()).await.expect("the command was built");
    assert_eq!(output.status.code(), Some(0), "{output:?}");

    // It asks at the usual address, where a server of this machine may be.
    let mut health = tokio::process::Command::new(env!("CARGO_BIN_EXE_agentloop"));
    empty(health.arg("health"));
    let output = soon(health.output()).await.expect("the command was built");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || err.contains("asked at http://127.0.0.1:50051"), "{output:?}");
}
