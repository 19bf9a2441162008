//! What is wrong with a call is said field by field, and nothing of it is done.

mod hosts;
mod runs;
mod sessions;

/// Longer than any short text may be.
fn long() -> String {
    "x".repeat(4 * 1024 + 1)
}

/// Longer than any id may be.
fn long_id() -> String {
    "x".repeat(129)
}

/// What no list takes as a page: its size, and its token.
const BAD_PAGES: [(u32, &str, &str); 3] =
    [(501, "", "page_size"), (0, "nonsense", "page_token"), (0, "1:not an id", "page_token")];
