//! Sessions with what people know them by.

use std::time::{Duration, SystemTime};

use agentloop_client::{
    Client,
    v1::{ListEntriesRequest, ListRunsRequest, Role, Run, Session},
};
use futures_util::{StreamExt as _, stream};

use crate::terminal::format;

/// Sessions that are looked at together.
const PARALLEL: usize = 16;
/// The first prompt is among these entries.
const FIRST_ENTRIES: u32 = 3;
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

/// Reads what is known of each session. What cannot be read is left empty.
pub(crate) async fn overviews(client: &Client, sessions: Vec<Session>) -> Vec<SessionOverview> {
    stream::iter(sessions).map(|session| overview(client, session)).buffered(PARALLEL).collect().await
}

async fn overview(client: &Client, session: Session) -> SessionOverview {
    let (run, about) = tokio::join!(newest_run(client, &session), about(client, &session));
    let (agent, state) = run.map_or_else(Default::default, |run| {
        let state = format::status(run.status()).replace('_', " ");
        (run.agent, state)
    });
    SessionOverview { session, about, agent, state }
}

async fn newest_run(client: &Client, session: &Session) -> Option<Run> {
    let request = ListRunsRequest {
        session_id: session.session_id.clone(),
        page_size: 1,
        ..ListRunsRequest::default()
    };
    client.list_runs(request).await.ok()?.runs.into_iter().next()
}

/// The title, or else the first prompt.
async fn about(client: &Client, session: &Session) -> String {
    if !session.title.is_empty() {
        return format::first_line(&session.title, ABOUT_CHARS);
    }
    let session_id = session.session_id.clone();
    let request = ListEntriesRequest { session_id, after_entry_no: 0, page_size: FIRST_ENTRIES };
    let Ok(page) = client.list_entries(request).await else { return String::new() };
    let messages = page.entries.iter().filter_map(|entry| entry.message.as_ref());
    let prompt = messages.filter(|message| message.role() == Role::User).map(format::text).next();
    prompt.map(|prompt| format::first_line(&prompt, ABOUT_CHARS)).unwrap_or_default()
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
