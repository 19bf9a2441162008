//! The types of configuration values: how each is parsed from TOML or an environment variable, and how it is printed.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use agentloop_core::time::Millis;
use serde_json::{Map, Number};
use toml::de::{DeInteger, DeTable, DeValue};

/// A value before it is parsed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Raw<'a> {
    /// A TOML value of the file.
    Toml(&'a DeValue<'a>),
    /// The text of an environment variable.
    Variable(&'a str),
}

/// A type that the value of a key can have.
pub(super) trait ConfigValue: Sized {
    /// Describes valid values in messages, after the word "expected".
    const EXPECTED: &'static str;

    /// Parses a value; `None` if it has another type or form.
    fn read(raw: Raw<'_>) -> Option<Self>;

    /// Prints the value as it is written in the file.
    fn show(&self) -> String;
}

fn text(raw: Raw<'_>) -> Option<&str> {
    match raw {
        Raw::Toml(value) => value.as_str(),
        Raw::Variable(text) => Some(text),
    }
}

fn quoted(text: impl Display) -> String {
    format!("\"{text}\"")
}

impl ConfigValue for String {
    const EXPECTED: &'static str = "a text in quotes";

    fn read(raw: Raw<'_>) -> Option<Self> {
        text(raw).map(str::to_owned)
    }

    fn show(&self) -> String {
        quoted(self)
    }
}

impl ConfigValue for PathBuf {
    const EXPECTED: &'static str = "a path in quotes";

    fn read(raw: Raw<'_>) -> Option<Self> {
        text(raw).filter(|path| !path.is_empty()).map(Self::from)
    }

    fn show(&self) -> String {
        quoted(self.display())
    }
}

impl ConfigValue for SocketAddr {
    const EXPECTED: &'static str = "an address with a port, in quotes: \"127.0.0.1:50051\", \"[::1]:50051\"";

    fn read(raw: Raw<'_>) -> Option<Self> {
        text(raw)?.parse().ok()
    }

    fn show(&self) -> String {
        quoted(self)
    }
}

impl ConfigValue for Millis {
    const EXPECTED: &'static str =
        "a length of time in quotes, in whole milliseconds: \"10ms\", \"30s\", \"5m\"";

    fn read(raw: Raw<'_>) -> Option<Self> {
        let length = humantime::parse_duration(text(raw)?).ok()?;
        let millis = u64::try_from(length.as_millis()).ok()?;
        (Duration::from_millis(millis) == length).then_some(Self(millis))
    }

    /// Uses the largest unit of which it is a multiple.
    fn show(&self) -> String {
        let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
        let whole = units.iter().find(|(_, millis)| self.0 > 0 && self.0.is_multiple_of(*millis));
        match whole {
            Some((unit, millis)) => quoted(format_args!("{}{unit}", self.0 / millis)),
            None => quoted(format_args!("{}ms", self.0)),
        }
    }
}

impl ConfigValue for bool {
    const EXPECTED: &'static str = "true or false";

