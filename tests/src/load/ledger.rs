//! What the tools of all hosts did, read from their files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// What was done under one label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deeds {
    /// Times that something happened.
    pub begins: u32,
    /// Times that a keyed call came again, and nothing happened.
    pub agains: u32,
    /// Times that it was carried through.
    pub ends: u32,
    /// Under which idempotency keys.
    pub keys: BTreeSet<String>,
    /// Which tries of the call came to a host, the second time that one does included.
    pub tries: Vec<(String, u32)>,
}

/// The files of one folder, as far as they were read.
#[derive(Debug)]
pub struct Ledger {
    folder: PathBuf,
    read: BTreeMap<PathBuf, u64>,
    deeds: BTreeMap<String, Deeds>,
}

impl Ledger {
    /// Of the hosts whose files are in this folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), read: BTreeMap::new(), deeds: BTreeMap::new() }
    }

    /// What was done under a label so far.
    ///
    /// # Panics
    /// When a file cannot be read.
    pub fn of(&mut self, label: &str) -> Deeds {
        self.refresh();
        self.deeds.get(label).cloned().unwrap_or_default()
    }

    /// Everything that was done so far.
    ///
    /// # Panics
    /// When a file cannot be read.
    pub fn all(&mut self) -> &BTreeMap<String, Deeds> {
        self.refresh();
        &self.deeds
    }

    fn refresh(&mut self) {
        let entries = std::fs::read_dir(&self.folder).expect("the folder is there");
        let files = entries.map(|entry| entry.expect("it can be read").path());
        for file in files.filter(|path| path.extension().is_some_and(|ending| ending == "journal")) {
            self.read_on(file);
        }
    }

    fn read_on(&mut self, path: PathBuf) {
        let mut text = String::new();
        let from = self.read.entry(path.clone()).or_default();
        let mut file = File::open(&path).expect("it was listed");
        file.seek(SeekFrom::Start(*from)).expect("it can be read");
        file.read_to_string(&mut text).expect("it is text");
        // A line that is being written is read the next time.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        *from += whole as u64;
        for line in text[..whole].lines() {
            self.note(line);
        }
    }

    fn note(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, label, call, attempt, key] = words[..] else { return };
        let deeds = self.deeds.entry(label.to_owned()).or_default();
        deeds.keys.insert(key.to_owned());
        match what {
            "begin" => deeds.begins += 1,
            "again" => deeds.agains += 1,
            "end" => deeds.ends += 1,
            _ => {}
        }
        if matches!(what, "begin" | "again" | "refuse") {
            deeds.tries.push((call.to_owned(), attempt.parse().expect("a number")));
        }
    }
}
