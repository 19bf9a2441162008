//! Serde helpers: defaults of fields, and bytes as hex.

use crate::message::Usage;

pub(super) fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) fn is_one(number: &u32) -> bool {
    *number == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) fn is_none(number: &u32) -> bool {
    *number == 0
}

pub(super) fn is_nothing(usage: &Usage) -> bool {
    *usage == Usage::default()
}

/// Bytes as lower-case hex, so that people can read a journal with any SQL shell.
pub(super) mod hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(in crate::run::event) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    pub(in crate::run::event) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        (0..text.len())
            .step_by(2)
            .map(|at| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
            .collect::<Option<Vec<u8>>>()
            .ok_or_else(|| D::Error::custom("not hex"))
    }
}

/// As [`hex`], for bytes that may be absent.
pub(super) mod maybe_hex {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::run::event) fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => super::hex::serialize(bytes, to),
            None => to.serialize_none(),
        }
    }

    pub(in crate::run::event) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        #[derive(Deserialize)]
        struct Hex(#[serde(with = "super::hex")] Vec<u8>);
        Ok(Option::<Hex>::deserialize(from)?.map(|Hex(bytes)| bytes))
    }
}
