//! The warning that a certificate comes to its end.

use agentloop_core::time::Timestamp;
use parking_lot::Mutex;

/// The time before its end from which a certificate is warned about, in seconds.
pub const CERTIFICATE_WARN_BEFORE: i64 = 14 * DAY;
/// Time between two warnings, in seconds.
pub(super) const DAY: i64 = 24 * 60 * 60;

/// Warns of the end of a certificate, once a day.
#[derive(Debug)]
pub(super) struct EndWarning {
    /// The certificate, for people.
    certificate: &'static str,
    /// The side that refuses it after its end.
    refused_by: &'static str,
    last: Mutex<Option<Warned>>,
}

/// The warning that was given last: none is repeated on the same day.
#[derive(Debug, PartialEq, Eq)]
struct Warned {
    /// The end of the certificate, in seconds since 1970.
    not_after: i64,
    /// The day of the warning, counted from 1970.
    day: i64,
}

impl EndWarning {
    /// The warning of the certificate of the gRPC port.
    pub(super) fn of_port() -> Self {
        Self::new("the certificate of the gRPC port", "clients")
    }

    /// The warning of the certificate that replicas present to each other.
    pub(super) fn of_links() -> Self {
        Self::new("the certificate of the links between replicas", "the other replicas")
    }

    fn new(certificate: &'static str, refused_by: &'static str) -> Self {
        Self { certificate, refused_by, last: Mutex::default() }
    }

    /// Warns if the certificate in use ends soon and was not warned about today. `not_after` is its end, in seconds since 1970.
    pub(super) fn look(&self, not_after: i64, now: Timestamp) {
        let Self { certificate, refused_by, .. } = self;
        let now = i64::try_from(now.0 / 1_000).unwrap_or(i64::MAX);
        let warning = Some(Warned { not_after, day: now / DAY });
        let mut last = self.last.lock();
        if not_after - now > CERTIFICATE_WARN_BEFORE || *last == warning {
            return;
        }
        *last = warning;
        let days = (not_after - now) / DAY;
        if not_after <= now {
            tracing::warn!("{certificate} has expired: {refused_by} refuse it");
        } else {
            tracing::warn!(days, "{certificate} expires soon");
        }
    }
}
