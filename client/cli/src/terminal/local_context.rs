//! Context that a run gets from this machine: instruction files of the working directory and those above it, and facts.

use std::{
    collections::BTreeMap,
    env,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use agentloop_client::v1::{InstructionFile, RunInput};

use crate::terminal::format;

/// Name of an instruction file.
const FILE_NAME: &str = "AGENTS.md";
/// Marks the top of a repository. It is a directory, or a file in a linked working tree.
const REPOSITORY_MARK: &str = ".git";
/// Bound on the files. If there are more, those nearest to the working directory are used.
const FILES_MAX: usize = 8;
const FILE_BYTES_MAX: usize = 64 * 1024;
/// Bound on the directories that are searched. It is above the depth of real paths.
const DIRECTORIES_MAX: usize = 256;

/// Instruction files, the outermost first, and facts about the machine by name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct LocalContext {
    files: Vec<InstructionFile>,
    environment: BTreeMap<String, String>,
    /// Files that are not used, each with the reason.
    skipped: Vec<String>,
}

impl LocalContext {
    /// The context of this process; empty unless it is `wanted`. A run that may be repeated by its id on another day gets
    /// no date, because a different input would be refused.
    pub(crate) fn of_process(wanted: bool, with_date: bool) -> io::Result<LocalContext> {
        if !wanted {
            return Ok(LocalContext::default());
        }
        let directory = env::current_dir()?;
        let mut local_context = LocalContext::of(&directory);
        if with_date {
            let today = format::time(Some(&SystemTime::now().into()));
            let date = today.split(' ').next().unwrap_or_default().to_owned();
            local_context.environment.insert("date".to_owned(), date);
        }
        Ok(local_context)
    }

    fn of(directory: &Path) -> LocalContext {
        let (directories, repository) = directories_to_top(directory);
        let mut local_context = LocalContext::default();
        for directory in directories {
            local_context.add_file(&directory.join(FILE_NAME));
        }
        local_context.files.reverse();
        let facts = [
            ("os", format!("{} ({})", env::consts::OS, env::consts::ARCH)),
            ("working_directory", directory.display().to_string()),
            ("git_repository", if repository { "yes" } else { "no" }.to_owned()),
        ];
        local_context.environment = facts.map(|(fact, value)| (fact.to_owned(), value)).into();
        local_context
    }

    /// Adds the context to the input of a run.
    pub(crate) fn add_to(&self, input: &mut RunInput) {
        input.instruction_files.clone_from(&self.files);
        input.environment.clone_from(&self.environment);
    }

    /// Lines for people: the files that are used, and those that are not.
    pub(crate) fn describe(&self) -> Vec<String> {
        let used = self.files.iter().map(|file| format!("instructions: {}", file.path));
        let skipped = self.skipped.iter().map(|why| format!("instructions skipped: {why}"));
        used.chain(skipped).collect()
    }

    /// Adds a file, if it exists. The nearest must be added first.
    fn add_file(&mut self, path: &Path) {
        let path_text = path.display();
        match read(path) {
            Ok(None) => {}
            Ok(Some(_)) if self.files.len() == FILES_MAX => {
                self.skipped.push(format!("{path_text}: more than {FILES_MAX} files"));
            }
            Ok(Some(content)) => self.files.push(InstructionFile { path: path_text.to_string(), content }),
            Err(why) => self.skipped.push(format!("{path_text}: {why}")),
        }
    }
}

/// The directory and its parents, up to the top of the repository, or of the file system. The flag is true in a repository.
fn directories_to_top(directory: &Path) -> (Vec<PathBuf>, bool) {
    let mut directories = Vec::new();
    for directory in directory.ancestors().take(DIRECTORIES_MAX) {
        directories.push(directory.to_owned());
        if directory.join(REPOSITORY_MARK).exists() {
            return (directories, true);
        }
    }
    (directories, false)
}

