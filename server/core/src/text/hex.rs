//! Bytes as lower-case hex. In JSON, so that people can read them in a journal with any SQL shell.

use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

/// Two lower-case digits for each byte.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes that lower-case digits write: exactly two for each. `None` for any other text.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&encode(bytes))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    decode(&String::deserialize(from)?).ok_or_else(|| D::Error::custom("not hex"))
}

/// The same for bytes that may be absent.
pub(crate) mod maybe {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => super::serialize(bytes, to),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
        #[derive(Deserialize)]
        struct Hex(#[serde(with = "super")] Vec<u8>);
        Ok(Option::<Hex>::deserialize(from)?.map(|Hex(bytes)| bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_exactly_two_lower_case_digits() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(encode(&[0, 10, 255]), "000aff");
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
        for text in ["0", "0A", "+1", "0g", "00 ", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
