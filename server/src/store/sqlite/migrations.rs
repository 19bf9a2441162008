//! The migrations of the database.

use sqlx::migrate::Migrator;

/// Every migration there has ever been. One that was released never changes.
pub(in crate::store::sqlite) static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");
