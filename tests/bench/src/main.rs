//! Benchmark: the cost of a run, compared with the floor of this machine.
//!
//! The release server, a scripted model server over HTTP, tool hosts and this load are processes of their own on
//! loopback. CPU time is that of the server process alone, as the kernel counts it; the floors are measured in the same
//! run with the same answers, frames and rows. Every figure is the median of some repetitions and is shown with their
//! spread, since machines are noisy.

mod bed;
mod floor;
mod load;
mod measure;
mod options;
mod play;
mod process;
mod protection;
mod report;
mod role;
mod setting;
mod workload;

use std::error::Error;

use clap::Parser as _;

use crate::options::{Command, Options};

/// Any error. It ends the program.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let options = Options::parse();
    rustls::crypto::ring::default_provider().install_default().map_err(|_| "there is a provider already")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match options.command {
            Some(Command::Role { role, args }) => play::play(&role, &args).await,
            None => workload::run(&options).await,
        }
    })
}

/// Tells the process that started this one that it is ready, and where.
pub(crate) fn ready(place: &str) {
    say("ready", place);
}

/// A line for the process that started this one.
#[expect(clippy::print_stdout, reason = "another process reads it")]
pub(crate) fn say(what: &str, more: &str) {
    println!("{what} {more}");
}
