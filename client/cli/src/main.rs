//! The agentloop command: the server, its client, a demo of both and an example tool host.

mod args;
mod exit;

mod abort;
mod approve;
mod chat;
mod completions;
mod fork;
mod health;
mod host;
mod policy;
mod queue;
mod replay;
mod resume;
mod run;
mod runs;
mod serve;
mod sessions;
mod tools;
mod watch;

mod demo;
mod embedded;

mod answer;
mod follow;
mod interrupt;
mod json;
mod lines;
mod names;
mod print;
mod render;
mod rule;
mod style;
mod surroundings;
mod text;
mod usage;

#[cfg(test)]
#[path = "../../tests/it/agent_loop.rs"]
#[expect(dead_code, reason = "the tests here need less than those of the client")]
mod agent_loop;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{
    args::{Cli, Command},
    exit::Failure,
};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::refuse(&error),
    };
    match dispatch(cli).await {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("agentloop: {failure}");
            failure.exit().into()
        }
    }
}

async fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    let Cli { global, command } = cli;
    let exit = match command {
        // The server has exit codes of its own.
        Command::Serve(args) => return serve::serve(args).await,
        Command::Demo(args) => Box::pin(demo::demo(args)).await,
        Command::Run(args) => Box::pin(run::run(&global, args)).await,
        Command::Chat(args) => Box::pin(chat::chat(&global, args)).await,
        Command::Watch(args) => watch::watch(&global, args).await,
        Command::Approve(args) => approve::approve(&global, args).await,
        Command::Abort(args) => abort::abort(&global, args).await,
        Command::Resume(args) => resume::resume(&global, args).await,
        Command::Runs(args) => runs::runs(&global, args).await,
        Command::Replay(args) => replay::replay(&global, args).await,
        Command::Queue(args) => queue::queue(&global, args).await,
        Command::Fork(args) => fork::fork(&global, args).await,
        Command::Policy(args) => policy::policy(&global, args).await,
        Command::Sessions(args) => sessions::sessions(&global, args).await,
        Command::Tools => tools::tools(&global).await,
        Command::Host(args) => host::host(&global, args).await,
        Command::Health => health::health(&global).await,
        Command::Completions(args) => completions::completions(&args),
    };
    exit.map(ExitCode::from)
}
