//! The arguments of the command, as clap parses them.

mod audit;
mod blob;
mod global;
mod live_run;
mod policy;
mod security;
mod sessions;
mod setup;
mod store;
mod tools;
mod usage;

use std::{ffi::OsString, path::PathBuf};

use agentloop_client::v1::RunStatus;
use clap::{
    ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind,
    parser::ValueSource,
};

pub(crate) use self::{
    audit::{AuditArgs, AuditCommand, AuditVerifyArgs},
    blob::{BlobArgs, BlobCommand},
    global::{CertificateAndKey, DEFAULT_SERVER, ENDLESS_BACKOFF, Global, Output, read},
    live_run::{ApproveArgs, ChatArgs, DecisionArgs, Remember, RunArgs, WatchArgs},
    policy::{PolicyArgs, PolicyCheckArgs, PolicyCommand},
    security::{CertArgs, CertCommand, NewTokenArgs, TokenArgs, TokenCommand},
    sessions::{Label, SessionsCommand},
    setup::{DoctorArgs, InitArgs, ProviderChoice},
    store::{StoreArgs, StoreCommand, StoreCopyArgs},
    tools::{ToolsArgs, ToolsCommand},
    usage::{UsageArgs, UsageBy},
};

const EXAMPLES: &str = "\
Examples:
  agentloop demo                                    see all of it work, without a key
  agentloop init                                    write a configuration, and try it
  agentloop serve --config agentloop.toml           run the server
  agentloop run 'What is the weather in Beijing?'   ask, and watch the answer come
  agentloop run --session trip 'And in Bergen?'     go on with a conversation
  agentloop chat                                    the same as a conversation on the whole screen
  agentloop watch RUN                               join a run that is under way
  agentloop top                                     see all runs, hosts and questions on one screen
  agentloop approve                                 see what waits for a human
  agentloop queue trip                              see what waits for its turn
  agentloop runs --watch --status awaiting_human    see runs as they begin to wait for a human
  agentloop search ferry                            find a message of any session

Ids of runs, sessions and questions may be abbreviated to their first or last characters, at least 4, where
only one has them. `run` and `chat` create a session that does not exist: they take a name as it is, and at
least 8 characters of an id that nobody chose.

Exit codes:
  0 completed, 1 failed, 2 wrong usage, 3 aborted, 4 waits for a human, 5 server unreachable,
  130 left by ctrl-C";

/// Runs agents: models that use your tools and ask before they act.
#[derive(Debug, Parser)]
#[command(name = "agentloop", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands that talk to no server: the options of [`Global`] mean nothing to them.
const ALONE: [&str; 6] = ["init", "serve", "demo", "token", "cert", "completions"];

/// The options of [`Global`], by id.
const GLOBALS: [&str; 7] = ["server", "token", "tls_ca", "tls_cert", "tls_key", "output", "as_json"];

impl Cli {
    /// Parses the arguments of this process.
    ///
    /// # Errors
    /// Wrong usage, or a wish for help.
    pub(crate) fn of_process() -> Result<Cli, clap::Error> {
        Cli::of(std::env::args_os())
    }

