//! Events, which the state machine of the chat handles, and commands, which it returns.

use std::time::Duration;

use agentloop_client::v1::{
    Agent, CheckPolicyRequest, CheckPolicyResponse, ErrorReason, HumanRequest, ModelProvider, PolicyRule,
    RememberedRule, Run, RunEvent, RunInput, Session, SubmitApprovalRequest, SubmitInputRequest, Usage,
};
use crossterm::event::KeyEvent;

use crate::{
    command::conversation::{overview::SessionOverview, queue::QueuedRun},
    exit::Exit,
};

/// Something that happened: input, time, or a result of a command.
#[derive(Debug)]
pub(crate) enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// A text was pasted.
    Paste(String),
    /// The terminal has this number of columns and rows.
    Resize(u16, u16),
    /// The time since the start of the program; comes regularly.
    Tick(Duration),
    /// A signal ends the program, or the terminal is gone.
    Terminated,
    /// A session was read, with its last entries.
    SessionOpened(Box<OpenedSession>),
    /// A session could not be read, for this reason.
    SessionNotOpened(String),
    /// The watched session has a run, of this or another caller. The first event that came is with it.
    SessionRun { session_id: String, run_id: String },
    /// The session's row has changed.
    SessionChanged(Box<Session>),
    /// The session was deleted.
    SessionDeleted { session_id: String },
    /// The session is not watched any longer, or not yet: it may not exist.
    SessionNotWatched { session_id: String },
    /// The connection on which the session is watched was lost, or is back.
    SessionConnection { session_id: String, up: bool },
    /// The session that did not exist is there now: its first run was started here or elsewhere.
    SessionBegun { session_id: String },
    /// The list of sessions.
    Sessions(Result<Vec<SessionOverview>, String>),
    /// An event of the run that is followed.
    Run(Box<RunEvent>),
    /// The connection of the run that is followed was lost, or is back.
    Connection { run_id: String, up: bool },
    /// The run cannot be followed any longer.
    RunLost { run_id: String, error: RpcError },
    /// The current state of a run.
    RunRead(Box<Run>),
    /// The server accepted an answer; the request has it.
    AnswerAccepted(Box<HumanRequest>),
    /// The server refused an answer.
    AnswerRefused { request_id: String, error: RpcError },
    /// The questions that a drafted rule would match.
    RuleChecked {
        request_id: String,
        candidate: Box<PolicyRule>,
        answer: Result<Box<CheckPolicyResponse>, String>,
    },
    /// The answer to `Command::ListAgents`, or why there is none.
    Agents(Result<Vec<Agent>, String>),
    /// The configured providers of models. Empty if the server does not list them.
    Providers(Vec<ModelProvider>),
    /// The list of remembered rules.
    Rules(Result<Vec<RememberedRule>, String>),
    /// A rule was deleted, or could not be.
    RuleDeleted { rule_id: String, answer: Result<(), String> },
    /// The queued runs of a session.
    QueueListed { session_id: String, answer: Result<Vec<QueuedRun>, String> },
    /// A message to a busy session was accepted by this run, which may be the live one.
    MessageAccepted { sent_as: String, by: String },
    /// A message to a busy session was refused.
    MessageRefused { sent_as: String, error: RpcError },
    /// A run was removed from the queue, or could not be.
    RunRemoved { run_id: String, answer: Result<(), String> },
    /// Another command failed; a message for people.
    CommandFailed(String),
}

/// A session and its last entries.
#[derive(Debug, Default)]
pub(crate) struct OpenedSession {
    /// Has only an id if the session does not exist yet.
    pub(crate) session: Session,
    pub(crate) entries: Vec<agentloop_client::v1::Entry>,
    /// Tokens and cost of its runs, by their ids.
    pub(crate) usage_of_runs: Vec<(String, Usage)>,
}

/// The reason why an RPC failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RpcError {
    /// The error on one line, for people.
    pub(crate) message: String,
    /// The contract's reason, if the server gave one.
    pub(crate) reason: Option<ErrorReason>,
    /// The run that keeps the session busy, if that is the reason.
    pub(crate) busy_run: Option<String>,
    /// True if no server answered.
    pub(crate) unreachable: bool,
}

/// Something to do. Its result comes back as an [`Event`].
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    /// Read a session. One that does not exist is created by its first run.
    OpenSession(String),
    /// Watch everything that happens in a session, in place of the one that is watched.
    WatchSession(String),
    /// Start a run and follow it, in place of the one that is followed.
    Start(Box<RunInput>),
    /// Follow a run from its first event, in place of the one that is followed.
    FollowRun(String),
    /// Stop following the run, and watching the session.
    Unfollow,
    /// Send a decision on a tool call.
    Decide(Box<SubmitApprovalRequest>),
    /// Send an answer of kind PROMPT, SELECT, FORM or URL.
    Answer(Box<SubmitInputRequest>),
    /// Abort the run with this id.
    Abort(String),
    /// Resume the paused run with this id.
    Resume(String),
    /// Read the current state of a run, to see why it waits.
    ReadRun(String),
    /// List the configured agents.
    ListAgents,
    /// List the configured providers of models.
    ListProviders,
    /// List the most recent sessions.
    ListSessions,
    /// Find the questions that the candidate rule of this request would match.
    CheckRule { request_id: String, check: Box<CheckPolicyRequest> },
    /// List the remembered rules: those for every run, and those of this session.
    ListRules(Option<String>),
    /// Delete the remembered rule with this id.
    DeleteRule(String),
    /// List the queued runs of a session.
    ListQueue(String),
    /// Send a message to a session whose live run is followed.
    SendToBusy(Box<RunInput>),
    /// Remove a run from the queue of a session.
    Remove { session_id: String, run_id: String },
    /// End the chat with this exit code.
    Quit(Exit),
}
