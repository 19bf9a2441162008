//! Kinds of fields, and the check of a value of each.

use serde_json::{Number, Value};

use super::format::Format;

/// Size of an error that names the choices of a field.
const SHOWN_CHOICES_BYTES_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum FieldKind {
    Text { chars_min: Option<u64>, chars_max: Option<u64>, format: Option<Format> },
    OneOf { choices: Vec<String> },
    Number { is_whole: bool, min: Option<f64>, max: Option<f64> },
    Boolean,
}

impl FieldKind {
    /// Checks a value. `text` is its JSON.
    pub(super) fn check(&self, value: &Value, text: &str) -> Result<(), String> {
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
