//! Cuts text as tokenizers do, and weighs each piece.
//!
//! Weights are in twentieths of a token. They were found by comparison with real counts, and the samples of
//! the tests check them.

use std::iter::Peekable;
use std::str::Chars;

/// Weight of one token.
const TOKEN: u64 = 20;
/// Words of up to so many letters are usually one token.
const WORD_LETTERS: u64 = 8;
/// Letters per token beyond [`WORD_LETTERS`].
const LONG_WORD_LETTERS: u64 = 5;
/// Letters per token in a word of capitals.
const CAPITALS: u64 = 5;
/// Digits that models read as one token.
const DIGITS: u64 = 3;

/// Class of a character. Tokenizers cut where the class changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Lower,
    Upper,
    Digit,
    Space,
    Break,
    Punctuation,
    Other,
}

fn class(c: char) -> CharClass {
    match c {
        'a'..='z' => CharClass::Lower,
        'A'..='Z' => CharClass::Upper,
        '0'..='9' => CharClass::Digit,
        ' ' => CharClass::Space,
        '\n' | '\r' | '\t' => CharClass::Break,
        '\0'..='\x7f' => CharClass::Punctuation,
        _ => CharClass::Other,
    }
}

/// Returns the weight of a text.
pub(super) fn twentieths(text: &str) -> u64 {
    let mut chars = text.chars().peekable();
    let mut sum = 0_u64;
    while let Some(c) = chars.next() {
        sum += match class(c) {
            CharClass::Lower => word(1 + run(&mut chars, CharClass::Lower)),
            CharClass::Upper => capital(&mut chars),
            CharClass::Digit => (1 + run(&mut chars, CharClass::Digit)).div_ceil(DIGITS) * TOKEN,
            CharClass::Space => space(&mut chars),
            CharClass::Break => {
                run(&mut chars, CharClass::Break);
                14
            }
            CharClass::Punctuation => punctuation(c, &mut chars),
            CharClass::Other => other(c),
        };
    }
    sum
}

/// Consumes the following characters of a class and returns their number.
fn run(chars: &mut Peekable<Chars<'_>>, wanted: CharClass) -> u64 {
    let mut length = 0;
    while chars.next_if(|c| class(*c) == wanted).is_some() {
        length += 1;
    }
    length
}

fn word(letters: u64) -> u64 {
    TOKEN + letters.saturating_sub(WORD_LETTERS) * TOKEN / LONG_WORD_LETTERS
}

/// Weighs a capitalised word, or a word of capitals.
fn capital(chars: &mut Peekable<Chars<'_>>) -> u64 {
    match 1 + run(chars, CharClass::Upper) {
        1 => word(1 + run(chars, CharClass::Lower)),
        capitals => (capitals * TOKEN / CAPITALS).max(TOKEN),
    }
}

/// Weighs spaces: a single one belongs to the token of the next word, several are one token.
fn space(chars: &mut Peekable<Chars<'_>>) -> u64 {
    if run(chars, CharClass::Space) > 0 {
        return TOKEN;
    }
    match chars.peek().map(|c| class(*c)) {
        Some(CharClass::Lower | CharClass::Upper | CharClass::Punctuation | CharClass::Other) => 0,
        Some(CharClass::Digit) => TOKEN,
        Some(CharClass::Space | CharClass::Break) | None => 10,
    }
}

/// Weighs punctuation: one mark often joins its neighbour's token, repetitions of one mark are one token, and
/// two or three different marks are one token.
fn punctuation(first: char, chars: &mut Peekable<Chars<'_>>) -> u64 {
    let (mut length, mut alike) = (1, true);
    while let Some(next) = chars.next_if(|c| class(*c) == CharClass::Punctuation) {
        length += 1;
        alike &= next == first;
    }
    match (length, alike) {
        (1, _) => 16,
        (length, true) => TOKEN + length * TOKEN / 16,
        (length, false) => 10 + length * 42 / 5,
    }
}

/// Weighs a character by its script, between the newer and the older vocabularies.
fn other(c: char) -> u64 {
    match u32::from(c) {
        // Accented Latin.
        ..0x250 => 10,
        // Greek, Cyrillic, Hebrew, Arabic.
        0x250..0x900 => 8,
        // Scripts of India and around.
        0x900..0x1100 => 11,
        // Hangul.
        0x1100..0x1200 | 0xac00..0xd7b0 => 13,
        // Symbols and frames.
        0x2000..0x2e80 => 12,
        // Chinese characters and kana.
        0x2e80..0xfb00 => 18,
        // Emoji and rare characters.
        0x1_0000.. => 40,
        _ => TOKEN,
    }
}
