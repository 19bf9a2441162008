//! Arguments of the subcommands of `agentloop sessions`.

use std::path::PathBuf;

use clap::Subcommand;

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

/// A label, given as `KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl Label {
    /// The labels as the contract has them. Of equal keys the last counts.
    pub(crate) fn map<M: FromIterator<(String, String)>>(labels: Vec<Label>) -> M {
        labels.into_iter().map(|Label { key, value }| (key, value)).collect()
    }
}

/// Parses a label. Its value may have further `=`.
pub(super) fn label(text: &str) -> Result<Label, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok(Label { key: key.to_owned(), value: value.to_owned() }),
        Some(_) | None => Err("must be KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_a_key() {
        let parsed = label("team=a=b").expect("a label");
        assert_eq!((parsed.key.as_str(), parsed.value.as_str()), ("team", "a=b"));
        assert!(label("team=").is_ok());
        assert!(label("team").is_err() && label("=a").is_err());
    }
}
