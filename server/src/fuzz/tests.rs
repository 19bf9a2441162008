//! The targets over their corpus, whole and spoilt in ways that follow from a seed.

use std::fs;
use std::path::PathBuf;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::{
    TARGETS, Target, chat, config, credentials, frames, gemini, journal, messages, responses, run_input, sse,
};

/// Spoilt copies of each file, in each of the ways.
const COPIES_PER_FILE: usize = 64;
/// Files are cut at every byte up to here, and at as many places in all.
const CUTS_PER_FILE: usize = 1_024;
/// Changes that spoil a text: ends, nesting, escapes, signs, bytes that are no UTF-8, a great length.
const SPLINTERS: [&[u8]; 10] =
    [b"\n\n", b"\r", b"{", b"]", b"\"", b"\\ud800", b"-1e999", b"\xFF\xC3", b"\xFF\xFF\xFF\xFF\x0F", b"\0"];

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 4, "{name} has a corpus");
    files.into_iter().map(|file| fs::read(file).unwrap()).collect()
}

fn check(name: &str, target: Target) {
    let mut chance = SmallRng::seed_from_u64(1);
    target(b"");
    for file in corpus(name) {
        target(&file);
        let step = file.len().div_ceil(CUTS_PER_FILE).max(1);
        (0..file.len()).step_by(step).for_each(|cut| target(&file[..cut]));
        for _ in 0..COPIES_PER_FILE {
            target(&flipped(&file, &mut chance));
            target(&splintered(&file, &mut chance));
            target(&moved(&file, &mut chance));
        }
    }
}

fn place(file: &[u8], chance: &mut SmallRng) -> usize {
    chance.random_range(0..=file.len())
}

/// With one to four bits turned.
fn flipped(file: &[u8], chance: &mut SmallRng) -> Vec<u8> {
    let mut copy = file.to_vec();
    for _ in 0..chance.random_range(1..=4) {
        let at = place(file, chance);
        if let Some(byte) = copy.get_mut(at) {
            *byte ^= 1 << chance.random_range(0..8);
        }
    }
    copy
}

/// With something put in, at times in place of what was there.
fn splintered(file: &[u8], chance: &mut SmallRng) -> Vec<u8> {
    let at = place(file, chance);
    let splinter = SPLINTERS[chance.random_range(0..SPLINTERS.len())];
    let end = if chance.random() { at } else { (at + splinter.len()).min(file.len()) };
    [&file[..at], splinter, &file[end..]].concat()
}

/// With a piece of it again, somewhere else.
fn moved(file: &[u8], chance: &mut SmallRng) -> Vec<u8> {
    let (from, to, at) = (place(file, chance), place(file, chance), place(file, chance));
    [&file[..at], &file[from.min(to)..from.max(to)], &file[at..]].concat()
}

#[test]
fn sse_streams() {
    check("sse", sse);
}

#[test]
fn answers_of_chat_completions() {
    check("chat", chat);
}

#[test]
fn answers_of_messages() {
    check("messages", messages);
}

#[test]
fn answers_of_responses() {
    check("responses", responses);
}

#[test]
fn answers_of_gemini() {
    check("gemini", gemini);
}

#[test]
fn rows_of_the_journal() {
    check("journal", journal);
}

#[test]
fn configurations() {
    check("config", config);
}

#[test]
fn frames_of_hosts() {
    check("frames", frames);
}

#[test]
fn inputs_of_runs() {
    check("run_input", run_input);
}

#[test]
fn credentials_of_callers() {
    check("credentials", credentials);
}

#[test]
fn every_corpus_belongs_to_a_target() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut folders: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|folder| folder.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut names = TARGETS.map(|(name, _)| name.to_owned()).to_vec();
    folders.sort();
    names.sort();
    assert_eq!(folders, names);
}
