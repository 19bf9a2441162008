//! Replaces what differs from run to run in the text of a screen.

/// Letters after a number that make it a duration.
const UNITS: [&str; 6] = ["ms", "s", "m", "min", "h", "d"];

/// The text with words for what differs: ids, times, and these texts. After a text whose word is `<rest>`, the rest of the
/// line is left out. Columns stay in place as far as what is replaced is aligned to the right.
pub(super) fn normal(text: &str, words: &[(&str, &str)]) -> String {
    text.lines().map(|line| format!("{}\n", normal_line(line, words))).collect()
}

fn normal_line(line: &str, words: &[(&str, &str)]) -> String {
    let mut line = line.to_owned();
    for (text, word) in words {
        match line.find(text) {
            Some(at) if *word == "<rest>" => {
                line.truncate(at + text.len());
                line.push_str(" <rest>");
            }
            _ => line = line.replace(text, word),
        }
    }
    let mut kept = String::new();
    let mut rest = line.as_str();
    while let Some(c) = rest.chars().next() {
        let begins_word = !kept.ends_with(|c: char| c.is_alphanumeric() || c == '-' || c == '.');
        let found = begins_word.then(|| varying(rest)).flatten();
        if let Some((length, word)) = found {
            // A number with more digits has fewer spaces before it.
            let text = kept.trim_end_matches(' ').len();
            kept.truncate(kept.len().min(text + 2));
            kept.push_str(word);
            rest = &rest[length..];
        } else {
            kept.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    kept.trim_end().to_owned()
}

/// The length of an id or a time at the beginning of the text, and the word for it.
fn varying(text: &str) -> Option<(usize, &'static str)> {
    if fits(text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") {
        return Some((36, "<id>"));
    }
    for pattern in ["0000-00-00T00:00:00", "0000-00-00 00:00:00"] {
        if fits(text, pattern) {
            let more = text[pattern.len()..].find(|c: char| !(c.is_ascii_digit() || c == '.' || c == 'Z'));
            return Some((more.map_or(text.len(), |more| pattern.len() + more), "<time>"));
        }
    }
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let space = usize::from(text[digits..].starts_with(' '));
    let unit = text[digits + space..].split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    (digits > 0 && UNITS.contains(&unit)).then_some((digits + space + unit.len(), "<time>"))
}

/// True if the text begins like the pattern: `x` stands for a hexadecimal digit, `0` for a decimal one.
fn fits(text: &str, pattern: &str) -> bool {
    let is_like = |(byte, like): (u8, u8)| match like {
        b'x' => byte.is_ascii_hexdigit(),
        b'0' => byte.is_ascii_digit(),
        _ => byte == like,
    };
    text.len() >= pattern.len() && text.bytes().zip(pattern.bytes()).all(is_like)
}

#[test]
fn ids_and_times_are_replaced_and_columns_stay() {
    let words = [("http://127.0.0.1:1", "<url>"), ("disk", "<rest>")];
    for (line, kept) in [
        ("run 0193d3c4-8f1e-7c55-b1a2-0f5e6d7c8b9a, ", "run <id>,"),
        ("at 2026-11-25T05:01:02.123Z x", "at <time> x"),
        ("asked 2026-11-25 05:01:02", "asked <time>"),
        ("x    3s  y", "x  <time>  y"),
        ("x  123s  y", "x  <time>  y"),
        ("completed in 12ms, 1.2s", "completed in <time>, <time>"),
        ("answers in 0.9 s, 11 tokens", "answers in <time>, 11 tokens"),
        ("2 hosts, r-1s, 24 rows, 3st", "2 hosts, r-1s, 24 rows, 3st"),
        ("--server http://127.0.0.1:1", "--server <url>"),
        ("ok disk 12 GB of 40", "ok disk <rest>"),
        ("宽 3s 字", "宽 <time> 字"),
    ] {
        assert_eq!(normal_line(line, &words), kept);
    }
}
