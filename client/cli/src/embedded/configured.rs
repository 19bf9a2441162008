//! The configuration of a server that may run or not: for commands that check it or try it.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use agentloop_server::{
    app::{SecurityError, SecurityFacts, Server, check_database, check_security},
    auth::QuotaLimits,
    config::{
        Config, MetricsOptions, RetentionOptions, ServerOptions, StoreLocation, StoreOptions,
        TelemetryOptions,
    },
};

use super::{EmbeddedServer, failed, from_here};
use crate::{
    database::{self, DefaultPlace},
    exit::Failure,
};

/// A configuration that was read and checked.
pub(crate) struct ConfiguredServer(Config);

/// The place of the configured database.
#[derive(Debug)]
pub(crate) enum DatabasePlace {
    /// In memory: it ends with the process.
    Memory,
    /// The file that the configuration names.
    Configured(PathBuf),
    /// The PostgreSQL database that the configuration names.
    Postgres,
    /// The file that `agentloop serve` chooses, because none is configured.
    Chosen(DefaultPlace),
}

impl ConfiguredServer {
    /// Reads the file, if there is one, and the environment of this process.
    ///
    /// # Errors
    /// All problems of the configuration, each on a line.
    pub(crate) fn load(file: Option<&Path>) -> Result<ConfiguredServer, Failure> {
        Config::load(file).map(ConfiguredServer).map_err(failed)
    }

    /// The address that the server listens on.
    pub(crate) fn listen(&self) -> SocketAddr {
        self.0.server.listen
    }

    /// The URL of the server as seen from this machine.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.0.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", from_here(self.0.server.listen))
    }

    /// True if the server encrypts its port.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.0.tls.is_some()
    }

    /// The root of the server's certificate, if they are where `agentloop cert dev` puts them, with the key of the root.
    pub(crate) fn development_root(&self) -> Option<PathBuf> {
        let beside = |name| self.0.tls.as_ref().map(|tls| tls.certificate.with_file_name(name));
        beside("ca.pem").filter(|root| root.is_file() && beside("ca.key").is_some_and(|key| key.is_file()))
    }

    /// The contents of the files that protect the server. `None` if there are none.
    ///
    /// # Errors
    /// The reason why the server does not start.
    pub(crate) fn security(&self) -> Option<Result<SecurityFacts, SecurityError>> {
        let of_links = self.0.cluster.as_ref().is_some_and(|cluster| cluster.tls.is_some());
        (self.0.tls.is_some() || self.0.auth.is_some() || of_links).then(|| check_security(&self.0))
    }

    /// The file that the audit log is written to as lines, if there is one.
    pub(crate) fn audit_file(&self) -> Option<&Path> {
        self.0.audit.as_ref().and_then(|audit| audit.path.as_deref())
    }

    /// The place of the database.
    ///
    /// # Errors
    /// When no place is configured and the user has no home folder.
    pub(crate) fn database(&self) -> Result<DatabasePlace, String> {
        match &self.0.store.location {
            StoreLocation::Memory => Ok(DatabasePlace::Memory),
            StoreLocation::File(path) if self.0.store.is_set => Ok(DatabasePlace::Configured(path.clone())),
            StoreLocation::Postgres(_) => Ok(DatabasePlace::Postgres),
            StoreLocation::File(_) => database::default_place().map(DatabasePlace::Chosen),
        }
    }

    /// Connects to the configured PostgreSQL database and checks it. Returns host, port and database.
    ///
    /// # Errors
    /// The reason why a server could not use it.
    pub(crate) async fn check_postgres(&self) -> Result<String, Failure> {
        let place = check_database(&self.0).await.map_err(failed)?;
        Ok(place.unwrap_or_default())
    }

    /// True if there is a provider of models.
    pub(crate) fn has_providers(&self) -> bool {
        !self.0.providers.is_empty()
    }

    /// The agents by their model. Agents that name no model are under the empty text.
    pub(crate) fn agents_by_model(&self) -> BTreeMap<String, Vec<String>> {
        let mut by_model: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, agent) in &self.0.agents {
            by_model.entry(agent.model.clone()).or_default().push(name.clone());
        }
        by_model
    }

    /// Starts a server with these providers and agents on a free loopback port. It keeps nothing and writes no file: its
    /// database is in memory, and it has no audit log and records no calls. Its agents need no tool host.
    ///
    /// # Errors
    /// When it cannot start.
    pub(crate) async fn start_trial(&self) -> Result<EmbeddedServer, Failure> {
        Ok(EmbeddedServer(Box::pin(Server::start(self.of_trial())).await.map_err(failed)?))
    }

    /// The configuration of a trial. It names every section, so that a new one is not taken along unseen.
    fn of_trial(&self) -> Config {
        let own = self.0.clone();
        let (mut providers, mut agents) = (own.providers, own.agents);
        for provider in providers.values_mut() {
            provider.record = None;
        }
        for agent in agents.values_mut() {
            agent.planner = None;
            agent.hooks.clear();
            agent.context_sources.clear();
        }
        Config {
            server: ServerOptions { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..own.server },
            // The trial calls itself, on loopback and for a moment.
            tls: None,
            auth: None,
            quotas: QuotaLimits::default(),
            audit: None,
            store: StoreOptions { location: StoreLocation::Memory, ..own.store },
            cluster: None,
            log: own.log,
            metrics: MetricsOptions::default(),
            telemetry: TelemetryOptions::default(),
            runs: own.runs,
            hosts: own.hosts,
            retention: RetentionOptions::default(),
            blobs: own.blobs,
            tools: own.tools,
            sensitive_arguments: own.sensitive_arguments,
            providers,
            agents,
            agent_descriptions: own.agent_descriptions,
        }
    }
}
