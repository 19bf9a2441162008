//! One table of the configuration, read key by key. It must be read for every known key: a key in the table that
//! was never read is reported as unknown.

mod get;

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::environment::PREFIX;
use super::error::Place;
use super::hint::did_you_mean_one_of;
use super::reader::{ConfigKey, ConfigReader};
use super::value::{Raw, found};

/// A table. A missing one reads like an empty one.
pub(super) struct Section<'r, 't> {
    reader: &'r mut ConfigReader<'t>,
    table: Option<&'t DeTable<'t>>,
    header: Range<usize>,
    /// The name in the file: `agents.default.limits`.
    path: String,
    /// The name with `*` for names that the operator chooses: `agents.*.limits`.
    pattern: String,
    overridable: bool,
    /// True if tables of any name were read.
    takes_tables: bool,
    known: Vec<&'static str>,
    refused: Vec<&'static str>,
    set: BTreeMap<&'static str, Place>,
}

/// A value and its place in the file or environment.
struct FoundValue<'t> {
    raw: Raw<'t>,
    place: Place,
}

impl<'r, 't> Section<'r, 't> {
    /// The top-level table of the file.
    pub(super) fn root(reader: &'r mut ConfigReader<'t>, table: &'t DeTable<'t>) -> Self {
        Self::new(reader, Some(table), 0..0)
    }

    fn new(reader: &'r mut ConfigReader<'t>, table: Option<&'t DeTable<'t>>, header: Range<usize>) -> Self {
        Self {
            reader,
            table,
            header,
            path: String::new(),
            pattern: String::new(),
            overridable: false,
            takes_tables: false,
            known: vec![],
            refused: vec![],
            set: BTreeMap::new(),
        }
    }

    /// Runs `body`, then reports the keys that it did not read.
    pub(super) fn finish_after<T>(mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        let value = body(&mut self);
        self.find_unknown_keys();
        value
    }

    /// Reads the table of this name within this one.
    pub(super) fn section<T>(
        &mut self,
        key: &'static str,
        body: impl FnOnce(&mut Section<'_, 't>) -> T,
    ) -> T {
        self.child(key, false, body)
    }

    /// Like [`Self::section`] of the top-level table, with keys that environment variables can override.
    pub(super) fn overridable_section<T>(
        &mut self,
        key: &'static str,
        body: impl FnOnce(&mut Section<'_, 't>) -> T,
    ) -> T {
        self.reader.note_overridable(key);
        self.child(key, true, body)
    }

    fn child<T>(
        &mut self,
        key: &'static str,
        overridable: bool,
        body: impl FnOnce(&mut Section<'_, 't>) -> T,
    ) -> T {
        let value = self.table_value(key);
        let (path, pattern) = (join(&self.path, key), join(&self.pattern, key));
        let header = value.map_or(self.header.clone(), Spanned::span);
        let table = self.as_table(key, value);
        let child = Section::new(self.reader, table, header);
        Section { path, pattern, overridable, ..child }.finish_after(body)
    }

    /// Reads the tables within the table of this name; the operator chooses their names. Those for which `body` returns
    /// `None` are left out.
    pub(super) fn each_named<T>(
        &mut self,
        key: &'static str,
        mut body: impl FnMut(&str, &mut Section<'_, 't>) -> Option<T>,
    ) -> BTreeMap<String, T> {
        let value = self.table_value(key);
        let mut read = BTreeMap::new();
        for (name, value) in self.as_table(key, value).into_iter().flatten() {
            let name = name.get_ref().as_ref();
            let path = join(&join(&self.path, key), name);
            let Some(table) = value.get_ref().as_table() else {
                let place = self.reader.at(value.span());
                self.reader.report(place, path, format!("expected a table, found {}", found_in(value)));
                continue;
            };
            let pattern = join(&join(&self.pattern, key), "*");
            let child = Section::new(self.reader, Some(table), value.span());
            let child = Section { path, pattern, ..child };
            if let Some(one) = child.finish_after(|section| body(name, section)) {
                read.insert(name.to_owned(), one);
            }
        }
        read
    }

    /// Reads the tables within this one that nobody has read; the operator chooses their names. Those for which `body`
    /// returns `None` are left out.
    pub(super) fn each_other_table<T>(
        &mut self,
        mut body: impl FnMut(&str, &mut Section<'_, 't>) -> Option<T>,
    ) -> BTreeMap<String, T> {
        let mut read = BTreeMap::new();
        self.takes_tables = true;
        for (name, value) in self.table.into_iter().flatten() {
            let name = name.get_ref().as_ref();
            let Some(table) = value.get_ref().as_table().filter(|_| !self.known.contains(&name)) else {
                continue;
            };
            let (path, pattern) = (join(&self.path, name), join(&self.pattern, "*"));
            let child = Section::new(self.reader, Some(table), value.span());
            let child = Section { path, pattern, ..child };
            if let Some(one) = child.finish_after(|section| body(name, section)) {
                read.insert(name.to_owned(), one);
            }
        }
        read
    }

