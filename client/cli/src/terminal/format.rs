//! Short texts for people: enums, times, durations and messages of the contract.

use std::time::Duration;

use agentloop_client::v1::{
    FileContent, Link, Message, RunErrorCode, RunStatus, TodoItem, TodoPriority, TodoStatus, ToolResult,
    ToolStatus, Usage, WaitKind, file_content::Source, part::Content,
};

/// Bound on the text of an item of a to-do list, in characters.
const TODO_CHARS: usize = 200;

/// The name of an enum value without its prefix, in lower case.
pub(crate) fn enum_name(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}

pub(crate) fn status(status: RunStatus) -> String {
    enum_name(status.as_str_name(), "RUN_STATUS_")
}

pub(crate) fn tool_status(status: ToolStatus) -> String {
    enum_name(status.as_str_name(), "TOOL_STATUS_")
}

pub(crate) fn error_code(code: RunErrorCode) -> String {
    enum_name(code.as_str_name(), "RUN_ERROR_CODE_")
}

/// The output of a tool as people read it: its text, or the typed output where that is empty, then files and links.
pub(crate) fn tool_output(result: &ToolResult) -> String {
    let text = if result.output.is_empty() { &result.structured_json } else { &result.output };
    let file = |FileContent { name, media_type, size_bytes, source }: &FileContent| match source {
        Some(Source::BlobDigest(digest)) => {
            format!("file {name} ({media_type}, {size_bytes} bytes, {digest})")
        }
        Some(Source::Data(_)) | None => format!("file {name} ({media_type}, {size_bytes} bytes)"),
    };
    let link = |link: &Link| match link.title.as_str() {
        "" => format!("link {}", link.url),
        title => format!("link {title}: {}", link.url),
    };
    let beside = result.files.iter().map(file).chain(result.links.iter().map(link));
    let lines: Vec<String> =
        Some(text.clone()).filter(|text| !text.is_empty()).into_iter().chain(beside).collect();
    lines.join("\n")
}

