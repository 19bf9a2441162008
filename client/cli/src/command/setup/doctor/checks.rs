//! The checks of the machine and of the server that runs on it.

use std::{
    fs::{self, Metadata, OpenOptions},
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use agentloop_client::{
    Client, Error,
    v1::{Host, HostHealth},
};
use tonic::Code;

use super::report::Check;
use crate::{
    embedded::{ConfiguredServer, DatabasePlace},
    exit::in_one_line,
};

/// Free bytes below which a disk is nearly full.
const FREE_LOW: u64 = 1 << 30;
/// Free bytes below which writes fail soon.
const FREE_MIN: u64 = 64 << 20;
/// Time for an answer of the server.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Seconds from 1970 to the beginning of 2026, when this check was written. No right clock shows less.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);
/// Time by which a file may seem to come from the future: coarse clocks of file systems.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

/// Checks the server at an address. `own` is where the one of the configuration listens, and whether it encrypts: if it does not
/// run, the port must be free. True if it runs.
pub(super) async fn server(client: &Client, address: &str, own: Option<(SocketAddr, bool)>) -> (Check, bool) {
    let Ok(ready) = tokio::time::timeout(ANSWER_MAX, client.is_ready()).await else {
        let advice = match own {
            Some(_) => "if it is another program, stop it, or set server.listen to another port",
            None => "check that the address of --server is that of agentloop",
        };
        let detail = format!("something at {address} takes connections and does not answer");
        return (Check::failed("server", detail, advice), false);
    };
    match ready {
        Ok(true) => (Check::ok("server", format!("runs at {address} and is ready")), true),
        Ok(false) => {
            let advice = "see its log: it starts, stops, or cannot write its database";
            (Check::failed("server", format!("runs at {address} and is not ready"), advice), true)
        }
        Err(error) if error.is_unreachable() => match own {
            Some((listen, encrypted)) => (port(listen, encrypted.then_some(&error)), false),
            None => {
                let advice = "start it, or check the address of --server";
                (Check::failed("server", format!("{address}: {}", in_one_line(&error)), advice), false)
            }
        },
        Err(error) => {
            let detail = format!("{address}: {}", in_one_line(&error));
            (Check::failed("server", detail, advice(&error)), false)
        }
    }
}

/// The next thing to do about a call of the server that failed.
fn advice(error: &Error) -> &'static str {
    match error.code() {
        Some(Code::Unauthenticated) => {
            "give a token that the server knows (--token, AGENTLOOP_TOKEN) or a certificate (--tls-cert, --tls-key)"
        }
        Some(Code::PermissionDenied) => {
            "give the token or certificate of a caller that may read tools and hosts: see server/docs/guide/security.md"
        }
        Some(Code::Unimplemented) => "check that the address is that of agentloop, and of this version",
        Some(Code::ResourceExhausted) => "wait a while: the server refuses more for now",
        Some(Code::DeadlineExceeded | Code::Unavailable) => "see the log of the server: it is busy, or stops",
        Some(Code::Internal | Code::DataLoss) => "see the log of the server, which has the details",
        Some(_) => "check that the address is that of agentloop: a proxy may answer in its place",
        None => match error {
            Error::Unreachable(_) => "see the log of the server: it was there, and does not answer any more",
            Error::Endpoint(_) => "check the address of --server",
            _ => "check that the address is that of agentloop, and of this version",
        },
    }
}

/// Checks that a server can listen on the address. `tls` is why it is not reached over TLS.
fn port(listen: SocketAddr, tls: Option<&Error>) -> Check {
    match TcpListener::bind(listen) {
        Ok(_) => {
            Check::ok("server", format!("does not run; {listen} is free: start it with `agentloop serve`"))
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let Some(error) = tls else {
                let advice = "stop it, or set server.listen to another port";
                return Check::failed("server", format!("another program listens on {listen}"), advice);
            };
            let detail =
                format!("something listens on {listen}, and TLS with it fails: {}", in_one_line(error));
            let advice = "if it is the server, give the root of its certificate (--tls-ca) and, where it asks for one, a certificate (--tls-cert, --tls-key)";
            Check::failed("server", detail, advice)
        }
        Err(error) => Check::failed(
            "server",
            format!("cannot listen on {listen}: {error}"),
            "set server.listen to an address of this machine",
        ),
    }
}

