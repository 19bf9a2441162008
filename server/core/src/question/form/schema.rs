//! The schema of a form as it is given, and its check.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::format::Format;
use super::kind::FieldKind;
use super::ordered::Ordered;
use super::{Field, Form};
use crate::limits::{
    FORM_CHOICES_MAX, FORM_FIELDS_MAX, FORM_SCHEMA_BYTES_MAX, ID_BYTES_MAX, OPTION_BYTES_MAX,
    SHORT_TEXT_BYTES_MAX,
};

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
