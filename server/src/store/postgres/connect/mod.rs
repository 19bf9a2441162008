//! The connections that read, and the settings of all connections.

pub(in crate::store::postgres) mod plans;
pub(in crate::store::postgres) mod pooler;
pub(in crate::store::postgres) mod reader_pool;
pub(in crate::store::postgres) mod readers;
pub(in crate::store::postgres) mod settings;
