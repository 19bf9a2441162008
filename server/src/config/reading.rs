//! Reads a whole configuration and reports all its problems, instead of stopping at the first.

use super::environment::Environment;
use super::error::Problem;
use super::reader::{ConfigKey, ConfigReader};
use super::section::Section;

/// The result of reading. `value` is usable only if there are no problems.
#[derive(Debug)]
pub(super) struct Reading<T> {
    pub(super) value: Option<T>,
    pub(super) problems: Vec<Problem>,
    /// Every key that the server read, for the test that compares them with the example file.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "kept in every build so that tests see the same reading")
    )]
    pub(super) keys: Vec<ConfigKey>,
}

/// Reads `text`, a file of this `name`. `body` must read every known key; other keys are reported as unknown.
pub(super) fn read<T>(
    text: &str,
    name: &str,
    environment: &Environment,
    body: impl FnOnce(&mut Section<'_, '_>) -> T,
) -> Reading<T> {
    let mut reader = ConfigReader::new(text, name, environment);
    let (table, errors) = reader.parse();
    if !errors.is_empty() {
        return Reading { value: None, problems: in_order(errors), keys: vec![] };
    }
    let value = Section::root(&mut reader, &table).finish_after(body);
    let (problems, keys) = reader.finish();
    Reading { value: Some(value), problems: in_order(problems), keys }
}

fn in_order(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by(|a, b| (&a.place, &a.key).cmp(&(&b.place, &b.key)));
    problems
}