/// Reads a file; `None` if it is absent or blank. Only a regular file is opened, because others might block.
fn read(path: &Path) -> Result<Option<String>, String> {
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!("larger than {FILE_BYTES_MAX} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// A repository, so that files above it are not used.
    fn repository() -> TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join(REPOSITORY_MARK)).expect("made");
        dir
    }

    fn below(dir: &TempDir, path: &str) -> PathBuf {
        let path = dir.path().join(path);
        fs::create_dir_all(&path).expect("made");
        path
    }

    fn write(directory: &Path, content: impl AsRef<[u8]>) {
        fs::write(directory.join(FILE_NAME), content).expect("written");
    }

    fn contents(local_context: &LocalContext) -> Vec<&str> {
        local_context.files.iter().map(|file| file.content.as_str()).collect()
    }

    #[test]
    fn the_outermost_file_comes_first() {
        let dir = repository();
        let inner = below(&dir, "a/b/c");
        write(dir.path(), "top");
        write(&below(&dir, "a/b"), "middle");
        write(&inner, "inner");
        let found = LocalContext::of(&inner);
        assert_eq!(contents(&found), ["top", "middle", "inner"]);
        assert_eq!(found.files[0].path, dir.path().join(FILE_NAME).display().to_string());
        assert_eq!(found.describe()[0], format!("instructions: {}", found.files[0].path));
        assert_eq!(found.skipped, [""; 0]);
    }

    #[test]
    fn the_repository_is_the_top() {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), "outside");
        let top = below(&dir, "repository");
        let inner = below(&dir, "repository/src");
        write(&top, "inside");
        // A linked working tree has a file in place of the directory.
        fs::write(top.join(REPOSITORY_MARK), "gitdir: elsewhere").expect("written");
        assert_eq!(contents(&LocalContext::of(&inner)), ["inside"]);
        assert_eq!(contents(&LocalContext::of(&top)), ["inside"]);
    }

    #[test]
    fn without_a_repository_the_file_system_is_the_top() {
        let (directories, repository) = directories_to_top(Path::new("/no/such/place"));
        let all = ["/no/such/place", "/no/such", "/no", "/"].map(PathBuf::from);
        assert_eq!((directories, repository), (all.to_vec(), false));
    }

    #[test]
    fn of_too_many_files_the_nearest_are_used() {
        let dir = repository();
        let mut directory = dir.path().to_owned();
        for n in 0..FILES_MAX + 2 {
            directory.push(n.to_string());
            fs::create_dir(&directory).expect("made");
            write(&directory, n.to_string());
        }
        let found = LocalContext::of(&directory);
        assert_eq!(contents(&found), ["2", "3", "4", "5", "6", "7", "8", "9"]);
        assert_eq!(found.skipped.len(), 2);
        assert!(found.skipped[0].ends_with("more than 8 files"), "{:?}", found.skipped);
    }

    #[test]
    fn skipped_files_are_named_with_the_reason() {
        let cases = [
            (vec![b'x'; FILE_BYTES_MAX], None),
            (vec![b'x'; FILE_BYTES_MAX + 1], Some("larger than 65536 bytes")),
            (vec![0xff, 0xfe], Some("not UTF-8")),
            (b" \n".to_vec(), None),
        ];
        for (bytes, why) in cases {
            let dir = repository();
            let is_text = !bytes.trim_ascii().is_empty() && why.is_none();
            write(dir.path(), &bytes);
            let found = LocalContext::of(dir.path());
            assert_eq!(found.files.len(), usize::from(is_text));
            let expected: Vec<String> =
                why.iter().map(|why| format!("{}: {why}", dir.path().join(FILE_NAME).display())).collect();
            assert_eq!(found.skipped, expected);
        }
    }

    #[test]
    fn a_directory_of_that_name_is_no_file() {
        let dir = repository();
        below(&dir, FILE_NAME);
        let found = LocalContext::of(dir.path());
        assert_eq!((found.files.len(), found.skipped.len()), (0, 0));
    }

    #[test]
    fn the_facts_are_those_of_here() {
        let dir = repository();
        let inner = below(&dir, "src");
        let facts = LocalContext::of(&inner).environment;
        assert_eq!(facts["working_directory"], inner.display().to_string());
        assert_eq!(facts["git_repository"], "yes");
        assert!(facts["os"].starts_with(env::consts::OS), "{facts:?}");
        assert_eq!(LocalContext::of(Path::new("/no/such/place")).environment["git_repository"], "no");
    }

    #[test]
    fn the_input_of_a_run_gets_the_context() {
        let dir = repository();
        write(dir.path(), "be brief");
        let mut input = RunInput::default();
        LocalContext::of(dir.path()).add_to(&mut input);
        assert_eq!(input.instruction_files[0].content, "be brief");
        assert_eq!(input.environment["git_repository"], "yes");
    }

    #[test]
    fn the_context_is_empty_if_it_is_not_wanted() {
        let none = LocalContext::of_process(false, true).expect("nothing is read");
        assert_eq!(none, LocalContext::default());
        let date = |with_date| {
            let told = LocalContext::of_process(true, with_date).expect("there is a directory");
            told.environment.get("date").cloned()
        };
        assert_eq!(date(false), None);
        assert_eq!(date(true).map(|date| date.len()), Some("2026-11-22".len()));
    }
}
