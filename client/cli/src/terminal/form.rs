//! A form that a person fills in, field by field. The server checks the whole; here a line becomes a value of its type.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Map, Value};

use crate::terminal::{format::first_line, text::sanitize};

/// Bound on a text of the form's author that is shown in a prompt.
const LABEL_CHARS: usize = 200;
/// The line that leaves an optional field out. An empty line answers nothing, so that a stray Enter does not.
const LEAVE_OUT: &str = "-";
/// The line that takes the default of a field.
const TAKE_DEFAULT: &str = "=";

/// The fields of a form, and the answers to the first ones.
#[derive(Debug)]
pub(crate) struct FormEntry {
    /// Empty if the schema cannot be read: then the whole form is entered as JSON.
    fields: Vec<FormField>,
    /// The lines that were entered, also those of an answer that the server refused.
    lines: Vec<String>,
    values: Map<String, Value>,
    at: usize,
}

#[derive(Debug)]
struct FormField {
    name: String,
    required: bool,
    schema: FieldSchema,
}

#[derive(Debug, Deserialize)]
struct FormSchema {
    properties: Ordered,
    #[serde(default)]
    required: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FieldSchema {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    default: Option<Value>,
    #[serde(rename = "enum", default)]
    choices: Vec<String>,
    #[serde(default)]
    enum_names: Vec<String>,
    #[serde(default)]
    format: String,
    #[serde(default)]
    minimum: Option<f64>,
    #[serde(default)]
    maximum: Option<f64>,
}

/// The fields in the order of the schema.
#[derive(Debug)]
struct Ordered(Vec<(String, FieldSchema)>);

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Ordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Ordered(entries))
            }
        }
        from.deserialize_map(Entries)
    }
}

impl FormEntry {
    /// A form with this schema, with nothing entered.
    pub(crate) fn of(schema: &str) -> FormEntry {
        let fields = serde_json::from_str::<FormSchema>(schema).map_or_else(
            |_| Vec::new(),
            |FormSchema { properties, required }| {
                let field = |(name, schema): (String, FieldSchema)| {
                    let required = required.contains(&name);
                    FormField { name, required, schema }
                };
                properties.0.into_iter().map(field).collect()
            },
        );
        FormEntry { fields, lines: Vec::new(), values: Map::new(), at: 0 }
    }

    /// Begins again with the first field. Each field suggests the value that was entered before.
    pub(crate) fn restart(&mut self) {
        self.at = 0;
        self.values.clear();
    }

    /// The line that was entered for this field before; empty if none was.
    pub(crate) fn entered_before(&self) -> &str {
        self.lines.get(self.at).map(String::as_str).unwrap_or_default()
    }

    /// The text that asks for the next field.
    pub(crate) fn prompt(&self) -> String {
        let Some(field) = self.fields.get(self.at) else {
            return "the form, as a JSON object".to_owned();
        };
        let FormField { name, required, schema } = field;
        let shown = |text: &str| first_line(&sanitize(text), LABEL_CHARS);
        let title = if schema.title.is_empty() { shown(name) } else { shown(&schema.title) };
        let description = match schema.description.as_str() {
            "" => String::new(),
            text => format!(" – {}", shown(text)),
        };
        let default = schema.default.as_ref().map(|default| {
            let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            format!("; {TAKE_DEFAULT} takes {}", shown(&default))
        });
        let optional = if *required { String::new() } else { format!("; {LEAVE_OUT} leaves it out") };
        let many = self.fields.len();
        let number = if many > 1 { format!("{}/{many} ", self.at + 1) } else { String::new() };
        format!("{number}{title}{description} ({}{}{optional})", schema.wanted(), default.unwrap_or_default())
    }

    /// Takes a line for the next field. Returns the whole form as JSON once the last field has its value.
    ///
    /// # Errors
    /// The reason why the line is no value of the field.
    pub(crate) fn enter(&mut self, line: &str) -> Result<Option<String>, String> {
        let line = line.trim();
        if line.is_empty() {
            return Err("an empty line answers nothing".to_owned());
        }
        let Some(field) = self.fields.get(self.at) else {
            return json_object(line).map(Some);
        };
        let value = match line {
            LEAVE_OUT if !field.required => None,
            TAKE_DEFAULT if field.schema.default.is_some() => field.schema.default.clone(),
            _ => Some(field.schema.value(line)?),
        };
        match self.lines.get_mut(self.at) {
            Some(before) => line.clone_into(before),
            None => self.lines.push(line.to_owned()),
        }
        self.values.extend(value.map(|value| (field.name.clone(), value)));
        self.at += 1;
        Ok((self.at == self.fields.len()).then(|| Value::Object(self.values.clone()).to_string()))
    }
}

