//! `agentloop sessions export` and `import`: a session as JSON lines, and a session of such lines.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

use agentloop_client::{
    Client, Error,
    v1::{
        CreateSessionRequest, Entry, ImportEntriesRequest, Message, Part, Role, Session, ToolCall,
        ToolResult, ToolStatus, part::Content,
    },
};
use prost::Message as _;
use tonic::Code;

use crate::{
    args::Global,
    command::ids,
    exit::{Failure, in_one_line},
    terminal::{json, print},
};

/// Bounds on the messages of one request. A turn is never split between requests, so a request may have a few more.
const MESSAGES_MAX: usize = 256;
const BYTES_MAX: usize = 1024 * 1024;
/// Bytes that a turn may bring a request to that has others.
const REQUEST_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Bytes of a turn. The server takes 8 MiB at once. A larger turn is imported as several: each has some of the calls of the
/// model's message, with their results.
const TURN_BYTES_MAX: usize = 7 * 1024 * 1024;

pub(crate) async fn export(client: &Client, given: &str) -> Result<(), Failure> {
    let session = ids::session(client, given).await?;
    let mut lines = client.export_session(session).await?;
    while let Some(line) = lines.next().await? {
        print::line(&line)?;
    }
    Ok(())
}

pub(crate) async fn import(
    global: &Global,
    client: &Client,
    file: &Path,
    session_id: Option<String>,
) -> Result<(), Failure> {
    let lines: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(file).map_err(|error| failed(format!("{}: {error}", file.display())))?;
        Box::new(BufReader::new(file))
    };
    let exported =
        Exported::read(lines).map_err(|problem| failed(format!("{}: {problem}", file.display())))?;
    let Session { title, labels, .. } = exported.session;
    let is_new = match &session_id {
        None => true,
        Some(id) => match client.get_session(id.clone()).await {
            Ok(_) => false,
            Err(error) => error.code() == Some(Code::NotFound),
        },
    };
    let request = CreateSessionRequest { session_id, title, labels };
    let mut session = client.create_session(request).await?;
    if session.entry_count > 0 {
        return Err(failed(format!("session {} exists and has entries", session.session_id)));
    }
    for Batch { model, messages, .. } in exported.batches {
        let request = ImportEntriesRequest {
            session_id: Some(session.session_id.clone()),
            messages,
            model,
            ..ImportEntriesRequest::default()
        };
        match client.import_entries(request).await {
            Ok(imported) => session = imported.session.unwrap_or(session),
            Err(error) => return Err(broken_off(client, &session, is_new, &error).await),
        }
    }
    let line = if global.json() { json::line("Session", &session) } else { session.session_id };
    Ok(print::line(&line)?)
}

/// The failure of an import, some of whose messages may be there. A new session without any is deleted.
async fn broken_off(client: &Client, session: &Session, is_new: bool, error: &Error) -> Failure {
    let (id, count, error) = (&session.session_id, session.entry_count, in_one_line(error));
    if is_new && count == 0 && client.delete_session(id.clone()).await.is_ok() {
        return failed(format!("nothing is imported: {error}"));
    }
    failed(format!(
        "session {id} has only the first {count} messages: {error}; delete it by `agentloop sessions {id} --delete` \
         before another try"
    ))
}

fn failed(problem: String) -> Failure {
    Failure::Other(problem)
}

/// A session as it was exported, with its messages in the portions in which they are imported.
#[derive(Debug, Default)]
struct Exported {
    session: Session,
    batches: Vec<Batch>,
    /// The last message that is no result, with the results that followed it, and its model.
    turn: Vec<Message>,
    turn_model: String,
    /// Calls of the last message of the model that have no result yet.
    open: BTreeMap<String, ToolCall>,
}

/// Messages of which one model gave the responses.
#[derive(Debug, Default)]
struct Batch {
    model: String,
    messages: Vec<Message>,
    bytes: usize,
}

impl Exported {
    fn read(lines: impl BufRead) -> Result<Self, String> {
        let mut exported = Self::default();
        let mut has_session = false;
        for (number, line) in (1..).zip(lines.lines()) {
            let at = |problem: String| format!("line {number}: {problem}");
            let no_json = |error: String| {
                at(format!("expected a line of JSON, as `agentloop sessions export` writes it: {error}"))
            };
            let line = line.map_err(|error| no_json(error.to_string()))?;
            let mut object: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(&line).map_err(|error| no_json(error.to_string()))?;
            if object.len() != 1 {
                return Err(at("every line is an object with one key: session, run or entry".to_owned()));
            }
            if let Some(session) = object.remove("session") {
                if has_session {
                    return Err(at("a second session begins here; import each export by itself".to_owned()));
                }
                exported.session = json::parse("Session", session).map_err(at)?;
                has_session = true;
            } else if let Some(entry) = object.remove("entry") {
                exported.add(json::parse("Entry", entry).map_err(at)?).map_err(at)?;
            }
        }
        exported.close();
        if has_session { Ok(exported) } else { Err("there is no line with a session".to_owned()) }
    }

