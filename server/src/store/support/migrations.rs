//! Migrations that are compiled in. The macro of sqlx does the same, but has the whole of sqlx compiled twice.

use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType};

/// A [`Migrator`](sqlx::migrate::Migrator) of these files of a folder in `migrations`, without their extension.
macro_rules! migrator {
    ($folder:literal, [$($name:literal),+ $(,)?]) => {
        sqlx::migrate::Migrator::with_migrations(vec![$(
            $crate::store::support::migrations::migration(
                $name,
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/", $folder, "/", $name, ".sql")),
            )
        ),+])
    };
}
pub(in crate::store) use migrator;

/// The migration of a file that is named by its number and what it does. It runs within a transaction.
///
/// # Panics
/// If the name has no number.
pub(in crate::store) fn migration(name: &'static str, sql: &'static str) -> Migration {
    let named = name.split_once('_').and_then(|(number, what)| Some((number.parse().ok()?, what)));
    let (version, what) = named.expect("a number, an underscore, and what it does");
    Migration::new(version, what.replace('_', " ").into(), MigrationType::Simple, sql.into_sql_str(), false)
}

#[cfg(test)]
pub(in crate::store) mod tests {
    use std::path::PathBuf;

    use sqlx::migrate::Migrator;

    /// Compares these migrations with all files of the folder, as sqlx reads them.
    pub(in crate::store) async fn is_of_folder(migrator: &Migrator, folder: &str) {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("migrations").join(folder);
        let read = Migrator::new(folder).await.expect("a folder of migrations");
        let columns = |of: &Migrator| {
            let row = |step: &sqlx::migrate::Migration| {
                let checksum = step.checksum.to_vec();
                (step.version, step.description.clone(), step.migration_type, checksum, step.no_tx)
            };
            of.iter().map(row).collect::<Vec<_>>()
        };
        assert_eq!(columns(migrator), columns(&read));
    }
}
