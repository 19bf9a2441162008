//! One watched list of runs: a snapshot from the store, then the changes that wait for the watcher.

use std::collections::VecDeque;
use std::sync::Arc;

use agentloop_core::id::{RunId, TenantId};
use agentloop_core::run::view::WaitingOn;
use futures_util::Stream;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::watch::list_token::{digest_of, parse, token_of};
use crate::engine::watch::watcher::ListChange;
use crate::engine::watch::watchers::{ListPosition, NextChange, WatchHandle};
use crate::store::{PageRequest, RunFilter, RunRow, Store};

/// Rows of a snapshot that are read at a time.
const PAGE_ROWS: u32 = 200;
/// The token of a list whose snapshot is not complete.
const BEGIN_AGAIN: &str = "0";

/// One change of a watched list.
#[derive(Debug, Clone)]
pub enum WatchChange {
    /// Everything is to be forgotten: a snapshot follows.
    Reset {
        /// The reason, for people.
        reason: &'static str,
    },
    /// The run as it is now.
    Run {
        /// The row of the run as it is now.
        row: Box<RunRow>,
        /// The thing that it waits for.
        waiting_on: Option<WaitingOn>,
    },
    /// A run has left the list.
    Removed {
        /// Id of the run that left the list.
        run: RunId,
        /// True if it was deleted.
        deleted: bool,
    },
    /// Everything that was known when the watch began has been told.
    Synced {
        /// Runs of the snapshot; 0 without one.
        runs: u64,
    },
}

/// A change, and the token that continues the list after it.
#[derive(Debug, Clone)]
pub struct WatchItem {
    /// The change to apply to the list.
    pub change: WatchChange,
    /// Continues the list. Opaque to clients.
    pub token: String,
}

impl Engine {
    /// Watches a list of runs. `token` is that of an earlier watch, or empty. The stream ends with an error only: of the
    /// store, [`EngineError::SubscriberTooSlow`], or [`EngineError::ShuttingDown`].
    pub fn watch_runs(
        &self,
        tenant: &TenantId,
        filter: RunFilter,
        token: &str,
    ) -> impl Stream<Item = Result<WatchItem, EngineError>> + Send + 'static {
        let deps = self.deps();
        let digest = digest_of(tenant, &filter);
        let position = parse(token, &digest);
        let process = || deps.ids.seed();
        let (handle, goes_on) = deps.watchers.runs.watch(tenant, &filter, position, process, &deps.clock);
        let mode = match goes_on {
            Some(upto) => Mode::Continuing { upto },
            None => Mode::Begin { reason: reason(token) },
        };
        let list = RunList {
            store: deps.store.clone(),
            stop: deps.tasks.soft().clone(),
            process: handle.process(),
            tenant: tenant.clone(),
            filter,
            digest,
            handle,
            rows: VecDeque::new(),
            mode,
        };
        futures_util::stream::unfold(list, |mut list| async move {
            let item = list.next().await?;
            if item.is_err() {
                list.mode = Mode::Ended;
            }
            Some((item, list))
        })
    }
}

fn reason(token: &str) -> &'static str {
    match token {
        "" => "the list begins",
        BEGIN_AGAIN => "the snapshot was not complete",
        _ => {
            "the token cannot be continued: the server restarted, too much changed, or the filter is another one"
        }
    }
}

enum Mode {
    /// Tells that everything is to be forgotten.
    Begin {
        reason: &'static str,
    },
    /// Reads the next page of the snapshot. Changes up to `no` are in it.
    Snapshot {
        after: Option<String>,
        runs: u64,
        no: u64,
    },
    /// Tells that everything that was known at the begin has been told.
    Synced {
        runs: u64,
        no: u64,
    },
    /// Reads the changes that were missed, up to this one.
    Continuing {
        upto: u64,
    },
    /// Reads changes as they happen.
    Live,
    Ended,
}

struct RunList {
    store: Arc<dyn Store>,
    stop: CancellationToken,
    process: u64,
    tenant: TenantId,
    filter: RunFilter,
    digest: String,
    handle: WatchHandle,
    /// Rows of the snapshot to tell next.
    rows: VecDeque<RunRow>,
    mode: Mode,
}