    /// Adds a message. A compaction is left out: the model reads the whole conversation again.
    fn add(&mut self, entry: Entry) -> Result<(), String> {
        if entry.damaged {
            return Err(format!("entry {} is damaged", entry.entry_no));
        }
        let Some(message) = entry.message else { return Ok(()) };
        if message.role() != Role::Tool {
            self.close();
            self.turn_model = entry.model;
        }
        for part in &message.parts {
            match &part.content {
                Some(Content::ToolCall(call)) => drop(self.open.insert(call.call_id.clone(), call.clone())),
                Some(Content::ToolResult(result)) => drop(self.open.remove(&result.call_id)),
                _ => {}
            }
        }
        self.turn.push(message);
        Ok(())
    }

    /// Begins another batch if this one is full, too full for so many bytes, or of another model.
    fn begin_batch(&mut self, model: &str, coming: usize) {
        let is_full = self.batches.last().is_none_or(|batch| {
            batch.messages.len() >= MESSAGES_MAX
                || batch.bytes >= BYTES_MAX
                || (batch.bytes > 0 && batch.bytes + coming > REQUEST_BYTES_MAX)
                || (!model.is_empty() && !batch.model.is_empty() && batch.model != model)
        });
        if is_full {
            self.batches.push(Batch::default());
        }
        if let Some(batch) = self.batches.last_mut().filter(|batch| batch.model.is_empty()) {
            model.clone_into(&mut batch.model);
        }
    }

    /// Ends a turn. Every open call gets a result: without one, the model could not be shown the call.
    fn close(&mut self) {
        for (call_id, call) in std::mem::take(&mut self.open) {
            let result = ToolResult {
                call_id,
                name: call.name,
                status: ToolStatus::Aborted.into(),
                output: "not completed".to_owned(),
                ..ToolResult::default()
            };
            let part = Part { content: Some(Content::ToolResult(result)) };
            self.turn.push(Message { role: Role::Tool.into(), parts: vec![part] });
        }
        let (turn, model) = (std::mem::take(&mut self.turn), std::mem::take(&mut self.turn_model));
        for messages in pieces(turn) {
            let bytes = encoded_len(&messages);
            self.begin_batch(&model, bytes);
            let batch = self.batches.last_mut().expect("it was begun just above");
            batch.bytes += bytes;
            batch.messages.extend(messages);
        }
    }
}

fn encoded_len(messages: &[Message]) -> usize {
    messages.iter().map(Message::encoded_len).sum()
}

/// A turn in the pieces that are imported one after the other. Only one that is too large has several.
fn pieces(turn: Vec<Message>) -> Vec<Vec<Message>> {
    if turn.is_empty() {
        return Vec::new();
    }
    if encoded_len(&turn) <= TURN_BYTES_MAX {
        return vec![turn];
    }
    let mut messages = turn.into_iter();
    let Message { role, parts } = messages.next().unwrap_or_default();
    let mut results: Vec<Part> = messages.flat_map(|message| message.parts).collect();
    let mut pieces = Vec::new();
    let (mut asked, mut answered, mut bytes) = (Vec::new(), Vec::new(), 0);
    for part in parts {
        let result = match &part.content {
            Some(Content::ToolCall(call)) => take_result(&mut results, &call.call_id),
            _ => None,
        };
        let more = part.encoded_len() + result.as_ref().map_or(0, Part::encoded_len);
        if !answered.is_empty() && bytes + more > TURN_BYTES_MAX {
            pieces.push(piece(role, std::mem::take(&mut asked), std::mem::take(&mut answered)));
            bytes = 0;
        }
        bytes += more;
        asked.push(part);
        answered.extend(result);
    }
    // Results of other calls stay, for the server to refuse.
    answered.extend(results);
    pieces.push(piece(role, asked, answered));
    pieces
}

fn take_result(results: &mut Vec<Part>, call_id: &str) -> Option<Part> {
    let is_of =
        |part: &Part| matches!(&part.content, Some(Content::ToolResult(result)) if result.call_id == call_id);
    results.iter().position(is_of).map(|at| results.remove(at))
}

