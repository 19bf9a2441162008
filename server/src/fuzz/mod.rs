//! Entrances for bytes from outside, as functions that a fuzzer calls: `server/fuzz` runs them by chance, the tests
//! here over its corpus. Each panics where what must always hold does not.

use crate::config::Config;
use crate::{auth, grpc, model, store};

/// The function that a fuzzer calls.
pub type Target = fn(&[u8]);

/// Every target by the name of its corpus.
pub const TARGETS: [(&str, Target); 10] = [
    ("sse", sse),
    ("chat", chat),
    ("messages", messages),
    ("responses", responses),
    ("gemini", gemini),
    ("journal", journal),
    ("config", config),
    ("frames", frames),
    ("run_input", run_input),
    ("credentials", credentials),
];

/// A stream of server-sent events; its first byte says where it is cut.
pub fn sse(data: &[u8]) {
    model::testing::fuzz::sse(data);
}

/// A response in the format of Chat Completions; its first byte says where it is cut.
pub fn chat(data: &[u8]) {
    model::testing::fuzz::chat(data);
}

/// A response in the format of Messages; its first byte says where it is cut.
pub fn messages(data: &[u8]) {
    model::testing::fuzz::messages(data);
}

/// A response in the format of Responses; its first byte says where it is cut.
pub fn responses(data: &[u8]) {
    model::testing::fuzz::responses(data);
}

/// A response in the format of `generateContent`; its first byte says where it is cut.
pub fn gemini(data: &[u8]) {
    model::testing::fuzz::gemini(data);
}

/// A row of the journal: seq, time, kind, status and version in the first line, then the payload.
pub fn journal(data: &[u8]) {
    store::fuzz::journal(data);
}

/// Reads the data as a configuration file.
pub fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // A folder that is not there: what the text names by a relative path is not read.
    match Config::parse(&text, "/nowhere/agentloop.toml") {
        Ok(config) => drop(config),
        Err(error) => {
            assert!(!error.problems().is_empty(), "what is refused is refused for a reason");
            assert!(!error.to_string().is_empty(), "and with words");
        }
    }
}

/// The stream of a tool host: frames, each behind its length in two bytes.
pub fn frames(data: &[u8]) {
    grpc::fuzz::frames(data);
}

/// The request that starts a run, as a caller sends it.
pub fn run_input(data: &[u8]) {
    grpc::fuzz::run_input(data);
}

/// Credentials: a bearer token, a file of tokens, claims, a set of keys or a certificate. The first byte chooses.
pub fn credentials(data: &[u8]) {
    auth::fuzz::credentials(data);
}

#[cfg(test)]
mod tests;
