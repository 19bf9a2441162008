//! Long pasted texts, for each of which the editor shows a mark.

use std::{cmp::Reverse, collections::VecDeque, ops::Range};

/// A text with more lines or bytes than this is long.
const LINES_MAX: usize = 8;
pub(super) const BYTES_MAX: usize = 1_000;
/// Bound on the pasted texts that are known again in an earlier prompt. The oldest ones are forgotten.
const KNOWN_MAX: usize = 32;
/// Bound on the marks in place of known texts. Of a text with more, the rest is shown as it is.
const MARKS_MAX: usize = 32;
/// Bound on the texts with a mark. It is larger than the number of changes that the text field can take back.
const FOLDED_MAX: usize = 64;
/// Bound on the first line of a long text that stays beside a mark.
const FIRST_LINE_BYTES_MAX: usize = 200;

/// The long texts of an editor.
#[derive(Debug, Default)]
pub(super) struct Pastes {
    /// The texts that have a mark, also those whose mark was deleted, because the deletion can be taken back.
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
    /// Keeps a text that is pasted into this one. Returns its mark.
    pub(super) fn add(&mut self, text: String, shown: &str) -> String {
        if !self.known.contains(&text) {
            self.known.push_back(text.clone());
            if self.known.len() > KNOWN_MAX {
                self.known.pop_front();
            }
        }
        if self.folded.len() >= FOLDED_MAX
            && let Some(deleted) = self.folded.iter().position(|folded| !shown.contains(&folded.mark))
        {
            self.folded.remove(deleted);
        }
        self.fold("pasted text", text, shown)
    }

    /// Gives a text its mark, one that does not stand in the other text already.
    fn fold(&mut self, what: &str, text: String, beside: &str) -> String {
        let (lines, characters) = (text.lines().count(), text.chars().count());
        loop {
            self.last_mark += 1;
            let mark = format!("[{what} {}: {lines} lines, {characters} characters]", self.last_mark);
            if !beside.contains(&mark) {
                self.folded.push(FoldedText { mark: mark.clone(), text });
                return mark;
            }
        }
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
            shown.push_str(&self.fold("pasted text", known, text));
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
                format!("{first}\n{}", self.fold("earlier text", rest.to_owned(), text))
            }
            _ => self.fold("earlier text", text.to_owned(), ""),
        }
    }

    /// The text with each mark replaced by its pasted text. The pasted texts are not searched for marks.
    pub(super) fn whole(&self, shown: &str) -> String {
        let mut whole = String::with_capacity(shown.len());
        let mut rest = shown;
        while let Some((at, folded)) = self.first_in(rest) {
            whole.push_str(&rest[..at]);
            whole.push_str(&folded.text);
            rest = &rest[at + folded.mark.len()..];
        }
        whole + rest
    }

    /// The marks in a line, each with its columns, which count characters.
    pub(super) fn marks_in<'p>(&'p self, line: &'p str) -> impl Iterator<Item = (Range<usize>, &'p str)> {
        let (mut rest, mut column) = (line, 0);
        std::iter::from_fn(move || {
            let (at, folded) = self.first_in(rest)?;
            let start = column + rest[..at].chars().count();
            column = start + folded.mark.chars().count();
            rest = &rest[at + folded.mark.len()..];
            Some((start..column, folded.mark.as_str()))
        })
    }

    fn first_in(&self, text: &str) -> Option<(usize, &FoldedText)> {
        let places = self.folded.iter().filter_map(|folded| Some((text.find(&folded.mark)?, folded)));
        places.min_by_key(|(at, _)| *at)
    }

    /// The text in place of a mark.
    pub(super) fn text_of(&self, mark: &str) -> Option<&str> {
        self.folded.iter().find(|folded| folded.mark == mark).map(|folded| folded.text.as_str())
    }

    /// Bytes of the texts whose marks stand in these lines.
    pub(super) fn bytes_in(&self, lines: &[String]) -> usize {
        let marks = lines.iter().flat_map(|line| self.marks_in(line));
        marks.filter_map(|(_, mark)| self.text_of(mark)).map(str::len).sum()
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
        let shown = format!("{} and {}", pastes.add(tricky.clone(), ""), pastes.add(lines(9), ""));
        assert!(shown.ends_with("[pasted text 2: 9 lines, 63 characters]"), "{shown}");
        assert_eq!(pastes.whole(&shown), format!("{tricky} and {}", lines(9)));
        assert_eq!(pastes.whole("no mark"), "no mark");
    }

    #[test]
    fn what_was_pasted_is_known_again() {
        let mut pastes = Pastes::default();
        for text in [lines(20), lines(10)] {
            pastes.add(text, "");
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
        pastes.add(lines(9), "");
        pastes.clear();
        assert_eq!(
            pastes.fold_earlier(&format!("a\n{}", lines(9))),
            "a\n[pasted text 1: 9 lines, 63 characters]"
        );
    }

    #[test]
    fn a_mark_is_not_one_that_was_typed() {
        let mut pastes = Pastes::default();
        let typed = "[pasted text 1: 9 lines, 63 characters] ";
        let mark = pastes.add(lines(9), typed);
        assert_eq!(mark, "[pasted text 2: 9 lines, 63 characters]");
        assert_eq!(pastes.whole(&format!("{typed}{mark}")), format!("{typed}{}", lines(9)));
    }

    #[test]
    fn texts_whose_marks_were_deleted_have_a_bound() {
        let mut pastes = Pastes::default();
        let kept = pastes.add(lines(9), "");
        let deleted = pastes.add(lines(10), &kept);
        (0..FOLDED_MAX).for_each(|n| drop(pastes.add(lines(11 + n), &kept)));
        assert_eq!(pastes.folded.len(), FOLDED_MAX);
        assert_eq!((pastes.text_of(&kept), pastes.text_of(&deleted)), (Some(&*lines(9)), None));
    }

    #[test]
    fn what_is_known_and_marked_has_bounds() {
        let mut pastes = Pastes::default();
        for n in 0..=KNOWN_MAX {
            pastes.add(format!("{n}\n{}", lines(9)), "");
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