impl RunList {
    async fn next(&mut self) -> Option<Result<WatchItem, EngineError>> {
        loop {
            if let Some(row) = self.rows.pop_front() {
                self.handle.mark_read();
                return Some(Ok(self.unfinished(listed(row))));
            }
            match self.mode {
                Mode::Ended => return None,
                Mode::Begin { reason } => {
                    tokio::select! { biased;
                        () = self.stop.cancelled() => return Some(Err(EngineError::ShuttingDown)),
                        () = self.handle.peers_followed() => {}
                    }
                    let no = self.handle.begin_again();
                    self.mode = Mode::Snapshot { after: None, runs: 0, no };
                    return Some(Ok(self.unfinished(WatchChange::Reset { reason })));
                }
                Mode::Snapshot { .. } => {
                    if let Err(error) = self.read_page().await {
                        return Some(Err(error));
                    }
                }
                Mode::Synced { runs, no } => {
                    self.mode = Mode::Live;
                    return Some(Ok(self.item_upto(WatchChange::Synced { runs }, no)));
                }
                Mode::Continuing { .. } | Mode::Live => {
                    if let Some(result) = self.read_change().await {
                        return Some(result);
                    }
                }
            }
        }
    }

    async fn read_page(&mut self) -> Result<(), EngineError> {
        let Mode::Snapshot { after, runs, no } = &mut self.mode else { return Ok(()) };
        let page = PageRequest { size: PAGE_ROWS, after: after.take() };
        let page = self.store.runs(&self.tenant, self.filter.clone(), page).await?;
        // A page may have no row that fits: the reader is at work all the same.
        self.handle.mark_read();
        let (runs, no) = (*runs + page.rows.len() as u64, *no);
        self.rows = page.rows.into();
        self.mode = match page.next {
            Some(next) => Mode::Snapshot { after: Some(next), runs, no },
            None => Mode::Synced { runs, no },
        };
        Ok(())
    }

    /// Reads a change, or waits until there is one. `None`: look again.
    async fn read_change(&mut self) -> Option<Result<WatchItem, EngineError>> {
        let upto = match self.mode {
            Mode::Continuing { upto } => Some(upto),
            _ => None,
        };
        match self.handle.read() {
            NextChange::Change { run, change, upto: no } => {
                if upto.is_some_and(|upto| no >= upto) {
                    self.mode = Mode::Synced { runs: 0, no };
                }
                let change = match change {
                    ListChange::Row(change) => WatchChange::Run {
                        row: Box::new(change.row.clone()),
                        waiting_on: change.waiting_on.clone(),
                    },
                    ListChange::Removed { deleted } => WatchChange::Removed { run, deleted },
                };
                Some(Ok(self.item_upto(change, no)))
            }
            NextChange::Nothing(no) if upto.is_some() => {
                self.mode = Mode::Synced { runs: 0, no };
                None
            }
            NextChange::Nothing(_) => tokio::select! { biased;
                () = self.stop.cancelled() => Some(Err(EngineError::ShuttingDown)),
                () = self.handle.arrived() => None,
            },
            NextChange::Lost(reason) => {
                self.mode = Mode::Begin { reason };
                None
            }
            NextChange::Stalled => Some(Err(EngineError::SubscriberTooSlow)),
        }
    }

    /// A change after which the list is not whole.
    fn unfinished(&self, change: WatchChange) -> WatchItem {
        WatchItem { change, token: BEGIN_AGAIN.to_owned() }
    }

    /// A change after which the list has everything up to this number.
    fn item_upto(&self, change: WatchChange, no: u64) -> WatchItem {
        WatchItem { change, token: token_of(ListPosition { process: self.process, no }, &self.digest) }
    }
}

/// A run of a snapshot, with as much of its wait as its row tells.
fn listed(row: RunRow) -> WatchChange {
    let waiting_on = row.waiting_on();
    WatchChange::Run { row: Box::new(row), waiting_on }
}
