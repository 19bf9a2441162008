//! The place of the database of `agentloop serve`.

use std::{fs, path::Path};

use tokio::process::Command;

use crate::process::{Running, agentloop};

const HERE: &str = "the database in this folder is used";

/// `agentloop serve` in this folder, by a user with this home folder.
fn serve(folder: &Path, home: &Path) -> Command {
    let mut command = agentloop("unused", &["serve"]);
    command.current_dir(folder).env("HOME", home).env("AGENTLOOP_SERVER_LISTEN", "127.0.0.1:0");
    for variable in ["XDG_DATA_HOME", "AGENTLOOP_CONFIG", "AGENTLOOP_STORE_PATH"] {
        command.env_remove(variable);
    }
    command
}

/// Starts a server, which says this, and stops it.
async fn says(command: Command, said: &str) {
    let running = Running::start_and_wait_for(command, said).await;
    running.signal("TERM").await;
    running.gone().await;
}

#[tokio::test]
async fn it_is_the_same_from_every_folder() {
    let (home, one, other) = (tempfile::tempdir(), tempfile::tempdir(), tempfile::tempdir());
    let (home, one, other) = (home.expect("one"), one.expect("another"), other.expect("a third"));
    for folder in [&one, &other] {
        says(serve(folder.path(), home.path()), &format!("the database is {}", home.path().display())).await;
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}

#[tokio::test]
async fn one_in_the_folder_stays_in_use_with_a_warning() {
    let (home, folder) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("another"));
    let here = folder.path().join("agentloop.db");
    let mut named = serve(folder.path(), home.path());
    named.env("AGENTLOOP_STORE_PATH", "agentloop.db");
    says(named, &format!("the database is {}", here.display())).await;
    assert!(here.exists());

    says(serve(folder.path(), home.path()), HERE).await;
    says(serve(folder.path(), home.path()), &format!("the database is {}", here.display())).await;
    assert_eq!(fs::read_dir(home.path()).expect("a folder").count(), 0, "nothing is made elsewhere");
}
