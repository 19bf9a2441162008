//! Metrics of a server that shares its database with others, read at each scrape.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// The replicas at the time of a scrape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplicaReadings {
    /// Shards of sessions that this one owns, while its lease is valid.
    pub shards: usize,
    /// True while its lease is valid.
    pub has_lease: bool,
    /// True if a replica of a later version has changed the tables, so that this one takes no more shards.
    pub is_outdated: bool,
    /// Shards that it has claimed since its start.
    pub claimed_shards: u64,
    /// Other replicas that it has fenced since its start.
    pub fences: u64,
    /// Tries to have RPCs done by other replicas since its start, by their ends, whose names are a closed list.
    pub sent_on: [(&'static str, u64); 4],
    /// True if it keeps the tool hosts of all.
    pub keeps_hosts: bool,
    /// Replicas that are not fenced, this one included.
    pub living: usize,
    /// The longest time for which one of them has shown no sign of life.
    pub silent_for: Duration,
    /// The end of the certificate that this one presents to the others, in seconds since 1970; `None` without certificates.
    pub certificate_not_after: Option<i64>,
}

fn encode_counters(now: &ReplicaReadings, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, value) in [
        ("replica_claimed_shards", "Shards of sessions that this replica has claimed", now.claimed_shards),
        ("replica_fences", "Other replicas that this one has fenced after their lease", now.fences),
    ] {
        let counter = ConstCounter::new(value);
        counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
    }
    let help = "Tries to have RPCs done by other replicas, by their ends";
    let mut sent = encoder.encode_descriptor("replica_sent_rpcs", help, None, MetricType::Counter)?;
    for (outcome, count) in now.sent_on {
        ConstCounter::new(count).encode(sent.encode_family(&[("outcome", outcome)])?)?;
    }
    Ok(())
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
        let now = (self.0)();
        encode_counters(&now, &mut encoder)?;
        let ReplicaReadings { shards, keeps_hosts, living, silent_for, certificate_not_after, .. } = now;
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
        let help = "1 while this replica's lease is valid: without it, it takes no RPCs";
        gauge("replica_lease", help, i64::from(now.has_lease))?;
        let help =
            "1 if a replica of a later version has changed the tables, so that this one takes no more shards";
        gauge("replica_outdated", help, i64::from(now.is_outdated))?;
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
