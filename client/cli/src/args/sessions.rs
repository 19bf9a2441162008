//! Arguments of the commands on sessions: `sessions`, `search`, `queue` and `fork`.

use std::path::PathBuf;

use agentloop_client::v1::RunStatus;
use clap::{Args, Subcommand};

use super::values::{Label, label, status};

/// List sessions, or show the messages of one
///
/// Lists sessions, the one that got a message last first; or shows the messages of one.
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
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "session", value_parser = label)]
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

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// Give a session a title, which no model replaces
    Rename {
        /// Id of the session that gets the title
        session: String,
        /// The title; empty leaves it to the model again
        title: String,
    },
    /// Print a whole session as JSON lines
    Export {
        /// Id of the session to export
        session: String,
    },
    /// Make a session of an exported one: its title, labels and messages. Prints its id
    Import {
        /// The file; `-` reads standard input
        file: PathBuf,
        /// The new session's id. Default: a random id
        #[arg(long, value_name = "ID")]
        id: Option<String>,
    },
    /// Set or remove labels of a session
    Label {
        /// Id of the session that gets the labels
        session: String,
        /// Labels to set; the others stay
        #[arg(value_name = "KEY=VALUE", value_parser = label, required_unless_present = "remove")]
        set: Vec<Label>,
        /// A label to remove; may be repeated
        #[arg(long, value_name = "KEY")]
        remove: Vec<String>,
    },
}

/// Find messages by their words, in every session or in one
///
/// Lists the messages of users and models that have any of the words, in any form and case; the best first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop search which dog did I mention
  agentloop search --session trip ferry              only in one session")]
pub(crate) struct SearchArgs {
    /// Words to look for. A message needs one of them
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
