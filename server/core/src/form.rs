//! Forms: a JSON schema of flat fields, and the check of an answer against it.
//!
//! A form is what MCP calls an elicitation: an object whose fields are strings, numbers, integers, booleans or one of
//! several strings. A keyword that this server does not check is refused when the question is asked, so that nobody relies
//! on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use crate::limits::{
    ANSWER_BYTES_MAX, FORM_CHOICES_MAX, FORM_FIELDS_MAX, FORM_SCHEMA_BYTES_MAX, ID_BYTES_MAX,
    OPTION_BYTES_MAX, SHORT_TEXT_BYTES_MAX,
};

/// Size of an error that names the choices of a field.
const SHOWN_CHOICES_BYTES_MAX: usize = 512;

/// A form that was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// In the order of the schema.
    fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq)]
struct Field {
    name: String,
    required: bool,
    kind: FieldKind,
}

#[derive(Debug, Clone, PartialEq)]
enum FieldKind {
    Text { chars_min: Option<u64>, chars_max: Option<u64>, format: Option<Format> },
    OneOf { choices: Vec<String> },
    Number { is_whole: bool, min: Option<f64>, max: Option<f64> },
    Boolean,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Format {
    Email,
    Uri,
    Date,
    DateTime,
}

/// The fault of an answer to a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadField {
    /// Name of the field; empty if the fault is in the answer as a whole.
    pub field: String,
    /// The fault, for people.
    pub problem: String,
}

/// An object with its keys in the order of the text. A key that stands twice is an error.
struct Ordered<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Ordered<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries: Vec<(String, T)> = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, T>()? {
                    if entries.iter().any(|(before, _)| *before == key) {
                        let shown = &key[..key.floor_char_boundary(ID_BYTES_MAX)];
                        return Err(serde::de::Error::custom(format!("the field {shown:?} stands twice")));
                    }
                    // Callers check the number; this only bounds the work on a hostile text.
                    if entries.len() > FORM_FIELDS_MAX {
                        return Err(serde::de::Error::custom(format!("more than {FORM_FIELDS_MAX} fields")));
                    }
                    entries.push((key, value));
                }
                Ok(Ordered(entries))
            }
        }
        from.deserialize_map(Entries(std::marker::PhantomData))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FormSchema {
    #[serde(rename = "$schema", default)]
    _dialect: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "title", default)]
    _title: Option<String>,
    #[serde(rename = "description", default)]
    _description: Option<String>,
    properties: Ordered<FieldSchema>,
    #[serde(default)]
    required: Vec<String>,
    #[serde(rename = "additionalProperties", default)]
    additional: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FieldSchema {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    default: Option<Value>,
    #[serde(rename = "enum", default)]
    choices: Option<Vec<String>>,
    #[serde(default)]
    enum_names: Option<Vec<String>>,
    #[serde(default)]
    min_length: Option<u64>,
    #[serde(default)]
    max_length: Option<u64>,
    #[serde(default)]
    format: Option<Format>,
    #[serde(default)]
    minimum: Option<f64>,
    #[serde(default)]
    maximum: Option<f64>,
}

impl Form {
    /// Reads the schema of a form.
    ///
    /// # Errors
    /// The fault, for the author of the question.
    pub fn parse(schema: &str) -> Result<Self, String> {
        if schema.len() > FORM_SCHEMA_BYTES_MAX {
            return Err(format!("must be at most {FORM_SCHEMA_BYTES_MAX} bytes"));
        }
        let schema: FormSchema =
            serde_json::from_str(schema).map_err(|error| format!("is no schema of flat fields: {error}"))?;
        let Ordered(properties) = schema.properties;
        if schema.kind != "object" {
            return Err("its type must be object".to_owned());
        }
        if schema.additional == Some(true) {
            return Err(
                "additionalProperties must not be true: a form has the fields that it names".to_owned()
            );
        }
        if properties.is_empty() || properties.len() > FORM_FIELDS_MAX {
            return Err(format!("must have 1 to {FORM_FIELDS_MAX} properties"));
        }
        if let Some(unknown) =
            schema.required.iter().find(|name| !properties.iter().any(|(known, _)| known == *name))
        {
            return Err(format!("required names {unknown:?}, which is no property"));
        }
        let required: BTreeSet<&String> = schema.required.iter().collect();
        let field = |(name, field): (String, FieldSchema)| {
            let is_required = required.contains(&name);
            field.check(&name, is_required).map_err(|problem| format!("properties.{name}: {problem}"))
        };
        let fields: Result<Vec<Field>, String> = properties.into_iter().map(field).collect();
        Ok(Self { fields: fields? })
    }

