//! The actions of all hosts' tools, read from their files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// The actions under one label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deeds {
    /// Number of times that the work began.
    pub begins: u32,
    /// Number of times that a keyed call came again and was not run.
    pub agains: u32,
    /// Number of times that the work was completed.
    pub ends: u32,
    /// The idempotency keys that the work was called with.
    pub keys: BTreeSet<String>,
    /// Call and attempt of each request that reached a host, repeats included.
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
    /// The ledger of the hosts whose files are in this folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), read: BTreeMap::new(), deeds: BTreeMap::new() }
    }

    /// The actions under a label so far.
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
        for file in files.filter(|path| path.extension().is_some_and(|ending| ending == "effects")) {
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