/// Checks the database, the disk that it is on, and the clock.
pub(super) async fn storage(configured: &ConfiguredServer) -> Vec<Check> {
    let (path, unused) = match configured.database() {
        Ok(DatabasePlace::Memory) => {
            let advice = "set store.path to keep sessions";
            let check = Check::warning("database", "in memory: it ends with the server".to_owned(), advice);
            return vec![check, clock(None)];
        }
        Ok(DatabasePlace::Postgres) => {
            return vec![postgres(configured).await, clock(None)];
        }
        Ok(DatabasePlace::Configured(path)) => {
            if let Some(missing) = missing_folder(&path) {
                return vec![missing, clock(None)];
            }
            (path, None)
        }
        Ok(DatabasePlace::Chosen(place)) => (place.database, place.unused),
        Err(why) => return vec![Check::failed("database", why, "set store.path"), clock(None)],
    };
    let found = fs::metadata(&path);
    let mut checks = vec![database(&path, &found)];
    if let Some(unused) = unused {
        let detail = format!("the one in this folder is used; from other folders, {} is", unused.display());
        checks.push(Check::warning(
            "database",
            detail,
            "move it there while no server runs, or set store.path",
        ));
    }
    checks.push(disk(&existing(&path)));
    checks.push(clock(last_write(&path)));
    checks
}

/// Checks that a server can write the file of the audit log. Nothing is written, and no file is made.
pub(super) fn audit(file: &Path) -> Check {
    let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let may_write = match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            may_create(path.parent().unwrap_or(Path::new("/")))
        }
        Ok(_) | Err(_) => OpenOptions::new().read(true).append(true).open(&path).map(drop),
    };
    let shown = path.display();
    match may_write {
        Ok(()) => Check::ok("audit", format!("{shown} can be written")),
        Err(error) => {
            let advice = "make its folder, give the file to the user that runs the server, or set audit.path to another place";
            Check::failed("audit", format!("audit.path: cannot write {shown}: {error}"), advice)
        }
    }
}

/// Checks the PostgreSQL database, as a server does that starts.
async fn postgres(configured: &ConfiguredServer) -> Check {
    let advice = "see that it runs and that store.url is right";
    match tokio::time::timeout(ANSWER_MAX, configured.check_postgres()).await {
        Ok(Ok(at)) => Check::ok("database", format!("PostgreSQL at {at} answers")),
        Ok(Err(failure)) => Check::failed("database", failure.to_string(), "mend what the message names"),
        Err(_) => {
            let detail = format!("PostgreSQL does not answer within {} s", ANSWER_MAX.as_secs());
            Check::failed("database", detail, advice)
        }
    }
}

/// The failure of a configured place whose folder is not there: the server makes the folder of its own default place alone.
fn missing_folder(path: &Path) -> Option<Check> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.is_dir())?;
    let detail = format!("cannot create {}: there is no folder {}", path.display(), folder.display());
    Some(Check::failed("database", detail, "make the folder, or set store.path to another place"))
}