    /// Checks an answer, and returns it in its canonical form. Numbers keep the text that they were given in: another one may be
    /// rounded.
    ///
    /// # Errors
    /// The first fault, with the name of its field.
    pub fn check(&self, answer: &str) -> Result<String, BadField> {
        let whole = |problem: String| BadField { field: String::new(), problem };
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(whole(format!("must be at most {ANSWER_BYTES_MAX} bytes")));
        }
        let Ordered(given) = serde_json::from_str::<Ordered<Box<RawValue>>>(answer)
            .map_err(|error| whole(format!("must be a JSON object: {error}")))?;
        let of_field =
            |name: &str, problem: &str| BadField { field: name.to_owned(), problem: problem.to_owned() };
        let mut checked: BTreeMap<&str, String> = BTreeMap::new();
        for (name, text) in given {
            let Some(field) = self.fields.iter().find(|field| field.name == name) else {
                let shown = &name[..name.floor_char_boundary(ID_BYTES_MAX)];
                return Err(of_field(shown, "is no field of the form"));
            };
            let value = serde_json::from_str::<Value>(text.get())
                .map_err(|error| of_field(&name, &format!("must be a JSON value: {error}")))?;
            field.kind.check(&value, text.get()).map_err(|problem| of_field(&name, &problem))?;
            let text = if value.is_number() { text.get().to_owned() } else { value.to_string() };
            checked.insert(&field.name, text);
        }
        let missing = self.fields.iter().find(|field| field.required && !checked.contains_key(&*field.name));
        if let Some(field) = missing {
            return Err(of_field(&field.name, "is required"));
        }
        let fields = checked.iter().map(|(name, text)| format!("{}:{text}", Value::from(*name)));
        Ok(format!("{{{}}}", fields.collect::<Vec<_>>().join(",")))
    }
}

impl FieldSchema {
    fn check(self, name: &str, required: bool) -> Result<Field, String> {
        if name.is_empty() || name.len() > ID_BYTES_MAX {
            return Err(format!("a name has 1 to {ID_BYTES_MAX} bytes"));
        }
        for text in [&self.title, &self.description].into_iter().flatten() {
            if text.len() > SHORT_TEXT_BYTES_MAX {
                return Err(format!("title and description have at most {SHORT_TEXT_BYTES_MAX} bytes"));
            }
        }
        let kind = self.kind()?;
        if let Some(default) = &self.default {
            kind.check(default, &default.to_string()).map_err(|problem| format!("default {problem}"))?;
        }
        Ok(Field { name: name.to_owned(), required, kind })
    }

    fn kind(&self) -> Result<FieldKind, String> {
        let of_text = self.min_length.is_some() || self.max_length.is_some() || self.format.is_some();
        let of_choice = self.choices.is_some() || self.enum_names.is_some();
        let of_number = self.minimum.is_some() || self.maximum.is_some();
        let no_length = self.min_length.zip(self.max_length).is_some_and(|(min, max)| min > max);
        let no_number = self.minimum.zip(self.maximum).is_some_and(|(min, max)| min > max);
        let is_between = |(min, max): (f64, f64)| min.ceil() > max.floor();
        let no_whole = self.kind == "integer" && self.minimum.zip(self.maximum).is_some_and(is_between);
        if no_length || no_number || no_whole {
            return Err("no value fits: the least is more than the most".to_owned());
        }
        let kind = match (self.kind.as_str(), &self.choices) {
            ("string", Some(choices)) if !of_text && !of_number => {
                self.check_choices(choices)?;
                FieldKind::OneOf { choices: choices.clone() }
            }
            ("string", None) if !of_choice && !of_number => FieldKind::Text {
                chars_min: self.min_length,
                chars_max: self.max_length,
                format: self.format,
            },
            ("number" | "integer", None) if !of_choice && !of_text => {
                FieldKind::Number { is_whole: self.kind == "integer", min: self.minimum, max: self.maximum }
            }
            ("boolean", None) if !of_choice && !of_text && !of_number => FieldKind::Boolean,
            ("string" | "number" | "integer" | "boolean", _) => {
                return Err(format!("has a keyword that does not belong to its type {}", self.kind));
            }
            _ => return Err("its type must be string, number, integer or boolean".to_owned()),
        };
        Ok(kind)
    }

