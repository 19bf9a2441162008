//! A database that crashes and starts again, below replicas. It is one of the test's own: others use the one of the suite.

use std::process::Command;

use super::*;
use crate::cluster::{ReplicaRow, Replicas as _};
use crate::store::conformance::fixture;

/// A PostgreSQL on a port and in a folder of its own.
struct Database {
    programs: String,
    folder: tempfile::TempDir,
    port: u16,
}

impl Database {
    /// `None`: there are no programs of PostgreSQL to test with.
    #[expect(clippy::disallowed_methods, reason = "whoever runs the tests says where the programs are")]
    fn start() -> Option<Self> {
        let programs = std::env::var("AGENTLOOP_TEST_POSTGRES_BIN").ok().filter(|path| !path.is_empty())?;
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let database = Self { programs, folder, port };
        if is_root() {
            let path = database.folder.path().to_str().unwrap();
            assert!(Command::new("chown").args(["nobody", path]).status().unwrap().success());
        }
        database.run("initdb", &["-U", "agentloop", "-E", "UTF8", "--locale=C", "--auth=trust"]);
        let options = format!("-h 127.0.0.1 -p {port} -k ''");
        database.run("pg_ctl", &["-l", &database.path("log"), "-w", "-o", &options, "start"]);
        Some(database)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let program = format!("{}/{program}", self.programs);
        // It refuses to be run by root.
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=nobody", "--clear-groups", "--regid=nogroup", &program]);
            command
        } else {
            Command::new(program)
        };
        let command =
            command.current_dir(self.folder.path()).args(["-D", &self.path("data")]).args(arguments);
        // Its output goes to a file: the database that it starts would keep a pipe open.
        let output = std::fs::File::create(self.path("output")).unwrap();
        let status = command.stdout(output.try_clone().unwrap()).stderr(output).status().unwrap();
        assert!(status.success(), "{arguments:?}: {}", std::fs::read_to_string(self.path("output")).unwrap());
    }

    fn crash_and_start(&self) {
        self.run("pg_ctl", &["-m", "immediate", "-l", &self.path("log"), "-w", "restart"]);
    }

    fn options(&self) -> PostgresOptions {
        let url = format!("postgres://agentloop@127.0.0.1:{}/postgres", self.port);
        PostgresOptions { url: Secret::new(url), readers: 2, ..PostgresOptions::default() }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.run("pg_ctl", &["-m", "immediate", "-w", "stop"]);
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    String::from_utf8(id.stdout).unwrap().trim() == "0"
}

#[tokio::test]
async fn a_crash_of_the_database_makes_nobody_suspicious() {
    let Some(database) = Database::start() else { return };
    let options = database.options();
    let lease = Duration::from_secs(5);
    let owner = Server::join(&options, "a:1", lease).await.unwrap();
    let store = owner.own().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut run = fixture::Owner::started(&shared, "s", "r").await;
    let other = Server::join(&options, "b:1", lease).await.unwrap();
    other.wait_for(|ownership| owners_of(ownership) == [ShardOwner::Peer(owner.peer())]).await;
    for text in ["one", "two"] {
        database.crash_and_start();
        run.says(text).await.unwrap();
        // Both have beaten again, so each has seen the other after the gap.
        for server in [&owner, &other] {
            until(async || {
                let silent_for =
                    |row: &ReplicaRow| row.silent_for.is_none_or(|silent_for| silent_for < lease / 2);
                let members = server.replica.rows();
                members.len() == 2 && members.iter().all(silent_for)
            })
            .await;
        }
        owner.wait_for_shards(SHARDS).await;
    }
    let mut shell = connect(options.url.expose()).await;
    assert_eq!(number(&mut shell, "SELECT max(term) FROM shards").await, 1);
    assert_eq!(number(&mut shell, "SELECT count(*) FROM replicas WHERE fenced").await, 0);
    assert!(!store.failed().is_cancelled() && !owner.replica.failed().is_cancelled());
    assert_eq!(run.stored().await.len(), 3);
}
