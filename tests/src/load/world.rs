//! The state that the workers of a load share, and what must hold at its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agentloop_client::Client;
use agentloop_client::v1 as wire;
use parking_lot::{Mutex, MutexGuard};

use super::brain::Brain;
use super::check::{self, Bounds};
use super::counts::Counts;
use super::ledger::Ledger;
use crate::model::Model;
use crate::process::server::{Leases, Setting};

/// The state that all workers share.
pub struct World {
    pub(super) client: Client,
    pub(super) brain: Brain,
    pub(super) counts: Counts,
    ledger: Mutex<Ledger>,
    /// The number of times that each label may have begun by the end.
    bounds: Mutex<Bounds>,
    /// Runs whose end was seen, and how they ended.
    ended: Mutex<BTreeMap<String, wire::RunStatus>>,
    stopping: AtomicBool,
}

impl World {
    /// A world of servers that this client reaches, and of hosts that keep their files in this folder.
    pub fn new(client: Client, folder: &Path, brain: Brain, counts: Counts) -> Arc<Self> {
        Arc::new(Self {
            client,
            brain,
            counts,
            ledger: Mutex::new(Ledger::new(folder)),
            bounds: Mutex::default(),
            ended: Mutex::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Tells every worker to begin no further run.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A worker whose check failed has left the ledger as whole as any other.
        self.ledger.lock()
    }

    pub(super) fn ended(&self, run: &str, status: wire::RunStatus, bounds: Bounds) {
        self.bounds.lock().extend(bounds);
        self.ended.lock().insert(run.to_owned(), status);
    }

    /// Checks the rules for the time after all work has ended.
    ///
    /// # Panics
    /// When it does not.
    pub async fn settled(&self) {
        let pending = self.client.list_pending(wire::ListPendingRequest::default()).await.expect("listed");
        assert_eq!(pending.requests, []);
        let mut seen = 0;
        let mut request = wire::ListRunsRequest { page_size: 500, ..Default::default() };
        loop {
            let page = self.client.list_runs(request.clone()).await.expect("listed");
            let ended = self.ended.lock();
            for run in &page.runs {
                assert_eq!(ended.get(&run.run_id), Some(&run.status()), "as it was seen to end: {run:?}");
            }
            seen += page.runs.len();
            if page.next_page_token.is_empty() {
                assert_eq!(seen, ended.len(), "every run that was seen is there");
                break;
            }
            drop(ended);
            request.page_token = page.next_page_token;
        }
        let bounds = self.bounds.lock();
        let mut ledger = self.ledger();
        for (label, deeds) in ledger.all() {
            let bound = bounds.get(label).unwrap_or_else(|| panic!("{label} is of no run: {deeds:?}"));
            check::bounded(label, deeds, *bound);
        }
        self.counts.add("labels whose effects were counted", ledger.all().len() as u64);
    }
}

/// Short waits, so that much happens.
pub fn setting(model: &Model) -> Setting {
    Setting {
        server: "",
        agent: "",
        provider: format!("kind = \"openai\"\nbase_url = \"{}\"\n", model.base_url()),
        leases: Leases::EndAfter("1s"),
        grace_period: "500ms",
        in_doubt_timeout: "1s",
        max_parallel: 4,
        retry: "{ max_retries = 12, initial_backoff = \"20ms\", max_backoff = \"300ms\" }",
        ask_human: true,
        titles: false,
        park_after: "50ms",
        log_level: "error",
        bounded: false,
        tls: false,
        environment: &[],
        store: None,
        more: String::new(),
        program: None,
    }
}
