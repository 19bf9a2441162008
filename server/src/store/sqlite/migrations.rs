//! The migrations of the database.

use std::sync::LazyLock;

use sqlx::migrate::Migrator;

use crate::store::support::migrations::migrator;

/// Every migration there has ever been. One that was released never changes.
pub(in crate::store::sqlite) static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    migrator!(
        "sqlite",
        [
            "0001_init",
            "0002_forks",
            "0003_queue",
            "0005_steers",
            "0006_rules",
            "0010_jobs",
            "0011_search",
            "0012_at_hosts",
            "0013_numbers",
            "0014_short_keys",
            "0015_search_file",
            "0016_session_in_first_event",
            "0017_checksums",
            "0018_more_checksums",
            "0019_tool_terms",
            "0020_run_previews",
            "0021_created_by",
            "0022_sessions",
            "0023_blobs",
            "0024_usage",
            "0025_audit",
            "0026_tenants_in_turn",
            "0027_hosts",
        ]
    )
});