    fn of(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Cli, clap::Error> {
        let mut command = Cli::whole_command();
        let arguments = blob::with_short_option(arguments.into_iter().map(Into::into).collect());
        let matches = command.try_get_matches_from_mut(arguments)?;
        refuse_unused(&mut command, &matches)?;
        refuse_two_servers(&mut command, &matches)?;
        Cli::from_arg_matches(&matches)
    }

    /// The command line, where each command shows only options that it uses.
    pub(crate) fn whole_command() -> clap::Command {
        let mut command = Cli::command();
        // This gives each subcommand the global options, so that they can be hidden.
        command.build();
        for name in ALONE {
            command = command.mut_subcommand(name, without_globals);
        }
        command.mut_subcommand("blob", |blob| {
            let without_short = |arg: clap::Arg| if arg.get_id() == "output" { arg.short(None) } else { arg };
            blob.mut_subcommand("get", |get| get.mut_args(without_short))
        })
    }
}

/// Hides the options of [`Global`] in the help of a command and of those below it.
fn without_globals(command: clap::Command) -> clap::Command {
    let hidden = |arg: clap::Arg| {
        let unused = GLOBALS.contains(&arg.get_id().as_str());
        if unused { arg.hide(true) } else { arg }
    };
    command.mut_args(hidden).mut_subcommands(without_globals)
}

/// Refuses an option that the command would ignore: whoever gives `serve` a token must not believe that it protects.
fn refuse_unused(command: &mut clap::Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((name, given)) = matches.subcommand().filter(|(name, _)| ALONE.contains(name)) else {
        return Ok(());
    };
    let unused = GLOBALS.iter().find(|id| given.value_source(id) == Some(ValueSource::CommandLine));
    match unused {
        None => Ok(()),
        Some(id) => {
            let option = if *id == "as_json" { "json".to_owned() } else { id.replace('_', "-") };
            let message = format!("--{option} is for commands that talk to a server, and `{name}` does not");
            let command = command.find_subcommand_mut(name).expect("it was matched");
            Err(command.error(ErrorKind::UnknownArgument, message))
        }
    }
}

/// Refuses `health --local` with another server. The variable of `--server` may be set for other commands.
fn refuse_two_servers(command: &mut clap::Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some(("health", given)) = matches.subcommand() else { return Ok(()) };
    if !given.get_flag("local") || given.value_source("server") != Some(ValueSource::CommandLine) {
        return Ok(());
    }
    let message = "--local asks the server of this machine's configuration, and --server names another";
    let command = command.find_subcommand_mut("health").expect("it was matched");
    Err(command.error(ErrorKind::ArgumentConflict, message))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(InitArgs),
    Serve(ServeArgs),
    Demo(DemoArgs),
    Run(Box<RunArgs>),
    Chat(ChatArgs),
    Watch(WatchArgs),
    Top(TopArgs),
    Approve(ApproveArgs),
    Abort(AbortArgs),
    Resume(ResumeArgs),
    Runs(RunsArgs),
    Replay(ReplayArgs),
    Sessions(SessionsArgs),
    Search(SearchArgs),
    Queue(QueueArgs),
    Fork(ForkArgs),
    Audit(AuditArgs),
    Policy(PolicyArgs),
    Blob(BlobArgs),
    Tools(ToolsArgs),
    Host(HostArgs),
    Agents(AgentsArgs),
    Info(InfoArgs),
    Cluster(ClusterArgs),
    Usage(UsageArgs),
    Health(HealthArgs),
    Doctor(DoctorArgs),
    Store(StoreArgs),
    Token(TokenArgs),
    Cert(CertArgs),
    Completions(CompletionsArgs),
}

/// Run the server
///
/// Runs the server until it is told to stop: a first signal lets it finish what it does, a second one ends it at once.
/// Every unfinished run goes on with the next start.
#[derive(Debug, Args)]
#[command(after_help = "\
Configuration:
  server/agentloop.example.toml in the repository has every key, with its meaning and default. Without a file, an
  API key in the environment is enough:

  OPENAI_API_KEY=... agentloop serve
  agentloop run --model openai/gpt-6-luna 'Hello'")]
pub(crate) struct ServeArgs {
    /// The configuration file (TOML). Without one, the server listens on 127.0.0.1:50051, with the settings of the environment
    #[arg(long, short, value_name = "FILE", env = "AGENTLOOP_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Start although the database has lost data, for example because its write-ahead log was deleted
    #[arg(long)]
    pub(crate) accept_loss: bool,
}

/// List the agents of the server's configuration
#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {}

/// Show what the server is, what it can do, and who you are to it
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {}

/// List the replicas of the server that share its database
///
/// Shows how many shards each owns, how long each has been silent, and whether their versions or configurations differ.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {}

/// Ask whether the server is ready: exits with 0 if it is
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Ask the server that the configuration of this machine starts: the file of AGENTLOOP_CONFIG, and the environment
    #[arg(long)]
    pub(crate) local: bool,
}

