//! `[cluster]`: several replicas of the server over one PostgreSQL database.

use std::net::SocketAddr;
use std::path::PathBuf;

use agentloop_core::text::hex;
use agentloop_core::time::Millis;

use sha2::{Digest as _, Sha256};

use super::process::{LogFormat, LogOptions, StoreLocation};
use crate::config::Config;
use crate::config::section::Section;

/// The lease of an owner where none is set.
const LEASE: Millis = Millis(2_500);
const LEASE_MIN: Millis = Millis::secs(1);
const LEASE_MAX: Millis = Millis::secs(60);

/// `[cluster]`: this server as one of several replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterOptions {
    /// The address of the port for other replicas.
    pub listen: SocketAddr,
    /// Host and port at which other replicas reach that port. `None`: the address that the listener has got.
    pub advertise: Option<String>,
    /// The encryption of that port, and the proof of who calls it. `None`: neither.
    pub tls: Option<ClusterTls>,
    /// Time without a beat after which others take the database over. The owner trusts its lease for 0.8 of it.
    pub lease: Millis,
}

/// The certificates of the port for replicas. Each side requires one of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterTls {
    /// This replica's certificate with those that lead to its root, in PEM.
    pub certificate: PathBuf,
    /// The key of the certificate, in PEM.
    pub key: PathBuf,
    /// The roots of the other replicas' certificates, in PEM.
    pub ca: PathBuf,
    /// The name that the certificates of all replicas have. `None`: each has the host of its `advertise`.
    pub name: Option<String>,
}

/// Hex digits of a digest: enough to tell some configurations apart.
const DIGEST_DIGITS: usize = 12;

impl Config {
    /// Digest of what all replicas of a database should have in common: all but addresses, paths of certificates, and the
    /// log. It shows no secret, and secrets are not in it. Another version of the server may have another one.
    #[must_use]
    pub fn shared_digest(&self) -> String {
        let mut common = self.clone();
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        common.server.listen = nowhere;
        common.metrics.listen = None;
        common.log = LogOptions { format: LogFormat::Text, level: String::new() };
        common.tls = None;
        common.cluster = self.cluster.as_ref().map(|cluster| ClusterOptions {
            listen: nowhere,
            advertise: None,
            tls: None,
            lease: cluster.lease,
        });
        let digest = Sha256::digest(format!("{common:?}"));
        hex::encode(&digest)[..DIGEST_DIGITS].to_owned()
    }
}

/// Reads `[cluster]`; `None` without `listen`.
pub(in crate::config) fn cluster(
    section: &mut Section<'_, '_>,
    store: &StoreLocation,
) -> Option<ClusterOptions> {
    let listen: Option<SocketAddr> = section.get("listen");
    let advertise = section.get_checked("advertise", None, host_and_port);
    let tls = tls(section);
    let insecure = section.get_or("allow_insecure", false);
    let lease = section.get_within("lease", LEASE, LEASE_MIN..=LEASE_MAX);
    let keys =
        ["listen", "advertise", "tls_cert", "tls_key", "tls_ca", "tls_name", "allow_insecure", "lease"];
    let is_set = keys.iter().any(|key| section.is_set(key));
    if is_set && !matches!(store, StoreLocation::Postgres(_)) {
        let message =
            "replicas share a PostgreSQL database; set store.url to its address, or remove [cluster]";
        section.problem(&keys, message.to_owned());
    }
    let Some(listen) = listen else {
        if is_set && !section.is_set("listen") {
            let message = "expected listen beside it, the address of the port for other replicas";
            section.problem(&keys[1..], message.to_owned());
        }
        return None;
    };
    if listen.ip().is_unspecified() && !section.is_set("advertise") {
        let message = format!("{listen} is no address that others can call; add advertise = \"HOST:PORT\"");
        section.problem(&["listen"], message);
    }
    if tls.is_none() && !listen.ip().is_loopback() && !insecure {
        let message = format!(
            "{listen} can be reached from other machines, and without tls_cert, tls_key and tls_ca whoever connects can do \
             everything; add them, listen on 127.0.0.1, or set cluster.allow_insecure = true if a firewall controls access"
        );
        section.problem(&["listen"], message);
    }
    Some(ClusterOptions { listen, advertise, tls, lease })
}

fn tls(section: &mut Section<'_, '_>) -> Option<ClusterTls> {
    let certificate = section.get_path("tls_cert", None);
    let key = section.get_path("tls_key", None);
    let ca = section.get_path("tls_ca", None);
    let name: Option<String> = section.get("tls_name");
    if name.is_some() && ca.is_none() {
        section.problem(&["tls_name"], "expected tls_cert, tls_key and tls_ca beside it".to_owned());
    }
    match (certificate, key, ca) {
        (Some(certificate), Some(key), Some(ca)) => Some(ClusterTls { certificate, key, ca, name }),
        (None, None, None) => None,
        _ => {
            let message = "expected tls_cert, tls_key and tls_ca, all three or none";
            section.problem(&["tls_cert", "tls_key", "tls_ca"], message.to_owned());
            None
        }
    }
}

/// Checks a host, a colon and a port. An IPv6 address is in brackets.
fn host_and_port(text: String) -> Result<String, String> {
    let is_host = |host: &str| match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok_and(|ip| !ip.is_unspecified()),
        None => {
            let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
            !host.is_empty() && host.chars().all(is_name) && host != "0.0.0.0"
        }
    };
    let parts = text.rsplit_once(':');
    let port = parts.and_then(|(_, port)| port.parse::<u16>().ok());
    match (parts, port) {
        (Some((host, _)), Some(1..)) if is_host(host) => Ok(text),
        _ => Err(format!(
            "expected host and port as other replicas call them, such as \"10.0.0.1:50052\"; found \"{text}\""
        )),
    }
}
