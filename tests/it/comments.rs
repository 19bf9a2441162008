//! Rules on comments: they begin with a noun or a verb, which says what they are about, and their sentences are short.

use std::fs;
use std::path::Path;

use crate::tidy::sources;

/// Words that a comment does not begin with, because the reader has to find the noun.
const OPENINGS: [&str; 11] =
    ["What", "Who", "Whoever", "Whatever", "Whether", "How", "Where", "Why", "That", "Those", "Of"];

/// The most words of a sentence. A longer one needs a second reading.
const SENTENCE_WORDS_MAX: usize = 32;

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

/// The paragraphs of comments, by the number of their first line. Tables, headings and code have no sentences.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut goes_on, mut is_code) = (false, false);
    for (number, line) in (1..).zip(text.lines()) {
        let text = comment(line).map(str::trim_end);
        let is_fence = text.is_some_and(|text| text.starts_with("```"));
        is_code = text.is_some() && (is_code != is_fence);
        let text =
            text.filter(|text| !is_code && !is_fence && !text.is_empty() && !text.starts_with(['|', '#']));
        let Some(text) = text else {
            goes_on = false;
            continue;
        };
        let is_item =
            text.starts_with("- ") || text.split_once(". ").is_some_and(|(no, _)| no.parse::<u32>().is_ok());
        match found.last_mut().filter(|_| goes_on && !is_item) {
            Some((_, paragraph)) => {
                paragraph.push(' ');
                paragraph.push_str(text);
            }
            None => found.push((number, text.to_owned())),
        }
        goes_on = true;
    }
    found
}

/// The sentences of a paragraph. One ends where a further one begins: code in it may have dots and spaces.
fn sentences(paragraph: &str) -> Vec<String> {
    let mut sentences = vec![String::new()];
    let mut is_code = false;
    let mut words = paragraph.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let sentence = sentences.last_mut().expect("there is one");
        sentence.push_str(if is_code { "" } else { " " });
        sentence.push_str(word);
        is_code ^= word.matches('`').count() % 2 == 1;
        let ends = word.trim_end_matches([')', '"', '*', '_']).ends_with(['.', '!', '?']);
        let next = words.peek().and_then(|next| next.chars().next());
        if !is_code && ends && next.is_some_and(|first| !first.is_lowercase()) {
            sentences.push(String::new());
        }
    }
    sentences
}

/// The sentences of comments with too many words, by the number of the line at which their paragraph begins.
fn long_sentences(text: &str) -> Vec<(usize, String)> {
    let words = |sentence: &str| {
        sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
    };
    let all = paragraphs(text)
        .into_iter()
        .flat_map(|(at, text)| sentences(&text).into_iter().map(move |sentence| (at, sentence)));
    all.filter(|(_, sentence)| words(sentence) > SENTENCE_WORDS_MAX).collect()
}

#[test]
fn sentences_of_comments_are_short() {
    let files: Vec<(String, String)> = ["server", "client", "tests"].into_iter().flat_map(sources).collect();
    assert!(files.len() > 500, "the sources are read");
    let found: Vec<String> = files
        .iter()
        .flat_map(|(file, text)| {
            long_sentences(text).into_iter().map(move |(at, sentence)| format!("{file}:{at}:{sentence}"))
        })
        .collect();
    assert!(found.is_empty(), "split these sentences: {found:#?}");
}

#[test]
fn a_sentence_ends_where_a_further_one_begins() {
    let text = "//! One, `a. B c` two. \"Three.\" 4 five\n//! six e.g. seven.\n//!\n//! - Eight. Nine\n//! - ten.\n\
                /// ```\n/// let a = 1. + 2.;\n/// ```\n/// | Eleven. |\n/// Twelve.\n";
    let all: Vec<(usize, Vec<String>)> =
        paragraphs(text).into_iter().map(|(at, text)| (at, sentences(&text))).collect();
    let all: Vec<(usize, Vec<&str>)> =
        all.iter().map(|(at, found)| (*at, found.iter().map(|one| one.trim_start()).collect())).collect();
    let expected = [
        (1, vec!["One, `a.Bc` two.", "\"Three.\"", "4 five six e.g. seven."]),
        (4, vec!["- Eight.", "Nine"]),
        (5, vec!["- ten."]),
        (10, vec!["Twelve."]),
    ];
    assert_eq!(all, expected);
    let long = format!("// A {}.\n// B {}. C.\n", "word ".repeat(31), "word ".repeat(32));
    assert_eq!(long_sentences(&long).iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1]);
}