fn database(path: &Path, found: &io::Result<Metadata>) -> Check {
    let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let shown = shown.display();
    match found {
        Ok(file) if !file.is_file() => {
            Check::failed("database", format!("{shown} is no file"), "set store.path to a file")
        }
        Ok(file) => {
            if let Err(error) = OpenOptions::new().read(true).write(true).open(path) {
                let advice = "give the file to the user that runs the server";
                return Check::failed("database", format!("cannot write {shown}: {error}"), advice);
            }
            if others_may_read(file) {
                let advice = "take the right away: chmod go= on it and on the files beside it";
                return Check::warning("database", format!("other users may read {shown}"), advice);
            }
            Check::ok("database", format!("{shown}, {}", bytes(file.len())))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match may_create(&existing(path)) {
            Ok(()) => Check::ok("database", format!("{shown} will be created")),
            Err(error) => {
                let advice = "make its folder, or set store.path to a folder that you may write to";
                Check::failed("database", format!("cannot create {shown}: {error}"), advice)
            }
        },
        Err(error) => Check::failed(
            "database",
            format!("cannot read {shown}: {error}"),
            "set store.path to another place",
        ),
    }
}

#[cfg(unix)]
fn others_may_read(file: &Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o077 != 0
}

#[cfg(not(unix))]
fn others_may_read(_: &Metadata) -> bool {
    false
}

/// The nearest folder above the file that exists.
fn existing(file: &Path) -> PathBuf {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    file.ancestors().skip(1).find(|folder| folder.exists()).map(Path::to_owned).unwrap_or_default()
}

#[cfg(unix)]
fn may_create(folder: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
    Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

#[cfg(not(unix))]
fn may_create(folder: &Path) -> io::Result<()> {
    fs::metadata(folder).map(drop)
}

fn disk(folder: &Path) -> Check {
    let free = match free_bytes(folder) {
        Ok(free) => free,
        Err(error) => {
            let detail = format!("cannot measure the disk of {}: {error}", folder.display());
            return Check::warning("disk", detail, "look at it yourself");
        }
    };
    let detail = format!("{} free at {}", bytes(free), folder.display());
    let advice = "make room: without it the server refuses every write until there is some";
    match free {
        ..FREE_MIN => Check::failed("disk", detail, advice),
        FREE_MIN..FREE_LOW => Check::warning("disk", detail, advice),
        FREE_LOW.. => Check::ok("disk", detail),
    }
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The time of the last write of the database or of its log.
fn last_write(database: &Path) -> Option<SystemTime> {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    let times =
        [database, Path::new(&log)].map(|file| fs::metadata(file).and_then(|file| file.modified()).ok());
    times.into_iter().flatten().max()
}

fn clock(last_write: Option<SystemTime>) -> Check {
    clock_at(SystemTime::now(), last_write)
}

fn clock_at(now: SystemTime, last_write: Option<SystemTime>) -> Check {
    let shown = crate::terminal::format::time(Some(&now.into()));
    let advice = "set the clock, best by NTP: deadlines, expiry and TLS need it";
    if now < SystemTime::UNIX_EPOCH + EARLIEST {
        return Check::failed("clock", format!("it shows {shown}, which is past"), advice);
    }
    match last_write.and_then(|write| write.duration_since(now).ok()).filter(|ahead| *ahead > CLOCK_SLACK) {
        Some(ahead) => {
            let ahead = ahead.as_secs();
            Check::failed(
                "clock",
                format!("it shows {shown}, {ahead} s before the database's last write"),
                advice,
            )
        }
        None => Check::ok("clock", shown),
    }
}

/// Checks the tool hosts and the tools of a server that runs.
pub(super) async fn hosts(client: &Client) -> Vec<Check> {
    let (tools, hosts) = match tokio::try_join!(client.list_tools(), client.list_hosts()) {
        Ok(listed) => listed,
        Err(error) => return vec![Check::failed("hosts", in_one_line(&error), advice(&error))],
    };
    let mut checks = Vec::new();
    if hosts.is_empty() {
        let advice = "start a tool host, such as `agentloop host`; a model without tools only talks";
        checks.push(Check::warning("hosts", "no tool host is connected".to_owned(), advice));
    } else {
        let is_well = |host: &&Host| host.health() == HostHealth::Connected;
        let (well, ill): (Vec<&Host>, Vec<&Host>) = hosts.iter().partition(is_well);
        if !well.is_empty() {
            checks.push(Check::ok("hosts", format!("connected: {}; tools: {}", names(&well), tools.len())));
        }
        if !ill.is_empty() {
            let advice = "see `agentloop tools` and the log of the host";
            checks.push(Check::warning("hosts", format!("draining or lost: {}", names(&ill)), advice));
        }
    }
    for tool in tools.iter().filter(|tool| !tool.refused.is_empty()) {
        let name = tool.declaration.as_ref().map(|declared| declared.name.as_str()).unwrap_or_default();
        let detail = format!("a weaker declaration of {name} is refused");
        let advice =
            "see `agentloop tools`, then `agentloop tools accept NAME`, or mend the host that declares it";
        checks.push(Check::failed("tools", detail, advice));
    }
    checks
}

fn names(hosts: &[&Host]) -> String {
    hosts.iter().map(|host| host.host_id.as_str()).collect::<Vec<_>>().join(", ")
}

/// A number of bytes for people.
fn bytes(count: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, size)| count >= *size) {
        Some((unit, size)) => format!("{}.{} {unit}", count / size, count % size * 10 / size),
        None => format!("{count} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(check: &Check) -> String {
        serde_json::to_string(check).expect("plain data")
    }

    #[test]
    fn a_clock_before_the_last_write_is_wrong() {
        let now = SystemTime::UNIX_EPOCH + EARLIEST + Duration::from_secs(1);
        let at = |ahead| text(&clock_at(now, Some(now + Duration::from_secs(ahead))));
        assert!(at(61).contains("61 s before"), "{}", at(61));
        assert!(at(59).contains(r#""ok""#), "{}", at(59));
        assert!(text(&clock_at(now, None)).contains(r#""ok""#));
        let past = text(&clock_at(SystemTime::UNIX_EPOCH, None));
        assert!(past.contains("which is past"), "{past}");
    }

    #[test]
    fn only_an_error_of_credentials_asks_for_a_token() {
        let advised = |code| advice(&Error::from(tonic::Status::new(code, "no")));
        assert!(
            advised(Code::Unauthenticated).contains("token")
                && advised(Code::PermissionDenied).contains("token")
        );
        for code in
            [Code::Unimplemented, Code::Unavailable, Code::Internal, Code::ResourceExhausted, Code::Unknown]
        {
            assert!(!advised(code).contains("token"), "{code:?}: {}", advised(code));
        }
        assert!(!advice(&Error::Unreachable("refused".into())).contains("token"));
    }

    #[test]
    fn sizes_are_for_people() {
        let shown = [0, 1_023, 1_024, 1_600_000, 5 << 30].map(bytes);
        assert_eq!(shown, ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 MiB", "5.0 GiB"]);
    }

    #[test]
    fn the_folder_of_a_configured_database_is_not_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let missing = missing_folder(&dir.path().join("sub/my.db")).expect("the server would refuse it");
        assert!(text(&missing).contains("there is no folder"), "{}", text(&missing));
        assert!(missing_folder(&dir.path().join("my.db")).is_none());
    }

    #[test]
    fn the_file_of_the_audit_log_is_checked_and_left_as_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("audit.jsonl");
        let result = |file: &Path| text(&audit(file));
        assert!(result(&file).contains(r#""ok""#), "{}", result(&file));
        assert!(!file.exists(), "the server makes it");
        fs::write(&file, "rows").expect("written");
        assert!(result(&file).contains(r#""ok""#), "{}", result(&file));
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "rows");
        for wrong in [dir.path().to_owned(), dir.path().join("none/audit.jsonl"), file.join("audit.jsonl")] {
            let told = result(&wrong);
            assert!(told.contains(r#""failed""#) && told.contains("audit.path: cannot write"), "{told}");
        }
    }

    #[test]
    fn a_database_is_looked_for_in_folders_that_exist() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(existing(&dir.path().join("a/b/agentloop.db")), dir.path());
        let check = text(&database(dir.path(), &fs::metadata(dir.path())));
        assert!(check.contains("is no file"), "{check}");
    }
}
