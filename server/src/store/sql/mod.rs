//! The part that is the same for both SQL stores: most ports and queries, rows as values of the store, and what follows from
//! stored values alone. It knows neither database: where their SQL differs, a [`reader::Dialect`] has it.

pub(in crate::store) mod audit;
pub(in crate::store) mod column;
pub(in crate::store) mod entry;
mod ports;
pub(in crate::store) mod query;
pub(in crate::store) mod question;
pub(in crate::store) mod read;
pub(in crate::store) mod reader;
pub(in crate::store) mod row;
pub(in crate::store) mod rule;
pub(in crate::store) mod search;
pub(in crate::store) mod store;
pub(in crate::store) mod tool;
pub(in crate::store) mod turns;
pub(in crate::store) mod write;
