//! Sets up the fleet of tool hosts, and keeps the tools that hosts declare, and whose ids they have, in the store.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::FleetOptions;
use agentloop_core::id::{HostId, TenantId};
use agentloop_core::time::{Millis, Timestamp};
use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::Config;
use crate::store::{HostClaim, Store, StoreError, ToolRow};
use crate::tool::{
    HostIds, OwnTools, RemoteTools, RemoteToolsOptions, SinkUnavailable, StoredCatalogue, StoredTool,
    ToolRows,
};

/// Time between two notes that the hosts that are connected are there.
const SEEN_EVERY: Duration = Duration::from_hours(1);
/// Time after which the id of a host that was not seen is free: a day, and what may have passed unseen.
const ID_KEPT_FOR: Millis = Millis::secs(25 * 60 * 60);
/// The wait before tools or ids of hosts are saved again after the store failed.
const SAVE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The options of the fleet, from the configuration.
pub(super) fn host_options(config: &Config) -> RemoteToolsOptions {
    let (hosts, runs) = (&config.hosts, &config.runs);
    let default = RemoteToolsOptions::default();
    RemoteToolsOptions {
        fleet: FleetOptions {
            lease_timeout: hosts.lease_timeout,
            grace_period: hosts.grace_period,
            host_wait: hosts.host_wait,
            accept_timeout: hosts.accept_timeout,
            queue_per_tool: hosts.queue_per_tool,
            ..default.fleet
        },
        heartbeat_interval: hosts.heartbeat_interval,
        tool_timeout: runs.tool_timeout,
        // Another replica takes the host at once, and has it wait for the next owner.
        reconnect_after: config.cluster.as_ref().map_or(default.reconnect_after, |_| Millis(0)),
        tool_retention: hosts.tool_retention,
        max_hosts: hosts.max_hosts,
        max_frame_bytes: config.server.max_message_bytes,
        terms: config.tools.clone(),
        reserved: config.auth.as_ref().map(|auth| auth.reserved_tools.clone()).unwrap_or_default(),
        masks: config.masks(),
    }
}

/// The fleet, with the tools that hosts declared before the restart.
pub(super) async fn remembered_tools(
    store: &dyn Store,
    options: RemoteToolsOptions,
    now: Timestamp,
    own: OwnTools,
) -> Result<Arc<RemoteTools>, StoreError> {
    let StoredCatalogue { tools, lost } = stored_tools(store).await?;
    let tools = RemoteTools::with_own(options, now, own, tools);
    tools.lose_terms(lost);
    Ok(tools)
}

async fn stored_tools(store: &dyn Store) -> Result<StoredCatalogue, StoreError> {
    let stored = store.tools().await?;
    let tools = stored.tools.into_iter().map(StoredTool::from).collect();
    Ok(StoredCatalogue { tools, lost: stored.damaged })
}

/// The tools in the store.
pub(super) struct StoreToolRows(pub(super) Arc<dyn Store>);

#[async_trait]
impl ToolRows for StoreToolRows {
    async fn read(&self) -> Result<StoredCatalogue, SinkUnavailable> {
        stored_tools(&*self.0).await.map_err(|_unavailable| SinkUnavailable)
    }
}

/// The task that saves newly declared tools to the store.
pub(super) async fn remember_tools(tools: Arc<RemoteTools>, store: Arc<dyn Store>, stop: CancellationToken) {
    while let Some(unsaved) = stop.run_until_cancelled(tools.unsaved()).await {
        let failed = save(&*store, &unsaved.rows).await;
        drop(unsaved);
        if !failed.is_empty() {
            tracing::warn!(tools = failed.len(), "cannot save tools; trying again");
            tools.not_saved(failed);
            tokio::time::sleep(SAVE_AGAIN_AFTER).await;
        }
    }
    // The next start knows the terms of the last declarations, and when the tools were served last.
    let failed = save(&*store, &tools.last_unsaved().await.rows).await;
    if !failed.is_empty() {
        tracing::warn!(tools = failed.len(), "cannot save tools");
    }
}