    fn check_choices(&self, choices: &[String]) -> Result<(), String> {
        if choices.is_empty() || choices.len() > FORM_CHOICES_MAX {
            return Err(format!("enum must have 1 to {FORM_CHOICES_MAX} values"));
        }
        if choices.iter().collect::<BTreeSet<_>>().len() != choices.len() {
            return Err("the values of enum must differ".to_owned());
        }
        let names = self.enum_names.as_deref().unwrap_or_default();
        if self.enum_names.is_some() && names.len() != choices.len() {
            return Err("enumNames must have as many values as enum".to_owned());
        }
        if choices.iter().chain(names).any(|text| text.len() > OPTION_BYTES_MAX) {
            return Err(format!("each value of enum and enumNames has at most {OPTION_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}

impl FieldKind {
    /// Checks a value. `text` is its JSON.
    fn check(&self, value: &Value, text: &str) -> Result<(), String> {
        match (self, value) {
            (Self::Text { chars_min, chars_max, format }, Value::String(text)) => {
                let chars = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
                match (chars_min, chars_max, format) {
                    (Some(min), ..) if chars < *min => Err(format!("must have at least {min} characters")),
                    (_, Some(max), _) if chars > *max => Err(format!("must have at most {max} characters")),
                    (.., Some(format)) => format.check(text),
                    _ => Ok(()),
                }
            }
            (Self::Text { .. }, _) => Err("must be a string".to_owned()),
            (Self::OneOf { choices }, Value::String(text)) if choices.contains(text) => Ok(()),
            (Self::OneOf { choices }, _) => Err(not_one_of(choices)),
            (Self::Number { is_whole, min, max }, Value::Number(number)) => {
                if *is_whole && !is_whole_of_64_bits(text) {
                    return Err("must be a whole number of at most 64 bits".to_owned());
                }
                check_number(number, *min, *max)
            }
            (Self::Number { is_whole: true, .. }, _) => Err("must be a whole number".to_owned()),
            (Self::Number { .. }, _) => Err("must be a number".to_owned()),
            (Self::Boolean, Value::Bool(_)) => Ok(()),
            (Self::Boolean, _) => Err("must be true or false".to_owned()),
        }
    }
}

/// The fault of a value that is no choice. The choices are named where they are few and short: an error's details are sent as
/// headers, which have a bound.
fn not_one_of(choices: &[String]) -> String {
    let named = format!("must be one of {choices:?}");
    if named.len() <= SHOWN_CHOICES_BYTES_MAX {
        named
    } else {
        format!("must be one of the {} values of its enum", choices.len())
    }
}

/// True for a JSON number without a fraction, which JSON schema counts as an integer however it is written: `3`, `3.0` and
/// `3e0`. Its text is looked at, because a floating-point number rounds.
fn is_whole_of_64_bits(number: &str) -> bool {
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let Ok(exponent) = exponent.parse::<i16>() else { return false };
    // All digits, moved to the left of the point by the exponent.
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_end_matches('0');
    if digits.trim_start_matches('-').trim_start_matches('0').is_empty() {
        return true;
    }
    let Ok(whole) = i64::try_from(whole.len()) else { return false };
    let zeros = usize::try_from(whole + i64::from(exponent)).ok().and_then(|at| at.checked_sub(digits.len()));
    let Some(zeros) = zeros else { return false };
    let number = format!("{digits}{}", "0".repeat(zeros));
    number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok()
}

fn check_number(number: &Number, min: Option<f64>, max: Option<f64>) -> Result<(), String> {
    let number = number.as_f64().ok_or("must be a number")?;
    match (min, max) {
        (Some(min), _) if number < min => Err(format!("must be at least {min}")),
        (_, Some(max)) if number > max => Err(format!("must be at most {max}")),
        _ => Ok(()),
    }
}

impl Format {
    fn check(self, text: &str) -> Result<(), String> {
        let fits = match self {
            Self::Email => is_email(text),
            Self::Uri => is_uri(text),
            Self::Date => is_date(text),
            Self::DateTime => {
                text.split_once(['T', 't']).is_some_and(|(date, time)| is_date(date) && is_time(time))
            }
        };
        let wanted = match self {
            Self::Email => "an e-mail address",
            Self::Uri => "a URI such as https://example.org",
            Self::Date => "a date such as 2027-01-31",
            Self::DateTime => "a time such as 2027-01-31T15:04:05Z",
        };
        if fits { Ok(()) } else { Err(format!("must be {wanted}")) }
    }
}

fn is_email(text: &str) -> bool {
    let plain = !text.chars().any(|c| c.is_whitespace() || c.is_control());
    let parts = text.rsplit_once('@').filter(|(name, host)| !name.is_empty() && !host.is_empty());
    // Only a name in quotes may have a second `@`.
    let is_quoted = |name: &str| name.len() > 2 && name.starts_with('"') && name.ends_with('"');
    plain && parts.is_some_and(|(name, _)| !name.contains('@') || is_quoted(name))
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let begins = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    let scheme = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    begins && scheme && !rest.is_empty() && !rest.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// Two or four digits as a number.
fn digits(text: &str, count: usize) -> Option<u32> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn is_date(text: &str) -> bool {
    let mut pieces = text.splitn(3, '-');
    let mut piece = |count| digits(pieces.next()?, count);
    let (Some(year), Some(month), Some(day)) = (piece(4), piece(2), piece(2)) else { return false };
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

fn is_time(text: &str) -> bool {
    let Some(at) = text.find(['Z', 'z', '+', '-']) else { return false };
    let (time, zone) = text.split_at(at);
    let (clock, fraction) =
        time.split_once('.').map_or((time, None), |(clock, fraction)| (clock, Some(fraction)));
    let fraction =
        fraction.is_none_or(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    let zone =
        matches!(zone, "Z" | "z") || zone.strip_prefix(['+', '-']).is_some_and(|zone| is_clock(zone, 2));
    fraction && zone && is_clock(clock, 3)
}

/// Hours and minutes, and seconds as the third piece.
fn is_clock(text: &str, count: usize) -> bool {
    let pieces: Vec<Option<u32>> = text.split(':').map(|piece| digits(piece, 2)).collect();
    let bounds = [23, 59, 60];
    pieces.len() == count
        && pieces.iter().zip(bounds).all(|(piece, max)| piece.is_some_and(|piece| piece <= max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(properties: &str) -> Result<Form, String> {
        Form::parse(&format!(r#"{{"type":"object","properties":{{{properties}}},"required":["a"]}}"#))
    }

    #[test]
    fn schemas_of_flat_fields_are_read_and_others_are_not() {
        for good in [
            r#""a":{"type":"string","title":"A","description":"b","default":"x","minLength":1,"maxLength":9}"#,
            r#""a":{"type":"string","enum":["x","y"],"enumNames":["X","Y"],"default":"y"}"#,
            r#""a":{"type":"string","format":"date-time"}"#,
            r#""a":{"type":"number","minimum":0.5,"maximum":2}"#,
            r#""a":{"type":"integer"},"b":{"type":"boolean","default":false}"#,
        ] {
            assert!(form(good).is_ok(), "{good}: {:?}", form(good));
        }
        for bad in [
            "",
            r#""b":{"type":"string"}"#,
            r#""a":{"type":"object"}"#,
            r#""a":{"type":"array"}"#,
            r#""a":{"type":["string","null"]}"#,
            r#""a":{"type":"string","pattern":"x"}"#,
            r#""a":{"type":"string","minimum":1}"#,
            r#""a":{"type":"string","minLength":3,"maxLength":2}"#,
            r#""a":{"type":"integer","minimum":3,"maximum":2}"#,
            r#""a":{"type":"integer","minimum":1.5,"maximum":1.7}"#,
            r#""a":{"type":"integer","enum":["1"]}"#,
            r#""a":{"type":"string","enum":[]}"#,
            r#""a":{"type":"string","enum":["x","x"]}"#,
            r#""a":{"type":"string","enum":["x"],"enumNames":[]}"#,
            r#""a":{"type":"string","format":"ipv4"}"#,
            r#""a":{"type":"integer","default":1.5}"#,
            r#""a":{"type":"string"},"a":{"type":"string"}"#,
        ] {
            assert!(form(bad).is_err(), "{bad}");
        }
        let many: Vec<String> =
            (0..=FORM_FIELDS_MAX).map(|n| format!(r#""a{n}":{{"type":"string"}}"#)).collect();
        assert!(Form::parse(&format!(r#"{{"type":"object","properties":{{{}}}}}"#, many.join(","))).is_err());
        for bad in ["", "[]", r#"{"type":"object"}"#, r#"{"properties":{}}"#] {
            assert!(Form::parse(bad).is_err(), "{bad}");
        }
        let open = r#"{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":true}"#;
        assert!(Form::parse(open).is_err());
    }

    /// The field of the fault, or the canonical answer.
    fn checked(properties: &str, answer: &str) -> Result<String, String> {
        form(properties).expect("a form").check(answer).map_err(|bad| bad.field)
    }

    #[test]
    fn answers_are_checked_field_by_field() {
        let field = |field: &str| Err(field.to_owned());
        let two = r#""a":{"type":"string","minLength":2,"maxLength":3},"b":{"type":"integer","minimum":1,"maximum":9}"#;
        assert_eq!(checked(two, r#"{ "b" : 3, "a" : "xyz" }"#), Ok(r#"{"a":"xyz","b":3}"#.to_owned()));
        assert_eq!(checked(two, r#"{"a":"ää"}"#), Ok(r#"{"a":"ää"}"#.to_owned()));
        for (answer, at) in [
            ("", ""),
            ("[]", ""),
            (r#"{"a":"xy","a":"xy"}"#, ""),
            ("{}", "a"),
            (r#"{"a":"x"}"#, "a"),
            (r#"{"a":"wxyz"}"#, "a"),
            (r#"{"a":null}"#, "a"),
            (r#"{"a":"xy","b":0}"#, "b"),
            (r#"{"a":"xy","b":10}"#, "b"),
            (r#"{"a":"xy","b":1.5}"#, "b"),
            (r#"{"a":"xy","b":"1"}"#, "b"),
            (r#"{"a":"xy","c":1}"#, "c"),
        ] {
            assert_eq!(checked(two, answer), field(at), "{answer}");
        }
        let whole = r#""a":{"type":"integer","default":2.0,"maximum":18446744073709551615}"#;
        for good in [
            "3",
            "-3",
            "0",
            "-0",
            "3.0",
            "3e0",
            "3.00E+0",
            "0.3e1",
            "30e-1",
            "0.000",
            "0e9",
            "12.50e1",
            "-9223372036854775808",
            "18446744073709551615",
            "18446744073709551615.0",
            "9007199254740993.0",
        ] {
            let answer = format!(r#"{{"a":{good}}}"#);
            assert_eq!(checked(whole, &format!(r#"{{ "a" : {good} }}"#)), Ok(answer), "as it was given");
        }
        for bad in [
            "3.5",
            "3e-1",
            "0.03e1",
            "9007199254740993.5",
            "18446744073709551616",
            "18446744073709551616.0",
            "-9223372036854775809",
            "1e20",
            "1e300",
            "1e99999",
            "\"3\"",
            "[3]",
        ] {
            assert_eq!(checked(whole, &format!(r#"{{"a":{bad}}}"#)), field("a"), "{bad}");
        }
        let number = r#""a":{"type":"number"}"#;
        assert_eq!(checked(number, r#"{"a":1.50}"#), Ok(r#"{"a":1.50}"#.to_owned()));
        let choice = r#""a":{"type":"string","enum":["x","y"]}"#;
        assert!(checked(choice, r#"{"a":"y"}"#).is_ok());
        assert_eq!(checked(choice, r#"{"a":"z"}"#), field("a"));
        let boolean = r#""a":{"type":"boolean"}"#;
        assert!(checked(boolean, r#"{"a":false}"#).is_ok());
        assert_eq!(checked(boolean, r#"{"a":"false"}"#), field("a"));
    }

    #[test]
    fn formats_are_checked() {
        for (format, good, bad) in [
            ("email", "ada@example.org", "ada"),
            ("email", r#"\"a@b\"@example.org"#, "a@@b"),
            ("email", "a@b", "a@b@c"),
            ("uri", "https://example.org/x", "example.org"),
            ("date", "2028-02-29", "2027-02-29"),
            ("date-time", "2027-01-31T15:04:05.5+01:00", "2027-01-31 15:04"),
            ("date-time", "2027-01-31T15:04:05Z", "2027-01-31T15:04:05Z12:30"),
        ] {
            let schema = format!(r#""a":{{"type":"string","format":"{format}"}}"#);
            assert!(checked(&schema, &format!(r#"{{"a":"{good}"}}"#)).is_ok(), "{good}");
            assert!(checked(&schema, &format!(r#"{{"a":"{bad}"}}"#)).is_err(), "{bad}");
        }
    }
}
