//! Sets up the fleet of tool hosts, and keeps the tools that hosts declare in the store across restarts.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::FleetOptions;
use agentloop_core::time::{Millis, Timestamp};
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::mask::Masks;
use crate::store::{HostRow, Store, StoreError, ToolRow};
use crate::tool::{HostOptions, OwnTools, RememberedHost, RememberedTool, RemoteTools, UnsavedHosts};

/// How often the hosts that are connected are noted as seen.
const SEEN_EVERY: Duration = Duration::from_hours(1);
/// The wait before tools or ids of hosts are saved again after the store failed.
const SAVE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The options of the fleet, from the configuration.
pub(super) fn host_options(config: &Config) -> HostOptions {
    let (hosts, runs) = (&config.hosts, &config.runs);
    let default = HostOptions::default();
    HostOptions {
        fleet: FleetOptions {
            lease_timeout: hosts.lease_timeout,
            grace_period: hosts.grace_period,
            host_wait: hosts.host_wait,
            accept_timeout: hosts.accept_timeout,
            queue_per_tool_max: hosts.queue_per_tool,
            ..default.fleet
        },
        heartbeat_interval: hosts.heartbeat_interval,
        call_timeout: runs.tool_timeout,
        // Another replica takes the host at once, and has it wait for the next owner.
        reconnect_after: config.cluster.as_ref().map_or(default.reconnect_after, |_| Millis(0)),
        tool_retention: hosts.tool_retention,
        connections_max: hosts.max_hosts,
        max_frame_bytes: config.server.max_message_bytes,
        terms: config.tools.clone(),
        reserved: config.auth.as_ref().map(|auth| auth.reserved_tools.clone()).unwrap_or_default(),
        masks: Masks::new(config.sensitive_arguments.clone()),
    }
}

/// The fleet, with the tools that hosts declared before the restart.
pub(super) async fn remembered_tools(
    store: &dyn Store,
    options: HostOptions,
    now: Timestamp,
    own: OwnTools,
) -> Result<Arc<RemoteTools>, StoreError> {
    let stored = store.tools().await?;
    let remembered = stored.tools.into_iter().map(|(tenant, row)| RememberedTool {
        tenant,
        declaration: row.declaration,
        last_seen: row.last_seen,
        terms: row.terms,
    });
    let tools = RemoteTools::with_own(options, now, own, remembered.collect());
    tools.lose_terms(stored.damaged);
    Ok(tools)
}

/// The task that saves newly declared tools to the store.
pub(super) async fn remember_tools(tools: Arc<RemoteTools>, store: Arc<dyn Store>, stop: CancellationToken) {
    while let Some(unsaved) = stop.run_until_cancelled(tools.unsaved()).await {
        let failed = save(&*store, &unsaved).await;
        if !failed.is_empty() {
            tracing::warn!(tools = failed.len(), "cannot save tools; trying again");
            tools.not_saved(failed);
            tokio::time::sleep(SAVE_AGAIN_AFTER).await;
        }
    }
    // The next start knows the terms of the last declarations.
    if let Some(unsaved) = tools.unsaved().now_or_never() {
        let failed = save(&*store, &unsaved).await;
        if !failed.is_empty() {
            tracing::warn!(tools = failed.len(), "cannot save tools");
        }
    }
}

/// Enters the principals that hosts had before the restart.
pub(super) async fn remember_ids(tools: &RemoteTools, store: &dyn Store) -> Result<(), StoreError> {
    let remembered = store.hosts().await?.into_iter().map(|row| RememberedHost {
        tenant: row.tenant,
        host: row.host,
        principal: row.principal,
        last_seen: row.last_seen,
    });
    tools.remember_ids(remembered.collect());
    Ok(())
}

/// The task that keeps the principals of hosts in the store.
pub(super) async fn save_ids(tools: Arc<RemoteTools>, store: Arc<dyn Store>) {
    let mut seen = tokio::time::interval(SEEN_EVERY);
    loop {
        let rows = tokio::select! {
            rows = tools.unsaved_ids() => rows,
            _ = seen.tick() => {
                tools.see_hosts();
                continue;
            }
        };
        let UnsavedHosts { hosts, forgotten } = &rows;
        let row = |host: &RememberedHost| HostRow {
            tenant: host.tenant.clone(),
            host: host.host.clone(),
            principal: host.principal.clone(),
            last_seen: host.last_seen,
        };
        match store.save_hosts(&hosts.iter().map(row).collect::<Vec<_>>(), forgotten).await {
            Ok(()) => tools.ids_saved(rows),
            Err(error) => {
                tracing::warn!(%error, hosts = hosts.len(), "cannot save the ids of hosts; trying again");
                tokio::time::sleep(SAVE_AGAIN_AFTER).await;
            }
        }
    }
}

/// Saves tools, those of one tenant together. Returns those that could not be saved.
async fn save(store: &dyn Store, unsaved: &[RememberedTool]) -> Vec<RememberedTool> {
    let mut failed = Vec::new();
    for tools in unsaved.chunk_by(|a, b| a.tenant == b.tenant) {
        let row = |tool: &RememberedTool| ToolRow {
            declaration: tool.declaration.clone(),
            last_seen: tool.last_seen,
            terms: tool.terms.clone(),
        };
        let rows: Vec<ToolRow> = tools.iter().map(row).collect();
        if store.save_tools(&tools[0].tenant, &rows).await.is_err() {
            failed.extend_from_slice(tools);
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_back_at_once_where_there_are_other_replicas() {
        let cluster = "[store]\nurl = \"postgres://u@127.0.0.1/x\"\n[cluster]\nlisten = \"127.0.0.1:0\"\n";
        for (text, wait) in [("", Millis::secs(1)), (cluster, Millis(0))] {
            let config = Config::parse(text, "agentloop.toml").expect("a configuration");
            assert_eq!(host_options(&config).reconnect_after, wait, "{text}");
        }
    }
}
