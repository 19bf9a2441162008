//! The result of the checks: a line for each, for people or as JSON.

use std::io::{self, IsTerminal as _};

use serde::Serialize;

use crate::{
    exit::{Exit, Failure},
    terminal::{print, style::Style},
};

/// The result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    check: &'static str,
    result: CheckResult,
    /// The state of what was checked, for people.
    detail: String,
    /// The next thing to do about it. Empty if all is well.
    #[serde(skip_serializing_if = "str::is_empty")]
    advice: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckResult {
    Ok,
    Warning,
    Failed,
}

impl Check {
    pub(super) fn ok(check: &'static str, detail: String) -> Check {
        Check { check, result: CheckResult::Ok, detail, advice: "" }
    }

    /// A check that found something that works and may not be meant.
    pub(super) fn warning(check: &'static str, detail: String, advice: &'static str) -> Check {
        Check { check, result: CheckResult::Warning, detail, advice }
    }

    pub(super) fn failed(check: &'static str, detail: String, advice: &'static str) -> Check {
        Check { check, result: CheckResult::Failed, detail, advice }
    }
}

/// The report, which is printed as it grows.
#[derive(Debug)]
pub(super) struct Report {
    json: bool,
    failed: usize,
    warnings: usize,
}

impl Report {
    pub(super) fn new(json: bool) -> Report {
        Report { json, failed: 0, warnings: 0 }
    }

    /// Prints a check and counts it.
    pub(super) fn add(&mut self, check: Check) -> Result<(), Failure> {
        match check.result {
            CheckResult::Ok => {}
            CheckResult::Warning => self.warnings += 1,
            CheckResult::Failed => self.failed += 1,
        }
        if self.json {
            let line = serde_json::to_string(&check).map_err(|error| Failure::Other(error.to_string()))?;
            return Ok(print::line(&line)?);
        }
        let style = Style::of(&io::stdout());
        let result = match check.result {
            CheckResult::Ok => "ok     ".to_owned(),
            CheckResult::Warning => style.yellow("warning"),
            CheckResult::Failed => style.red("failed "),
        };
        print::line(&format!("{result}  {:13}  {}", check.check, style.strip_unsafe(&check.detail)))?;
        if !check.advice.is_empty() {
            print::line(&format!("{:22}  → {}", "", check.advice))?;
        }
        Ok(())
    }

    /// Says what is under way, to a person who waits for it.
    pub(super) fn progress(&self, text: &str) {
        if !self.json && io::stderr().is_terminal() {
            eprintln!("{}", Style::of(&io::stderr()).dim(&format!("{text} …")));
        }
    }

    /// Prints the sum, and returns the exit code.
    pub(super) fn end(self) -> Result<Exit, Failure> {
        if !self.json {
            let sum = match (self.failed, self.warnings) {
                (0, 0) => "all is well".to_owned(),
                (0, warnings) => format!("no check failed; warnings: {warnings}"),
                (failed, warnings) => format!("failed checks: {failed}; warnings: {warnings}"),
            };
            print::line(&format!("\n{sum}"))?;
        }
        Ok(if self.failed == 0 { Exit::Completed } else { Exit::Failed })
    }
}