/// Show everything at work: server, tool host, a run with an approval
///
/// Starts a server on a free loopback port, with its database in a fresh directory that is kept, and a tool host as a
/// process of its own; sends a prompt; shows the run as it happens, with an approval that it gives itself; and says
/// how to look at what it left behind.
#[derive(Debug, Args)]
#[command(after_help = "\
The model is a built-in script. With OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY set, and --model, it is
the real one:

  agentloop demo
  OPENAI_API_KEY=... agentloop demo --model gpt-6-luna
  ANTHROPIC_API_KEY=... agentloop demo --model claude-sonnet-5-5
  GEMINI_API_KEY=... agentloop demo --model gemini-3.8-flash")]
pub(crate) struct DemoArgs {
    /// Go on serving after the run, until ctrl-C
    #[arg(long)]
    pub(crate) keep: bool,
    /// A model of a vendor whose key is set
    #[arg(long, value_name = "NAME", conflicts_with = "scripted")]
    pub(crate) model: Option<String>,
    /// Use the built-in script, whatever keys are set
    #[arg(long)]
    pub(crate) scripted: bool,
    /// Directory for database and configuration. Default: a new temporary directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The prompt of the run
    #[arg(default_value = "What is the weather in Beijing? Mail it to team@example.com.")]
    pub(crate) prompt: String,
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

/// See everything that the server does, on one screen
///
/// Shows the open runs, those that wait for a human first; the tool hosts with their free room; and the tokens and cost of
/// the last minute. It refreshes itself. Enter shows a run with the whole of its error, `a` answers its question, `x`
/// aborts it, `q` leaves.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {}

/// List runs, or show one and what it waits for
///
/// Lists runs, newest first; or shows one, with what it waits for.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Id of the run to show
    pub(crate) run: Option<String>,
    /// Only runs of this session
    #[arg(long, value_name = "ID", conflicts_with = "run")]
    pub(crate) session: Option<String>,
    /// Only runs with this status, such as `queued` or `awaiting_human`; may be repeated
    #[arg(long, value_name = "STATUS", conflicts_with = "run", value_parser = status)]
    pub(crate) status: Vec<RunStatus>,
    /// Only runs with this label; may be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "run", value_parser = sessions::label)]
    pub(crate) label: Vec<Label>,
    /// Only runs of this agent; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "run")]
    pub(crate) agent: Vec<String>,
    /// Only runs of this model; may be repeated
    #[arg(long, value_name = "PROVIDER/MODEL", conflicts_with = "run")]
    pub(crate) model: Vec<String>,
    /// Only runs whose id or prompt contains this
    #[arg(long, value_name = "TEXT", conflicts_with = "run", default_value = "", hide_default_value = true)]
    pub(crate) text: String,
    /// At most this many runs
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Print a line for each run, then one for each change of a run, until ctrl-C
    #[arg(long, short, conflicts_with_all = ["run", "limit"])]
    pub(crate) watch: bool,
}

/// The statuses of a run, for people.
const STATUSES: &str = "queued, preparing, model_running, tool_running, awaiting_human, backing_off, compacting, paused, \
                        completed, failed and aborted";

/// Parses a status from the name that the lists show.
fn status(name: &str) -> Result<RunStatus, String> {
    let full = format!("RUN_STATUS_{}", name.to_ascii_uppercase());
    match RunStatus::from_str_name(&full) {
        Some(RunStatus::Unspecified) | None => Err(format!("no such status; there are {STATUSES}")),
        Some(status) => Ok(status),
    }
}

/// Check that a run's journal leads to its current state
///
/// The server replays a run's events, one by one. It changes nothing and calls nobody. The exit code is 1 if the
/// result differs from the run's state.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Id of the run
    pub(crate) run: String,
}

