//! The store of the servers under test: a SQLite file, or a schema of a PostgreSQL, if `AGENTLOOP_TEST_POSTGRES` has the
//! address of one. `tests/with-postgres` starts one.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};
use tokio::process::Command;

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
    let of = |name: &str| std::env::var_os(format!("AGENTLOOP_TEST_POSTGRES_{name}")).map(PathBuf::from);
    let (Some(data), Some(bin)) = (of("DATA"), of("BIN")) else { return };
    // It refuses to be run by root, so whoever owns its folder runs it.
    let owner = std::fs::metadata(&data).expect("the folder is there");
    let (user, group) = (format!("--reuid={}", owner.uid()), format!("--regid={}", owner.gid()));
    let mut command = match is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args([&user, &group, "--clear-groups"]).arg(bin.join("pg_ctl"));
            command
        }
        false => Command::new(bin.join("pg_ctl")),
    };
    command.current_dir("/").arg("-D").arg(&data).arg("-l").arg(data.join("log"));
    command.args(["-m", "immediate", "-w", "restart"]).stdout(Stdio::null());
    let restarted = command.status().await.expect("there is a pg_ctl");
    assert!(restarted.success(), "{restarted}");
}
