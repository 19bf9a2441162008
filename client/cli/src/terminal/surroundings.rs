//! What a run is told about where it was asked for: instruction files on the way up from the working directory, and
//! facts about the machine.

use std::{
    collections::BTreeMap,
    env,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use agentloop_client::v1::{InstructionFile, RunInput};

use crate::terminal::names;

/// The name that such files have.
const FILE_NAME: &str = "AGENTS.md";
/// What marks the top of a repository: a directory, or a file in a linked working tree.
const REPOSITORY_MARK: &str = ".git";
/// Of more files, those nearest to the working directory count.
const FILES_MAX: usize = 8;
const FILE_BYTES_MAX: usize = 64 * 1024;
/// No path on any system is deeper.
const DIRECTORIES_MAX: usize = 256;

/// Instruction files and facts.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Surroundings {
    files: Vec<InstructionFile>,
    environment: BTreeMap<String, String>,
    /// Files that are not used, and why.
    left_out: Vec<String>,
}

impl Surroundings {
    /// Those of this process. Nothing, where they are not `wanted`. A run that is to be joined by its id on another day
    /// is not told the date, which would make it another run.
    pub(crate) fn of_process(wanted: bool, with_date: bool) -> io::Result<Surroundings> {
        if !wanted {
            return Ok(Surroundings::default());
        }
        let directory = env::current_dir()?;
        let mut surroundings = Surroundings::of(&directory);
        if with_date {
            let today = names::time(Some(&SystemTime::now().into()));
            let date = today.split(' ').next().unwrap_or_default().to_owned();
            surroundings.environment.insert("date".to_owned(), date);
        }
        Ok(surroundings)
    }

    fn of(directory: &Path) -> Surroundings {
        let (directories, repository) = way_up(directory);
        let mut surroundings = Surroundings::default();
        for directory in directories {
            surroundings.take(&directory.join(FILE_NAME));
        }
        surroundings.files.reverse();
        let facts = [
            ("os", format!("{} ({})", env::consts::OS, env::consts::ARCH)),
            ("working_directory", directory.display().to_string()),
            ("git_repository", if repository { "yes" } else { "no" }.to_owned()),
        ];
        surroundings.environment = facts.map(|(fact, value)| (fact.to_owned(), value)).into();
        surroundings
    }

    /// Tells them to a run.
    pub(crate) fn tell(&self, input: &mut RunInput) {
        input.instruction_files.clone_from(&self.files);
        input.environment.clone_from(&self.environment);
    }

    /// Which files are used and which are not, for people.
    pub(crate) fn in_words(&self) -> Vec<String> {
        let used = self.files.iter().map(|file| format!("instructions: {}", file.path));
        let left_out = self.left_out.iter().map(|why| format!("instructions left out: {why}"));
        used.chain(left_out).collect()
    }

    /// Takes up a file, if there is one. The nearest comes first.
    fn take(&mut self, path: &Path) {
        let path_text = path.display();
        match read(path) {
            Ok(None) => {}
            Ok(Some(_)) if self.files.len() == FILES_MAX => {
                self.left_out.push(format!("{path_text}: more than {FILES_MAX} files"));
            }
            Ok(Some(content)) => self.files.push(InstructionFile { path: path_text.to_string(), content }),
            Err(why) => self.left_out.push(format!("{path_text}: {why}")),
        }
    }
}

/// The directory and those above it, to the top of its repository; without one, to the top of the file system. And
/// whether it is in a repository.
fn way_up(directory: &Path) -> (Vec<PathBuf>, bool) {
    let mut directories = Vec::new();
    for directory in directory.ancestors().take(DIRECTORIES_MAX) {
        directories.push(directory.to_owned());
        if directory.join(REPOSITORY_MARK).exists() {
            return (directories, true);
        }
    }
    (directories, false)
}