/// The principals of host ids, in the store.
#[derive(Clone)]
pub(super) struct StoredIds {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for StoredIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoredIds")
    }
}

impl StoredIds {
    /// The time now, and that before which a host was last there whose id is free.
    fn times(&self) -> (Timestamp, Timestamp) {
        let now = self.clock.now();
        (now, Timestamp(now.0.saturating_sub(ID_KEPT_FOR.0)))
    }

    /// The task that notes which hosts are there, and frees the ids of those that are gone for long.
    pub(super) async fn see(self, tools: Arc<RemoteTools>) {
        let mut ticks = tokio::time::interval(SEEN_EVERY);
        loop {
            ticks.tick().await;
            let (now, free_before) = self.times();
            while let Err(error) = self.store.see_hosts(&tools.connected_hosts(), now, free_before).await {
                tracing::warn!(%error, "cannot note which tool hosts are connected; trying again");
                tokio::time::sleep(SAVE_AGAIN_AFTER).await;
            }
        }
    }
}

#[async_trait]
impl HostIds for StoredIds {
    async fn claim(
        &self,
        tenant: &TenantId,
        host: &HostId,
        principal: &str,
    ) -> Result<bool, SinkUnavailable> {
        let (at, free_before) = self.times();
        let (tenant, host) = (tenant.clone(), host.clone());
        let claim = HostClaim { tenant, host, principal: principal.to_owned(), at, free_before };
        self.store.claim_host(&claim).await.map_err(|_unavailable| SinkUnavailable)
    }
}

/// Saves tools, those of one tenant together. Returns those that could not be saved.
async fn save(store: &dyn Store, unsaved: &[StoredTool]) -> Vec<StoredTool> {
    let mut failed = Vec::new();
    for tools in unsaved.chunk_by(|a, b| a.tenant == b.tenant) {
        let rows: Vec<ToolRow> = tools.iter().cloned().map(ToolRow::from).collect();
        if store.save_tools(&tools[0].tenant, &rows).await.is_err() {
            failed.extend_from_slice(tools);
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;
    use crate::store::sqlite::SqliteStore;

    /// The hosts of a principal that is away are gone after a day, whichever server looks.
    #[tokio::test]
    async fn the_id_of_a_host_that_is_gone_for_a_day_is_free() {
        let clock = TestClock::default();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.expect("a store"));
        let [one, other] =
            [(); 2].map(|()| StoredIds { store: store.clone(), clock: Arc::new(clock.clone()) });
        let at = |hours: u64| clock.set(Timestamp(hours * 60 * 60 * 1_000));
        let (tenant, host) = (TenantId::local(), HostId::parse("h").expect("an id"));
        let claims = async |ids: &StoredIds, who| ids.claim(&tenant, &host, who).await.expect("it responds");
        at(100);
        assert!(claims(&one, "ada").await);
        at(125);
        assert!(!claims(&other, "eve").await);
        assert!(claims(&other, "ada").await, "that counts anew");
        at(150);
        assert!(!claims(&one, "eve").await);
        at(151);
        assert!(claims(&one, "eve").await);
        assert!(!claims(&other, "ada").await);
    }

    /// Tests and embedders that leave the options out have the same fleet as a server without a configuration.
    #[test]
    fn the_defaults_of_fleet_and_configuration_agree() {
        let config = Config::parse("", "agentloop.toml").expect("a configuration");
        assert_eq!(host_options(&config), RemoteToolsOptions::default());
    }

    #[test]
    fn hosts_come_back_at_once_where_there_are_other_replicas() {
        let cluster = "[store]\nurl = \"postgres://u@127.0.0.1/x\"\n[cluster]\nlisten = \"127.0.0.1:0\"\n";
        for (text, wait) in [("", Millis::secs(1)), (cluster, Millis(0))] {
            let config = Config::parse(text, "agentloop.toml").expect("a configuration");
            assert_eq!(host_options(&config).reconnect_after, wait, "{text}");
        }
    }
}
