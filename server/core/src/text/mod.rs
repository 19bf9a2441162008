//! Texts that the core reads and writes: JSON, hexadecimal digits, links, titles, and the characters that people do not see.

pub(crate) mod canonical;
pub mod character;
pub mod hex;
pub mod json;
pub mod link;
pub mod title;
