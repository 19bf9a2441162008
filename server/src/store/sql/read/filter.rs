//! Conditions that lists share, as SQL.

use crate::store::TimeRange;
use crate::store::sql::query::{Query, Value};
use crate::store::support::number::int;

/// Adds the condition that a column has one of these values. No values mean any.
pub(super) fn one_of<T: Into<Value>>(
    query: &mut Query,
    column: &str,
    values: impl ExactSizeIterator<Item = T>,
) {
    if values.len() == 0 {
        return;
    }
    query.push(" AND ").push(column);
    for (at, value) in values.enumerate() {
        query.push(if at == 0 { " IN (" } else { ", " }).bind(value);
    }
    query.push(")");
}

/// Adds the condition that a column with a time is in this range.
pub(super) fn times(query: &mut Query, column: &str, range: &TimeRange) {
    if let Some(from) = range.from {
        query.push(" AND ").push(column).push(" >= ").bind(int(from.0));
    }
    if let Some(before) = range.before {
        query.push(" AND ").push(column).push(" < ").bind(int(before.0));
    }
}

/// Adds the condition that one of these columns may contain the text. `like` is the dialect's. Columns know no case beyond
/// ASCII, so any letter stands for those: the caller looks at what is found by `store::filter::contains`. Empty text adds
/// nothing.
pub(super) fn text(query: &mut Query, like: &str, columns: &[&str], text: &str) {
    if text.is_empty() {
        return;
    }
    let pattern = pattern(text);
    for (at, column) in columns.iter().enumerate() {
        query.push(if at == 0 { " AND (" } else { " OR " }).push(column);
        query.push(like).bind(pattern.as_str()).push(r" ESCAPE '\'");
    }
    query.push(")");
}

/// A pattern of LIKE for everything that contains the text.
fn pattern(text: &str) -> String {
    let mut pattern = "%".to_owned();
    for letter in text.chars() {
        match letter {
            '%' | '_' | '\\' => pattern.extend(['\\', letter]),
            '\0' => pattern.push('_'),
            _ if letter.is_ascii() => pattern.push(letter),
            _ => pattern.push('_'),
        }
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_of_a_text_are_letters() {
        assert_eq!(pattern(r"50 %_\"), r"%50 \%\_\\%");
        assert_eq!(pattern("Ærø\0"), "%_r__%");
    }

    #[test]
    fn no_values_are_no_condition() {
        let mut query = Query::new("1");
        one_of(&mut query, "a", [0_u32; 0].into_iter());
        one_of(&mut query, "b", ["x", "y"].into_iter());
        assert_eq!(query.into_text(), "1 AND b IN ($1, $2)");
    }
}
