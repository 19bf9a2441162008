//! The way to the database: opening and migrating it, and the connections that read.

pub(in crate::store::postgres) mod migrations;
pub(in crate::store::postgres) mod open;
pub(in crate::store::postgres) mod open_error;
pub(in crate::store::postgres) mod pooler;
pub(in crate::store::postgres) mod reader_pool;
pub(in crate::store::postgres) mod readers;
pub(in crate::store::postgres) mod settings;
