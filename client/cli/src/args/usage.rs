//! Arguments of `agentloop usage`.

use std::time::{Duration, SystemTime};

use clap::Args;

use super::values::{Label, label};

/// Show tokens, cost, calls and errors over time
///
/// Adds up the usage of runs: tokens, cost, calls and errors in buckets of time, of the last 24 hours by the hour if nothing
/// else is given. A call counts in the bucket in which it ended. Sessions that were deleted count on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop usage
  agentloop usage --by agent,model --bucket 1d --from 2026-11-01T00:00:00Z
  agentloop usage --by label:team --from 7d --json")]
pub(crate) struct UsageArgs {
    /// Keep rows apart: agent, model, created_by or label:KEY; several with commas
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = by)]
    pub(crate) by: Vec<UsageBy>,
    /// From this time on: a time such as 2026-11-21T09:00:00Z or 2026-11-21, or how long ago, such as 7d. Default: 24 hours
    /// before --to
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) from: Option<SystemTime>,
    /// Up to this time, given in the same way. Default: now
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) to: Option<SystemTime>,
    /// Length of a bucket in whole minutes, such as 15m or 1d. Default: 1h
    #[arg(long, value_name = "LENGTH", value_parser = bucket)]
    pub(crate) bucket: Option<Duration>,
    /// Only runs of this agent
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) agent: String,
    /// Only runs of this model
    #[arg(long, value_name = "PROVIDER/MODEL", default_value = "", hide_default_value = true)]
    pub(crate) model: String,
    /// Only runs with this label; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) label: Vec<Label>,
}

/// A property of runs that rows are kept apart by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UsageBy {
    /// Name of the run's agent.
    Agent,
    /// The run's model, as `provider/model`.
    Model,
    /// The caller that started the run.
    CreatedBy,
    /// The value of the label of this key.
    Label(String),
}

impl UsageBy {
    /// The heading of its column.
    pub(crate) fn heading(&self) -> String {
        match self {
            UsageBy::Agent => "AGENT".to_owned(),
            UsageBy::Model => "MODEL".to_owned(),
            UsageBy::CreatedBy => "CREATED BY".to_owned(),
            UsageBy::Label(key) => key.to_uppercase(),
        }
    }
}

fn by(text: &str) -> Result<UsageBy, String> {
    match (text, text.strip_prefix("label:")) {
        ("agent", _) => Ok(UsageBy::Agent),
        ("model", _) => Ok(UsageBy::Model),
        ("created_by" | "created-by", _) => Ok(UsageBy::CreatedBy),
        (_, Some(key)) if !key.is_empty() => Ok(UsageBy::Label(key.to_owned())),
        _ => Err("must be agent, model, created_by or label:KEY".to_owned()),
    }
}

/// Parses the length of a bucket, which the contract must be able to carry.
fn bucket(text: &str) -> Result<Duration, String> {
    let length = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match prost_types::Duration::try_from(length) {
        Ok(_) => Ok(length),
        Err(_) => Err("is too long".to_owned()),
    }
}

/// Parses a point in time, or how long ago it was.
fn time(text: &str) -> Result<SystemTime, String> {
    const WRONG: &str =
        "must be a time such as 2026-11-21T09:00:00Z or 2026-11-21, or how long ago, such as 7d";
    if let Ok(ago) = humantime::parse_duration(text) {
        return SystemTime::now().checked_sub(ago).ok_or_else(|| WRONG.to_owned());
    }
    let day = format!("{text}T00:00:00Z");
    humantime::parse_rfc3339_weak(text)
        .or_else(|_| humantime::parse_rfc3339_weak(&day))
        .map_err(|_| WRONG.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_times_are_parsed() {
        assert_eq!(by("label:team"), Ok(UsageBy::Label("team".to_owned())));
        assert_eq!(by("created_by"), Ok(UsageBy::CreatedBy));
        assert!(by("label:").is_err() && by("host").is_err());
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(time("1970-01-02"), Ok(at(86_400)));
        assert_eq!(time("1970-01-01T00:01:00Z"), Ok(at(60)));
        assert!(time("1h").is_ok_and(|hour| hour < SystemTime::now()));
        assert!(time("yesterday").is_err());
        assert_eq!(bucket("15m"), Ok(Duration::from_secs(900)));
        assert!(bucket("400000000000y").is_err() && bucket("soon").is_err());
    }
}
