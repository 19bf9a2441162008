//! SIGHUP to `agentloop serve`, which has nothing to read again, or has not started yet.

use std::{fs, os::unix::process::ExitStatusExt as _, path::Path, process::Stdio};

use agentloop_client_testing::timeout::soon;
use tokio::{net::TcpListener, process::Command};

use crate::{
    process::{Running, agentloop, ended},
    setup::{VARIABLES, free_address},
};

/// A server in this folder, which is also the user's home.
fn serve(folder: &Path, listen: &str) -> Command {
    let mut command = agentloop("unused", &["serve"]);
    command.current_dir(folder).env("HOME", folder).env("AGENTLOOP_SERVER_LISTEN", listen);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command
}

#[tokio::test]
async fn a_server_without_files_to_read_again_goes_on() {
    let (folder, listen) = (tempfile::tempdir().expect("a folder"), free_address());
    let server = Running::start_and_wait_for(serve(folder.path(), &listen), "listens on").await;
    for _ in 0..3 {
        server.signal("HUP").await;
        let (code, out, err) = ended(&format!("http://{listen}"), &["health"]).await;
        assert_eq!(code, 0, "{out}{err}");
    }
    server.signal("TERM").await;
    assert_eq!(server.code().await, 0);
}

#[tokio::test]
async fn a_server_that_has_not_started_yet_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
    let address = database.local_addr().expect("a bound socket has an address");
    let mut command = serve(folder.path(), &free_address());
    command.env("AGENTLOOP_STORE_URL", format!("postgres://u@{address}/x"));
    let mut server = command.stderr(Stdio::null()).spawn().expect("the command was built");
    // It waits for the answer of a database, which never comes.
    let (waiting, _) = soon(database.accept()).await.expect("the server asks");
    let pid = server.id().expect("it runs").to_string();
    let sent = soon(Command::new("kill").args(["-HUP", &pid]).status()).await;
    assert!(sent.expect("there is a kill").success());
    drop((waiting, database));
    let ended = soon(server.wait()).await.expect("it ran");
    assert_eq!((ended.signal(), ended.code()), (None, Some(1)), "the database ends it, and not the signal");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}
