//! Sessions with what people know them by.

use std::time::{Duration, SystemTime};

use agentloop_client::v1::{RunStatus, Session};

use crate::terminal::format;

const ABOUT_CHARS: usize = 120;

/// A session with its title or first prompt, and the agent and state of its newest run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SessionOverview {
    pub(crate) session: Session,
    /// The title, or else the first prompt. Not sanitized.
    pub(crate) about: String,
    pub(crate) agent: String,
    /// Such as `awaiting human`; empty if there is no run.
    pub(crate) state: String,
}

impl SessionOverview {
    /// True if every word is in the id, the title, the agent or the state.
    pub(crate) fn fits(&self, words: &str) -> bool {
        let SessionOverview { session, about, agent, state } = self;
        let all = format!("{} {about} {agent} {state}", session.session_id).to_lowercase();
        words.to_lowercase().split_whitespace().all(|word| all.contains(word))
    }

    /// The time since the session changed, such as `3m`.
    pub(crate) fn age(&self, now: SystemTime) -> String {
        let changed = self.session.updated_at.and_then(|at| SystemTime::try_from(at).ok());
        let age = changed.map(|changed| now.duration_since(changed).unwrap_or(Duration::ZERO));
        age.map(format::age).unwrap_or_default()
    }
}

/// The text by which people know each session.
pub(crate) fn overviews(sessions: Vec<Session>) -> Vec<SessionOverview> {
    sessions.into_iter().map(overview).collect()
}

fn overview(session: Session) -> SessionOverview {
    let about = if session.title.is_empty() { &session.preview } else { &session.title };
    let state = match session.status() {
        RunStatus::Unspecified => String::new(),
        status => format::status(status).replace('_', " "),
    };
    SessionOverview {
        about: format::first_line(about, ABOUT_CHARS),
        agent: session.agent.clone(),
        state,
        session,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_looks_at_everything_that_is_shown() {
        let trip = SessionOverview {
            session: Session { session_id: "s-1".into(), ..Session::default() },
            about: "A trip to Bergen".into(),
            agent: "planner".into(),
            state: "awaiting human".into(),
        };
        for fits in ["", "s-1", "bergen", "BERGEN trip", "plan await", "  human "] {
            assert!(trip.fits(fits), "{fits}");
        }
        for fits_not in ["oslo", "bergen oslo", "s-2"] {
            assert!(!trip.fits(fits_not), "{fits_not}");
        }
    }

    #[test]
    fn a_clock_that_is_behind_makes_nothing_older() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let updated_at = Some(prost_types::Timestamp { seconds: 100, nanos: 0 });
        let overview =
            SessionOverview { session: Session { updated_at, ..Session::default() }, ..Default::default() };
        assert_eq!(overview.age(at(100 + 120)), "2m");
        assert_eq!(overview.age(at(50)), "0s");
        assert_eq!(SessionOverview::default().age(at(50)), "");
    }
}
