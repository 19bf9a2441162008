//! What is not counted but read, at each scrape.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// How things stand now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readings {
    /// Runs with a task.
    pub live_runs: usize,
    /// Tool hosts with a connection.
    pub hosts: usize,
    /// Tool calls that a host has or has room for.
    pub calls: usize,
    /// Tool calls that wait for room.
    pub queued_calls: usize,
    /// Subscribers that were ended because they did not read, since the start.
    pub slow_subscribers: u64,
    /// Of the configured store; absent where it is the embedder's.
    pub store: Option<StoreReadings>,
}

/// What a store wrote since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreReadings {
    /// Appends that were made durable.
    pub appends: u64,
    /// Commits, those of other writes included.
    pub commits: u64,
    /// Of the appended events.
    pub bytes: u64,
}

/// Reads when it is asked.
pub(super) struct AtScrape<F> {
    read: F,
    /// Seconds since 1970, when the counting began.
    since: f64,
}

impl<F: Fn() -> Readings> AtScrape<F> {
    #[expect(clippy::disallowed_methods, reason = "the start of this process, which no run depends on")]
    pub(super) fn new(read: F) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Self { read, since }
    }
}

impl<F> fmt::Debug for AtScrape<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtScrape").finish_non_exhaustive()
    }
}

/// Writes one number after the other.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: usize) -> fmt::Result {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        let metric = self.0.encode_descriptor(name, help, None, gauge.metric_type())?;
        gauge.encode(metric)
    }

    fn counter(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: u64) -> fmt::Result {
        let counter = ConstCounter::new(value);
        let metric = self.0.encode_descriptor(name, help, unit, counter.metric_type())?;
        counter.encode(metric)
    }
}

impl<F: Fn() -> Readings + Send + Sync + 'static> Collector for AtScrape<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = (self.read)();
        let mut to = Writer(encoder);
        to.gauge("live_runs", "Runs at work; those that wait for a human are not among them", now.live_runs)?;
        to.gauge("tool_hosts", "Tool hosts that are connected", now.hosts)?;
        to.gauge("tool_calls_in_flight", "Tool calls at hosts", now.calls)?;
        to.gauge("tool_calls_queued", "Tool calls that wait for room at a host", now.queued_calls)?;
        let help = "Subscribers that were ended because they did not read";
        to.counter("slow_subscribers", help, None, now.slow_subscribers)?;
        if let Some(store) = now.store {
            to.counter("store_appends", "Appends that were made durable", None, store.appends)?;
            to.counter("store_commits", "Commits, those of other writes included", None, store.commits)?;
            to.counter("store_appended", "Size of the appended events", Some(&Unit::Bytes), store.bytes)?;
        }
        let since = ConstGauge::new(self.since);
        let help = "When the process began to count, in seconds since 1970";
        let metric = to.0.encode_descriptor("start_time", help, Some(&Unit::Seconds), since.metric_type())?;
        since.encode(metric)
    }
}
