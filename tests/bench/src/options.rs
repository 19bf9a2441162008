//! The command-line options of the benchmark.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::role::model::Format;

/// Measures what runs cost the server, beside the floors of this machine.
#[derive(Debug, Parser)]
#[command(name = "agentloop-bench", args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    /// Workloads to measure; all of them by default
    #[arg(value_enum)]
    pub(crate) workloads: Vec<Workload>,
    /// Runs at a time, for the workloads that have a load
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    pub(crate) concurrency: Vec<usize>,
    /// Streams at a time, for the workload `live`. 5,000 need a machine of many cores
    #[arg(long, value_delimiter = ',', default_value = "100,1000")]
    pub(crate) live: Vec<usize>,
    /// Number of measurements of each figure; the report has the median and the spread
    #[arg(long, default_value_t = 3)]
    pub(crate) repeat: usize,
    /// Multiplies the number of runs of each measurement
    #[arg(long, default_value_t = 1.0)]
    pub(crate) scale: f64,
    /// API of the model server
    #[arg(long, value_enum, default_value_t = Format::Openai)]
    pub(crate) format: Format,
    /// Encrypts the server's port, and lets callers and tool hosts present tokens. The floors stay plain
    #[arg(long)]
    pub(crate) protected: bool,
    /// Address of a PostgreSQL database for the server's store, postgres://...; each server gets a schema of its own
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Also writes every figure as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The server to measure; by default the release build of this workspace, which is made first
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) server: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One of the processes that a measurement is made of
    #[command(hide = true)]
    Role { role: String, args: Vec<String> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// One tool round: two model calls, one call of a remote tool, an answer of 20 pieces
    W1,
    /// Ten tool rounds
    W10,
    /// One answer of 200 pieces, no tool
    Ws,
    /// Runs parked for an approval
    Wi,
    /// A session of 1,000 model calls
    Wl,
    /// One run watched by 1,000 subscribers
    Wf,
    /// 1,000 connected hosts
    Wh,
    /// Many streams at a time, each of 50 pieces a second
    Live,
    /// From `Abort` to the host's cancel
    Cancel,
    /// A server that does nothing
    Idle,
}
