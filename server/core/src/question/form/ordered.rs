//! JSON objects whose order counts.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::limits::{FORM_FIELDS_MAX, ID_BYTES_MAX};

/// An object with its keys in the order of the text. A key that stands twice is an error.
pub(super) struct Ordered<T>(pub(super) Vec<(String, T)>);

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
