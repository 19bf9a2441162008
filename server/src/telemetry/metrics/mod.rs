//! Metrics for Prometheus, counted since the process started.
//!
//! **Labels are bounded.** A label's values come from a closed list, from the configuration, or from tools that hosts
//! declared, of which only the first `TOOL_NAMES_MAX` have their own. Ids, texts and names made up by models or callers
//! are never labels.

mod instruments;
mod readings;
mod replicas;
mod run;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::models::{KnownModels, OTHER};
use instruments::{Instruments, ModelMeter, ToolMeter};
pub use readings::{MemoryReadings, QuotaReading, Readings, StoreReadings};
pub use replicas::ReplicaReadings;
pub use run::RunMeter;

/// Tools with a label of their own. Further ones are counted as [`OTHER`].
const TOOL_NAMES_MAX: usize = 200;
/// The label for all tools that do not exist.
const UNKNOWN: &str = "unknown";

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of this process. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Mutex<Registry>,
    instruments: Instruments,
    models: KnownModels,
    model_meters: Mutex<HashMap<(String, String), Arc<ModelMeter>>>,
    tool_meters: Mutex<HashMap<String, Arc<ToolMeter>>>,
    other_tool: Arc<ToolMeter>,
    unknown_tool: Arc<ToolMeter>,
}

impl Metrics {
    /// Starts with all counters at zero. Only these models have labels of their own.
    #[must_use]
    pub fn new(models: KnownModels) -> Self {
        let mut registry = Registry::with_prefix("agentloop");
        let instruments = Instruments::register(&mut registry);
        let (other_tool, unknown_tool) = (instruments.tool(OTHER), instruments.tool(UNKNOWN));
        Self(Arc::new(Inner {
            registry: Mutex::new(registry),
            instruments,
            models,
            model_meters: Mutex::default(),
            tool_meters: Mutex::default(),
            other_tool: Arc::new(other_tool),
            unknown_tool: Arc::new(unknown_tool),
        }))
    }

    /// Sets the function that reads the gauges at each scrape.
    pub fn read_at_scrape(&self, read: impl Fn() -> Readings + Send + Sync + 'static) {
        let mut registry = self.0.registry.lock();
        registry.register_collector(Box::new(readings::AtScrape::new(read)));
    }

    /// Sets the function that reads the gauges of replicas at each scrape.
    pub fn read_replicas_at_scrape(&self, read: impl Fn() -> ReplicaReadings + Send + Sync + 'static) {
        let mut registry = self.0.registry.lock();
        registry.register_collector(Box::new(replicas::ReplicasAtScrape(read)));
    }

    /// All metrics as text, of type [`CONTENT_TYPE`].
    #[must_use]
    pub fn text(&self) -> String {
        let registry = self.0.registry.lock();
        let mut text = String::new();
        encode(&mut text, &registry).expect("a text takes what is written to it");
        text
    }

    /// Counts the events of one run.
    #[must_use]
    pub fn run(&self) -> RunMeter {
        RunMeter::new(self.clone())
    }

    /// Counts an append of events, with the time until they were durable.
    pub fn appended(&self, took: Duration) {
        self.0.instruments.append_duration.observe(took.as_secs_f64());
    }

    /// Counts a call that was refused with RESOURCE_EXHAUSTED. `reason` is one of the contract's closed list.
    pub fn refused(&self, reason: &'static str) {
        self.0.instruments.refusals.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a call that was refused because of who makes it. `cause` is one of a closed list.
    pub fn rejected(&self, cause: &'static str) {
        self.0.instruments.rejections.get_or_create(&[("cause", cause)]).inc();
    }

    fn instruments(&self) -> &Instruments {
        &self.0.instruments
    }

    /// The counters of a model; shared ones if the configuration does not name it.
    fn model(&self, reference: &str) -> Arc<ModelMeter> {
        let (provider, model) = self.0.models.labels(reference);
        let mut meters = self.0.model_meters.lock();
        let new = || Arc::new(self.0.instruments.model(provider, model));
        meters.entry((provider.to_owned(), model.to_owned())).or_insert_with(new).clone()
    }

    /// The counters of a declared tool.
    fn tool(&self, name: &str) -> Arc<ToolMeter> {
        let mut meters = self.0.tool_meters.lock();
        if let Some(meter) = meters.get(name) {
            return meter.clone();
        }
        if meters.len() >= TOOL_NAMES_MAX {
            return self.0.other_tool.clone();
        }
        let meter = Arc::new(self.0.instruments.tool(name));
        meters.insert(name.to_owned(), meter.clone());
        meter
    }

    /// The counters shared by all tools that do not exist.
    fn unknown_tool(&self) -> &Arc<ToolMeter> {
        &self.0.unknown_tool
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
