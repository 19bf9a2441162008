//! Arguments of the commands on a live run: `run`, `chat`, `watch`, `approve`, `abort` and `resume`.

use clap::{Args, ValueEnum};

/// Start a run and watch it to its end
///
/// Starts a run and watches it. The answer goes to standard output, on a terminal as it comes, elsewhere message by
/// message; tool calls, reasoning and questions go to standard error. A tool call that needs approval is asked about in
/// the terminal. Without a terminal, the run waits on the server for an answer, and the command ends with exit code 4.
/// Ctrl-C aborts the run, a second one leaves at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop run 'Summarise the news'
  agentloop run --session trip 'Book the second one'     go on with a conversation
  agentloop run --yes -o jsonl 'Clean up' | jq .         for programs: an event a line
  echo 'a long prompt' | agentloop run -                 prompt from standard input
  agentloop run --run-id nightly-7 'Report'              run again: joins the same run

Instructions:
  The run is given every AGENTS.md from the working directory up to the top of the repository (at most 8, of at most
  64 KiB each), and these facts: operating system, working directory, whether it is a git repository, and the date,
  unless --run-id names the run. --no-instructions turns all of it off.

Exit codes:
  0    the run completed
  1    the run failed, or the server refused the call
  2    wrong usage
  3    the run was aborted, by ctrl-C or by anybody else
  4    the run waits on the server: for an answer that nobody here can give, or for an operator
  5    the server cannot be reached
  130  left by a second ctrl-C; what became of the run is not known")]
pub(crate) struct RunArgs {
    /// The prompt; `-` reads it from standard input
    pub(crate) prompt: String,
    #[command(flatten)]
    pub(crate) start: StartArgs,
    /// Id of the run. The same id with the same content joins that run and starts none. Default: a random id
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<String>,
    #[command(flatten)]
    pub(crate) local_context: LocalContextArgs,
    /// Approve every tool call. Calls with an unknown outcome are still left to a human
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Talk with an agent in the terminal
///
/// A conversation on the whole screen: the answer as it comes, tool calls with what becomes of them, questions to answer,
/// earlier messages to scroll through, other sessions to switch to. What is typed while a run is under way is queued by
/// Enter, or told to the run by ctrl-S; /rules shows the decisions that are remembered. F1 shows the keys. Ctrl-C aborts
/// the run under way; ctrl-D leaves, and the run goes on without you. A server that restarts is waited for.
#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) start: StartArgs,
    #[command(flatten)]
    pub(crate) local_context: LocalContextArgs,
}

/// Options for the session, the agent and the model of runs that are started.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Id of the session to continue; created if it does not exist. Default: a new session
    #[arg(long, short, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Name of an agent of the server's configuration. Default: the agent `default`
    #[arg(long, short, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Model of the run. Default: the agent's
    #[arg(long, short, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Option<String>,
}

/// Options for the instruction files and facts that a run gets from this machine.
#[derive(Debug, Args)]
pub(crate) struct LocalContextArgs {
    /// Do not give the run the AGENTS.md files from here up to the top of the repository, nor facts about this machine
    #[arg(long)]
    pub(crate) no_instructions: bool,
}

/// Watch a run that is under way, or see one that has ended
///
/// Shows a run's events, from the first or after a given one, and follows it to its end. Ctrl-C ends the command and
/// leaves the run alone. The exit code is that of `agentloop run`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Id of the run
    pub(crate) run: String,
    /// Only events after the one with this number; 0 shows all
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(crate) after: u64,
}

/// List the questions that wait for a human, or answer one
///
/// Without an id, lists the questions that you may answer. With the id of a question about a tool call, runs the call as
/// it is, unless an option says otherwise. Any other question needs the option that fits it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop approve                                  what waits for you?
  agentloop approve --all                            what waits for anyone?
  agentloop approve REQUEST                          run the call
  agentloop approve REQUEST --deny 'wrong address'   do not; the model reads why and goes on
  agentloop approve REQUEST --remember session       run it, and the same call unasked for the rest of the session
  agentloop approve REQUEST --stop 'not today'       do not, and end the run
  agentloop approve REQUEST --edit '{\"to\":\"x@y\"}'    run it with other arguments
  agentloop approve REQUEST --answer 'done by hand'  do not; this is the result
  agentloop approve REQUEST --text blue              the text that was asked for
  agentloop approve REQUEST --choose a --choose b    the options that were asked for, by their ids
  agentloop approve REQUEST --form                   fill in the form that was asked for, field by field
  agentloop approve REQUEST --done                   you did at the link what was asked
  agentloop approve REQUEST --decline 'not mine'     a text, choice, form or link is not answered; the asker reads why")]
