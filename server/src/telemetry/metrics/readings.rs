//! Metrics that are read at each scrape instead of counted.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::audit::AuditCounts;

/// The values at the time of a scrape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings {
    /// Runs that have a task.
    pub live_runs: usize,
    /// Number of connected tool hosts.
    pub hosts: usize,
    /// Tool calls that a host has, or that room is granted for.
    pub calls: usize,
    /// Tool calls that wait in a queue for a host.
    pub queued_calls: usize,
    /// Memory of live runs.
    pub memory: MemoryReadings,
    /// Declarations of tools that were refused because they are weaker than the known terms, since the start.
    pub weaker_declarations: u64,
    /// Subscribers whose stream was ended because they did not read, since the start.
    pub slow_subscribers: u64,
    /// The end of the gRPC port's certificate, in seconds since 1970; `None` without TLS.
    pub certificate_not_after: Option<i64>,
    /// Sessions that were deleted because of their age or number, since the start.
    pub retired_sessions: u64,
    /// Counts of the store that the configuration names; `None` if the embedder brought its own store.
    pub store: Option<StoreReadings>,
    /// Rows of the audit log since the start; `None` if there is no log.
    pub audit: Option<AuditCounts>,
    /// The quotas that have a bound.
    pub quotas: Vec<QuotaReading>,
}

/// A quota, over all callers or tenants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuotaReading {
    /// Its key in the configuration.
    pub name: &'static str,
    /// Calls that were refused because of it, since the start.
    pub refused: u64,
    /// The part of it that is used by whoever uses most, where 1 is all; as far as it was looked at.
    pub highest: f64,
}

/// Memory of live runs, as it is accounted for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryReadings {
    /// Bytes that live runs and idle histories hold.
    pub used: usize,
    /// The most that they may hold.
    pub bound: usize,
    /// Runs that wait for memory before they go on.
    pub waiting: usize,
}

/// Writes of the store since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreReadings {
    /// Appends of events that are durable.
    pub appends: u64,
    /// Commits, including those of other writes.
    pub commits: u64,
    /// Size of the appended events, in bytes.
    pub bytes: u64,
}

/// A collector that calls `read` at each scrape.
pub(super) struct AtScrape<F> {
    read: F,
    /// The start of the counting, in seconds since 1970.
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

/// Writes metrics to a scrape's response.
struct MetricsWriter<'a>(DescriptorEncoder<'a>);

impl MetricsWriter<'_> {
    /// One line for each quota. Their names are a closed list.
    fn quotas(&mut self, quotas: &[QuotaReading]) -> fmt::Result {
        if quotas.is_empty() {
            return Ok(());
        }
        let help = "RPCs that were refused because a quota is used up";
        let mut refused = self.0.encode_descriptor("quota_refusals", help, None, MetricType::Counter)?;
        for quota in quotas {
            let labels = [("quota", quota.name)];
            ConstCounter::new(quota.refused).encode(refused.encode_family(&labels)?)?;
        }
        let help = "The part of a quota that is used by the caller or tenant that uses most";
        let mut highest = self.0.encode_descriptor("quota_used_ratio", help, None, MetricType::Gauge)?;
        for quota in quotas {
            let labels = [("quota", quota.name)];
            ConstGauge::new(quota.highest).encode(highest.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// One line for the rows that are durable, and one for those that are lost.
    fn audit(&mut self, counts: AuditCounts) -> fmt::Result {
        let help = "Rows of the audit log, by outcome";
        let mut rows = self.0.encode_descriptor("audit_rows", help, None, MetricType::Counter)?;
        for (outcome, count) in [("written", counts.written), ("failed", counts.failed)] {
            let labels = [("outcome", outcome)];
            ConstCounter::new(count).encode(rows.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, value: usize) -> fmt::Result {
        self.gauge_in(name, help, None, value)
    }

    fn gauge_in(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: usize) -> fmt::Result {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        let metric = self.0.encode_descriptor(name, help, unit, gauge.metric_type())?;
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
        let mut to = MetricsWriter(encoder);
        to.gauge("live_runs", "Runs at work; those that wait for a human are not among them", now.live_runs)?;
        to.gauge("tool_hosts", "Tool hosts that are connected", now.hosts)?;
        to.gauge("tool_calls_in_flight", "Tool calls at hosts", now.calls)?;
        to.gauge("tool_calls_queued", "Tool calls that wait for room at a host", now.queued_calls)?;
        let MemoryReadings { used, bound, waiting } = now.memory;
        to.gauge_in("memory_used", "What live runs and idle histories hold", Some(&Unit::Bytes), used)?;
        to.gauge_in("memory_bound", "The most that they may hold", Some(&Unit::Bytes), bound)?;
        to.gauge("memory_waiting_runs", "Runs that wait for memory before they go on", waiting)?;
        let help = "Declarations of tools that were refused because they are weaker than the known terms";
        to.counter("tool_declarations_refused", help, None, now.weaker_declarations)?;
        let help = "Subscribers that were ended because they did not read";
        to.counter("slow_subscribers", help, None, now.slow_subscribers)?;
        if let Some(end) = now.certificate_not_after {
            let gauge = ConstGauge::new(end);
            let help = "When the certificate of the gRPC port expires, in seconds since 1970";
            let unit = Some(&Unit::Seconds);
            let metric = to.0.encode_descriptor("tls_certificate_expiry", help, unit, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        let help = "Sessions that were deleted because of their age or number";
        to.counter("retention_deleted_sessions", help, None, now.retired_sessions)?;
        if let Some(store) = now.store {
            to.counter("store_appends", "Appends that were made durable", None, store.appends)?;
            to.counter("store_commits", "Commits, those of other writes included", None, store.commits)?;
            to.counter("store_appended", "Size of the appended events", Some(&Unit::Bytes), store.bytes)?;
        }
        if let Some(counts) = now.audit {
            to.audit(counts)?;
        }
        to.quotas(&now.quotas)?;
        let since = ConstGauge::new(self.since);
        let help = "When the process began to count, in seconds since 1970";
        let metric = to.0.encode_descriptor("start_time", help, Some(&Unit::Seconds), since.metric_type())?;
        since.encode(metric)
    }
}