/// A file's text; `None` where there is no file. Only a regular file is opened: anything else might block.
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

    /// A directory within a repository, so that nothing above it counts.
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

    fn contents(surroundings: &Surroundings) -> Vec<&str> {
        surroundings.files.iter().map(|file| file.content.as_str()).collect()
    }

    #[test]
    fn the_outermost_file_comes_first() {
        let dir = repository();
        let inner = below(&dir, "a/b/c");
        write(dir.path(), "top");
        write(&below(&dir, "a/b"), "middle");
        write(&inner, "inner");
        let found = Surroundings::of(&inner);
        assert_eq!(contents(&found), ["top", "middle", "inner"]);
        assert_eq!(found.files[0].path, dir.path().join(FILE_NAME).display().to_string());
        assert_eq!(found.in_words()[0], format!("instructions: {}", found.files[0].path));
        assert_eq!(found.left_out, [""; 0]);
    }

    #[test]
    fn the_repository_is_the_top() {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), "outside");
        let top = below(&dir, "repository");
        let inner = below(&dir, "repository/src");
        write(&top, "inside");
        // As in a linked working tree.
        fs::write(top.join(REPOSITORY_MARK), "gitdir: elsewhere").expect("written");
        assert_eq!(contents(&Surroundings::of(&inner)), ["inside"]);
        assert_eq!(contents(&Surroundings::of(&top)), ["inside"]);
    }

    #[test]
    fn without_a_repository_the_file_system_is_the_top() {
        let (directories, repository) = way_up(Path::new("/no/such/place"));
        let all = ["/no/such/place", "/no/such", "/no", "/"].map(PathBuf::from);
        assert_eq!((directories, repository), (all.to_vec(), false));
    }

    #[test]
    fn of_too_many_files_the_nearest_count() {
        let dir = repository();
        let mut directory = dir.path().to_owned();
        for n in 0..FILES_MAX + 2 {
            directory.push(n.to_string());
            fs::create_dir(&directory).expect("made");
            write(&directory, n.to_string());
        }
        let found = Surroundings::of(&directory);
        assert_eq!(contents(&found), ["2", "3", "4", "5", "6", "7", "8", "9"]);
        assert_eq!(found.left_out.len(), 2);
        assert!(found.left_out[0].ends_with("more than 8 files"), "{:?}", found.left_out);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
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
            let found = Surroundings::of(dir.path());
            assert_eq!(found.files.len(), usize::from(is_text));
            let expected: Vec<String> =
                why.iter().map(|why| format!("{}: {why}", dir.path().join(FILE_NAME).display())).collect();
            assert_eq!(found.left_out, expected);
        }
    }

    #[test]
    fn a_directory_of_that_name_is_no_file() {
        let dir = repository();
        below(&dir, FILE_NAME);
        let found = Surroundings::of(dir.path());
        assert_eq!((found.files.len(), found.left_out.len()), (0, 0));
    }

    #[test]
    fn the_facts_are_those_of_here() {
        let dir = repository();
        let inner = below(&dir, "src");
        let facts = Surroundings::of(&inner).environment;
        assert_eq!(facts["working_directory"], inner.display().to_string());
        assert_eq!(facts["git_repository"], "yes");
        assert!(facts["os"].starts_with(env::consts::OS), "{facts:?}");
        assert_eq!(Surroundings::of(Path::new("/no/such/place")).environment["git_repository"], "no");
    }

    #[test]
    fn a_run_is_told() {
        let dir = repository();
        write(dir.path(), "be brief");
        let mut input = RunInput::default();
        Surroundings::of(dir.path()).tell(&mut input);
        assert_eq!(input.instruction_files[0].content, "be brief");
        assert_eq!(input.environment["git_repository"], "yes");
    }

    #[test]
    fn nothing_is_told_where_it_is_not_wanted() {
        let none = Surroundings::of_process(false, true).expect("nothing is read");
        assert_eq!(none, Surroundings::default());
        let date = |with_date| {
            let told = Surroundings::of_process(true, with_date).expect("there is a directory");
            told.environment.get("date").cloned()
        };
        assert_eq!(date(false), None);
        assert_eq!(date(true).map(|date| date.len()), Some("2026-11-22".len()));
    }
}
