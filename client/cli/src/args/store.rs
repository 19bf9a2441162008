//! Arguments of `agentloop store` and its subcommand.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Copy the database of a server to PostgreSQL
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy an SQLite database to an empty PostgreSQL database, and compare the two
    ///
    /// No server may use either. The file stays as it is, but for an upgrade to this version and the count of its starts. A copy
    /// that was cut goes on with the same command; until it is complete, no server opens it. A password is best given as PGPASSWORD
    /// or in ~/.pgpass, because others may see the command.
    #[command(after_help = "\
Examples:
  agentloop store copy ~/.local/share/agentloop/agentloop.db postgres://agentloop@127.0.0.1:5432/agentloop
  PGPASSWORD=... agentloop store copy FILE 'postgres://agentloop@db/agentloop?sslmode=verify-full'")]
    Copy(StoreCopyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StoreCopyArgs {
    /// The SQLite database file. `agentloop serve` prints its path at the start
    #[arg(value_name = "FILE")]
    pub(crate) from: PathBuf,
    /// Address of the PostgreSQL database
    #[arg(value_name = "URL")]
    pub(crate) to: String,
}