impl FieldSchema {
    /// The kind of value that fits, for people.
    fn wanted(&self) -> String {
        if !self.choices.is_empty() {
            let named = self.choices.iter().enumerate().map(|(n, choice)| {
                let name = self.enum_names.get(n).unwrap_or(choice);
                format!("{} {}", n + 1, first_line(&sanitize(name), LABEL_CHARS))
            });
            return format!("a number: {}", named.collect::<Vec<_>>().join(", "));
        }
        let kind = match (self.kind.as_str(), self.format.as_str()) {
            ("boolean", _) => "yes or no",
            ("integer", _) => "a whole number",
            ("number", _) => "a number",
            (_, "email") => "an e-mail address",
            (_, "uri") => "a URI",
            (_, "date") => "a date such as 2027-01-31",
            (_, "date-time") => "a time such as 2027-01-31T15:04:05Z",
            _ => "text",
        };
        match (self.minimum, self.maximum) {
            (Some(min), Some(max)) => format!("{kind} from {min} to {max}"),
            (Some(min), None) => format!("{kind} from {min} on"),
            (None, Some(max)) => format!("{kind} up to {max}"),
            (None, None) => kind.to_owned(),
        }
    }

    fn value(&self, line: &str) -> Result<Value, String> {
        if !self.choices.is_empty() {
            let by_number = line.parse::<usize>().ok().and_then(|n| self.choices.get(n.checked_sub(1)?));
            let choice = by_number.or_else(|| self.choices.iter().find(|choice| *choice == line));
            let count = self.choices.len();
            return choice.map(|choice| Value::from(choice.as_str())).ok_or_else(|| {
                format!("`{}` is no choice: enter a number from 1 to {count}", first_line(line, LABEL_CHARS))
            });
        }
        match self.kind.as_str() {
            "boolean" => match line.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(Value::Bool(true)),
                "n" | "no" | "false" => Ok(Value::Bool(false)),
                _ => Err("enter yes or no".to_owned()),
            },
            "integer" | "number" => {
                let whole = self.kind == "integer";
                let number = serde_json::from_str::<serde_json::Number>(line).ok();
                let number = number.filter(|number| !whole || number.is_i64() || number.is_u64());
                let wanted = if whole { "a whole number" } else { "a number such as 2.5" };
                number.map(Value::Number).ok_or_else(|| format!("enter {wanted}"))
            }
            _ => Ok(Value::from(line)),
        }
    }
}

/// Checks that a text is a JSON object, and trims it. Large numbers stay as they were entered.
pub(crate) fn json_object(text: &str) -> Result<String, String> {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_)) => Ok(text.trim().to_owned()),
        Ok(_) => Err("the arguments must be a JSON object".to_owned()),
        Err(error) => Err(format!("no JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> FormEntry {
        FormEntry::of(
            r#"{"type":"object","properties":{
                "name":{"type":"string","title":"Your name"},
                "age":{"type":"integer","minimum":18},
                "size":{"type":"string","enum":["s","m"],"enumNames":["small","medium"],"default":"m"},
                "post":{"type":"boolean"}},"required":["name","size"]}"#,
        )
    }

    #[test]
    fn each_field_is_asked_for_by_its_type() {
        let mut form = form();
        assert_eq!(form.prompt(), "1/4 Your name (text)");
        assert_eq!(form.enter("Ada"), Ok(None));
        assert_eq!(form.prompt(), "2/4 age (a whole number from 18 on; - leaves it out)");
        assert_eq!(form.enter("36"), Ok(None));
        assert_eq!(form.prompt(), "3/4 size (a number: 1 small, 2 medium; = takes m)");
        assert_eq!(form.enter("1"), Ok(None));
        assert_eq!(form.prompt(), "4/4 post (yes or no; - leaves it out)");
        let whole = r#"{"age":36,"name":"Ada","post":true,"size":"s"}"#;
        assert_eq!(form.enter("yes"), Ok(Some(whole.to_owned())));
    }

    #[test]
    fn optional_fields_are_left_out_and_defaults_taken() {
        let mut form = form();
        for (line, last) in [("Ada", false), ("-", false), ("=", false), ("-", true)] {
            assert_eq!(form.enter(line).map(|whole| whole.is_some()), Ok(last), "{line}");
        }
        form.restart();
        assert_eq!(form.entered_before(), "Ada", "what was refused is not entered from nothing again");
        for line in ["Ada", "-", "="] {
            form.enter(line).expect("a value");
        }
        assert_eq!(form.enter("-"), Ok(Some(r#"{"name":"Ada","size":"m"}"#.to_owned())));
    }

    #[test]
    fn a_line_that_is_no_value_is_asked_for_again() {
        let mut form = form();
        assert!(form.enter("").is_err());
        assert!(form.enter("-").is_ok(), "a dash is a text where the field is required");
        for bad in ["", "x", "1.5", "=", "99999999999999999999"] {
            assert!(form.enter(bad).is_err(), "{bad}");
        }
        form.enter("20").expect("a whole number");
        for bad in ["", "3", "large", "-"] {
            assert!(form.enter(bad).is_err(), "{bad}");
        }
        form.enter("m").expect("a value of the enum");
        for bad in ["", "maybe", "="] {
            assert!(form.enter(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_form_that_cannot_be_read_is_entered_as_json() {
        let mut form = FormEntry::of("{");
        assert_eq!(form.prompt(), "the form, as a JSON object");
        assert!(form.enter("x").is_err());
        assert_eq!(form.enter(r#"{"a":1}"#), Ok(Some(r#"{"a":1}"#.to_owned())));
    }
}
