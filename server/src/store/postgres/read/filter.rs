//! Conditions that lists share, as SQL. Everything from outside is bound.

use std::collections::BTreeMap;

use sqlx::postgres::PgHasArrayType;
use sqlx::{Encode, Postgres, QueryBuilder, Type};

use crate::store::TimeRange;
use crate::store::codec::text as json;
use crate::store::number::int;
use crate::store::postgres::rows::{clean, indexed, is_indexed_whole};

/// Adds the condition that a column with a JSON object has all of these labels. The column is the server's own text, so a
/// label is found as text: only between two labels a quote follows on a comma or a brace.
pub(super) fn labels(query: &mut QueryBuilder<Postgres>, column: &str, labels: &BTreeMap<String, String>) {
    for (key, value) in labels {
        label(query, column, key, value);
    }
}

fn label(query: &mut QueryBuilder<Postgres>, column: &str, key: &str, value: &str) {
    let label = format!(",{}:{}", json(&key), json(&value));
    query.push(" AND strpos(',' || substr(").push(column).push(", 2), ").push_bind(label).push(") > 0");
}

/// Adds the condition that a session has this label, for which there is an indexed column.
pub(super) fn indexed_label(query: &mut QueryBuilder<Postgres>, column: &str, key: &str, value: &str) {
    let whole = clean(value).into_owned();
    if is_indexed_whole(value) {
        query.push(" AND ").push(column).push(" = ").push_bind(whole);
        return;
    }
    // Earlier versions had long labels whole there, as far as the index took them.
    let forms = vec![indexed(value).into_owned(), whole];
    query.push(" AND ").push(column).push(" = ANY (").push_bind(forms).push(")");
    label(query, "s.labels", key, value);
}

/// Adds the condition that a column has one of these values. No values mean any.
pub(super) fn one_of<T>(query: &mut QueryBuilder<Postgres>, column: &str, values: Vec<T>)
where
    T: for<'q> Encode<'q, Postgres> + Type<Postgres> + PgHasArrayType + 'static,
{
    if !values.is_empty() {
        query.push(" AND ").push(column).push(" = ANY (").push_bind(values).push(")");
    }
}

/// Texts from outside as a column has them.
pub(super) fn texts(values: &[String]) -> Vec<String> {
    values.iter().map(|value| clean(value).into_owned()).collect()
}

/// Adds the condition that a column with a time is in this range.
pub(super) fn times(query: &mut QueryBuilder<Postgres>, column: &str, range: &TimeRange) {
    if let Some(from) = range.from {
        query.push(" AND ").push(column).push(" >= ").push_bind(int(from.0));
    }
    if let Some(before) = range.before {
        query.push(" AND ").push(column).push(" < ").push_bind(int(before.0));
    }
}

/// Adds the condition that one of these columns may contain the text. Columns know no case beyond ASCII, so any letter stands
/// for those: the caller looks at what is found by `store::filter::contains`. Empty text adds nothing.
pub(super) fn text(query: &mut QueryBuilder<Postgres>, columns: &[&str], text: &str) {
    if text.is_empty() {
        return;
    }
    let pattern = pattern(text);
    for (at, column) in columns.iter().enumerate() {
        query.push(if at == 0 { " AND (" } else { " OR " }).push(*column);
        query.push(" ILIKE ").push_bind(pattern.clone()).push(r" ESCAPE '\'");
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
}
