//! Pages as stores cut them, and the tokens that lead from one to the next.

use agentloop_core::id::IdError;
use agentloop_core::time::Timestamp;

use super::number::int;
use crate::store::{Page, PageRequest, StoreError};

/// Largest size of a page, in rows.
pub(in crate::store) const PAGE_ROWS_MAX: u32 = 1_000;

/// The last row of a page: its sort key, and its id where several rows share that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Cursor {
    pub(in crate::store) key: i64,
    pub(in crate::store) id: String,
}

impl Cursor {
    pub(in crate::store) fn token(&self) -> String {
        format!("{}:{}", self.key, self.id)
    }

    fn parse<T>(token: &str, id: impl Fn(&str) -> Result<T, IdError>) -> Option<Self> {
        let (key, rest) = token.split_once(':')?;
        id(rest).ok()?;
        let cursor = Self { key: key.parse().ok().filter(|key| *key >= 0)?, id: rest.to_owned() };
        (cursor.token() == token).then_some(cursor)
    }
}

/// The size of a page in rows, clamped.
pub(in crate::store) fn size(page: &PageRequest) -> u32 {
    page.size.clamp(1, PAGE_ROWS_MAX)
}

/// The row behind which a page begins; `None` for the first page.
///
/// # Errors
/// [`StoreError::BadPageToken`] for what [`cut`] cannot have given out.
pub(in crate::store) fn begin<T>(
    page: &PageRequest,
    id: impl Fn(&str) -> Result<T, IdError>,
) -> Result<Option<Cursor>, StoreError> {
    page.after.as_deref().map(|token| Cursor::parse(token, id).ok_or(StoreError::BadPageToken)).transpose()
}

/// A page of these rows, which more follow or do not.
pub(in crate::store) fn of<T>(rows: Vec<T>, more: bool, cursor: impl Fn(&T) -> Cursor) -> Page<T> {
    let next = rows.last().filter(|_| more).map(|row| cursor(row).token());
    Page { rows, next }
}

/// A page of `size` rows. The caller reads one row more than that, which tells that there is a next page.
pub(in crate::store) fn cut<T>(mut rows: Vec<T>, size: u32, cursor: impl Fn(&T) -> Cursor) -> Page<T> {
    let more = rows.len() > size as usize;
    rows.truncate(size as usize);
    of(rows, more, cursor)
}

/// Comes before every id.
const FIRST_ID: &str = "-";

impl Cursor {
    /// The row behind which a page begins when the one before it has looked at all rows down to this time.
    fn at_floor(floor: Timestamp) -> Self {
        Self { key: int(floor.0), id: FIRST_ID.to_owned() }
    }

    /// True if the page before this row has looked at all rows of its time.
    pub(in crate::store) fn is_at_floor(&self) -> bool {
        self.id == FIRST_ID
    }
}

/// As [`cut`], of a page that looks at no row before `floor`: if it is not full, the next one begins there.
pub(in crate::store) fn cut_at_floor<T>(
    rows: Vec<T>,
    size: u32,
    floor: Option<Timestamp>,
    cursor: impl Fn(&T) -> Cursor,
) -> Page<T> {
    let Page { rows, next } = cut(rows, size, cursor);
    Page { rows, next: next.or_else(|| floor.map(|floor| Cursor::at_floor(floor).token())) }
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::RunId;

    use super::*;

    fn parse(token: &str) -> Option<Cursor> {
        Cursor::parse(token, |id| RunId::parse(id))
    }

    #[test]
    fn a_token_leads_back() {
        let cursor = Cursor { key: 17, id: "a:b-1".to_owned() };
        assert_eq!(parse(&cursor.token()), Some(cursor));
    }

    #[test]
    fn what_was_not_given_out_is_refused() {
        for forged in
            ["", ":", "1", "1:", ":a", "x:a", "-1:a", "+1:a", "01:a", "1:a b", "99999999999999999999:a"]
        {
            assert_eq!(parse(forged), None, "{forged:?}");
        }
        assert_eq!(parse(&format!("1:{}", "a".repeat(129))), None);
    }

    #[test]
    fn only_a_page_with_a_row_behind_it_names_the_next() {
        let cursor = |row: &i64| Cursor { key: *row, id: "r".to_owned() };
        assert_eq!(cut(vec![1, 2], 2, cursor), Page { rows: vec![1, 2], next: None });
        assert_eq!(cut(vec![1, 2, 3], 2, cursor), Page { rows: vec![1, 2], next: Some("2:r".to_owned()) });
        assert_eq!(cut(vec![], 2, cursor), Page { rows: vec![], next: None });
    }

    #[test]
    fn a_page_that_is_not_full_leads_to_its_floor() {
        let cursor = |row: &i64| Cursor { key: *row, id: "r".to_owned() };
        let floor = Some(Timestamp(7));
        let begin = |page: Page<i64>| page.next.and_then(|token| parse(&token));
        let at_floor = begin(cut_at_floor(vec![9], 2, floor, cursor)).unwrap();
        assert!(at_floor.is_at_floor() && at_floor.key == 7, "{at_floor:?}");
        let behind_a_row = begin(cut_at_floor(vec![9, 8, 7], 2, floor, cursor)).unwrap();
        assert!(!behind_a_row.is_at_floor() && behind_a_row.key == 8, "{behind_a_row:?}");
        assert_eq!(begin(cut_at_floor(vec![9], 2, None, cursor)), None);
    }
}
