//! Pages of lists. A page begins behind a row, which its token names by sort key and id.

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// Rows of this page, in the order of the list.
    pub rows: Vec<T>,
    /// Token of the next page; `None` on the last one. Opaque to callers.
    pub next: Option<String>,
}

/// Size and begin of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// Rows, at most. Clamped to 1 to 1,000.
    pub size: u32,
    /// A token of [`Page::next`]; absent for the first page. Anything else is
    /// [`StoreError::BadPageToken`](super::StoreError::BadPageToken).
    pub after: Option<String>,
}
