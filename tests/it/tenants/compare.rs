//! Answers as texts that can be compared between servers: times, lengths of time and ids that a server made are replaced.

use std::collections::BTreeMap;
use std::fmt::Debug;

use agentloop_client::Error;

/// Fields whose values differ from server to server. The numbers and hashes of the audit log are of one chain. The digests of a
/// replayed run are also those of its times.
const FIELDS: [&str; 8] =
    ["resume_token", "no", "hash", "previous_hash", "peer", "instance_id", "state_digest", "context_digest"];

/// Types of values that are times.
const TIMES: [&str; 2] = ["Timestamp", "Duration"];

/// An answer as text, with everything that was received.
///
/// # Panics
/// When no server answered.
#[track_caller]
pub(super) fn text_of<T: Debug>(answer: &Result<T, Error>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => {
            let status = error.status().unwrap_or_else(|| panic!("the server answers: {error}"));
            let metadata: BTreeMap<_, _> = status.metadata.iter().collect();
            let (code, reason, message) = (status.code, status.reason, &status.message);
            format!("{code:?} {reason:?} {message} {metadata:?} {:?}", status.violations)
        }
    }
}

/// The text without what differs from server to server.
pub(super) fn plain(text: &str) -> String {
    let times = TIMES.iter().fold(text.to_owned(), |text, name| without_struct(&text, name));
    let fields = FIELDS.iter().fold(times, |text, name| without_field(&text, name));
    words_replaced(&fields)
}

/// Replaces each value of this type, such as `Timestamp { seconds: 1, nanos: 2 }`.
fn without_struct(text: &str, name: &str) -> String {
    let begin = format!("{name} {{");
    let mut parts = text.split(&begin);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(name);
        plain.push_str(part.split_once('}').map_or(part, |(_, rest)| rest));
    }
    plain
}

/// Replaces the value of each field of this name, which is a number or a string.
fn without_field(text: &str, name: &str) -> String {
    let begin = format!(" {name}: ");
    let mut parts = text.split(&begin);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(&begin);
        let end = match part.strip_prefix('"') {
            Some(quoted) => quoted.find('"').map_or(part.len(), |at| at + 2),
            None => part.find([',', ' ', '}']).unwrap_or(part.len()),
        };
        plain.push_str(&part[end..]);
    }
    plain
}

/// Replaces words that are ids of a server, times, or lengths of time, in texts and in JSON.
fn words_replaced(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.' | '_');
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find(is_part) {
        let (before, word) = rest.split_at(begin);
        let (word, after) = word.split_at(word.find(|c| !is_part(c)).unwrap_or(word.len()));
        plain.push_str(before);
        plain.push_str(replaced(word));
        rest = after;
    }
    plain.push_str(rest);
    plain
}

fn replaced(word: &str) -> &str {
    let bytes = word.as_bytes();
    let has_digit_first = bytes.first().is_some_and(u8::is_ascii_digit);
    let is_hyphen_at = |at: usize| bytes.get(at) == Some(&b'-');
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    if word.len() == 36 && [8, 13, 18, 23].into_iter().all(is_hyphen_at) {
        "(id)"
    } else if word.strip_prefix("call_").is_some_and(is_number) {
        // The model of the tests counts its calls over all servers.
        "(call)"
    } else if word.starts_with("127.0.0.1:") {
        "(address)"
    } else if has_digit_first && word.ends_with('Z') && word.contains('T') {
        "(time)"
    } else if has_digit_first
        && word.strip_suffix('s').is_some_and(|number| is_number(number.trim_end_matches(['m', 'n'])))
    {
        "(duration)"
    } else {
        // The id of a remembered rule ends with the time of the decision, in milliseconds.
        word.rsplit_once(':').filter(|(_, at)| at.len() == 13 && is_number(at)).map_or(word, |(id, _)| id)
    }
}

#[test]
fn only_what_a_server_makes_is_replaced() {
    let text = "Run { run_id: \"r1\", created_at: Some(Timestamp { seconds: 7, nanos: 8 }), last_seq: 9, no: 15, \
                hash: \"ab\" } {\\\"at\\\":\\\"2026-01-02T03:04:05.678Z\\\",\\\"took\\\":\\\"0.250s\\\"} in 12ms, call_7, of r1:1.0:0:1795668215179 at 127.0.0.1:50051, \
                0192f0c1-2345-7abc-8def-0123456789ab/1.0";
    let expected = "Run { run_id: \"r1\", created_at: Some(Timestamp), last_seq: 9, no: , hash:  } \
                    {\\\"at\\\":\\\"(time)\\\",\\\"took\\\":\\\"(duration)\\\"} in (duration), (call), of r1:1.0:0 at (address), (id)/1.0";
    assert_eq!(plain(text), expected);
}