/// Make a new session that begins as another did
///
/// Makes a session that shares the other's entries up to one of them. Prints its id.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop sessions trip                            the messages, with their numbers
  agentloop fork trip --at 4 --id other-trip         the same up to number 4
  agentloop chat --session other-trip                go on there")]
pub(crate) struct ForkArgs {
    /// Id of the session to begin with
    pub(crate) session: String,
    /// Number of the last entry that both share. Default: the last entry of the session
    #[arg(long, value_name = "ENTRY", default_value_t = 0, hide_default_value = true)]
    pub(crate) at: u64,
    /// The new session's id. Default: a random id
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

/// List sessions, or show the messages of one
///
/// Lists sessions, the last changed first; or shows the messages of one.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  agentloop sessions trip                            the messages
  agentloop sessions rename trip 'To Bergen'         a title that no model replaces
  agentloop sessions label trip user=ann team=red    labels, by which programs find it
  agentloop sessions export trip > trip.jsonl        everything that was said, as JSON lines
  agentloop sessions import trip.jsonl --id copy     the same conversation, on any server"
)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SessionsCommand>,
    /// Id of the session to show
    pub(crate) session: Option<String>,
    /// Delete the session, with its runs and their events. Its id must be given whole
    #[arg(long, requires = "session")]
    pub(crate) delete: bool,
    /// Only sessions with this label; may be repeated, and all must fit
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "session", value_parser = sessions::label)]
    pub(crate) label: Vec<Label>,
    /// Only sessions whose id, title or first prompt has this text
    #[arg(long, value_name = "TEXT", conflicts_with = "session")]
    pub(crate) text: Option<String>,
    /// Only sessions whose last run has this status; may be repeated
    #[arg(long, value_name = "STATUS", conflicts_with = "session", value_parser = status)]
    pub(crate) status: Vec<RunStatus>,
    /// Only sessions whose last run is of this agent; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    pub(crate) agent: Vec<String>,
    /// At most this many sessions
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

/// Find messages by their words, in every session or in one
///
/// Lists the messages of users and models that have the words, in any form and case; the best first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop search which dog did I mention
  agentloop search --session trip ferry              only in one session")]
pub(crate) struct SearchArgs {
    /// Words that a message must contain
    #[arg(required = true, value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// Only messages of this session
    #[arg(long, short, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// At most this many messages
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: u32,
}

/// List what waits in a session, or take one out
///
/// Lists the queued runs of a session, in the order in which they will run. A message that is sent in `agentloop chat`
/// while a run is live is queued there. --remove ends a queued run; a run that has started is left alone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop queue trip                   what waits?
  agentloop queue trip --remove RUN      take one out: nothing of it enters the session")]
pub(crate) struct QueueArgs {
    /// Id of the session
    pub(crate) session: String,
    /// Id of the queued run to take out
    #[arg(long, value_name = "RUN")]
    pub(crate) remove: Option<String>,
}

/// Print the completions of a shell
///
/// Prints a script that completes commands and options in a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop completions bash > ~/.local/share/bash-completion/completions/agentloop
  agentloop completions zsh > ~/.zfunc/_agentloop        with ~/.zfunc in fpath
  agentloop completions fish > ~/.config/fish/completions/agentloop.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Run a small example tool host
///
/// Runs a tool host with three example tools: get_weather and add, which only read, and send_email, which needs
/// approval and writes a line into a file in place of sending anything. Ctrl-C lets running calls finish.
#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// The file that send_email writes to
    #[arg(long, value_name = "FILE", default_value = "outbox.jsonl")]
    pub(crate) outbox: PathBuf,
    /// Id of the host. Default: a random id
    #[arg(long, value_name = "ID")]
    pub(crate) host_id: Option<String>,
    /// Stop when standard input is closed, for a parent process that may die
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,
}

#[cfg(test)]
mod tests;
