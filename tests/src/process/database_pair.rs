//! A PostgreSQL and its synchronous standby, behind an address that goes to whichever of them is the primary, as a floating
//! address does.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;

use super::proxy::Proxy;
use super::server::free_port;
use super::{eventually, soon};
use crate::postgres::Programs;

/// The folders of the two databases.
const FIRST: &str = "first";
const SECOND: &str = "second";

const USER: &str = "agentloop";

/// Waits for the standby to confirm each commit of the primary. The standby is started without it: no commit may wait for
/// another standby there.
const SYNCHRONOUS: &str = "-c 'synchronous_standby_names=*'";

/// The two databases. They are stopped and removed when this is dropped.
pub struct DatabasePair {
    programs: Programs,
    folder: TempDir,
    proxy: Proxy,
    second_port: u16,
}

impl DatabasePair {
    /// Starts both. `None`: there is no PostgreSQL to test with.
    ///
    /// # Panics
    /// When they do not start.
    pub async fn start() -> Option<DatabasePair> {
        let programs = Programs::find()?;
        let folder = programs.folder();
        let (first_port, second_port) = (free_port(), free_port());
        let proxy = Proxy::start(format!("127.0.0.1:{first_port}")).await;
        let pair = DatabasePair { programs, folder, proxy, second_port };
        pair.run("initdb", FIRST, &["-U", USER, "-E", "UTF8", "--locale=C", "--auth=trust", "--no-sync"])
            .await;
        pair.serve(FIRST, first_port, SYNCHRONOUS).await;
        let port = first_port.to_string();
        let from = ["-h", "127.0.0.1", "-p", &port, "-U", USER];
        let copy = ["--write-recovery-conf", "--checkpoint=fast", "--no-manifest", "--no-sync"];
        pair.run("pg_basebackup", SECOND, &[from.as_slice(), &copy].concat()).await;
        pair.serve(SECOND, second_port, "").await;
        eventually("a synchronous standby", || is_synchronous(first_port)).await;
        Some(pair)
    }

    /// The address of the primary.
    pub fn url(&self) -> String {
        url(&self.proxy.address().to_string())
    }

    /// Ends the primary as a crash does: nothing more is written or said.
    pub async fn crash_primary(&self) {
        self.run("pg_ctl", FIRST, &["-m", "immediate", "-w", "stop"]).await;
    }

    /// Stops the standby: commits of the primary wait until it is back.
    pub async fn stop_standby(&self) {
        self.run("pg_ctl", SECOND, &["-m", "immediate", "-w", "stop"]).await;
    }

    /// Starts the standby after [`Self::stop_standby`].
    pub async fn start_standby(&self) {
        self.serve(SECOND, self.second_port, "").await;
    }

    /// Makes the standby the primary, and gives it the address.
    pub async fn promote_standby(&self) {
        self.run("pg_ctl", SECOND, &["-w", "promote"]).await;
        self.proxy.point_to(format!("127.0.0.1:{}", self.second_port));
    }

    async fn serve(&self, name: &str, port: u16, more: &str) {
        let options = format!("-h 127.0.0.1 -p {port} -k '' -c shared_buffers=32MB {more}");
        let log = self.path(&format!("{name}.log"));
        let log = log.to_str().expect("a name in UTF-8");
        self.run("pg_ctl", name, &["-l", log, "-w", "-o", &options, "start"]).await;
    }

    async fn run(&self, program: &str, name: &str, arguments: &[&str]) {
        // A pipe would be kept open by the database that it starts.
        let output = File::create(self.path("output")).expect("created");
        let mut command = self.command(program, name);
        command.args(arguments).stdout(output.try_clone().expect("a second handle")).stderr(output);
        let status = soon(program, tokio::process::Command::from(command).status()).await;
        let is_done = status.is_ok_and(|status| status.success());
        let log = format!("{name}.log");
        assert!(is_done, "{program} {arguments:?}: {}{}", self.said("output"), self.said(&log));
    }

    fn command(&self, program: &str, name: &str) -> Command {
        self.programs.command(program, &self.path(name))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn said(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap_or_default()
    }
}

impl Drop for DatabasePair {
    fn drop(&mut self) {
        for name in [FIRST, SECOND] {
            let mut stop = self.command("pg_ctl", name);
            stop.args(["-m", "immediate", "-w", "stop"]).stdout(Stdio::null()).stderr(Stdio::null());
            // The one that has crashed is stopped already.
            let _stopped = stop.status();
        }
    }
}

fn url(address: &str) -> String {
    format!("postgres://{USER}@{address}/postgres")
}

/// True, as an option, once commits wait for the standby of the database at this port.
async fn is_synchronous(port: u16) -> Option<()> {
    let sql = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'";
    let options: PgConnectOptions = url(&format!("127.0.0.1:{port}")).parse().expect("an address");
    let mut shell = options.connect().await.ok()?;
    let standbys: i64 = sqlx::query_scalar(sql).fetch_one(&mut shell).await.ok()?;
    shell.close().await.ok()?;
    (standbys == 1).then_some(())
}
