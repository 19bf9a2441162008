//! Reads a configuration and collects all its problems, instead of stopping at the first.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::environment::Environment;
use super::error::{Place, Problem};
use super::hint::did_you_mean;
use super::section::Section;

/// A longer file is refused: it is probably not a configuration.
pub(super) const FILE_BYTES_MAX: usize = 1024 * 1024;

/// The source of the configuration, and the problems and keys found so far.
#[derive(Debug)]
pub(super) struct Reader<'t> {
    name: &'t str,
    text: &'t str,
    pub(super) environment: &'t Environment,
    problems: Vec<Problem>,
    keys: Vec<Key>,
    variables: BTreeSet<String>,
}

/// A key that the server reads, set or not. A test compares them with the example file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// The key with its sections; `*` stands for a name that the operator chooses: `agents.*.model`.
    pub(super) path: String,
    /// The default as it is written in the file; `None` for a key without one.
    pub(super) default: Option<String>,
    /// True if the file or the environment sets it.
    pub(super) set: bool,
}

/// The result of reading. `value` is usable only if there are no problems.
#[derive(Debug)]
pub(super) struct Reading<T> {
    pub(super) value: Option<T>,
    pub(super) problems: Vec<Problem>,
    /// Every key that the server asked for, for the test that compares them with the example file.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "kept in every build so that tests see the same reading")
    )]
    pub(super) keys: Vec<Key>,
}

/// Reads `text`, a file of this `name`. `body` must ask for every known key; other keys are reported as unknown.
pub(super) fn read<T>(
    text: &str,
    name: &str,
    environment: &Environment,
    body: impl FnOnce(&mut Section<'_, '_>) -> T,
) -> Reading<T> {
    let mut reader =
        Reader { name, text, environment, problems: vec![], keys: vec![], variables: BTreeSet::new() };
    let (table, errors) = reader.parse();
    if !errors.is_empty() {
        return Reading { value: None, problems: in_order(errors), keys: vec![] };
    }
    let value = Section::root(&mut reader, &table).finish_after(body);
    reader.find_unknown_variables();
    Reading { value: Some(value), problems: in_order(reader.problems), keys: reader.keys }
}

fn in_order(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by(|a, b| (&a.place, &a.key).cmp(&(&b.place, &b.key)));
    problems
}

impl<'t> Reader<'t> {
    fn parse(&self) -> (DeTable<'t>, Vec<Problem>) {
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

    pub(super) fn note_key(&mut self, key: Key) {
        self.keys.push(key);
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
        let unknown = self.environment.overrides().filter(|name| !self.variables.contains(*name));
        let problems: Vec<Problem> = unknown
            .map(|name| Problem {
                place: Place::Variable(name.to_owned()),
                key: String::new(),
                message: format!(
                    "sets nothing; {}",
                    did_you_mean(name, &known).unwrap_or_else(|| {
                        "AGENTLOOP_<SECTION>_<KEY> sets a key of [server], [store], [log], [metrics], [telemetry], \
                         [runs] or [hosts]"
                            .to_owned()
                    })
                ),
            })
            .collect();
        self.problems.extend(problems);
    }
}
