//! What happens to the chat, and what it wants done.

use std::time::Duration;

use agentloop_client::v1::{
    CheckPolicyRequest, CheckPolicyResponse, ErrorReason, HumanRequest, PolicyRule, RememberedRule, Run,
    RunEvent, RunInput, Session, SubmitApprovalRequest, SubmitInputRequest,
};
use crossterm::event::KeyEvent;

use crate::{command::queue::Waiting, exit::Exit};

/// Something happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// A text was pasted.
    Paste(String),
    /// The terminal has this many columns and rows.
    Resize(u16, u16),
    /// Time has passed: so much since the start of the program.
    Tick(Duration),
    /// The program is told to end.
    Terminated,
    /// A session was read.
    Opened(Box<Opened>),
    /// A session was not read.
    NotOpened(String),
    /// The sessions that there are.
    Sessions(Result<Vec<Session>, String>),
    /// An event of the run that is followed.
    Run(Box<RunEvent>),
    /// The connection of the run that is followed was lost, or is back.
    Connection { run_id: String, up: bool },
    /// The run cannot be followed any more.
    Lost { run_id: String, trouble: Trouble },
    /// How a run stands.
    Looked(Box<Run>),
    /// An answer was taken; this is how the question was settled.
    Taken(Box<HumanRequest>),
    /// An answer was not taken.
    NotTaken { request_id: String, trouble: Trouble },
    /// What a rule that is being written would match.
    Checked {
        request_id: String,
        candidate: Box<PolicyRule>,
        answer: Result<Box<CheckPolicyResponse>, String>,
    },
    /// The rules that are remembered.
    Rules(Result<Vec<RememberedRule>, String>),
    /// A rule is forgotten, or why not.
    Forgotten { rule_id: String, answer: Result<(), String> },
    /// What waits in a session.
    Waiting { session_id: String, answer: Result<Vec<Waiting>, String> },
    /// What was said to a busy session was taken: by this run, which may be the one that was under way.
    Accepted { sent_as: String, by: String },
    /// What was said to a busy session was not taken.
    NotAccepted { sent_as: String, trouble: Trouble },
    /// A run was taken out of the queue, or why not.
    Removed { run_id: String, answer: Result<(), String> },
    /// Something else that was asked for did not work.
    Failed(String),
}

/// A session and what was said in it.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// Without an id: a session that does not exist yet.
    pub(crate) session: Session,
    pub(crate) entries: Vec<agentloop_client::v1::Entry>,
}

/// Why a call did not work.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trouble {
    /// For people.
    pub(crate) message: String,
    /// The contract's reason.
    pub(crate) reason: Option<ErrorReason>,
    /// The run that keeps the session busy, if that is the reason.
    pub(crate) busy_run: Option<String>,
    /// No server answered.
    pub(crate) unreachable: bool,
}

/// Something is to be done. What comes of it is an [`Event`].
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    /// Read a session. One that does not exist is made by its first run.
    Open(String),
    /// Start a run and follow it, in place of the one that is followed.
    Start(Box<RunInput>),
    /// Follow a run from its first event, in place of the one that is followed.
    Follow(String),
    /// Follow no run.
    Unfollow,
    /// Answer a question about a tool call.
    Decide(Box<SubmitApprovalRequest>),
    /// Answer another question.
    Answer(Box<SubmitInputRequest>),
    /// End a run.
    Abort(String),
    /// Let a paused run go on.
    Resume(String),
    /// See why a run is not moving.
    Look(String),
    /// List the sessions.
    ListSessions,
    /// Find out what a rule would match: the candidate of this request, for this question.
    Check { request_id: String, check: Box<CheckPolicyRequest> },
    /// List the remembered rules: those of every run, and those of this session.
    ListRules(Option<String>),
    /// Forget a rule.
    Forget(String),
    /// List what waits in a session.
    ListWaiting(String),
    /// Say this to a session whose run is followed meanwhile.
    Say(Box<RunInput>),
    /// Take a run out of the queue of a session.
    Remove { session_id: String, run_id: String },
    /// Leave.
    Leave(Exit),
}
