//! The block of a tool call.

use std::time::Duration;

use agentloop_client::v1::{HumanRequestKind, ToolCall, ToolResult, ToolStatus};

use crate::{
    terminal::format,
    terminal::text::{keep_end, sanitize, truncate},
};

/// Bound on arguments and results. The session has the whole.
const SHOWN_BYTES_MAX: usize = 16 * 1024;
const TITLE_CHARS: usize = 120;
/// Bound on the output of a running call.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;

/// A tool call, from its request to its result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallBlock {
    pub(crate) call_id: String,
    pub(crate) tool: String,
    /// The title of the call for people; empty if it has none.
    pub(crate) title: String,
    pub(crate) arguments: String,
    pub(crate) state: CallState,
    /// Its last progress, as text.
    pub(crate) progress: String,
    /// The end of its output so far.
    pub(crate) output: String,
}

/// The state of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallState {
    /// It waits for other calls or for a host, with a reason if there is one.
    Pending { why: String },
    /// It waits for a person's answer to a question of this kind.
    AwaitingHuman(HumanRequestKind),
    /// It runs on this host.
    Running { host: String, attempt: u32, since: Duration },
    /// Nobody knows if it took effect: its host was lost, or its deadline passed.
    InDoubt,
    /// It has no result in this session and gets none: the session was forked while the call ran.
    NotCompleted,
    /// It has a result.
    Settled { status: ToolStatus, took: String, result: String },
}

impl CallBlock {
    pub(crate) fn new(call_id: &str) -> CallBlock {
        CallBlock {
            call_id: call_id.to_owned(),
            tool: String::new(),
            title: String::new(),
            arguments: String::new(),
            state: CallState::Pending { why: String::new() },
            progress: String::new(),
            output: String::new(),
        }
    }

    /// Sets name and arguments from the model's message. It has the title only in an entry; while a run goes on, an event does.
    pub(crate) fn asked(&mut self, call: &ToolCall) {
        self.named(&call.name);
        if !call.title.is_empty() {
            self.titled(&call.title);
        }
        self.with_arguments(&call.arguments_json);
    }

    pub(crate) fn named(&mut self, tool: &str) {
        self.tool = sanitize(tool);
    }

    pub(crate) fn titled(&mut self, title: &str) {
        self.title = format::first_line(&sanitize(title), TITLE_CHARS);
    }

    pub(crate) fn with_arguments(&mut self, arguments: &str) {
        self.arguments = truncate(&sanitize(arguments), SHOWN_BYTES_MAX);
    }

    pub(crate) fn put_out(&mut self, data: &[u8]) {
        self.output.push_str(&sanitize(&String::from_utf8_lossy(data)));
        keep_end(&mut self.output, OUTPUT_BYTES_MAX);
    }

    /// Sets the result. `took` is empty if nothing ran.
    pub(crate) fn settled(&mut self, result: &ToolResult, took: String) {
        if self.tool.is_empty() {
            self.named(&result.name);
        }
        let shown = truncate(&sanitize(&format::tool_output(result)), SHOWN_BYTES_MAX);
        self.state = CallState::Settled { status: result.status(), took, result: shown };
        self.progress.clear();
        self.output.clear();
    }

    /// The state in a few words.
    pub(crate) fn describe(&self, now: Duration) -> String {
        match &self.state {
            CallState::Pending { why } if why.is_empty() => "pending".to_owned(),
            CallState::Pending { why } => format!("pending: {why}"),
            CallState::NotCompleted => "not completed in this session".to_owned(),
            CallState::AwaitingHuman(kind) => format!("waits for your {}", answer_to(*kind)),
            CallState::InDoubt => "in doubt: nobody knows if it took effect".to_owned(),
            CallState::Running { host, attempt, since } => {
                let again = if *attempt > 1 { format!(", try {attempt}") } else { String::new() };
                let seconds = now.saturating_sub(*since).as_secs();
                format!("running on {host}{again} {seconds}s {}", self.progress).trim_end().to_owned()
            }
            CallState::Settled { status, took, .. } => {
                let took = if took.is_empty() { String::new() } else { format!(" in {took}") };
                match status {
                    ToolStatus::Succeeded => format!("completed{took}"),
                    status => format!("{}{took}", format::tool_status(*status).replace('_', " ")),
                }
            }
        }
    }

    /// True while a host runs the call.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, CallState::Running { .. })
    }
}

/// The name of the answer to a question of this kind.
pub(crate) fn answer_to(kind: HumanRequestKind) -> &'static str {
    match kind {
        HumanRequestKind::Approve => "approval",
        HumanRequestKind::Select => "choice",
        HumanRequestKind::InDoubt => "word on what became of a call",
        HumanRequestKind::Form => "form",
        HumanRequestKind::Url => "visit to a link",
        HumanRequestKind::Prompt | HumanRequestKind::Unspecified => "answer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(state: CallState) -> CallBlock {
        CallBlock { state, ..CallBlock::new("r/1.0") }
    }

    #[test]
    fn states_read_well() {
        let running =
            |attempt| CallState::Running { host: "h".into(), attempt, since: Duration::from_secs(2) };
        let settled =
            |status, took: &str| CallState::Settled { status, took: took.into(), result: "x".into() };
        let cases = [
            (CallState::Pending { why: String::new() }, "pending"),
            (CallState::Pending { why: "its host was lost".into() }, "pending: its host was lost"),
            (CallState::AwaitingHuman(HumanRequestKind::Approve), "waits for your approval"),
            (CallState::AwaitingHuman(HumanRequestKind::Select), "waits for your choice"),
            (running(1), "running on h 3s"),
            (running(2), "running on h, try 2 3s"),
            (settled(ToolStatus::Succeeded, "8ms"), "completed in 8ms"),
            (settled(ToolStatus::Failed, "8ms"), "failed in 8ms"),
            (settled(ToolStatus::OutcomeUnknown, ""), "outcome unknown"),
        ];
        for (state, expected) in cases {
            assert_eq!(call(state).describe(Duration::from_secs(5)), expected);
        }
    }

    #[test]
    fn the_text_of_a_tool_is_sanitized_and_bounded() {
        let mut call = call(CallState::Pending { why: String::new() });
        call.put_out(&vec![b'x'; OUTPUT_BYTES_MAX]);
        call.put_out(b"\x1b[2Jend");
        assert_eq!(call.output.len(), OUTPUT_BYTES_MAX);
        assert!(call.output.ends_with("xend"));
        let output = "\x1b[1m".to_owned() + &"y".repeat(SHOWN_BYTES_MAX + 1);
        call.settled(&ToolResult { output, ..ToolResult::default() }, String::new());
        let CallState::Settled { result, .. } = &call.state else { panic!("{call:?}") };
        assert!(result.starts_with("yyy") && result.ends_with("y…"));
    }
}
