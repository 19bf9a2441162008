//! Tests of labels and names. The counting of runs is tested through the server, in `tests/it/metrics.rs`.

use super::*;

fn line(text: &str, begins: &str) -> Option<String> {
    text.lines().find(|line| line.starts_with(begins)).map(str::to_owned)
}

#[test]
fn tools_beyond_the_bound_share_a_label() {
    let metrics = Metrics::new(KnownModels::default());
    for at in 0..TOOL_NAMES_MAX + 3 {
        metrics.tool(&format!("t{at}")).retried();
    }
    metrics.tool("t0").retried();
    let text = metrics.text();
    assert_eq!(
        line(&text, "agentloop_tool_retries_total{tool=\"t0\"}").unwrap().split(' ').next_back(),
        Some("2")
    );
    assert_eq!(
        line(&text, "agentloop_tool_retries_total{tool=\"other\"}").unwrap().split(' ').next_back(),
        Some("3")
    );
    assert_eq!(
        text.lines().filter(|line| line.starts_with("agentloop_tool_retries_total")).count(),
        TOOL_NAMES_MAX + 1
    );
}

#[test]
fn the_end_of_the_certificate_between_replicas_is_shown_where_there_is_one() {
    for (end, shown) in [(Some(4_000_000_000), Some("4000000000")), (None, None)] {
        let metrics = Metrics::new(KnownModels::default());
        let readings = ReplicaReadings { certificate_not_after: end, ..ReplicaReadings::default() };
        metrics.read_replicas_at_scrape(move || readings);
        let found = line(&metrics.text(), "agentloop_replica_certificate_expiry_seconds ");
        assert_eq!(found.as_deref().and_then(|line| line.split(' ').next_back()), shown);
    }
}

#[test]
fn takeovers_and_rpcs_that_are_sent_on_are_counted() {
    let metrics = Metrics::new(KnownModels::default());
    let readings = ReplicaReadings {
        has_lease: true,
        is_outdated: true,
        claimed_shards: 341,
        fences: 2,
        sent_on: [("responded", 5), ("moved", 4), ("unreached", 3), ("lost", 1)],
        ..ReplicaReadings::default()
    };
    metrics.read_replicas_at_scrape(move || readings);
    let text = metrics.text();
    for expected in [
        "replica_lease 1",
        "replica_outdated 1",
        "replica_claimed_shards_total 341",
        "replica_fences_total 2",
        "replica_sent_rpcs_total{outcome=\"responded\"} 5",
        "replica_sent_rpcs_total{outcome=\"unreached\"} 3",
        "replica_sent_rpcs_total{outcome=\"lost\"} 1",
    ] {
        assert!(line(&text, &format!("agentloop_{expected}")).is_some(), "{expected} in {text}");
    }
}

/// The text of a file from the top of the repository.
fn file(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of metrics in a text.
fn names(text: &str) -> std::collections::BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let words = text.split(|letter: char| !is_part(letter));
    words.filter(|word| word.starts_with("agentloop_")).collect()
}

/// A rule about a metric that does not exist never fires.
#[test]
fn alerts_are_about_metrics_that_exist_and_that_the_guides_name() {
    let metrics = Metrics::new(KnownModels::default());
    let readings = ReplicaReadings { certificate_not_after: Some(1), ..ReplicaReadings::default() };
    metrics.read_replicas_at_scrape(move || readings);
    metrics.read_at_scrape(|| Readings {
        store: Some(StoreReadings::default()),
        audit: Some(crate::audit::AuditCounts { written: 0, failed: 0 }),
        certificate_not_after: Some(1),
        ..Readings::default()
    });
    let text = metrics.text();
    let rules = file("server/deploy/alerts.yaml");
    let guides = file("server/docs/guide/replicas.md") + &file("server/docs/guide/operating.md");
    let (alerts, guides) = (names(&rules), names(&guides));
    assert!(alerts.len() > 8, "{alerts:?}");
    for name in alerts {
        let is_there = text.lines().any(|line| line.split([' ', '{']).next() == Some(name));
        assert!(is_there, "no metric {name}");
        assert!(guides.contains(name), "no guide names {name}");
    }
}

#[test]
fn gauges_are_read_at_each_scrape() {
    let metrics = Metrics::new(KnownModels::default());
    let hosts = std::sync::atomic::AtomicUsize::new(0);
    metrics.read_at_scrape(move || Readings {
        hosts: 1 + hosts.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
        memory: MemoryReadings { used: 5, bound: 70, waiting: 2 },
        store: Some(StoreReadings { appends: 3, commits: 2, bytes: 100 }),
        audit: Some(crate::audit::AuditCounts { written: 6, failed: 1 }),
        quotas: vec![QuotaReading { name: "live_runs", refused: 4, highest: 0.5 }],
        ..Readings::default()
    });
    assert!(metrics.text().contains("agentloop_tool_hosts 1\n"));
    let text = metrics.text();
    for expected in [
        "tool_hosts 2",
        "store_commits_total 2",
        "store_appended_bytes_total 100",
        "live_runs 0",
        "memory_used_bytes 5",
        "memory_bound_bytes 70",
        "memory_waiting_runs 2",
        "audit_rows_total{outcome=\"written\"} 6",
        "audit_rows_total{outcome=\"failed\"} 1",
        "quota_refusals_total{quota=\"live_runs\"} 4",
        "quota_used_ratio{quota=\"live_runs\"} 0.5",
    ] {
        assert!(text.contains(&format!("agentloop_{expected}\n")), "{expected}: {text}");
    }
    assert!(line(&text, "agentloop_start_time_seconds 1").is_some(), "{text}");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn names_follow_the_conventions() {
    let metrics = Metrics::new(KnownModels::default());
    metrics.appended(Duration::from_millis(2));
    metrics.refused("QUEUE_FULL");
    let text = metrics.text();
    assert!(text.contains("agentloop_refusals_total{reason=\"QUEUE_FULL\"} 1\n"), "{text}");
    assert!(text.contains("agentloop_append_duration_seconds_bucket{le=\"0.0025\"} 1\n"), "{text}");
    assert!(text.contains("# TYPE agentloop_runs_started counter\n"), "{text}");
}
