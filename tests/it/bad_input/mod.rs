//! Invalid requests: the error names every invalid field, and nothing is done.

mod hosts;
mod run_input;
mod runs;
mod sessions;
mod sizes;

/// Longer than any short text may be.
fn long() -> String {
    "x".repeat(4 * 1024 + 1)
}

/// Longer than any id may be.
fn long_id() -> String {
    "x".repeat(129)
}

/// Invalid pages of lists: a size and a token.
const BAD_PAGES: [(u32, &str, &str); 3] =
    [(501, "", "page_size"), (0, "nonsense", "page_token"), (0, "1:not an id", "page_token")];
