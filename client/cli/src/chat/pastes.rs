//! Long pasted texts, for each of which the editor shows a mark.

use std::{cmp::Reverse, collections::VecDeque};

/// A text with more lines or bytes than this is long.
const LINES_MAX: usize = 8;
pub(super) const BYTES_MAX: usize = 1_000;
/// Bound on the pasted texts that are known again in an earlier prompt. The oldest ones are forgotten.
const KNOWN_MAX: usize = 32;
/// Bound on the marks in place of known texts. Of a text with more, the rest is shown as it is.
const MARKS_MAX: usize = 32;
/// Bound on the first line of a long text that stays beside a mark.
const FIRST_LINE_BYTES_MAX: usize = 200;

/// The long texts of an editor.
#[derive(Debug, Default)]
pub(super) struct Pastes {
    /// The texts that have a mark.
    folded: Vec<FoldedText>,
    /// Number of the last mark. A mark is a name, so none is given twice.
    last_mark: usize,
    /// The last texts that were pasted, the oldest first. An earlier prompt has marks for them again.
    known: VecDeque<String>,
}

/// A text that the editor does not show.
#[derive(Debug)]
struct FoldedText {
    /// The text that the editor shows in its place.
    mark: String,
    text: String,
}

/// True for a text that is shown as a mark when it is pasted.
pub(super) fn is_long(text: &str) -> bool {
    text.len() > BYTES_MAX || text.lines().count() > LINES_MAX
}

impl Pastes {
    /// Keeps a pasted text. Returns its mark.
    pub(super) fn add(&mut self, text: String) -> String {
        if !self.known.contains(&text) {
            self.known.push_back(text.clone());
            if self.known.len() > KNOWN_MAX {
                self.known.pop_front();
            }
        }
        self.fold("pasted text", text)
    }

    fn fold(&mut self, what: &str, text: String) -> String {
        self.last_mark += 1;
        let (number, lines, characters) = (self.last_mark, text.lines().count(), text.chars().count());
        let mark = format!("[{what} {number}: {lines} lines, {characters} characters]");
        self.folded.push(FoldedText { mark: mark.clone(), text });
        mark
    }

    /// Forgets the marks, because another text takes the place of this one. Pasted texts are still known.
    pub(super) fn clear(&mut self) {
        self.folded.clear();
        self.last_mark = 0;
    }

    /// A text that was sent or taken back, with marks for what was pasted.
    pub(super) fn fold_known(&mut self, text: &str) -> String {
        let (mut shown, mut rest) = (String::new(), text);
        for _ in 0..MARKS_MAX {
            let places = self.known.iter().filter_map(|known| Some((rest.find(known.as_str())?, known)));
            let first = places.min_by_key(|(at, known)| (*at, Reverse(known.len())));
            let Some((at, known)) = first.map(|(at, known)| (at, known.clone())) else { break };
            shown.push_str(&rest[..at]);
            rest = &rest[at + known.len()..];
            shown.push_str(&self.fold("pasted text", known));
        }
        shown + rest
    }

    /// A prompt of which nobody knows any more what was pasted. Of a long one, the first line is shown, and a mark for the
    /// rest.
    pub(super) fn fold_earlier(&mut self, text: &str) -> String {
        let shown = self.fold_known(text);
        if !self.folded.is_empty() || !is_long(text) {
            return shown;
        }
        match text.split_once('\n') {
            Some((first, rest)) if first.len() <= FIRST_LINE_BYTES_MAX => {
                format!("{first}\n{}", self.fold("earlier text", rest.to_owned()))
            }
            _ => self.fold("earlier text", text.to_owned()),
        }
    }

