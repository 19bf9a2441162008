//! The store of the servers under test: a SQLite file, or a schema of a PostgreSQL, if `AGENTLOOP_TEST_POSTGRES` has the
//! address of one. `tests/with-postgres` starts one.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};
use tempfile::TempDir;

use crate::stored::Stored;

/// A new and empty store, which is this file or a schema of its own.
///
/// # Panics
/// When the PostgreSQL cannot be reached.
#[must_use]
pub fn new_store(file: PathBuf) -> Stored {
    match url() {
        None => Stored::File(file),
        Some(url) => Stored::Postgres(in_new_schema(url)),
    }
}

/// True if a test has to be left out that is about the files of the embedded store.
#[must_use]
pub fn has_no_file() -> bool {
    let has_none = url().is_some();
    if has_none {
        println!("left out: it is about the files of the embedded store");
    }
    has_none
}

/// The address of the PostgreSQL to test with.
#[must_use]
pub fn url() -> Option<String> {
    std::env::var("AGENTLOOP_TEST_POSTGRES").ok().filter(|url| !url.is_empty())
}

/// The address of an empty schema in the database at this one.
///
/// # Panics
/// When it cannot be reached.
#[must_use]
pub fn in_new_schema(url: String) -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let name = format!("t_{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
    let create = format!("CREATE SCHEMA {name}");
    let separator = if url.contains('?') { '&' } else { '?' };
    let of_schema = format!("{url}{separator}options=-csearch_path%3D{name}");
    // In a thread of its own: some of those who ask are in a runtime.
    let made = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let options: PgConnectOptions = url.parse()?;
            let mut db = options.connect().await?;
            db.execute(AssertSqlSafe(create)).await?;
            db.close().await
        })
    });
    made.join().expect("no panic").expect("a schema can be made");
    of_schema
}

/// The programs of the PostgreSQL that `tests/with-postgres` has started, to be run by the user who owns its files. PostgreSQL
/// refuses to be run by root.
pub struct Programs {
    bin: PathBuf,
    data: PathBuf,
    user: u32,
    group: u32,
}

impl Programs {
    /// `None`: there is no PostgreSQL to test with, or it is not the tests' own.
    ///
    /// # Panics
    /// When the folder of its data is not there.
    #[must_use]
    pub fn find() -> Option<Programs> {
        let of = |name: &str| std::env::var_os(format!("AGENTLOOP_TEST_POSTGRES_{name}")).map(PathBuf::from);
        let (data, bin) = (of("DATA")?, of("BIN")?);
        let owner = std::fs::metadata(&data).expect("the folder is there");
        Some(Programs { bin, data, user: owner.uid(), group: owner.gid() })
    }

    /// One of the programs, such as `pg_ctl`, for the database in this folder.
    #[must_use]
    pub fn command(&self, program: &str, data: &Path) -> Command {
        let program = self.bin.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            let (user, group) = (format!("--reuid={}", self.user), format!("--regid={}", self.group));
            command.args([&user, &group, "--clear-groups"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir("/").arg("-D").arg(data);
        command
    }

    /// A new folder of the user who runs the programs. It is beside the data of the tests' PostgreSQL and removed with it at the
    /// latest, even if the test is killed. A database whose folder is gone ends by itself.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn folder(&self) -> TempDir {
        let beside = self.data.parent().expect("it is no root");
        let folder = tempfile::tempdir_in(beside).expect("a directory");
        std::os::unix::fs::chown(folder.path(), Some(self.user), Some(self.group)).expect("it is given away");
        folder
    }
}

/// True if this process may act as the owner of a folder that is not its own.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Stops the PostgreSQL that `tests/with-postgres` has started, without a warning, and starts it again. Another one is left
/// alone.
///
/// # Panics
/// When it does not start.
pub async fn restart() {
    let Some(programs) = Programs::find() else { return };
    let mut command = tokio::process::Command::from(programs.command("pg_ctl", &programs.data));
    command.arg("-l").arg(programs.data.join("log"));
    command.args(["-m", "immediate", "-w", "restart"]).stdout(Stdio::null());
    let restarted = command.status().await.expect("there is a pg_ctl");
    assert!(restarted.success(), "{restarted}");
}
