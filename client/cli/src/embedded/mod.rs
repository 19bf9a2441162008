//! The server inside this process. Outside of tests, no other folder names the server's library.

mod configured;

use std::{
    error::Error,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    process::ExitCode,
};

use agentloop_server::{
    app::{ReplicaServer, Server},
    config::{Config, LogFormat, StoreLocation, StoreOptions},
    lifecycle::Signals,
    secret::Redactor,
    telemetry,
};

pub(crate) use self::configured::{ConfiguredServer, DatabasePlace};
pub(crate) use agentloop_server::app::{CERTIFICATE_WARN_BEFORE, SecurityError, SecurityFacts};

use crate::{database, environment, exit::Failure};

/// A server that runs in this process.
pub(crate) struct EmbeddedServer(Server);

/// Runs the server until a signal ends it. Prints the address that it listens on.
pub(crate) async fn serve(file: Option<&Path>, accept_loss: bool) -> Result<ExitCode, Failure> {
    // First, so that no signal ends a server that is about to start in another way than one that runs.
    let signals = Signals::install()?;
    let mut config = Config::load(file).map_err(failed)?;
    config.store.accept_loss = accept_loss;
    telemetry::init(&config.log, Redactor::new(config.secrets())).map_err(failed)?;
    let database = place_database(&mut config.store)?;
    let format = config.log.format;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    if config.cluster.is_some() {
        let server = Box::pin(ReplicaServer::start(config)).await.map_err(failed)?;
        tell(format, &format!("the database is {database}"));
        let (number, address) = (server.number(), server.replica_address());
        tell(format, &format!("this is replica {number}; others reach it at {address}"));
        tell(format, &format!("agentloop listens on {scheme}://{}", server.address()));
        return Ok(ExitCode::from(server.run_until(signals).await.code()));
    }
    let server = Box::pin(Server::start(config)).await.map_err(failed)?;
    tell(format, &format!("the database is {database}"));
    tell(format, &format!("agentloop listens on {scheme}://{}", server.address()));
    Ok(ExitCode::from(server.run_until(signals).await.code()))
}

/// Writes a line of the start: for people as it is, whatever the level of the log, and else as an entry of the log.
fn tell(format: LogFormat, line: &str) {
    match format {
        LogFormat::Text => eprintln!("{line}"),
        LogFormat::Json => tracing::info!("{line}"),
    }
}

/// Chooses the place of the database, if none is set. Returns the place, for people.
fn place_database(store: &mut StoreOptions) -> Result<String, Failure> {
    if !store.is_set {
        let place = database::default_place().map_err(Failure::Usage)?;
        if let Some(unused) = &place.unused {
            tracing::warn!(
                database = %place.database.display(),
                elsewhere = %unused.display(),
                "the database in this folder is used, because it is there and no path is set; from other folders, the \
                 one elsewhere is used. Move it there while no server runs, or set store.path"
            );
        } else {
            database::make_folder(&place.database)?;
        }
        store.location = StoreLocation::File(place.database);
    }
    Ok(match &store.location {
        StoreLocation::Memory => "in memory, and ends with this process".to_owned(),
        StoreLocation::File(path) => {
            std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string()
        }
        StoreLocation::Postgres(_) => "in PostgreSQL, at store.url".to_owned(),
    })
}

/// The URL of the server that the environment configures, as seen from this machine.
pub(crate) fn configured_url() -> Result<String, Failure> {
    let file = environment::variable_os("AGENTLOOP_CONFIG").filter(|path| !path.is_empty());
    Ok(ConfiguredServer::load(file.as_deref().map(Path::new))?.url())
}