    /// The text with everything in place of its marks.
    pub(super) fn whole(&self, shown: &str) -> String {
        let mut whole = String::with_capacity(shown.len() + self.bytes());
        let (mut rest, mut left) = (shown, self.folded.iter().collect::<Vec<_>>());
        loop {
            let places = left.iter().enumerate();
            let places = places.filter_map(|(n, folded)| Some((rest.find(&folded.mark)?, n)));
            let Some((at, n)) = places.min() else { break };
            let FoldedText { mark, text } = left.remove(n);
            whole.push_str(&rest[..at]);
            whole.push_str(text);
            rest = &rest[at + mark.len()..];
        }
        whole + rest
    }

    /// Bytes of the texts that have a mark.
    pub(super) fn bytes(&self) -> usize {
        self.folded.iter().map(|folded| folded.text.len()).sum()
    }

    /// Removes the mark at the end of a line. Returns its characters and the text in its place; `None` if there is none.
    pub(super) fn take_last(&mut self, line: &str) -> Option<(usize, String)> {
        let at = self.folded.iter().position(|folded| line.ends_with(&folded.mark))?;
        let FoldedText { mark, text } = self.folded.remove(at);
        Some((mark.chars().count(), text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> String {
        (1..=count).map(|n| format!("line {n}\n")).collect()
    }

    #[test]
    fn a_text_in_place_of_a_mark_is_not_searched_for_marks() {
        let mut pastes = Pastes::default();
        let tricky = "[pasted text 2: 9 lines, 63 characters]\n".repeat(9);
        let shown = format!("{} and {}", pastes.add(tricky.clone()), pastes.add(lines(9)));
        assert!(shown.ends_with("[pasted text 2: 9 lines, 63 characters]"), "{shown}");
        assert_eq!(pastes.whole(&shown), format!("{tricky} and {}", lines(9)));
        assert_eq!(pastes.whole("no mark"), "no mark");
    }

    #[test]
    fn what_was_pasted_is_known_again() {
        let mut pastes = Pastes::default();
        for text in [lines(20), lines(10)] {
            pastes.add(text);
        }
        pastes.clear();
        let sent = format!("compare {}with {}twice: {}", lines(10), lines(20), lines(10));
        let shown = pastes.fold_known(&sent);
        assert!(shown.starts_with("compare [pasted text 1: 10 lines, "), "{shown}");
        assert!(shown.contains("]with [pasted text 2: 20 lines, "), "the longer one at a place: {shown}");
        assert!(shown.contains("]twice: [pasted text 3: 10 lines, "), "{shown}");
        assert_eq!(pastes.whole(&shown), sent);
    }

    #[test]
    fn a_long_prompt_of_before_has_its_first_line_and_a_mark() {
        let long_line = "x".repeat(BYTES_MAX + 1);
        for (text, shown) in [
            ("short\ntext", "short\ntext"),
            (&*format!("see\n{}", lines(9)), "see\n[earlier text 1: 9 lines, 63 characters]"),
            (&*long_line, "[earlier text 1: 1 lines, 1001 characters]"),
        ] {
            let mut pastes = Pastes::default();
            assert_eq!(pastes.fold_earlier(text), shown);
            assert_eq!(pastes.whole(shown), text);
        }
        let mut pastes = Pastes::default();
        pastes.add(lines(9));
        pastes.clear();
        assert_eq!(
            pastes.fold_earlier(&format!("a\n{}", lines(9))),
            "a\n[pasted text 1: 9 lines, 63 characters]"
        );
    }

    #[test]
    fn what_is_known_and_marked_has_bounds() {
        let mut pastes = Pastes::default();
        for n in 0..=KNOWN_MAX {
            pastes.add(format!("{n}\n{}", lines(9)));
        }
        pastes.clear();
        let oldest = format!("0\n{}", lines(9));
        assert_eq!(pastes.fold_known(&oldest), oldest, "the oldest is forgotten");
        let many = format!("1\n{}", lines(9)).repeat(MARKS_MAX + 1);
        let shown = pastes.fold_known(&many);
        assert_eq!(shown.matches("[pasted text").count(), MARKS_MAX);
        assert_eq!(pastes.whole(&shown), many);
    }
}