pub(crate) struct ApproveArgs {
    /// Id of the question, as the list shows it
    pub(crate) request: Option<String>,
    #[command(flatten)]
    pub(crate) decision: DecisionArgs,
    /// Give the same answer to later calls of the same tool with the same arguments, and do not ask
    #[arg(
        long,
        value_name = "HOW_LONG",
        requires = "request",
        conflicts_with_all = ["stop", "edit", "answer", "text", "choose", "form", "done", "not_done", "decline"]
    )]
    pub(crate) remember: Option<Remember>,
    /// Only questions of this session
    #[arg(long, value_name = "ID", conflicts_with = "request")]
    pub(crate) session: Option<String>,
    /// Only questions of this run
    #[arg(long, value_name = "ID", conflicts_with = "request")]
    pub(crate) run: Option<String>,
    /// Also questions that only others may answer, and those that you have approved
    #[arg(long, conflicts_with = "request")]
    pub(crate) all: bool,
    /// Name of the person who decides. Default: the user's name in USER, or `cli`. Not used where callers present
    /// credentials: then the name in these counts
    #[arg(
        long = "as",
        value_name = "NAME",
        env = "USER",
        hide_env = true,
        default_value = "cli",
        hide_default_value = true
    )]
    pub(crate) decided_by: String,
}

/// The scope of a remembered decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Remember {
    /// For the rest of the run
    Run,
    /// For the runs of the session
    Session,
    /// For every run
    Always,
}

/// The decision. At most one option may be given.
#[derive(Debug, Args)]
#[group(multiple = false, requires = "request")]
pub(crate) struct DecisionArgs {
    /// Do not run the call; the model reads MESSAGE and goes on
    #[arg(long, value_name = "MESSAGE", num_args = 0..=1, default_missing_value = "")]
    pub(crate) deny: Option<String>,
    /// Do not run the call, and end the run
    #[arg(long, value_name = "MESSAGE", num_args = 0..=1, default_missing_value = "")]
    pub(crate) stop: Option<String>,
    /// Run the call with these arguments, a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) edit: Option<String>,
    /// Do not run the call; its result is TEXT
    #[arg(long, value_name = "TEXT")]
    pub(crate) answer: Option<String>,
    /// The text that was asked for
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// An option that was asked for, by its id or label; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) choose: Vec<String>,
    /// The form that was asked for, a JSON object; without JSON, each field is asked for
    #[arg(long, value_name = "JSON", num_args = 0..=1, default_missing_value = "")]
    pub(crate) form: Option<String>,
    /// You did at the link what was asked
    #[arg(long)]
    pub(crate) done: bool,
    /// You did not do at the link what was asked
    #[arg(long)]
    pub(crate) not_done: bool,
    /// The question is not answered; the asker reads MESSAGE. For texts, choices, forms and links
    #[arg(long, value_name = "MESSAGE", num_args = 0..=1, default_missing_value = "")]
    pub(crate) decline: Option<String>,
}

/// End a run
///
/// Ends a run: the call of its model is cut off, its tools are told to stop, and the session takes the next message.
#[derive(Debug, Args)]
#[group(skip)]
#[command(group(clap::ArgGroup::new("target").args(["run", "session"]).required(true).multiple(false)))]
pub(crate) struct AbortArgs {
    /// The run to end
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<String>,
    /// The session whose live run ends
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// The reason, stored with the run for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
}

/// Let a paused run go on
///
/// Lets a paused run call its model again.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// Id of the run
    pub(crate) run: String,
    /// Name of the person who resumes the run. Default: the user's name in USER, or `cli`
    #[arg(
        long = "as",
        value_name = "NAME",
        env = "USER",
        hide_env = true,
        default_value = "cli",
        hide_default_value = true
    )]
    pub(crate) resumed_by: String,
}