/// The address at which this machine reaches a server that listens on `listen`.
fn from_here(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

impl EmbeddedServer {
    /// Starts the server that the file configures. It logs only warnings, because the demo prints everything else.
    pub(crate) async fn start(file: &Path) -> Result<EmbeddedServer, Failure> {
        let mut config = Config::load(Some(file)).map_err(failed)?;
        "warn".clone_into(&mut config.log.level);
        telemetry::init(&config.log, Redactor::new(config.secrets())).map_err(failed)?;
        Ok(EmbeddedServer(Box::pin(Server::start(config)).await.map_err(failed)?))
    }

    /// The address that the server listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Shuts the server down, and waits until it has stopped.
    pub(crate) async fn shutdown(self) {
        let exit = self.0.shutdown().await;
        tracing::debug!(?exit, "server stopped");
    }
}

/// The error with all its causes on one line.
fn failed(error: impl Error) -> Failure {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    Failure::Other(text)
}

/// The record of a server, without the server.
pub(crate) mod audit {
    use std::{
        fs::File,
        io::{BufRead as _, BufReader},
        path::Path,
    };

    pub(crate) use agentloop_server::audit::ChainVerdict as Verdict;
    use agentloop_server::{
        audit::{AuditRow, BrokenLink, ChainCheck, ChainOutcome},
        store::sqlite::verify_audit_file,
    };

    use crate::exit::Failure;

    fn broken(link: &BrokenLink) -> Failure {
        Failure::Other(format!("the chain is broken: {link}"))
    }

    /// Checks the chain of a database file. Unless `known_hash` is empty, a row must have it.
    pub(crate) async fn verify_database(path: &Path, known_hash: &str) -> Result<Verdict, Failure> {
        if !path.exists() {
            return Err(Failure::Other(format!("there is no file {}", path.display())));
        }
        let verified = verify_audit_file(path, known_hash).await;
        let unread =
            |error| Failure::Other(format!("{} is no database of a server: {error}", path.display()));
        match verified.map_err(unread)? {
            ChainOutcome::Whole(verdict) => Ok(verdict),
            ChainOutcome::Broken(link) => Err(broken(&link)),
        }
    }

    /// As [`verify_database`], for a file of JSON lines.
    pub(crate) fn verify_lines(path: &Path, known_hash: &str) -> Result<Verdict, Failure> {
        let named = |problem: String| Failure::Other(format!("{}: {problem}", path.display()));
        let file = File::open(path).map_err(|error| named(error.to_string()))?;
        let mut check = ChainCheck::knowing(known_hash);
        for (at, line) in BufReader::new(file).lines().enumerate() {
            let line = line.map_err(|error| named(error.to_string()))?;
            if line.is_empty() {
                continue;
            }
            let row: AuditRow = serde_json::from_str(&line)
                .map_err(|error| named(format!("the chain is broken: line {} is no row: {error}", at + 1)))?;
            check.check(&row).map_err(|link| broken(&link))?;
        }
        check.verdict().map_err(|link| broken(&link))
    }
}

/// The files of tokens that servers read.
pub(crate) mod tokens {
    use std::{
        fs::File,
        path::{Path, PathBuf},
        time::Duration,
    };

    pub(crate) use agentloop_server::auth::tokens::TokenRecord;
    use agentloop_server::{
        auth::{Principal, tokens},
        clock::{Clock as _, SystemClock},
    };

    use crate::exit::Failure;

    /// Makes a token, and its record for the file.
    pub(crate) fn new<'a>(
        name: &str,
        tenant: &str,
        roles: impl Iterator<Item = &'a str>,
        groups: impl Iterator<Item = &'a str>,
        expires: Option<Duration>,
    ) -> Result<(String, TokenRecord), Failure> {
        let principal = Principal::new(name, Some(tenant), roles, groups)
            .map_err(|problem| Failure::Usage(problem.to_string()))?;
        let (token, record) = tokens::new_token(&principal, SystemClock.now(), expires);
        Ok((token.expose().to_owned(), record))
    }

    /// Checks a record as the server does.
    pub(crate) fn check(record: &TokenRecord) -> Result<(), Failure> {
        let checked = tokens::TokenTable::new(vec![record.clone()]);
        checked.map(drop).map_err(|problem| Failure::Usage(problem.to_string()))
    }

    /// The file that this name stands for: symbolic links are followed.
    pub(crate) fn end_of_links(path: &Path) -> Result<PathBuf, Failure> {
        tokens::end_of_links(path).map_err(super::failed)
    }

    /// Keeps other commands from changing the file until the lock is dropped: each of them replaces the whole file.
    pub(crate) fn lock(path: &Path) -> Result<File, Failure> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".lock");
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let beside = Path::new(&beside);
        let file = options.open(beside).map_err(|error| Failure::cannot("write", beside, &error))?;
        file.lock().map_err(|error| Failure::cannot("lock", beside, &error))?;
        Ok(file)
    }

    /// The records of a file.
    pub(crate) fn read(path: &Path) -> Result<Vec<TokenRecord>, Failure> {
        tokens::read(path).map_err(super::failed)
    }

    /// Replaces the records of a file.
    pub(crate) fn write(path: &Path, records: Vec<TokenRecord>) -> Result<(), Failure> {
        tokens::write(path, records).map_err(super::failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_every_interface_is_reached_by_loopback() {
        for (listen, reached) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("10.0.0.9:2", "10.0.0.9:2"),
        ] {
            assert_eq!(from_here(listen.parse().expect("an address")).to_string(), reached);
        }
    }
}

/// The databases of servers, without a server.
pub(crate) mod store {
    use std::path::Path;

    pub(crate) use agentloop_server::store::copy::CopyReport as Report;
    use agentloop_server::{
        secret::Secret,
        store::{copy::sqlite_to_postgres, postgres::PostgresOptions},
    };

    use crate::exit::Failure;

    /// Copies an SQLite database to PostgreSQL, and says on standard error how far it is.
    pub(crate) async fn copy(from: &Path, to: &str) -> Result<Report, Failure> {
        let to = PostgresOptions { url: Secret::new(to), ..PostgresOptions::default() };
        let copying = sqlite_to_postgres(from, &to, |line| eprintln!("{line}"));
        Box::pin(copying).await.map_err(super::failed)
    }
}
