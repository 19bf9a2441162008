//! A query as text with values, for either database. `$1` in the text is the first value.

use std::borrow::Cow;

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

/// A value of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum Value {
    Text(Option<String>),
    Number(Option<i64>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        i64::from(number).into()
    }
}

/// A query. Everything from outside is a value of it, and never in its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Query {
    text: Cow<'static, str>,
    values: Vec<Value>,
}

impl Query {
    /// A query with this text, whose values follow by [`with`](Self::with), or that goes on by [`push`](Self::push).
    pub(in crate::store) fn new(text: &'static str) -> Self {
        Self { text: text.into(), values: Vec::new() }
    }

    /// Adds the next value, whose place is in the text already.
    #[must_use]
    pub(in crate::store) fn with(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Adds text at the end, as it is.
    pub(in crate::store) fn push(&mut self, text: &str) -> &mut Self {
        self.text.to_mut().push_str(text);
        self
    }

    /// Adds a value, and its place at the end of the text.
    pub(in crate::store) fn bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        let place = format!("${}", self.values.len());
        self.push(&place)
    }

    /// The text, which a test looks at.
    #[cfg(test)]
    pub(in crate::store) fn into_text(self) -> String {
        self.text.into_owned()
    }

    /// The text as sqlx takes it, and the values in the order of their places.
    pub(in crate::store) fn into_parts(self) -> (SqlStr, Vec<Value>) {
        let text = match self.text {
            Cow::Borrowed(text) => text.into_sql_str(),
            Cow::Owned(text) => AssertSqlSafe(text).into_sql_str(),
        };
        (text, self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_places_in_their_order() {
        let mut query = Query::new("SELECT 1 WHERE a = $1").with("x");
        query.push(" AND b < ").bind(7_u32).push(" AND c = ").bind(None::<&str>);
        let (text, values) = query.into_parts();
        assert_eq!(text.as_str(), "SELECT 1 WHERE a = $1 AND b < $2 AND c = $3");
        assert_eq!(values, [Value::from("x"), Value::Number(Some(7)), Value::Text(None)]);
    }
}