/// The text parts of a message, joined.
pub(crate) fn text(message: &Message) -> String {
    let parts = message.parts.iter().filter_map(|part| match &part.content {
        Some(Content::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    parts.collect()
}

/// A duration such as `1.2s` or `340ms`; empty if there is none.
pub(crate) fn duration(given: Option<&prost_types::Duration>) -> String {
    let Some(Ok(duration)) = given.map(|given| Duration::try_from(*given)) else { return String::new() };
    let millis = duration.as_millis();
    if millis < 1000 { format!("{millis}ms") } else { format!("{:.1}s", duration.as_secs_f64()) }
}

/// A time such as `2026-11-21 09:14:03`, in UTC; empty if there is none.
pub(crate) fn time(given: Option<&prost_types::Timestamp>) -> String {
    let Some(given) = given else { return String::new() };
    let seconds = prost_types::Timestamp { nanos: 0, ..*given };
    seconds.to_string().replace('T', " ").trim_end_matches('Z').to_owned()
}

/// The thing that a run waits for, as the rest of a sentence that begins with "waits for". Rows of lists do not say `what`.
pub(crate) fn waited_for(kind: WaitKind, what: &str) -> String {
    let (alone, of) = match kind {
        WaitKind::Unspecified => return what.to_owned(),
        WaitKind::Operator => return "an operator".to_owned(),
        WaitKind::Step => return "the next step".to_owned(),
        WaitKind::Session => return "its turn in the session".to_owned(),
        WaitKind::Memory => return "memory".to_owned(),
        WaitKind::Model => ("the model", "the model"),
        WaitKind::Backoff => ("the next try", "the next try of"),
        WaitKind::Tool => ("the result of a tool", "the result of"),
        WaitKind::ToolHost => ("a tool host", "a tool host for"),
        WaitKind::Human => ("an answer", "an answer to"),
        WaitKind::Extension => ("an extension", "the extension"),
    };
    if what.is_empty() { alone.to_owned() } else { format!("{of} {what}") }
}

/// A time that has passed, in its largest unit: `5s`, `3m`, `4h` or `2d`.
pub(crate) fn age(passed: Duration) -> String {
    match passed.as_secs() {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A time from now on, such as `3s` or `2m 5s`. The last second counts as one.
pub(crate) fn countdown(left: Duration) -> String {
    let seconds = left.as_millis().div_ceil(1000);
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m {}s", seconds / 60, seconds % 60) }
}

/// The time to the next attempt of a failed model call, as it is counted down.
pub(crate) fn next_try(left: Duration) -> String {
    format!("next try in {}", countdown(left))
}

/// The model calls and tool calls of a run.
pub(crate) fn calls(model: u32, tool: u32) -> String {
    let count = |number: u32, what: &str| match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    };
    format!("{}, {}", count(model, "model call"), count(tool, "tool call"))
}

pub(crate) fn usage(usage: &Usage) -> String {
    format!("{} tokens in, {} out{}", usage.input_tokens, usage.output_tokens, cost(usage.cost_micros))
}

/// A cost behind the tokens that it is of, in the currency of the configured prices; empty if there is none.
pub(crate) fn cost(micros: u64) -> String {
    // A cost that four places would round to nothing has all six.
    match micros {
        0 => String::new(),
        1..100 => format!(", cost {:.6}", micros as f64 / 1e6),
        micros => format!(", cost {:.4}", micros as f64 / 1e6),
    }
}

/// The first line of a text, cut to `chars` characters. `…` marks a cut.
pub(crate) fn first_line(text: &str, chars: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let cut: String = line.chars().take(chars).collect();
    if cut.len() < text.trim().len() { format!("{cut} …") } else { cut }
}

/// The lines of a to-do list, each with a sign for its state.
pub(crate) fn todos(items: &[TodoItem]) -> Vec<String> {
    let line = |item: &TodoItem| {
        let sign = match item.status() {
            TodoStatus::Unspecified | TodoStatus::Pending => ' ',
            TodoStatus::InProgress => '~',
            TodoStatus::Completed => 'x',
            TodoStatus::Cancelled => '-',
        };
        let urgent = if item.priority() == TodoPriority::High { "! " } else { "" };
        format!("[{sign}] {urgent}{}", first_line(&item.content, TODO_CHARS))
    };
    items.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_result_shows_what_is_beside_its_text() {
        let file =
            FileContent { name: "a.csv".into(), media_type: "text/csv".into(), size_bytes: 7, source: None };
        let link = Link { url: "https://a/b".into(), title: "More".into() };
        let typed = ToolResult { structured_json: "[1]".into(), ..ToolResult::default() };
        assert_eq!(tool_output(&typed), "[1]");
        let text = ToolResult { output: "ok".into(), files: vec![file], links: vec![link], ..typed };
        assert_eq!(tool_output(&text), "ok\nfile a.csv (text/csv, 7 bytes)\nlink More: https://a/b");
    }

    #[test]
    fn enums_read_well() {
        assert_eq!(status(RunStatus::AwaitingHuman), "awaiting_human");
        assert_eq!(tool_status(ToolStatus::OutcomeUnknown), "outcome_unknown");
        assert_eq!(error_code(RunErrorCode::LimitToolRounds), "limit_tool_rounds");
    }

    #[test]
    fn times_and_durations_read_well() {
        let given = |seconds, nanos| duration(Some(&prost_types::Duration { seconds, nanos }));
        assert_eq!(given(0, 340_000_000), "340ms");
        assert_eq!(given(61, 240_000_000), "61.2s");
        assert_eq!(given(-1, 0), "");
        let at = prost_types::Timestamp { seconds: 1_795_252_443, nanos: 5 };
        assert_eq!(time(Some(&at)), "2026-11-21 09:14:03");
        assert_eq!(time(None), "");
    }

    #[test]
    fn one_call_is_no_calls() {
        assert_eq!(calls(1, 0), "1 model call, 0 tool calls");
        assert_eq!(calls(2, 1), "2 model calls, 1 tool call");
    }

    #[test]
    fn a_cost_is_told_where_there_is_one() {
        assert_eq!([cost(0), cost(20), cost(12_300)], ["", ", cost 0.000020", ", cost 0.0123"]);
        let used = Usage { input_tokens: 5, output_tokens: 6, cost_micros: 1_500_000, ..Usage::default() };
        assert_eq!(usage(&used), "5 tokens in, 6 out, cost 1.5000");
    }

    #[test]
    fn times_are_counted_down() {
        let cases = [(0, "0s"), (1, "1s"), (1000, "1s"), (1001, "2s"), (59_100, "1m 0s"), (125_000, "2m 5s")];
        for (millis, expected) in cases {
            assert_eq!(countdown(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn ages_have_one_unit() {
        let cases = [(0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (90_000, "1d")];
        for (seconds, expected) in cases {
            assert_eq!(age(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn waits_read_well() {
        assert_eq!(waited_for(WaitKind::ToolHost, "c (add)"), "a tool host for c (add)");
        assert_eq!(waited_for(WaitKind::Operator, ""), "an operator");
        assert_eq!(waited_for(WaitKind::Model, ""), "the model");
        assert_eq!(waited_for(WaitKind::Human, ""), "an answer");
    }

    #[test]
    fn long_texts_are_cut_with_a_sign() {
        assert_eq!(first_line("short", 10), "short");
        assert_eq!(first_line("first\nsecond", 10), "first …");
        assert_eq!(first_line("äöüäöü", 3), "äöü …");
        assert_eq!(first_line("trailing\n", 10), "trailing");
    }
}
