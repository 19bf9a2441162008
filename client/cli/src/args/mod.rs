//! The arguments of the command, as clap parses them.

mod audit;
mod blob;
mod global;
mod live_run;
mod policy;
mod runs;
mod security;
mod sessions;
mod setup;
mod store;
mod tools;
mod usage;
mod values;

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use clap::{
    ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind,
    parser::ValueSource,
};

pub(crate) use self::{
    audit::{AuditArgs, AuditCommand, AuditVerifyArgs},
    blob::{BlobArgs, BlobCommand},
    global::{CertificateAndKey, DEFAULT_SERVER, ENDLESS_BACKOFF, Global, Output},
    live_run::{
        AbortArgs, ApproveArgs, ChatArgs, DecisionArgs, Remember, ResumeArgs, RunArgs, StartArgs, WatchArgs,
    },
    policy::{PolicyArgs, PolicyCheckArgs, PolicyCommand},
    runs::{ReplayArgs, RunsArgs},
    security::{CertArgs, CertCommand, NewTokenArgs, TokenArgs, TokenCommand},
    sessions::{ForkArgs, QueueArgs, SearchArgs, SessionsArgs, SessionsCommand},
    setup::{CompletionsArgs, DemoArgs, DoctorArgs, HealthArgs, InitArgs, ProviderChoice, ServeArgs},
    store::{StoreArgs, StoreCommand, StoreCopyArgs},
    tools::{ToolsArgs, ToolsCommand},
    usage::{UsageArgs, UsageBy},
    values::Label,
};

use crate::environment;

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
        let mut command = without_empty_variables(Cli::command());
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

/// Forgets variables that are empty: they count as not set, because templates of deployments leave those behind.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| environment::variable_os(name).is_some_and(|value| value.is_empty());
    let forgotten = |arg: clap::Arg| {
        if arg.get_env().is_some_and(is_empty) { arg.env(None::<&'static str>) } else { arg }
    };
    command.mut_args(forgotten).mut_subcommands(without_empty_variables)
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

impl Command {
    /// True if the command shows something until it ends, so that it was left early if nobody reads its output.
    pub(crate) fn is_followed(&self) -> bool {
        match self {
            Command::Run(_) | Command::Chat(_) | Command::Top(_) | Command::Watch(_) => true,
            Command::Runs(args) => args.watch,
            _ => false,
        }
    }
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

/// See everything that the server does, on one screen
///
/// Shows the open runs, those that wait for a human first; the tool hosts with their free room; and the tokens and cost of
/// the last minute. It refreshes itself. Enter shows a run with the whole of its error, `a` answers its question, `x`
/// aborts it, `q` leaves.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {}

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
