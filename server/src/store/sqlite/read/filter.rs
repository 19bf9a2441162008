//! Conditions that lists share, as SQL. Everything from outside is bound.

use std::collections::BTreeMap;

use sqlx::{Encode, QueryBuilder, Sqlite, Type};

use crate::store::TimeRange;
use crate::store::number::int;

/// Adds the condition that a column with a JSON object has all of these labels.
pub(super) fn labels(query: &mut QueryBuilder<Sqlite>, column: &str, labels: &BTreeMap<String, String>) {
    for (key, value) in labels {
        query.push(" AND EXISTS (SELECT 1 FROM json_each(").push(column).push(") AS j WHERE j.key = ");
        query.push_bind(key.clone()).push(" AND j.value = ").push_bind(value.clone()).push(")");
    }
}

/// Adds the condition that a column has one of these values. No values mean any.
pub(super) fn one_of<T>(
    query: &mut QueryBuilder<Sqlite>,
    column: &str,
    values: impl ExactSizeIterator<Item = T>,
) where
    T: for<'q> Encode<'q, Sqlite> + Type<Sqlite> + 'static,
{
    if values.len() == 0 {
        return;
    }
    query.push(" AND ").push(column).push(" IN (");
    let mut list = query.separated(", ");
    for value in values {
        list.push_bind(value);
    }
    query.push(")");
}

/// Adds the condition that a column with a time is in this range.
pub(super) fn times(query: &mut QueryBuilder<Sqlite>, column: &str, range: &TimeRange) {
    if let Some(from) = range.from {
        query.push(" AND ").push(column).push(" >= ").push_bind(int(from.0));
    }
    if let Some(before) = range.before {
        query.push(" AND ").push(column).push(" < ").push_bind(int(before.0));
    }
}

/// Adds the condition that one of these columns may contain the text. SQLite knows no case beyond ASCII, so any letter
/// stands for those: the caller looks at what is found by `store::filter::contains`. Empty text adds nothing.
pub(super) fn text(query: &mut QueryBuilder<Sqlite>, columns: &[&str], text: &str) {
    if text.is_empty() {
        return;
    }
    let pattern = pattern(text);
    for (at, column) in columns.iter().enumerate() {
        query.push(if at == 0 { " AND (" } else { " OR " }).push(*column);
        query.push(" LIKE ").push_bind(pattern.clone()).push(r" ESCAPE '\'");
    }
    query.push(")");
}

/// A pattern of LIKE for everything that contains the text.
fn pattern(text: &str) -> String {
    let mut pattern = "%".to_owned();
    for letter in text.chars() {
        match letter {
            '%' | '_' | '\\' => pattern.extend(['\\', letter]),
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
        assert_eq!(pattern("Ærø"), "%_r_%");
    }
}
