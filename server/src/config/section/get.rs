//! Methods of [`Section`] that read a key, one for each form of value.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use toml::Spanned;
use toml::de::DeValue;

use super::{FoundValue, Section};
use crate::config::error::Place;
use crate::config::value::{ConfigValue, Raw, json_object};

/// A form of value that has others in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compound {
    List,
    Table,
    TableOfTexts,
}

impl Compound {
    /// Describes valid values, as [`ConfigValue::EXPECTED`] does.
    fn expected(self) -> &'static str {
        match self {
            Self::List => "a list of texts, like [\"a\", \"b\"]",
            Self::Table => "a table",
            Self::TableOfTexts => "a table of texts, like { a = \"b\" }",
        }
    }
}

impl<'t> Section<'_, 't> {
    /// Reads a key without a default.
    pub(in crate::config) fn get<V: ConfigValue>(&mut self, key: &'static str) -> Option<V> {
        self.read(key, None, |value| Ok(value))
    }

    /// Reads a key with a default.
    pub(in crate::config) fn get_or<V: ConfigValue>(&mut self, key: &'static str, default: V) -> V {
        self.read(key, Some(default.show()), |value| Ok(value)).unwrap_or(default)
    }

    /// Reads a key with a default and bounds.
    pub(in crate::config) fn get_within<V: ConfigValue + PartialOrd>(
        &mut self,
        key: &'static str,
        default: V,
        bounds: RangeInclusive<V>,
    ) -> V {
        let expected = expected_within(&bounds);
        let read = self.read_as(key, Some(default.show()), &expected, |value| within(value, &bounds));
        read.unwrap_or(default)
    }

    /// Reads a key with bounds and without a default.
    pub(in crate::config) fn get_some_within<V: ConfigValue + PartialOrd>(
        &mut self,
        key: &'static str,
        bounds: RangeInclusive<V>,
    ) -> Option<V> {
        self.read_as(key, None, &expected_within(&bounds), |value| within(value, &bounds))
    }

    /// Reads a key whose value must pass a check. The check's error is the message for the operator.
    pub(in crate::config) fn get_checked<V: ConfigValue, T>(
        &mut self,
        key: &'static str,
        default: Option<&V>,
        check: impl FnOnce(V) -> Result<T, String>,
    ) -> Option<T> {
        self.read(key, default.map(ConfigValue::show), check)
    }

    /// Reads a key whose value is one of a few words.
    pub(in crate::config) fn get_choice<T: Copy>(
        &mut self,
        key: &'static str,
        default: Option<&'static str>,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let word = |word: String| {
            let chosen = choices.iter().find(|(name, _)| *name == word);
            chosen.map(|(_, choice)| *choice).ok_or_else(|| {
                let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
                format!("expected {}, found \"{word}\"", names.join(" or "))
            })
        };
        let chosen = self.read(key, default.map(|word| format!("\"{word}\"")), word);
        chosen.or_else(|| choices.iter().find(|(name, _)| Some(*name) == default).map(|(_, choice)| *choice))
    }

    /// Reads a path. In the file it is relative to the file, in the environment to the current folder.
    pub(in crate::config) fn get_path(
        &mut self,
        key: &'static str,
        default: Option<&PathBuf>,
    ) -> Option<PathBuf> {
        let path = self.read(key, default.map(ConfigValue::show), Ok)?;
        Some(self.resolve(key, path))
    }

    /// A path that this key names, as [`Self::get_path`] reads it.
    pub(in crate::config) fn resolve(&self, key: &'static str, path: PathBuf) -> PathBuf {
        match self.set.get(key) {
            Some(Place::File { .. }) => self.reader.folder().join(path),
            Some(Place::Variable(_)) | None => path,
        }
    }

    /// Reads a list of texts, each of which must pass a check.
    pub(in crate::config) fn get_list(
        &mut self,
        key: &'static str,
        mut check: impl FnMut(&str) -> Result<(), String>,
    ) -> Option<Vec<String>> {
        let (value, place) = self.look_up_compound(key, Compound::List)?;
        let Some(items) = value.as_array() else {
            self.mismatch(key, place, Compound::List.expected(), Raw::Toml(&value));
            return None;
        };
        let mut list = Vec::new();
        for item in items {
            let place = self.place_within(&place, item.span());
            match item.get_ref().as_str() {
                None => self.mismatch(key, place, "a text in quotes", Raw::Toml(item.get_ref())),
                Some(text) => match check(text) {
                    Ok(()) => list.push(text.to_owned()),
                    Err(message) => self.report(key, place, message),
                },
            }
        }
        Some(list)
    }

    /// Reads a table of any shape, as JSON text.
    pub(in crate::config) fn get_json(&mut self, key: &'static str) -> Option<String> {
        let (value, place) = self.look_up_compound(key, Compound::Table)?;
        let Some(table) = value.as_table() else {
            self.mismatch(key, place, Compound::Table.expected(), Raw::Toml(&value));
            return None;
        };
        let json = json_object(table);
        if json.is_none() {
            self.report(key, place, "expected only what JSON has: no infinite numbers".to_owned());
        }
        json
    }

    /// Reads a table of texts under names that the operator chooses.
    pub(in crate::config) fn get_texts(&mut self, key: &'static str) -> Vec<(String, String)> {
        let Some((value, place)) = self.look_up_compound(key, Compound::TableOfTexts) else { return vec![] };
        let Some(table) = value.as_table() else {
            self.mismatch(key, place, Compound::TableOfTexts.expected(), Raw::Toml(&value));
            return vec![];
        };
        let mut texts = Vec::new();
        for (name, value) in table {
            match value.get_ref().as_str() {
                Some(text) => texts.push((name.get_ref().to_string(), text.to_owned())),
                None => {
                    let place = self.place_within(&place, value.span());
                    self.mismatch(key, place, "a text in quotes", Raw::Toml(value.get_ref()));
                }
            }
        }
        texts
    }

    /// Looks up a list or a table. A variable holds it as TOML, or a list of texts with commas between them.
    fn look_up_compound(
        &mut self,
        key: &'static str,
        form: Compound,
    ) -> Option<(Cow<'t, DeValue<'t>>, Place)> {
        let FoundValue { raw, place } = self.look_up(key, None)?;
        let text = match raw {
            Raw::Toml(value) => return Some((Cow::Borrowed(value), place)),
            Raw::Variable(text) => text.trim(),
        };
        if form == Compound::List && !text.starts_with('[') {
            let item = |text: &'t str| Spanned::new(0..0, DeValue::String(text.trim().into()));
            return Some((Cow::Owned(DeValue::Array(text.split(',').map(item).collect())), place));
        }
        match DeValue::parse(text) {
            Ok(value) => Some((Cow::Owned(value.into_inner()), place)),
            Err(_) => {
                self.mismatch(key, place, form.expected(), raw);
                None
            }
        }
    }

    /// The place of a piece of a value, which is at `place`.
    fn place_within(&self, place: &Place, piece: Range<usize>) -> Place {
        match place {
            Place::File { .. } => self.reader.at(piece),
            Place::Variable(_) => place.clone(),
        }
    }

    fn read<V: ConfigValue, T>(
        &mut self,
        key: &'static str,
        default: Option<String>,
        check: impl FnOnce(V) -> Result<T, String>,
    ) -> Option<T> {
        self.read_as(key, default, V::EXPECTED, check)
    }

    fn read_as<V: ConfigValue, T>(
        &mut self,
        key: &'static str,
        default: Option<String>,
        expected: &str,
        check: impl FnOnce(V) -> Result<T, String>,
    ) -> Option<T> {
        let FoundValue { raw, place } = self.look_up(key, default)?;
        let Some(value) = V::read(raw) else {
            self.mismatch(key, place, expected, raw);
            return None;
        };
        check(value).map_err(|message| self.report(key, place, message)).ok()
    }
}

fn within<V: ConfigValue + PartialOrd>(value: V, bounds: &RangeInclusive<V>) -> Result<V, String> {
    if bounds.contains(&value) {
        return Ok(value);
    }
    Err(format!("expected {}; found {}", expected_within(bounds), value.show()))
}

fn expected_within<V: ConfigValue>(bounds: &RangeInclusive<V>) -> String {
    format!("{}, from {} to {}", V::EXPECTED, bounds.start().show(), bounds.end().show())
}
