//! A rule on comments: they begin with a noun or a verb, which says what they are about.

use std::fs;
use std::path::Path;

use crate::tidy::sources;

/// Words that a comment does not begin with, because the reader has to find the noun.
const OPENINGS: [&str; 9] = ["What", "Who", "Whoever", "Whatever", "Whether", "How", "Where", "Why", "That"];

/// The comment that a line is, without its marker.
fn comment(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("//")?;
    Some(rest.trim_start_matches(['/', '!']).trim_start())
}

/// The first lines of comments that begin with one of the words, by their number.
fn riddles(text: &str) -> Vec<(usize, &str)> {
    let mut is_comment = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let before = std::mem::replace(&mut is_comment, comment(line).is_some());
        let word = comment(line).and_then(|text| text.split(|c: char| !c.is_alphanumeric()).next());
        if !before && word.is_some_and(|word| OPENINGS.contains(&word)) {
            found.push((number, line.trim()));
        }
    }
    found
}

#[test]
fn comments_begin_with_what_they_are_about() {
    let mut files: Vec<(String, String)> =
        ["server", "client", "tests"].into_iter().flat_map(sources).collect();
    let contract = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/agentloop/v1");
    for file in fs::read_dir(contract).expect("the contract is there") {
        let path = file.expect("it can be read").path();
        files.push((path.display().to_string(), fs::read_to_string(&path).expect("a text")));
    }
    assert!(files.len() > 500, "the sources are read");
    let found: Vec<String> = files
        .iter()
        .flat_map(|(file, text)| {
            riddles(text).into_iter().map(move |(at, line)| format!("{file}:{at}: {line}"))
        })
        .collect();
    assert!(found.is_empty(), "begin with a noun: {found:#?}");
}

#[test]
fn only_the_first_line_of_a_comment_counts() {
    let text = "//! Rules.\n//! How they are kept.\nfn a() {}\n    /// What it is.\nlet what = 1; // What\n// Whatsoever\n";
    assert_eq!(riddles(text), [(4, "/// What it is.")]);
}