    fn read(raw: Raw<'_>) -> Option<Self> {
        match raw {
            Raw::Toml(value) => value.as_bool(),
            Raw::Variable(text) => text.parse().ok(),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl ConfigValue for f64 {
    const EXPECTED: &'static str = "a number";

    fn read(raw: Raw<'_>) -> Option<Self> {
        match raw {
            Raw::Toml(value) => match value.as_float() {
                Some(float) => float.as_str().parse().ok(),
                None => value.as_integer()?.as_str().parse().ok(),
            },
            Raw::Variable(text) => text.parse().ok(),
        }
        .filter(|number: &f64| number.is_finite())
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}

macro_rules! whole_numbers {
    ($($number:ty)*) => {$(
        impl ConfigValue for $number {
            const EXPECTED: &'static str = "a whole number";

            fn read(raw: Raw<'_>) -> Option<Self> {
                match raw {
                    Raw::Toml(value) => whole(value.as_integer()?)?.try_into().ok(),
                    Raw::Variable(text) => text.parse().ok(),
                }
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

whole_numbers! { u32 u64 usize }

fn whole(integer: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// Describes a value in messages, after the word "found".
pub(super) fn found(raw: Raw<'_>) -> String {
    match raw {
        Raw::Variable(text) => quoted(text),
        Raw::Toml(value) => match value {
            DeValue::String(text) => quoted(text),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(it) => it.to_string(),
            DeValue::Datetime(_) => "a date".to_owned(),
            DeValue::Array(_) => "an array".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        },
    }
}

/// Converts a table to JSON text; `None` if a number has no JSON form, such as infinity.
pub(super) fn json_object(table: &DeTable<'_>) -> Option<String> {
    object(table).map(|object| object.to_string())
}

fn object(table: &DeTable<'_>) -> Option<serde_json::Value> {
    let mut members = Map::new();
    for (key, value) in table {
        members.insert(key.get_ref().to_string(), json(value.get_ref())?);
    }
    Some(serde_json::Value::Object(members))
}

fn json(value: &DeValue<'_>) -> Option<serde_json::Value> {
    Some(match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => whole(number)?.into(),
        DeValue::Float(number) => serde_json::Value::Number(Number::from_f64(number.as_str().parse().ok()?)?),
        DeValue::Boolean(it) => (*it).into(),
        DeValue::Datetime(date) => date.to_string().into(),
        DeValue::Array(items) => {
            items.iter().map(|item| json(item.get_ref())).collect::<Option<Vec<_>>>()?.into()
        }
        DeValue::Table(table) => object(table)?,
    })
}

#[cfg(test)]
mod tests {
    use toml::de::DeTable;

    use super::*;

    #[track_caller]
    fn read<T: ConfigValue>(toml: &str) -> Option<T> {
        let text = format!("key = {toml}");
        let table = DeTable::parse(&text).unwrap();
        T::read(Raw::Toml(table.get_ref().get("key").unwrap().get_ref()))
    }

    #[test]
    fn lengths_of_time_are_humane_and_whole() {
        for (text, millis) in [("10ms", 10), ("5s", 5_000), ("1m 30s", 90_000), ("2h", 7_200_000), ("0s", 0)]
        {
            assert_eq!(read(&quoted(text)), Some(Millis(millis)), "{text}");
            assert_eq!(Millis::read(Raw::Variable(text)), Some(Millis(millis)), "{text}");
        }
        for bad in ["5", "-5s", "", "5 parsecs", "1us", "1ms 1ns", "99999999999999999999s"] {
            assert_eq!(read::<Millis>(&quoted(bad)), None, "{bad:?}");
        }
        assert_eq!(read::<Millis>("5"), None);
    }

    #[test]
    fn whole_numbers_are_in_range() {
        assert_eq!(read("10_000"), Some(10_000_u32));
        assert_eq!(read("0x10"), Some(16_u32));
        assert_eq!(read::<u32>("-1"), None);
        assert_eq!(read::<u32>("4294967296"), None);
        assert_eq!(read("4294967296"), Some(4_294_967_296_u64));
        for bad in ["1.0", "\"1\"", "true", "[1]"] {
            assert_eq!(read::<u32>(bad), None, "{bad}");
        }
        assert_eq!(u32::read(Raw::Variable("12")), Some(12));
        assert_eq!(u32::read(Raw::Variable("twelve")), None);
    }

    #[test]
    fn numbers_are_finite() {
        assert_eq!(read("0.5"), Some(0.5));
        assert_eq!(read("1"), Some(1.0));
        assert_eq!(read::<f64>("inf"), None);
        assert_eq!(read::<f64>("nan"), None);
    }

    #[test]
    fn other_scalars() {
        assert_eq!(read("true"), Some(true));
        assert_eq!(read::<bool>("\"true\""), None);
        assert_eq!(bool::read(Raw::Variable("false")), Some(false));
        assert_eq!(read("'a'"), Some("a".to_owned()));
        assert_eq!(read::<String>("1"), None);
        assert_eq!(read::<PathBuf>("''"), None);
        assert_eq!(read::<SocketAddr>("'[::1]:1'"), Some("[::1]:1".parse().unwrap()));
        assert_eq!(read::<SocketAddr>("'localhost:1'"), None);
    }

    #[test]
    fn printed_values_can_be_parsed() {
        for (millis, shown) in [
            (0, "0ms"),
            (1, "1ms"),
            (1_500, "1500ms"),
            (90_000, "90s"),
            (7_200_000, "2h"),
            (31_536_000_000, "365d"),
        ] {
            assert_eq!(Millis(millis).show(), quoted(shown));
            assert_eq!(read(&quoted(shown)), Some(Millis(millis)));
        }
        assert_eq!(read(&7_u64.show()), Some(7_u64));
        assert_eq!(read(&true.show()), Some(true));
        assert_eq!(read(&"x".to_owned().show()), Some("x".to_owned()));
        assert_eq!(read(&1.0.show()), Some(1.0));
    }

    #[test]
    fn tables_become_json() {
        let text = "a = 1\nb = [1.5, 'x', true]\nc.d = 1979-05-27\ne = 9007199254740993";
        let table = DeTable::parse(text).unwrap();
        assert_eq!(
            json_object(table.get_ref()).unwrap(),
            r#"{"a":1,"b":[1.5,"x",true],"c":{"d":"1979-05-27"},"e":9007199254740993}"#
        );
        assert_eq!(json_object(DeTable::parse("a = nan").unwrap().get_ref()), None);
    }
}
