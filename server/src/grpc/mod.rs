//! The wire: services over the rest of the server. tonic and prost are used here and nowhere else.

pub(crate) mod convert;
pub mod tool_host;
pub mod tools;

#[cfg(test)]
mod tests;
