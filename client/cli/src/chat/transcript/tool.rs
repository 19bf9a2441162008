//! A tool call as it is shown.

use std::time::Duration;

use agentloop_client::v1::{ToolCall, ToolResult, ToolStatus};

use crate::{
    terminal::names,
    terminal::text::{beginning, keep_end, tame},
};

/// What is kept of arguments and results; the whole is in the session.
const SHOWN_BYTES_MAX: usize = 16 * 1024;
/// What is kept of the output of a running call.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;

/// A tool call from the model's wish to its result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) call_id: String,
    pub(crate) tool: String,
    pub(crate) arguments: String,
    pub(crate) state: State,
    /// How far it says it is.
    pub(crate) progress: String,
    /// The end of what it put out so far.
    pub(crate) output: String,
}

/// Where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum State {
    /// It waits for its turn, or for a host.
    Pending { why: String },
    /// It waits for a human.
    AwaitingHuman,
    /// A host works on it.
    Running { host: String, attempt: u32, since: Duration },
    /// Its host was lost; nobody knows whether it took effect.
    InDoubt,
    /// It has its result.
    Settled { status: ToolStatus, took: String, result: String },
}

impl Call {
    pub(crate) fn new(call_id: &str) -> Call {
        Call {
            call_id: call_id.to_owned(),
            tool: String::new(),
            arguments: String::new(),
            state: State::Pending { why: String::new() },
            progress: String::new(),
            output: String::new(),
        }
    }

    /// What the model wrote.
    pub(crate) fn asked(&mut self, call: &ToolCall) {
        self.named(&call.name);
        self.with_arguments(&call.arguments_json);
    }

    pub(crate) fn named(&mut self, tool: &str) {
        self.tool = tame(tool);
    }

    pub(crate) fn with_arguments(&mut self, arguments: &str) {
        self.arguments = beginning(&tame(arguments), SHOWN_BYTES_MAX);
    }

    pub(crate) fn put_out(&mut self, data: &[u8]) {
        self.output.push_str(&tame(&String::from_utf8_lossy(data)));
        keep_end(&mut self.output, OUTPUT_BYTES_MAX);
    }

    /// It has its result; `took` is empty where nothing ran.
    pub(crate) fn settled(&mut self, result: &ToolResult, took: String) {
        if self.tool.is_empty() {
            self.named(&result.name);
        }
        let shown = beginning(&tame(&result.output), SHOWN_BYTES_MAX);
        self.state = State::Settled { status: result.status(), took, result: shown };
        self.progress.clear();
        self.output.clear();
    }

    /// Where it stands, in a few words.
    pub(crate) fn in_words(&self, now: Duration) -> String {
        match &self.state {
            State::Pending { why } if why.is_empty() => "pending".to_owned(),
            State::Pending { why } => format!("pending: {why}"),
            State::AwaitingHuman => "waits for approval".to_owned(),
            State::InDoubt => "in doubt: its host was lost".to_owned(),
            State::Running { host, attempt, since } => {
                let again = if *attempt > 1 { format!(", try {attempt}") } else { String::new() };
                let seconds = now.saturating_sub(*since).as_secs();
                format!("running on {host}{again} {seconds}s {}", self.progress).trim_end().to_owned()
            }
            State::Settled { status, took, .. } => {
                let took = if took.is_empty() { String::new() } else { format!(" in {took}") };
                match status {
                    ToolStatus::Succeeded => format!("completed{took}"),
                    status => format!("{}{took}", names::tool_status(*status).replace('_', " ")),
                }
            }
        }
    }

    /// Whether it still takes time.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(state: State) -> Call {
        Call { state, ..Call::new("r/1.0") }
    }

    #[test]
    fn states_read_well() {
        let running = |attempt| State::Running { host: "h".into(), attempt, since: Duration::from_secs(2) };
        let settled = |status, took: &str| State::Settled { status, took: took.into(), result: "x".into() };
        let cases = [
            (State::Pending { why: String::new() }, "pending"),
            (State::Pending { why: "its host was lost".into() }, "pending: its host was lost"),
            (State::AwaitingHuman, "waits for approval"),
            (running(1), "running on h 3s"),
            (running(2), "running on h, try 2 3s"),
            (settled(ToolStatus::Succeeded, "8ms"), "completed in 8ms"),
            (settled(ToolStatus::Failed, "8ms"), "failed in 8ms"),
            (settled(ToolStatus::OutcomeUnknown, ""), "outcome unknown"),
        ];
        for (state, expected) in cases {
            assert_eq!(call(state).in_words(Duration::from_secs(5)), expected);
        }
    }

    #[test]
    fn what_a_tool_says_is_tamed_and_bounded() {
        let mut call = call(State::Pending { why: String::new() });
        call.put_out(&vec![b'x'; OUTPUT_BYTES_MAX]);
        call.put_out(b"\x1b[2Jend");
        assert_eq!(call.output.len(), OUTPUT_BYTES_MAX);
        assert!(call.output.ends_with("xend"));
        let output = "\x1b[1m".to_owned() + &"y".repeat(SHOWN_BYTES_MAX + 1);
        call.settled(&ToolResult { output, ..ToolResult::default() }, String::new());
        let State::Settled { result, .. } = &call.state else { panic!("{call:?}") };
        assert!(result.starts_with("yyy") && result.ends_with("y…"));
    }
}
