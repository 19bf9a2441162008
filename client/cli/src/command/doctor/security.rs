//! The check of what protects the server: its certificate and the file of tokens.

use std::time::SystemTime;

use agentloop_server::app::{CERTIFICATE_WARN_BEFORE, SecurityError, SecurityFacts};

use super::report::Check;
use crate::terminal::format;

/// The result for what was found at this time.
pub(super) fn check(found: Result<SecurityFacts, SecurityError>, now: SystemTime) -> Check {
    let facts = match found {
        Ok(facts) => facts,
        Err(error) => return Check::failed("security", error.to_string(), advice(&error)),
    };
    let mut words = Vec::new();
    let left = facts.not_after.map(|end| {
        words.push(format!("the certificate is valid until {}", shown(end)));
        end.saturating_sub(seconds(now))
    });
    words.extend(facts.tokens.map(|tokens| format!("tokens: {tokens}")));
    if words.is_empty() {
        words.push("its files can be read".to_owned());
    }
    let renew = "renew the certificate; a server that runs takes the new one by itself";
    match left {
        Some(..=0) => {
            let end = facts.not_after.map(shown).unwrap_or_default();
            Check::failed(
                "security",
                format!("the certificate has expired at {end}: clients refuse it"),
                renew,
            )
        }
        Some(left) if left <= CERTIFICATE_WARN_BEFORE => Check::warning("security", words.join("; "), renew),
        Some(_) | None if facts.tokens == Some(0) => {
            Check::warning("security", words.join("; "), "make one: `agentloop token new --help`")
        }
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

    fn checked(not_after: Option<i64>, tokens: Option<usize>) -> String {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let check = check(Ok(SecurityFacts { not_after, tokens }), now);
        serde_json::to_string(&check).expect("plain data")
    }

    #[test]
    fn the_end_of_a_certificate_is_told() {
        const DAY: i64 = 24 * 60 * 60;
        for (left, result, words) in [
            (0, "failed", "has expired at 2001-09-09 01:46:40"),
            (14 * DAY, "warning", "valid until 2001-09-23 01:46:40"),
            (14 * DAY + 1, "ok", "valid until 2001-09-23 01:46:41; tokens: 2"),
        ] {
            let told = checked(Some(1_000_000_000 + left), Some(2));
            assert!(told.contains(&format!(r#""result":"{result}""#)) && told.contains(words), "{told}");
        }
        assert!(checked(None, Some(0)).contains("token new"));
        assert!(checked(None, None).contains("can be read"));
    }
}
