//! Text cut as tokenizers cut it, and what each piece weighs.
//!
//! Weights are in twentieths of a token. They were found by comparing with real counts; the samples of the tests hold
//! them to it.

use std::iter::Peekable;
use std::str::Chars;

/// One token.
const TOKEN: u64 = 20;
/// Letters of a word that common vocabularies know whole.
const WORD_LETTERS: u64 = 8;
/// Further letters to a token.
const LONG_WORD_LETTERS: u64 = 5;
/// Capitals to a token where there are only capitals.
const CAPITALS: u64 = 5;
/// Digits to a token.
const DIGITS: u64 = 3;

/// What a character belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lower,
    Upper,
    Digit,
    Space,
    Break,
    Punctuation,
    Other,
}

fn kind(c: char) -> Kind {
    match c {
        'a'..='z' => Kind::Lower,
        'A'..='Z' => Kind::Upper,
        '0'..='9' => Kind::Digit,
        ' ' => Kind::Space,
        '\n' | '\r' | '\t' => Kind::Break,
        '\0'..='\x7f' => Kind::Punctuation,
        _ => Kind::Other,
    }
}

/// What a text weighs.
pub(super) fn twentieths(text: &str) -> u64 {
    let mut chars = text.chars().peekable();
    let mut sum = 0_u64;
    while let Some(c) = chars.next() {
        sum += match kind(c) {
            Kind::Lower => word(1 + run(&mut chars, Kind::Lower)),
            Kind::Upper => capital(&mut chars),
            Kind::Digit => (1 + run(&mut chars, Kind::Digit)).div_ceil(DIGITS) * TOKEN,
            Kind::Space => space(&mut chars),
            Kind::Break => {
                run(&mut chars, Kind::Break);
                14
            }
            Kind::Punctuation => punctuation(c, &mut chars),
            Kind::Other => other(c),
        };
    }
    sum
}

/// How many more of a kind follow.
fn run(chars: &mut Peekable<Chars<'_>>, wanted: Kind) -> u64 {
    let mut length = 0;
    while chars.next_if(|c| kind(*c) == wanted).is_some() {
        length += 1;
    }
    length
}

fn word(letters: u64) -> u64 {
    TOKEN + letters.saturating_sub(WORD_LETTERS) * TOKEN / LONG_WORD_LETTERS
}

/// A word with a capital, or capitals alone.
fn capital(chars: &mut Peekable<Chars<'_>>) -> u64 {
    match 1 + run(chars, Kind::Upper) {
        1 => word(1 + run(chars, Kind::Lower)),
        capitals => (capitals * TOKEN / CAPITALS).max(TOKEN),
    }
}

/// One space goes into the token of the word after it, several are one token.
fn space(chars: &mut Peekable<Chars<'_>>) -> u64 {
    if run(chars, Kind::Space) > 0 {
        return TOKEN;
    }
    match chars.peek().map(|c| kind(*c)) {
        Some(Kind::Lower | Kind::Upper | Kind::Punctuation | Kind::Other) => 0,
        Some(Kind::Digit) => TOKEN,
        Some(Kind::Space | Kind::Break) | None => 10,
    }
}

/// One mark often joins what stands beside it, a row of the same is known whole, and of several that differ two or
/// three make a token.
fn punctuation(first: char, chars: &mut Peekable<Chars<'_>>) -> u64 {
    let (mut length, mut alike) = (1, true);
    while let Some(next) = chars.next_if(|c| kind(*c) == Kind::Punctuation) {
        length += 1;
        alike &= next == first;
    }
    match (length, alike) {
        (1, _) => 16,
        (length, true) => TOKEN + length * TOKEN / 16,
        (length, false) => 10 + length * 42 / 5,
    }
}

/// By script, between what newer and older vocabularies need.
fn other(c: char) -> u64 {
    match u32::from(c) {
        // Latin with marks.
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
        // Emoji and what is rare.
        0x1_0000.. => 40,
        _ => TOKEN,
    }
}
