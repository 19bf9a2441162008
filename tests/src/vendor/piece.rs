//! The pieces of an answer, and the ways to write them.

use serde_json::Value;

/// One piece of an answer.
#[derive(Debug, Clone)]
pub enum Piece {
    /// Reasoning, signed or encrypted as the vendor does.
    Thought(String),
    /// Reasoning whose text the vendor keeps.
    Hidden,
    /// Text for the user.
    Text(String),
    /// A tool, and its arguments.
    Call(String, Value),
}

impl Piece {
    /// Text for the user.
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// A thought about this.
    pub fn thought(about: &str) -> Self {
        Self::Thought(format!("I think about: {about}"))
    }

    /// A call of a tool.
    pub fn call(tool: &str, arguments: Value) -> Self {
        Self::Call(tool.to_owned(), arguments)
    }
}

/// Variants of writing an answer. Each occurs at a real vendor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Manner {
    /// As the vendor documents it.
    #[default]
    Usual,
    /// Deltas of tool calls have no index (Chat Completions).
    NoIndex,
    /// All calls have the index 0 (Chat Completions).
    SameIndex,
    /// The stream says "stop" although there are calls (Chat Completions).
    StopDespiteCalls,
    /// The stream stops before its end, and the connection stays until the server hangs up.
    Held,
    /// The connection ends in good order before the stream does.
    Unended,
    /// After some text comes the news that the vendor is overloaded.
    OverloadedMidway,
    /// The first event is an error with its fields at the top (Responses).
    FlatError,
    /// The first event is an error with its fields inside `error`.
    NestedError,
    /// One JSON document in place of a stream.
    Document,
    /// Lines end in CR LF, and there are comments.
    Crlf,
}
