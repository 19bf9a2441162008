//! Logs, Prometheus metrics, and OpenTelemetry traces and metrics of this process.

pub mod fields;
pub mod metrics;
pub mod models;
pub mod otlp;
mod redacted;
#[cfg(test)]
pub(crate) mod testing;

use std::io::{self, IsTerminal as _};

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::redacted::RedactedWriter;
use crate::config::{LogFormat, LogOptions};
use crate::secret::Redactor;

/// The log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is invalid. [`LogOptions`] from the configuration are checked already.
    #[error("the log filter is invalid; use a level such as \"info\": {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Another part of this process has set up logging.
    #[error("logging is already set up: {0}")]
    AlreadySet(#[from] tracing_subscriber::util::TryInitError),
}

/// Starts logging to standard error. Standard output is left to the command's own output. `redactor` takes secrets out of
/// each line.
///
/// # Errors
/// When the filter is invalid, or the process logs already.
pub fn init(options: &LogOptions, redactor: Redactor) -> Result<(), TelemetryError> {
    subscriber(options, RedactedWriter::new(io::stderr, redactor), colours())?.try_init()?;
    Ok(())
}

/// True if standard error is a terminal and `NO_COLOR` is not set.
#[expect(clippy::disallowed_methods, reason = "the log begins before the configuration is read")]
fn colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn subscriber(
    options: &LogOptions,
    writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
    colours: bool,
) -> Result<Box<dyn Subscriber + Send + Sync>, TelemetryError> {
    let filter = EnvFilter::try_new(&options.level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    Ok(match options.format {
        LogFormat::Text => Box::new(builder.with_ansi(colours).finish()),
        LogFormat::Json => Box::new(builder.json().flatten_event(true).with_span_list(false).finish()),
    })
}

/// An error with its causes, in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::fields::{RUN_ID, RUN_SPAN};
    use super::*;
    use crate::secret::Secret;

    /// The log that `act` writes with these options, inside the span of a run.
    fn logged(format: LogFormat, level: &str, act: impl FnOnce()) -> String {
        let options = LogOptions { format, level: level.to_owned() };
        testing::logged(&options, [Secret::new("a configured secret")], || {
            tracing::info_span!(RUN_SPAN, { RUN_ID } = "r-1").in_scope(act);
        })
    }

    #[test]
    fn text_names_the_run_and_has_no_colours() {
        let text = logged(LogFormat::Text, "info", || tracing::info!(count = 3, "parked"));
        assert!(text.contains("run{run.id=\"r-1\"}") && text.contains("parked count=3"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn json_is_one_object_a_line() {
        let text = logged(LogFormat::Json, "info", || {
            tracing::info!(count = 3, "parked");
            tracing::warn!("two\nlines");
        });
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["message"], "parked");
        assert_eq!(lines[0]["count"], 3);
        assert_eq!(lines[0]["span"]["run.id"], "r-1");
        assert_eq!(lines[1]["level"], "WARN");
    }

    #[test]
    fn secrets_are_taken_out_of_messages_fields_and_errors() {
        let key = "sk-0123456789abcdefghij";
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = logged(format, "info", || {
                tracing::info!(field = "a configured secret", "with {key} in it");
                tracing::warn!(error = %io::Error::other(format!("trouble with {key}")), nested = ?Some(key), "failed");
            });
            assert!(!text.contains("a configured secret") && !text.contains("0123456789"), "{text}");
            assert_eq!(text.matches("[redacted]").count(), 4, "{text}");
            assert_eq!(text.lines().count(), 2, "{text}");
        }
    }

    #[test]
    fn the_level_filters() {
        let act = || {
            tracing::debug!("detail");
            tracing::error!("trouble");
        };
        assert!(!logged(LogFormat::Text, "info", act).contains("detail"));
        assert!(logged(LogFormat::Text, "debug", act).contains("detail"));
        assert_eq!(logged(LogFormat::Text, "off", act), "");
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_an_error() {
        let options = LogOptions { format: LogFormat::Text, level: "agentloop=loud".to_owned() };
        assert!(matches!(subscriber(&options, io::sink, false), Err(TelemetryError::Filter(_))));
    }
}
