//! Values of options that several commands have.

use agentloop_client::v1::RunStatus;

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

/// The statuses of a run, for people.
const STATUSES: &str = "queued, preparing, model_running, tool_running, awaiting_human, backing_off, compacting, paused, \
                        completed, failed and aborted";

/// Parses a status from the name that the lists show.
pub(super) fn status(name: &str) -> Result<RunStatus, String> {
    let full = format!("RUN_STATUS_{}", name.to_ascii_uppercase());
    match RunStatus::from_str_name(&full) {
        Some(RunStatus::Unspecified) | None => Err(format!("no such status; there are {STATUSES}")),
        Some(status) => Ok(status),
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

    #[test]
    fn an_unknown_status_is_told_all_that_there_are() {
        let told = status("lost").expect_err("there is none");
        let (_, names) = told.split_once("there are ").expect("they are listed");
        let names: Vec<&str> =
            names.split([',', ' ']).filter(|word| !word.is_empty() && *word != "and").collect();
        let all = (1_i32..).map_while(|number| RunStatus::try_from(number).ok()).collect::<Vec<_>>();
        assert_eq!(names.iter().map(|name| status(name)).collect::<Result<Vec<_>, _>>(), Ok(all));
    }
}