    /// Reads the tables of the list of this name. Those for which `body` returns `None` are left out.
    pub(super) fn each_in_list<T>(
        &mut self,
        key: &'static str,
        count_max: usize,
        mut body: impl FnMut(&mut Section<'_, 't>) -> Option<T>,
    ) -> Vec<T> {
        let Some(value) = self.table_value(key) else { return Vec::new() };
        let place = self.reader.at(value.span());
        self.set.insert(key, place.clone());
        let Some(items) = value.get_ref().as_array() else {
            self.mismatch(key, place, "a list of tables", Raw::Toml(value.get_ref()));
            return Vec::new();
        };
        if items.len() > count_max {
            self.report(key, place, format!("expected at most {count_max}; found {}", items.len()));
            return Vec::new();
        }
        let mut read = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let path = format!("{}[{at}]", join(&self.path, key));
            let Some(table) = item.get_ref().as_table() else {
                let place = self.reader.at(item.span());
                self.reader.report(place, path, format!("expected a table; found {}", found_in(item)));
                continue;
            };
            let pattern = join(&self.pattern, key);
            let child = Section::new(self.reader, Some(table), item.span());
            read.extend(Section { path, pattern, ..child }.finish_after(&mut body));
        }
        read
    }

    fn table_value(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.known.push(key);
        self.table?.get(key)
    }

    fn as_table(
        &mut self,
        key: &'static str,
        value: Option<&'t Spanned<DeValue<'t>>>,
    ) -> Option<&'t DeTable<'t>> {
        let value = value?;
        let table = value.get_ref().as_table();
        if table.is_none() {
            let place = self.reader.at(value.span());
            self.mismatch(key, place, "a table", Raw::Toml(value.get_ref()));
        }
        table
    }

    /// True if the file or the environment sets a key that was read.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.set.contains_key(key)
    }

    /// True if the file has this key, read or not.
    pub(super) fn contains(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// Refuses a key with a message that explains more than "unknown key".
    pub(super) fn refuse(&mut self, key: &'static str, message: &str) {
        self.refused.push(key);
        if let Some((name, _)) = self.table.and_then(|table| table.get_key_value(key)) {
            let place = self.reader.at(name.span());
            self.report(key, place, message.to_owned());
        }
    }

    /// Ends reading without reports of unknown keys, because the kind of the table is unknown.
    pub(super) fn give_up(&mut self) {
        self.table = None;
    }

    /// Reports a problem with the combination of these keys, at the first one that is set or at the section's header.
    pub(super) fn problem(&mut self, keys: &[&'static str], message: String) {
        let set = keys.iter().find_map(|key| Some((*key, self.set.get(key)?.clone())));
        let (key, place) = set.unwrap_or_else(|| {
            (keys.first().copied().unwrap_or_default(), self.reader.at(self.header.clone()))
        });
        self.report(key, place, message);
    }

    /// Reports a problem with an environment variable that is not an override of a key.
    pub(super) fn problem_in(&mut self, variable: &str, message: String) {
        self.reader.report(Place::Variable(variable.to_owned()), String::new(), message);
    }

    /// The environment, for secrets and the vendors' own variables.
    pub(super) fn environment(&self) -> &'t super::Environment {
        self.reader.environment
    }

    /// Looks a key up in the environment, then in the file, and notes it as known.
    fn look_up(&mut self, key: &'static str, default: Option<String>) -> Option<FoundValue<'t>> {
        self.known.push(key);
        let found = self.in_environment(key).or_else(|| self.in_file(key));
        self.reader.note_key(ConfigKey { path: join(&self.pattern, key), default, set: found.is_some() });
        if let Some(found) = &found {
            self.set.insert(key, found.place.clone());
        }
        found
    }

    fn in_environment(&mut self, key: &'static str) -> Option<FoundValue<'t>> {
        if !self.overridable {
            return None;
        }
        let name = format!("{PREFIX}{}_{}", self.path, key).to_ascii_uppercase();
        let (text, place) = self.reader.variable(name, &join(&self.path, key))?;
        Some(FoundValue { raw: Raw::Variable(text), place })
    }

    fn in_file(&self, key: &'static str) -> Option<FoundValue<'t>> {
        let value = self.table?.get(key)?;
        Some(FoundValue { raw: Raw::Toml(value.get_ref()), place: self.reader.at(value.span()) })
    }

    fn find_unknown_keys(&mut self) {
        for (key, value) in self.table.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if self.takes_tables && value.get_ref().as_table().is_some() {
                continue;
            }
            if !self.known.contains(&name) && !self.refused.contains(&name) {
                let place = self.reader.at(key.span());
                let hint = did_you_mean_one_of(name, &self.known);
                self.reader.report(place, join(&self.path, name), format!("unknown key; {hint}"));
            }
        }
    }

    fn mismatch(&mut self, key: &str, place: Place, expected: &str, raw: Raw<'_>) {
        self.report(key, place, format!("expected {expected}; found {}", found(raw)));
    }

    fn report(&mut self, key: &str, place: Place, message: String) {
        self.reader.report(place, join(&self.path, key), message);
    }
}

fn found_in(value: &Spanned<DeValue<'_>>) -> String {
    found(Raw::Toml(value.get_ref()))
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() || key.is_empty() { format!("{path}{key}") } else { format!("{path}.{key}") }
}
