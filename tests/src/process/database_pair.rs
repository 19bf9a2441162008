//! A PostgreSQL and its synchronous standby, behind an address that goes to whichever of them is the primary, as a floating
//! address does. A lost primary can be replaced, and lost again.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;

use super::proxy::Proxy;
use super::server::free_port;
use super::{eventually, soon};
use crate::postgres::Programs;

const USER: &str = "agentloop";

/// Waits for the standby to confirm each commit. It is set once there is one: no commit may wait for it before.
const SYNCHRONOUS: &str = "ALTER SYSTEM SET synchronous_standby_names = '*'";

/// The two databases. They are stopped and removed when this is dropped.
pub struct DatabasePair {
    programs: Programs,
    folder: TempDir,
    proxy: Proxy,
    primary: Place,
    standby: Place,
    /// Number of databases so far.
    number: usize,
}

/// The folder and the port of a database.
struct Place {
    name: String,
    port: u16,
}

impl Place {
    fn new(number: usize) -> Self {
        Self { name: format!("database-{number}"), port: free_port() }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl DatabasePair {
    /// Starts both. `None`: there is no PostgreSQL to test with.
    ///
    /// # Panics
    /// When they do not start.
    pub async fn start() -> Option<DatabasePair> {
        let programs = Programs::find()?;
        let folder = programs.folder();
        let (primary, standby) = (Place::new(1), Place::new(2));
        let proxy = Proxy::start(primary.address()).await;
        let pair = DatabasePair { programs, folder, proxy, primary, standby, number: 2 };
        let of_ours = ["-U", USER, "-E", "UTF8", "--locale=C", "--auth=trust", "--no-sync"];
        pair.run("initdb", &pair.primary, &of_ours).await;
        pair.serve(&pair.primary).await;
        pair.copy_to_standby().await;
        Some(pair)
    }

    /// Fills the folder of the standby from the primary, starts it, and has commits wait for it.
    async fn copy_to_standby(&self) {
        let port = self.primary.port.to_string();
        let from = ["-h", "127.0.0.1", "-p", &port, "-U", USER];
        let copy = ["--write-recovery-conf", "--checkpoint=fast", "--no-manifest", "--no-sync"];
        self.run("pg_basebackup", &self.standby, &[from.as_slice(), &copy].concat()).await;
        self.serve(&self.standby).await;
        let mut primary = shell(&self.primary).await.expect("the primary can be reached");
        for order in [SYNCHRONOUS, "SELECT pg_reload_conf()"] {
            primary.execute(order).await.expect("it is set");
        }
        primary.close().await.expect("closed");
        eventually("a synchronous standby", || is_synchronous(&self.primary)).await;
    }

    /// The address of the primary.
    pub fn url(&self) -> String {
        url(&self.proxy.address().to_string())
    }

    /// Ends the primary as a crash does: nothing more is written or said.
    pub async fn crash_primary(&self) {
        self.run("pg_ctl", &self.primary, &["-m", "immediate", "-w", "stop"]).await;
    }

    /// Stops the standby: commits of the primary wait until it is back.
    pub async fn stop_standby(&self) {
        self.run("pg_ctl", &self.standby, &["-m", "immediate", "-w", "stop"]).await;
    }

    /// Starts the standby after [`Self::stop_standby`].
    pub async fn start_standby(&self) {
        self.serve(&self.standby).await;
    }

    /// Makes the standby the primary, and gives it the address.
    pub async fn promote_standby(&self) {
        self.run("pg_ctl", &self.standby, &["-w", "promote"]).await;
        self.proxy.point_to(self.standby.address());
    }

    /// After [`Self::promote_standby`]: a new standby in place of the primary that was lost.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn replace_standby(&mut self) {
        self.number += 1;
        let standby = std::mem::replace(&mut self.standby, Place::new(self.number));
        let lost = std::mem::replace(&mut self.primary, standby);
        std::fs::remove_dir_all(self.path(&lost.name)).expect("its files can be removed");
        self.copy_to_standby().await;
    }

    async fn serve(&self, place: &Place) {
        let Place { name, port } = place;
        // A standby may start after the primary has written some more.
        let sizes = "-c shared_buffers=32MB -c wal_keep_size=256MB";
        let options = format!("-h 127.0.0.1 -p {port} -k '' {sizes}");
        let log = self.path(&format!("{name}.log"));
        let log = log.to_str().expect("a name in UTF-8");
        self.run("pg_ctl", place, &["-l", log, "-w", "-o", &options, "start"]).await;
    }

    async fn run(&self, program: &str, Place { name, .. }: &Place, arguments: &[&str]) {
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
        for Place { name, .. } in [&self.primary, &self.standby] {
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

async fn shell(place: &Place) -> Option<PgConnection> {
    let options: PgConnectOptions = url(&place.address()).parse().expect("an address");
    options.connect().await.ok()
}

/// True, as an option, once commits wait for the standby of the database at this place.
async fn is_synchronous(place: &Place) -> Option<()> {
    let sql = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'";
    let mut shell = shell(place).await?;
    let standbys: i64 = sqlx::query_scalar(sql).fetch_one(&mut shell).await.ok()?;
    shell.close().await.ok()?;
    (standbys == 1).then_some(())
}
