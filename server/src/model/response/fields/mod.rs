//! JSON read where it is: the common shapes of what providers send, and nothing else.
//!
//! Each type takes one shape and refuses all others, so that whoever reads a document in these types either reads all
//! of it that matters, or knows that it is to be read as a tree of values.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A text, borrowed unless it has escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::model) struct Text<'a>(pub(in crate::model) Cow<'a, str>);

impl<'a> Text<'a> {
    /// The text that a value is.
    pub(in crate::model) fn of(value: &'a Value) -> Option<Self> {
        value.as_str().map(|text| Self(Cow::Borrowed(text)))
    }

    /// `None` where it is empty.
    pub(in crate::model) fn filled(self) -> Option<Cow<'a, str>> {
        (!self.0.is_empty()).then_some(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Texts)
    }
}

/// An object. What derives `Deserialize` alone takes a list of its fields' values, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::model) struct Object<T>(pub(in crate::model) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Objects<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Objects<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Objects(PhantomData))
    }
}

/// A list of one element or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::model) struct OneOrNone<T>(pub(in crate::model) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrNone<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lists<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Lists<T> {
            type Value = OneOrNone<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of one element or none")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrNone<T>, A::Error> {
                let Some(first) = list.next_element()? else { return Ok(OneOrNone(None)) };
                match list.next_element::<T>()? {
                    None => Ok(OneOrNone(Some(first))),
                    Some(_) => Err(A::Error::invalid_length(2, &self)),
                }
            }
        }
        deserializer.deserialize_seq(Lists(PhantomData))
    }
}

/// An object without fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::model) struct Empty;

impl<'de> Deserialize<'de> for Empty {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Nothing;
        impl<'de> Visitor<'de> for Nothing {
            type Value = Empty;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object without fields")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Empty, A::Error> {
                match map.next_key::<serde::de::IgnoredAny>()? {
                    None => Ok(Empty),
                    Some(_) => Err(A::Error::invalid_length(1, &self)),
                }
            }
        }
        deserializer.deserialize_map(Nothing)
    }
}

#[cfg(test)]
pub(in crate::model) mod tests;
