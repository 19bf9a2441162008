//! `[cluster]`: what is read, and what is refused.

use agentloop_core::time::Millis;

use super::*;
use crate::config::keys::cluster::ClusterTls;

const STORE: &str = "store.url = 'postgres://db/agentloop'\n";

/// The one problem of `[cluster]` with these lines, over a PostgreSQL database.
#[track_caller]
fn problem(lines: &str) -> String {
    let problems = problems(&format!("{STORE}[cluster]\n{lines}"), &[]);
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    problem.clone()
}

fn cluster(lines: &str) -> ClusterOptions {
    parsed(&format!("{STORE}[cluster]\n{lines}")).cluster.unwrap()
}

#[test]
fn a_replica_needs_no_more_than_a_port_on_loopback() {
    assert_eq!(parsed(STORE).cluster, None);
    let options = cluster("listen = '127.0.0.1:0'");
    assert_eq!(options.listen, "127.0.0.1:0".parse().unwrap());
    assert_eq!((options.advertise, options.tls, options.lease), (None, None, Millis(2_500)));
}

#[test]
fn a_replica_that_others_can_reach() {
    let options = cluster(
        "listen = '0.0.0.0:50052'\nadvertise = 'replica-1.internal:50052'\ntls_cert = '/c'\ntls_key = '/k'\ntls_ca = '/a'\n\
         lease = '4s'",
    );
    assert_eq!(options.advertise.as_deref(), Some("replica-1.internal:50052"));
    let tls = ClusterTls { certificate: "/c".into(), key: "/k".into(), ca: "/a".into(), name: None };
    assert_eq!((options.tls, options.lease), (Some(tls), Millis::secs(4)));
    assert_eq!(cluster("listen = '10.0.0.1:1'\nallow_insecure = true").tls, None);
    let named =
        "listen = '127.0.0.1:1'\ntls_cert = '/c'\ntls_key = '/k'\ntls_ca = '/a'\ntls_name = 'replica'";
    assert_eq!(cluster(named).tls.unwrap().name.as_deref(), Some("replica"));
    assert!(
        problem("listen = '127.0.0.1:1'\ntls_name = 'replica'")
            .contains("cluster.tls_name: expected tls_cert")
    );
}

#[test]
fn the_environment_makes_a_replica() {
    let environment = Environment::from_iter([
        ("AGENTLOOP_STORE_URL", "postgres://db/agentloop"),
        ("AGENTLOOP_CLUSTER_LISTEN", "127.0.0.1:7"),
        ("AGENTLOOP_CLUSTER_ADVERTISE", "[::1]:7"),
    ]);
    let options = Config::parse_with("", "", &environment).unwrap().cluster.unwrap();
    assert_eq!((options.listen.port(), options.advertise.as_deref()), (7, Some("[::1]:7")));
}

#[test]
fn replicas_share_a_postgresql_database() {
    for store in ["", "store.path = 'a.db'\n", "store.path = ':memory:'\n"] {
        let text = format!("{store}cluster.listen = '127.0.0.1:1'");
        let [problem] = &problems(&text, &[])[..] else { panic!("{text}") };
        assert!(problem.contains("cluster.listen: replicas share a PostgreSQL database"), "{problem}");
        assert!(problem.contains("store.url"), "{problem}");
    }
}

#[test]
fn an_address_that_others_cannot_call() {
    let found = problem("listen = '0.0.0.0:1'\nallow_insecure = true");
    assert!(found.starts_with("agentloop.toml:3:10: cluster.listen: 0.0.0.0:1 is no address"), "{found}");
    for wrong in
        ["10.0.0.1", "10.0.0.1:0", ":5", "a b:5", "http://a:5", "::1:5", "[::]:5", "0.0.0.0:5", "a:99999"]
    {
        let found = problem(&format!("listen = '127.0.0.1:1'\nadvertise = '{wrong}'"));
        let expected = "agentloop.toml:4:13: cluster.advertise: expected host and port";
        assert!(found.starts_with(expected) && found.ends_with(&format!("\"{wrong}\"")), "{found}");
    }
}

#[test]
fn certificates_are_all_there_or_none() {
    let found = problem("listen = '10.0.0.1:1'");
    assert!(found.starts_with("agentloop.toml:3:10: cluster.listen: 10.0.0.1:1 can be reached"), "{found}");
    assert!(found.contains("cluster.allow_insecure = true"), "{found}");
    let found = problem("listen = '127.0.0.1:1'\ntls_key = 'k'");
    assert_eq!(
        found,
        "agentloop.toml:4:11: cluster.tls_key: expected tls_cert, tls_key and tls_ca, all three or none"
    );
}

#[test]
fn keys_without_the_port() {
    let found = problem("lease = '2.5s'");
    assert!(found.starts_with("agentloop.toml:3:9: cluster.lease: expected listen beside it"), "{found}");
    for wrong in ["999ms", "61s"] {
        let found = problem(&format!("listen = '127.0.0.1:1'\nlease = '{wrong}'"));
        assert!(found.starts_with("agentloop.toml:4:9: cluster.lease: expected a length of time"), "{found}");
        assert!(found.contains("from \"1s\" to \"1m\""), "{found}");
    }
}

#[test]
fn hosts_show_life_more_often_to_replicas() {
    let hosts = |lines: &str| parsed(&format!("{STORE}{lines}")).hosts;
    let replica = "cluster.listen = '127.0.0.1:0'\n";
    assert_eq!(hosts("").heartbeat_interval, Millis::secs(5));
    let defaults = hosts(replica);
    assert_eq!((defaults.heartbeat_interval, defaults.lease_timeout), (Millis(1_500), Millis::secs(15)));
    for interval in ["5s", "700ms", "10s"] {
        let set = format!("hosts.heartbeat_interval = '{interval}'");
        assert_eq!(hosts(&format!("{replica}{set}")).heartbeat_interval, hosts(&set).heartbeat_interval);
    }
    assert_eq!(hosts(&format!("{replica}hosts.lease_timeout = '5s'")).lease_timeout, Millis::secs(5));
}
