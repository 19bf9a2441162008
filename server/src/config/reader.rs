//! The state while a configuration is read: its text, the environment, and the problems and keys found so far.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::environment::Environment;
use super::error::{Place, Problem};
use super::hint::did_you_mean;

/// A longer file is refused: it is probably not a configuration.
pub(super) const FILE_BYTES_MAX: usize = 1024 * 1024;

/// The source of the configuration, and the problems and keys found so far.
#[derive(Debug)]
pub(super) struct ConfigReader<'t> {
    name: &'t str,
    text: &'t str,
    pub(super) environment: &'t Environment,
    problems: Vec<Problem>,
    keys: Vec<ConfigKey>,
    variables: BTreeSet<String>,
    /// The sections whose keys a variable can set, in the order in which they are read.
    overridable: Vec<&'static str>,
}

/// A key that the server reads, set or not. A test compares them with the example file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigKey {
    /// The key with its sections; `*` stands for a name that the operator chooses: `agents.*.model`.
    pub(super) path: String,
    /// The default as it is written in the file; `None` for a key without one.
    pub(super) default: Option<String>,
    /// True if the file or the environment sets it.
    pub(super) set: bool,
}

impl<'t> ConfigReader<'t> {
    pub(super) fn new(text: &'t str, name: &'t str, environment: &'t Environment) -> Self {
        let (problems, keys, variables, overridable) = (vec![], vec![], BTreeSet::new(), vec![]);
        Self { name, text, environment, problems, keys, variables, overridable }
    }

    /// Ends the reading: the problems and the keys that were read.
    pub(super) fn finish(mut self) -> (Vec<Problem>, Vec<ConfigKey>) {
        self.find_unknown_variables();
        (self.problems, self.keys)
    }

    /// Parses the text. Returns the table and the errors of its syntax.
    pub(super) fn parse(&self) -> (DeTable<'t>, Vec<Problem>) {
        if self.text.len() > FILE_BYTES_MAX {
            let message = format!("expected at most {FILE_BYTES_MAX} bytes");
            let problem = Problem { place: self.at(0..0), key: String::new(), message };
            return (DeTable::new(), vec![problem]);
        }
        let (table, errors) = DeTable::parse_recoverable(self.text);
        let problem = |error: toml::de::Error| Problem {
            place: self.at(error.span().unwrap_or_default()),
            key: String::new(),
            message: error.message().to_owned(),
        };
        (table.into_inner(), errors.into_iter().map(problem).collect())
    }

    /// The line and column of a byte range.
    pub(super) fn at(&self, bytes: Range<usize>) -> Place {
        let before = self.text.get(..bytes.start).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place::File {
            name: self.name.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// The folder of the file, from which relative paths in it start.
    pub(super) fn folder(&self) -> PathBuf {
        Path::new(self.name).parent().unwrap_or(Path::new("")).to_owned()
    }

    pub(super) fn report(&mut self, place: Place, key: String, message: String) {
        self.problems.push(Problem { place, key, message });
    }

    pub(super) fn note_key(&mut self, key: ConfigKey) {
        self.keys.push(key);
    }

    pub(super) fn note_overridable(&mut self, section: &'static str) {
        self.overridable.push(section);
    }

    /// Reads the variable of this name, and marks the name as known.
    pub(super) fn variable(&mut self, name: String, key: &str) -> Option<(&'t str, Place)> {
        let place = Place::Variable(name.clone());
        let value = self.environment.get(&name);
        self.variables.insert(name);
        match value {
            Ok(value) => value.map(|value| (value, place)),
            Err(_) => {
                self.report(place, key.to_owned(), "expected UTF-8 text".to_owned());
                None
            }
        }
    }

    fn find_unknown_variables(&mut self) {
        let known: Vec<&str> = self.variables.iter().map(String::as_str).collect();
        let sections: Vec<String> = self.overridable.iter().map(|name| format!("[{name}]")).collect();
        let sections = match sections.split_last() {
            Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
            _ => sections.concat(),
        };
        let unknown = self.environment.overrides().filter(|name| !self.variables.contains(*name));
        let problems: Vec<Problem> = unknown
            .map(|name| Problem {
                place: Place::Variable(name.to_owned()),
                key: String::new(),
                message: format!(
                    "sets nothing; {}",
                    did_you_mean(name, &known)
                        .unwrap_or_else(|| format!("AGENTLOOP_<SECTION>_<KEY> sets a key of {sections}"))
                ),
            })
            .collect();
        self.problems.extend(problems);
    }
}
