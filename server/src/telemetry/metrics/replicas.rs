//! Metrics of a server that shares its database with others, read at each scrape.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// The replicas at the time of a scrape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplicaReadings {
    /// Shards of sessions that this one owns, while its lease is valid.
    pub shards: usize,
    /// True if it keeps the tool hosts of all.
    pub keeps_hosts: bool,
    /// Replicas that are not fenced, this one included.
    pub living: usize,
    /// The longest time for which one of them has shown no sign of life.
    pub silent_for: Duration,
    /// The end of the certificate that this one presents to the others, in seconds since 1970; `None` without certificates.
    pub certificate_not_after: Option<i64>,
}

/// A collector that calls `read` at each scrape.
pub(super) struct ReplicasAtScrape<F>(pub(super) F);

impl<F> fmt::Debug for ReplicasAtScrape<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicasAtScrape").finish_non_exhaustive()
    }
}

impl<F: Fn() -> ReplicaReadings + Send + Sync + 'static> Collector for ReplicasAtScrape<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let ReplicaReadings { shards, keeps_hosts, living, silent_for, certificate_not_after } = (self.0)();
        let mut gauge = |name: &str, help: &str, value: i64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge("replica_owner", "1 if this replica owns sessions, 0 if it stands by", i64::from(shards > 0))?;
        let help = "Shards of sessions that this replica owns, of 1024";
        gauge("replica_shards", help, i64::try_from(shards).unwrap_or(i64::MAX))?;
        gauge(
            "replica_keeps_hosts",
            "1 if this replica keeps the streams of all tool hosts",
            i64::from(keeps_hosts),
        )?;
        let help = "Replicas that share the database and are not fenced";
        gauge("replicas", help, i64::try_from(living).unwrap_or(i64::MAX))?;
        let gauge = ConstGauge::new(silent_for.as_secs_f64());
        let help = "The longest time for which one of these replicas has shown no sign of life";
        let metric =
            encoder.encode_descriptor("replica_silence", help, Some(&Unit::Seconds), gauge.metric_type())?;
        gauge.encode(metric)?;
        let Some(end) = certificate_not_after else { return Ok(()) };
        let gauge = ConstGauge::new(end);
        let help =
            "When the certificate expires that this replica presents to the others, in seconds since 1970";
        let (name, unit) = ("replica_certificate_expiry", Some(&Unit::Seconds));
        gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)
    }
}
