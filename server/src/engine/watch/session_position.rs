//! The position of a subscriber in a session, and its token.

use agentloop_core::id::{RunId, Seq, SessionId, TenantId};
use agentloop_core::limits::QUEUED_RUNS_PER_SESSION_MAX;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;

/// Runs that a token may name: those that wait for their session, and one that is live or has just ended.
const TOKEN_RUNS_MAX: usize = QUEUED_RUNS_PER_SESSION_MAX + 64;
/// The first letters of every token.
const TOKEN_VERSION: &str = "2";
/// Positions of tokens that do not name their session, which earlier versions of the server gave out.
const UNNAMED_TOKEN_VERSION: &str = "1";
/// Letters of a session's digest in a token.
const SESSION_DIGEST_CHARS: usize = 12;

/// A position in a session: the content of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionPosition {
    /// Tells the session from a later one of the same id.
    pub(super) created_at: Timestamp,
    /// Number of the last known run.
    pub(super) last_no: u64,
    /// The runs that had not ended, each with its last event that was told.
    pub(super) runs: Vec<(RunId, Seq)>,
}

/// A name for a session in tokens, so that the token of another session is seen.
pub(super) fn digest_of(tenant: &TenantId, session: &SessionId) -> String {
    let digest = Digest::of(&[tenant.as_str().as_bytes(), session.as_str().as_bytes()]);
    digest.as_str().chars().take(SESSION_DIGEST_CHARS).collect()
}

impl SessionPosition {
    /// The token of this position in the session with this digest.
    pub(super) fn token(&self, digest: &str) -> String {
        let runs: Vec<String> = self.runs.iter().map(|(run, seq)| format!("{run}~{}", seq.0)).collect();
        format!("{TOKEN_VERSION}.{digest}.{}.{}.{}", self.created_at.0, self.last_no, runs.join(","))
    }

    /// The position that a token names; `None` if it is no token of the session with this digest.
    pub(super) fn parse(token: &str, digest: &str) -> Option<Self> {
        let (version, rest) = token.split_once('.')?;
        let rest = match version {
            TOKEN_VERSION => rest.strip_prefix(digest)?.strip_prefix('.')?,
            UNNAMED_TOKEN_VERSION => rest,
            _ => return None,
        };
        let mut parts = rest.splitn(3, '.');
        let created_at = Timestamp(parts.next()?.parse().ok()?);
        let last_no = parts.next()?.parse().ok().filter(|no| i64::try_from(*no).is_ok())?;
        let runs = parts.next()?;
        if runs.split(',').count() > TOKEN_RUNS_MAX {
            return None;
        }
        let run = |text: &str| {
            let (run, seq) = text.split_once('~')?;
            Some((RunId::parse(run).ok()?, Seq(seq.parse().ok()?)))
        };
        let runs = runs.split(',').filter(|run| !run.is_empty()).map(run).collect::<Option<Vec<_>>>()?;
        Some(Self { created_at, last_no, runs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back() {
        let run = |id| RunId::parse(id).unwrap();
        for runs in [vec![], vec![(run("a.b:c"), Seq(7))], vec![(run("a"), Seq(0)), (run("b"), Seq(9))]] {
            let position = SessionPosition { created_at: Timestamp(5), last_no: 3, runs };
            let token = position.token("abc");
            assert_eq!(SessionPosition::parse(&token, "abd"), None, "it is of another session");
            let unnamed = token.replace("2.abc.", "1.");
            assert_eq!(
                SessionPosition::parse(&unnamed, "abc"),
                Some(position.clone()),
                "as earlier versions gave it out"
            );
            assert_eq!(SessionPosition::parse(&token, "abc"), Some(position));
        }
        for forged in ["", "1", "1.2.3", "2.5.3.", "3.5.3.", "2.abc5.3.", "2.abc", "1.x.3.", "1.5.-3."] {
            assert_eq!(SessionPosition::parse(forged, "abc"), None, "{forged}");
        }
        for forged in ["1.5.3.a", "1.5.3.a~", "2.abc.5.3.a b~1"] {
            assert_eq!(SessionPosition::parse(forged, "abc"), None, "{forged}");
        }
        assert_eq!(
            SessionPosition::parse(&format!("1.5.3.{}", "a~1,".repeat(TOKEN_RUNS_MAX + 1)), "abc"),
            None
        );
    }

    #[test]
    fn a_session_is_named_with_its_tenant() {
        let digest = |tenant, session| {
            digest_of(&TenantId::parse(tenant).unwrap(), &SessionId::parse(session).unwrap())
        };
        assert_eq!(digest("a", "s").len(), SESSION_DIGEST_CHARS);
        assert_ne!(digest("a", "s"), digest("b", "s"));
        assert_ne!(digest("a", "s"), digest("a", "t"));
    }
}
