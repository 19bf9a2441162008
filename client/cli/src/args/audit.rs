//! Arguments of `agentloop audit` and its subcommand.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// See who did what, and check that nobody changed the record
///
/// Lists the rows of the audit log of your tenant, newest first. The server writes it with `[audit] enabled = true`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  agentloop audit                                    the last calls that changed something or were refused
  agentloop audit --denied --since 1h                what was refused within the last hour
  agentloop audit --who ada --what SubmitApproval    what ada approved
  agentloop audit --run r-1                          everything about a run
  agentloop audit verify                             is the record as it was written?
  agentloop audit verify --database FILE             the same of a database file. The server need not run"
)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AuditCommand>,
    /// Only calls of this caller
    #[arg(long, value_name = "NAME")]
    pub(crate) who: Option<String>,
    /// Only calls whose name contains this, such as SubmitApproval
    #[arg(long, value_name = "RPC")]
    pub(crate) what: Option<String>,
    /// Only calls about this run
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<String>,
    /// Only calls about this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Only calls since then: a length of time, such as 2h, or a time, such as 2026-11-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<std::time::SystemTime>,
    /// Only calls that were refused
    #[arg(long)]
    pub(crate) denied: bool,
    /// At most this many rows
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub(crate) limit: usize,
}

impl AuditArgs {
    /// True if some records may not be requested.
    pub(crate) fn is_filtered(&self) -> bool {
        let texts = [&self.who, &self.what, &self.run, &self.session];
        self.denied || self.since.is_some() || self.limit == 0 || texts.into_iter().any(Option::is_some)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check the chain of hashes, and name the first row at which it is broken
    ///
    /// Without an option, the server checks its own table.
    Verify(AuditVerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerifyArgs {
    /// The database file, whether or not a server has it open. `agentloop serve` prints its path at the start
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) database: Option<PathBuf>,
    /// The file of JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The last hash of an earlier check, which you kept elsewhere: shows rows that were cut off at the end, or all written anew
    #[arg(long, value_name = "HASH", default_value = "", hide_default_value = true, value_parser = known_hash)]
    pub(crate) known_hash: String,
}

/// A hash as `agentloop audit verify` prints it. A mistyped one would be taken for rows that were cut off.
fn known_hash(text: &str) -> Result<String, String> {
    let hash = text.trim().to_lowercase();
    if hash.is_empty() || (hash.len() == 64 && hash.chars().all(|digit| digit.is_ascii_hexdigit())) {
        Ok(hash)
    } else {
        Err("must be the 64 hexadecimal digits that an earlier check printed".to_owned())
    }
}

/// A length of time before now, or a time.
fn since(text: &str) -> Result<std::time::SystemTime, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        let now = std::time::SystemTime::now();
        return now.checked_sub(ago).ok_or_else(|| "it is too long ago".to_owned());
    }
    humantime::parse_rfc3339_weak(text).map_err(|_| {
        "expected a length of time, such as 2h, or a time, such as 2026-11-24T18:00:00Z".to_owned()
    })
}
