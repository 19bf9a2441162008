//! The place of the database of `agentloop serve`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use etcetera::BaseStrategy as _;

use crate::exit::Failure;

const FILE: &str = "agentloop.db";
const FOLDER: &str = "agentloop";

/// The place of the database if no path is set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DefaultPlace {
    pub(crate) database: PathBuf,
    /// The place in the user's data folder, if a database in the current folder is used in its stead.
    pub(crate) unused: Option<PathBuf>,
}

/// Chooses the place: the same from every folder, so that no session seems lost. A database that an earlier version made
/// in the current folder stays in use.
///
/// # Errors
/// When the user has no home folder.
pub(crate) fn default_place() -> Result<DefaultPlace, String> {
    let data = etcetera::base_strategy::choose_native_strategy()
        .map(|folders| folders.data_dir())
        .map_err(|error| format!("no path is set for the database, and there is no data folder for one: {error}; set store.path"));
    choose(Path::new(FILE), data)
}

fn choose(here: &Path, data: Result<PathBuf, String>) -> Result<DefaultPlace, String> {
    let elsewhere = data.map(|data| data.join(FOLDER).join(FILE));
    match (here.exists(), elsewhere) {
        (true, elsewhere) => Ok(DefaultPlace {
            database: std::path::absolute(here).unwrap_or_else(|_| here.to_owned()),
            unused: elsewhere.ok(),
        }),
        (false, Ok(database)) => Ok(DefaultPlace { database, unused: None }),
        (false, Err(why)) => Err(why),
    }
}

/// Makes the folder of a database. Other users cannot read it, because conversations are private.
pub(crate) fn make_folder(database: &Path) -> Result<(), Failure> {
    match database.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => make_private(folder),
        _ => Ok(()),
    }
}

/// Makes a folder that other users cannot read.
pub(crate) fn make_private(folder: &Path) -> Result<(), Failure> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| Failure::cannot("make the folder", folder, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_here_is_used_and_another_place_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let here = dir.path().join(FILE);
        let elsewhere = Path::new("/data/agentloop/agentloop.db");
        let chosen = |data: Result<&str, &str>| choose(&here, data.map(PathBuf::from).map_err(str::to_owned));

        let place = DefaultPlace { database: elsewhere.to_owned(), unused: None };
        assert_eq!(chosen(Ok("/data")), Ok(place));
        assert_eq!(chosen(Err("no home")), Err("no home".to_owned()));

        fs::write(&here, "").expect("written");
        let place = DefaultPlace { database: here.clone(), unused: Some(elsewhere.to_owned()) };
        assert_eq!(chosen(Ok("/data")), Ok(place));
        assert_eq!(chosen(Err("no home")), Ok(DefaultPlace { database: here.clone(), unused: None }));
    }
}
