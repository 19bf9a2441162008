//! Tests of the field types.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Map, json};

use super::*;

/// What documents are made of. A shape that is neither an object nor a list is one of the plain ones.
pub(in crate::model) struct Shapes {
    pub(in crate::model) root: &'static str,
    pub(in crate::model) objects: &'static [(&'static str, &'static [(&'static str, &'static str)])],
    /// And the shape of their elements.
    pub(in crate::model) lists: &'static [(&'static str, &'static str)],
}

impl Shapes {
    /// Shows so many documents, as text and as values.
    pub(in crate::model) fn check(&self, documents: usize, mut show: impl FnMut(&str, &Value)) {
        let mut chance = SmallRng::seed_from_u64(7);
        for _ in 0..documents {
            // Half of all documents have nothing in them that does not fit.
            let misfits = if chance.random() { 0.0 } else { 0.1 };
            let value = self.value(self.root, misfits, &mut chance);
            show(&value.to_string(), &value);
        }
    }

    fn value(&self, shape: &str, misfits: f64, chance: &mut SmallRng) -> Value {
        if chance.random_bool(misfits) {
            return misfit(chance);
        }
        if chance.random_bool(0.1) && shape != self.root {
            return Value::Null;
        }
        if let Some((_, fields)) = self.objects.iter().find(|(name, _)| *name == shape) {
            let mut object = Map::new();
            for (field, shape) in *fields {
                if chance.random_bool(0.6) {
                    object.insert((*field).to_owned(), self.value(shape, misfits, chance));
                }
            }
            return Value::Object(object);
        }
        if let Some((_, element)) = self.lists.iter().find(|(name, _)| *name == shape) {
            let length = chance.random_range(0..=2);
            return (0..length).map(|_| self.value(element, misfits, chance)).collect();
        }
        match shape {
            "text" => json!(["", "a", "two\nlines \"ü\"", "{}"][chance.random_range(0..4)]),
            "index" => json!(chance.random_range(0..2)),
            "count" => json!(chance.random::<u64>() >> chance.random_range(0..64)),
            "null" => Value::Null,
            unknown => panic!("there is no shape {unknown}"),
        }
    }
}

fn misfit(chance: &mut SmallRng) -> Value {
    let values = [
        json!(-1),
        json!(0.5),
        json!(7),
        json!("text"),
        json!(true),
        json!([]),
        json!(["text", 0, {}]),
        json!([{"text": "part"}]),
        json!({}),
        json!({"text": "x", "index": 1, "arguments": {"a": []}}),
    ];
    values[chance.random_range(0..values.len())].clone()
}

#[test]
fn objects_are_no_lists() {
    #[derive(Deserialize)]
    struct Fields {
        a: u64,
    }
    let read = serde_json::from_str::<Object<Fields>>;
    assert_eq!(read(r#"{"a":1,"b":2}"#).unwrap().0.a, 1);
    for text in ["[1]", "null", "1", "{}"] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn small_lists_and_empty_objects() {
    let list = |text| serde_json::from_str::<OneOrNone<u64>>(text).ok();
    assert_eq!(list("[]"), Some(OneOrNone(None)));
    assert_eq!(list("[1]"), Some(OneOrNone(Some(1))));
    assert_eq!((list("[1,2]"), list("{}"), list("[null]")), (None, None, None));
    let empty = |text| serde_json::from_str::<Empty>(text).is_ok();
    assert!(empty("{ }") && !empty(r#"{"a":1}"#) && !empty("[]") && !empty("null"));
}

#[test]
fn texts_are_borrowed_unless_they_have_escapes() {
    let text = |json| serde_json::from_str::<Text<'_>>(json).unwrap().0;
    assert!(matches!(text(r#""ü""#), Cow::Borrowed("ü")));
    assert_eq!(text(r#""a\n""#), "a\n");
    assert!(matches!(text(r#""a\n""#), Cow::Owned(_)));
    assert_eq!(Text(Cow::Borrowed("")).filled(), None);
}
