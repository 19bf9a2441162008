//! Forms: a JSON schema of flat fields, and the check of an answer against it.
//!
//! A form is what MCP calls an elicitation: an object whose fields are strings, numbers, integers, booleans or one of
//! several strings. A keyword that this server does not check is refused when the question is asked, so that nobody relies
//! on it.

mod format;
mod kind;
mod ordered;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use self::kind::FieldKind;
use self::ordered::Ordered;
use crate::limits::{ANSWER_BYTES_MAX, ID_BYTES_MAX};

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

/// The fault of an answer to a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadField {
    /// Name of the field; empty if the fault is in the answer as a whole.
    pub field: String,
    /// The fault, for people.
    pub problem: String,
}

impl Form {
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
