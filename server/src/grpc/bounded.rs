//! Bounds on what an error tells. A status travels in headers, and clients refuse headers of more than 8 KiB: they would show
//! an error of their own in place of ours.

use tonic_types::FieldViolation;

/// Longest message of a status, in bytes. It is sent twice, once with up to three bytes for each of its own.
const MESSAGE_BYTES_MAX: usize = 1024;
/// Longest value in the metadata of an error, in bytes.
const METADATA_BYTES_MAX: usize = 256;
/// Longest name of an invalid field, in bytes.
const FIELD_BYTES_MAX: usize = 256;
/// Longest problem of an invalid field, in bytes.
const PROBLEM_BYTES_MAX: usize = 512;
/// Bytes of all invalid fields that an error names. The first one is always named.
const VIOLATIONS_BYTES_MAX: usize = 2 * 1024;
/// Bytes of each violation beside its two texts, at most.
const OVERHEAD_BYTES: usize = 16;
/// Stands for the rest of a text that was cut.
const CUT: &str = "…";

/// The message of a status, cut to what fits.
pub(super) fn message(text: String) -> String {
    cut(text, MESSAGE_BYTES_MAX)
}

/// A value of an error's metadata, cut to what fits.
pub(super) fn metadata(text: String) -> String {
    cut(text, METADATA_BYTES_MAX)
}

fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max - CUT.len()));
        text.push_str(CUT);
    }
    text
}

/// The invalid fields of a request: as many as an error may name, and the number of the others.
#[derive(Debug, Default)]
pub(super) struct InvalidFields {
    named: Vec<FieldViolation>,
    bytes: usize,
    others: usize,
}

impl InvalidFields {
    /// Adds a field and its problem.
    pub(super) fn add(&mut self, field: String, problem: String) {
        let (field, problem) = (cut(field, FIELD_BYTES_MAX), cut(problem, PROBLEM_BYTES_MAX));
        let bytes = self.bytes + field.len() + problem.len() + OVERHEAD_BYTES;
        if self.others > 0 || bytes > VIOLATIONS_BYTES_MAX {
            self.others += 1;
            return;
        }
        self.bytes = bytes;
        self.named.push(FieldViolation::new(field, problem));
    }

    /// The first violation that was found, if there is any.
    pub(super) fn first(&self) -> Option<&FieldViolation> {
        self.named.first()
    }

    /// All that are named, and one without a field about the others.
    pub(super) fn into_violations(mut self) -> Vec<FieldViolation> {
        if self.others > 0 {
            let problem = format!("there are {} more problems", self.others);
            self.named.push(FieldViolation::new("", problem));
        }
        self.named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(cut("ab".to_owned(), 4), "ab");
        assert_eq!(cut("abcd".to_owned(), 4), "abcd");
        assert_eq!(cut("abcde".to_owned(), 4), "a…");
        assert_eq!(cut("äöü".to_owned(), 5), "ä…");
        assert_eq!(cut("äöü".to_owned(), 4), "…");
        assert_eq!(message("ü".repeat(5_000)).len(), MESSAGE_BYTES_MAX - 1);
        assert_eq!(metadata("x".repeat(5_000)).len(), METADATA_BYTES_MAX);
    }

    #[test]
    fn of_many_invalid_fields_the_first_are_named_and_the_others_counted() {
        let mut few = InvalidFields::default();
        few.add("a".repeat(5_000), "b".repeat(5_000));
        let few = few.into_violations();
        assert_eq!((few.len(), few[0].field.len()), (1, FIELD_BYTES_MAX));
        assert_eq!(few[0].description.len(), PROBLEM_BYTES_MAX);

        let mut many = InvalidFields::default();
        for at in 0..100_000 {
            many.add(format!("filter.statuses[{at}]"), "is not a status".to_owned());
        }
        assert_eq!(many.first().map(|first| first.field.as_str()), Some("filter.statuses[0]"));
        let many = many.into_violations();
        let (last, named) = many.split_last().expect("there are some");
        assert!((30..64).contains(&named.len()), "{}", named.len());
        assert_eq!(last.field, "");
        assert_eq!(last.description, format!("there are {} more problems", 100_000 - named.len()));
    }
}