fn piece(role: i32, asked: Vec<Part>, answered: Vec<Part>) -> Vec<Message> {
    let result = |part| Message { role: Role::Tool.into(), parts: vec![part] };
    let mut piece = vec![Message { role, parts: asked }];
    piece.extend(answered.into_iter().map(result));
    piece
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Result<Exported, String> {
        Exported::read(lines.join("\n").as_bytes())
    }

    const SESSION: &str = r#"{"session":{"sessionId":"s","title":"T","fromLater":1}}"#;
    const ASKS: &str = r#"{"entry":{"entryNo":"2","model":"a/b","message":{"role":"ROLE_ASSISTANT","parts":[{"toolCall":{"callId":"c","name":"t","argumentsJson":"{}"}}]}}}"#;

    #[test]
    fn a_call_without_a_result_gets_one() {
        let exported = read(&[SESSION, r#"{"run":{"runId":"r"}}"#, ASKS]).expect("an export");
        assert_eq!(exported.session.title, "T");
        let [Batch { model, messages, .. }] = &exported.batches[..] else { panic!("{exported:?}") };
        assert_eq!((model.as_str(), messages.len()), ("a/b", 2));
        let Some(Content::ToolResult(result)) = &messages[1].parts[0].content else { panic!("{messages:?}") };
        assert_eq!((result.call_id.as_str(), result.status()), ("c", ToolStatus::Aborted));
    }

    #[test]
    fn a_second_export_and_a_line_of_several_are_refused() {
        let refused = |lines: &[&str]| read(lines).expect_err("it is refused");
        assert_eq!(
            refused(&[SESSION, ASKS, SESSION]),
            "line 3: a second session begins here; import each export by itself"
        );
        let both = refused(&[r#"{"session":{"sessionId":"s"},"run":{"runId":"r"}}"#]);
        assert!(both.starts_with("line 1: every line is an object with one key"), "{both}");
    }

    #[test]
    fn a_turn_that_is_too_large_comes_in_pieces_that_the_server_takes() {
        let call =
            |id: &str| format!(r#"{{"toolCall":{{"callId":"{id}","name":"t","argumentsJson":"{{}}"}}}}"#);
        let calls: Vec<String> = ["a", "b", "c", "d"].iter().map(|id| call(id)).collect();
        let asks = format!(
            r#"{{"entry":{{"message":{{"role":"ROLE_ASSISTANT","parts":[{{"text":"x"}},{}]}}}}}}"#,
            calls.join(",")
        );
        let output = "y".repeat(3 * 1024 * 1024);
        let result = |id: &str| {
            format!(
                r#"{{"entry":{{"message":{{"role":"ROLE_TOOL","parts":[{{"toolResult":{{"callId":"{id}","output":"{output}"}}}}]}}}}}}"#
            )
        };
        let says = r#"{"entry":{"message":{"role":"ROLE_ASSISTANT","parts":[{"text":"done"}]}}}"#;
        // The last call has no result.
        let lines = [SESSION, &asks, &result("b"), &result("a"), &result("c"), says];
        let exported = read(&lines).expect("an export");
        let named = |message: &Message| {
            let name = |part: &Part| match &part.content {
                Some(Content::ToolCall(call)) => format!("?{}", call.call_id),
                Some(Content::ToolResult(result)) => format!("!{}", result.call_id),
                Some(Content::Text(text)) => text.clone(),
                _ => String::new(),
            };
            message.parts.iter().map(name).collect::<Vec<_>>().concat()
        };
        let batches: Vec<Vec<String>> =
            exported.batches.iter().map(|batch| batch.messages.iter().map(named).collect()).collect();
        assert_eq!(batches, [vec!["x?a?b", "!a", "!b"], vec!["?c?d", "!c", "!d"], vec!["done"]]);
    }

    #[test]
    fn each_model_has_its_batch() {
        let says = |model: &str| {
            format!(
                r#"{{"entry":{{"model":"{model}","message":{{"role":"ROLE_ASSISTANT","parts":[{{"text":"x"}}]}}}}}}"#
            )
        };
        let lines = [SESSION.to_owned(), says(""), says("a/b"), says("a/b"), says("c/d")];
        let exported = Exported::read(lines.join("\n").as_bytes()).expect("an export");
        let batches: Vec<_> =
            exported.batches.iter().map(|batch| (batch.model.as_str(), batch.messages.len())).collect();
        assert_eq!(batches, [("a/b", 3), ("c/d", 1)]);
    }

    #[test]
    fn what_is_no_export_is_refused() {
        let damaged = r#"{"entry":{"entryNo":"7","damaged":true}}"#;
        for (lines, told) in [
            (&[][..], "no line with a session"),
            (&["nonsense"], "line 1: expected a line of JSON, as `agentloop sessions export` writes it"),
            (&[SESSION, damaged], "line 2: entry 7 is damaged"),
            (&[r#"{"session":7}"#], "line 1: "),
        ] {
            let refused = read(lines).expect_err("no export");
            assert!(refused.contains(told), "{refused}");
        }
    }
}
