//! The check of what protects the server: its certificate and the file of tokens.

use std::time::SystemTime;

use super::report::Check;
use crate::{
    embedded::{CERTIFICATE_WARN_BEFORE, SecurityError, SecurityFacts},
    terminal::format,
};

/// The result for what was found at this time.
pub(super) fn check(found: Result<SecurityFacts, SecurityError>, now: SystemTime) -> Check {
    let facts = match found {
        Ok(facts) => facts,
        Err(error) => return Check::failed("security", error.to_string(), advice(&error)),
    };
    let certificates = [
        ("the certificate", facts.not_after, "clients refuse it"),
        ("the certificate between replicas", facts.links_not_after, "the other replicas refuse it"),
    ];
    let certificates = certificates.into_iter().filter_map(|(name, end, then)| Some((name, end?, then)));
    let certificates: Vec<_> = certificates.collect();
    let renew = "renew the certificate; a server that runs takes the new one by itself";
    if let Some((name, end, then)) = certificates.iter().find(|(_, end, _)| *end <= seconds(now)) {
        return Check::failed("security", format!("{name} has expired at {}: {then}", shown(*end)), renew);
    }
    let mut words: Vec<String> =
        certificates.iter().map(|(name, end, _)| format!("{name} is valid until {}", shown(*end))).collect();
    words.extend(facts.tokens.map(|tokens| format!("tokens: {tokens}")));
    if words.is_empty() {
        words.push("its files can be read".to_owned());
    }
    if facts.clients_are_replicas {
        words.push("tls.client_ca and cluster.tls_ca have a root in common".to_owned());
        let advice =
            "set cluster.tls_name, or give the replicas a root of their own: clients can speak as replicas";
        return Check::warning("security", words.join("; "), advice);
    }
    let ends_soon =
        |(_, end, _): &(&str, i64, &str)| end.saturating_sub(seconds(now)) <= CERTIFICATE_WARN_BEFORE;
    match facts.tokens {
        _ if certificates.iter().any(ends_soon) => Check::warning("security", words.join("; "), renew),
        Some(0) => Check::warning("security", words.join("; "), "make one: `agentloop token new --help`"),
        Some(_) | None => Check::ok("security", words.join("; ")),
    }
}

fn seconds(at: SystemTime) -> i64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

fn shown(seconds: i64) -> String {
    format::time(Some(&prost_types::Timestamp { seconds, nanos: 0 }))
}

fn advice(error: &SecurityError) -> &'static str {
    match error {
        SecurityError::Read { .. } => "put the file there, and let the user that runs the server read it",
        SecurityError::Tls(_) => {
            "give a certificate and its own key, in PEM; for development, `agentloop cert dev` makes both"
        }
        SecurityError::ClusterTls(_) => {
            "give a certificate and its own key, in PEM, and the root of all replicas"
        }
        SecurityError::Tokens(_) => {
            "mend the file; `agentloop token new` makes one that only its owner may read (chmod 600)"
        }
        SecurityError::Keys(..) | SecurityError::FetchKeys(..) => {
            "give a JSON Web Key Set (RFC 7517) with the public keys of the issuer"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: i64 = 1_000_000_000;
    const NOTHING: SecurityFacts =
        SecurityFacts { not_after: None, links_not_after: None, clients_are_replicas: false, tokens: None };

    fn checked(facts: SecurityFacts) -> String {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.unsigned_abs());
        serde_json::to_string(&check(Ok(facts), now)).expect("plain data")
    }

    #[test]
    fn the_end_of_each_certificate_is_told() {
        const DAY: i64 = 24 * 60 * 60;
        for (left, result, words) in [
            (0, "failed", "has expired at 2001-09-09 01:46:40"),
            (14 * DAY, "warning", "valid until 2001-09-23 01:46:40"),
            (14 * DAY + 1, "ok", "valid until 2001-09-23 01:46:41; tokens: 2"),
        ] {
            let (end, tokens) = (Some(NOW + left), Some(2));
            let of_port = SecurityFacts { not_after: end, tokens, ..NOTHING };
            let of_links = SecurityFacts { links_not_after: end, tokens, ..NOTHING };
            for (facts, name) in
                [(of_port, "the certificate "), (of_links, "the certificate between replicas ")]
            {
                let told = checked(facts);
                let expected =
                    [format!(r#""result":"{result}""#), format!(r#""detail":"{name}"#), words.to_owned()];
                assert!(expected.iter().all(|words| told.contains(words)), "{told}");
            }
        }
        assert!(checked(SecurityFacts { tokens: Some(0), ..NOTHING }).contains("token new"));
        assert!(checked(NOTHING).contains("can be read"));
    }

    #[test]
    fn a_root_that_clients_and_replicas_share_is_told() {
        let told = checked(SecurityFacts { clients_are_replicas: true, ..NOTHING });
        assert!(told.contains(r#""result":"warning""#) && told.contains("set cluster.tls_name"), "{told}");
    }
}
