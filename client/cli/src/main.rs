//! The command `agentloop`: the server, its client, a demo of both and an example tool host.

mod args;
mod exit;

mod chat;
mod command;
mod database;
mod demo;
mod embedded;
mod environment;
mod follow;
mod terminal;
mod top;
mod usage_error;

use std::process::ExitCode;

use agentloop_client::Error;

use crate::{
    args::{Cli, Command},
    exit::{Exit, Failure},
};

/// Takes a fifth off the processor time of a run on two busy cores, and gives long blocks back to the system when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = match Cli::of_process() {
        Ok(cli) => cli,
        Err(error) => return usage_error::report(&error, std::env::args_os().skip(1)),
    };
    // These send their requests to an address of their own.
    let is_elsewhere = match &cli.command {
        Command::Demo(_) => true,
        Command::Health(args) => args.local,
        _ => false,
    };
    let global = cli.global.clone();
    let unread = if cli.command.is_followed() { Exit::Interrupted } else { Exit::Completed };
    match dispatch(cli).await {
        Ok(code) => code,
        Err(failure) if failure.is_closed_output() => unread.into(),
        Err(Failure::Client(Error::Unreachable(cause))) => {
            let where_asked = if is_elsewhere { String::new() } else { global.where_asked(&cause) };
            let failure = Failure::Client(Error::Unreachable(cause));
            eprintln!("agentloop: {failure}{where_asked}");
            failure.exit().into()
        }
        Err(failure) => {
            eprintln!("agentloop: {failure}{}", failure.next_steps(&global.server_option()));
            failure.exit().into()
        }
    }
}

async fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    let Cli { global, command } = cli;
    let exit = match command {
        // The server has exit codes of its own.
        Command::Serve(args) => return command::serve::serve(args).await,
        Command::Init(args) => Box::pin(command::setup::init::init(args)).await,
        Command::Demo(args) => Box::pin(demo::demo(args)).await,
        Command::Run(args) => Box::pin(command::conversation::run::run(&global, args)).await,
        Command::Chat(args) => Box::pin(chat::chat(&global, args)).await,
        Command::Top(_) => Box::pin(top::top(&global)).await,
        Command::Watch(args) => command::conversation::watch::watch(&global, args).await,
        Command::Approve(args) => command::conversation::approve::approve(&global, args).await,
        Command::Abort(args) => command::conversation::abort::abort(&global, args).await,
        Command::Resume(args) => command::conversation::resume::resume(&global, args).await,
        Command::Runs(args) => command::conversation::runs::runs(&global, args).await,
        Command::Replay(args) => command::conversation::replay::replay(&global, args).await,
        Command::Queue(args) => command::conversation::queue::queue(&global, args).await,
        Command::Fork(args) => command::conversation::fork::fork(&global, args).await,
        Command::Audit(args) => command::operate::audit::audit(&global, args).await,
        Command::Policy(args) => command::operate::policy::policy(&global, args).await,
        Command::Sessions(args) => command::conversation::sessions::sessions(&global, args).await,
        Command::Search(args) => command::conversation::search::search(&global, args).await,
        Command::Blob(args) => command::blob::blob(&global, args).await,
        Command::Tools(args) => command::operate::tools::tools(&global, args).await,
        Command::Host(args) => command::host::host(&global, args).await,
        Command::Agents(_) => command::operate::info::agents(&global).await,
        Command::Info(_) => command::operate::info::info(&global).await,
        Command::Cluster(_) => command::operate::cluster::cluster(&global).await,
        Command::Usage(args) => command::operate::usage::usage(&global, args).await,
        Command::Health(args) => command::operate::health::health(&global, &args).await,
        Command::Doctor(args) => Box::pin(command::setup::doctor::doctor(&global, args)).await,
        Command::Store(args) => command::operate::store::store(&global, args).await,
        Command::Token(args) => command::operate::token::token(args),
        Command::Cert(args) => command::operate::cert::cert(args),
        Command::Completions(args) => command::setup::completions::completions(&args),
    };
    exit.map(ExitCode::from)
}
