//! Builders of `RunInput` for tests.

use agentloop_client::v1 as wire;

/// A prompt, in a new session.
pub fn prompt(text: &str) -> wire::RunInput {
    wire::RunInput { prompt: text.to_owned(), ..Default::default() }
}

/// A prompt for a run of this id.
pub fn named(run: &str, text: &str) -> wire::RunInput {
    wire::RunInput { run_id: Some(run.to_owned()), ..prompt(text) }
}

/// A prompt for a run of this id in this session, which is made if there is none.
pub fn in_session(session: &str, run: &str, text: &str) -> wire::RunInput {
    wire::RunInput {
        session_id: Some(session.to_owned()),
        auto_create_session: Some(true),
        ..named(run, text)
    }
}
