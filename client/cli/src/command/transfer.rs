//! `agentloop sessions export` and `import`: a session as JSON lines, and a session of such lines.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

use agentloop_client::{
    Client,
    v1::{
        CreateSessionRequest, Entry, ImportEntriesRequest, Message, Part, Role, Session, ToolCall,
        ToolResult, ToolStatus, part::Content,
    },
};
use prost::Message as _;

use crate::{
    args::Global,
    command::ids,
    exit::{Failure, in_one_line},
    terminal::{json, print},
};

/// Bounds on the messages of one request. A turn is never split, so a request may have a few more.
const MESSAGES_MAX: usize = 256;
const BYTES_MAX: usize = 1024 * 1024;

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
    let exported = Exported::read(lines).map_err(failed)?;
    let Session { title, labels, .. } = exported.session;
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
        let imported = client.import_entries(request).await.map_err(|error| {
            let (id, count) = (&session.session_id, session.entry_count);
            failed(format!(
                "session {id} has only the first {count} messages: {}; delete it by `agentloop sessions {id} --delete` \
                 before another try",
                in_one_line(&error)
            ))
        })?;
        session = imported.session.unwrap_or(session);
    }
    let line = if global.json() { json::line("Session", &session) } else { session.session_id };
    Ok(print::line(&line)?)
}

fn failed(problem: String) -> Failure {
    Failure::Other(problem)
}

/// A session as it was exported, with its messages in the portions in which they are imported.
#[derive(Debug, Default)]
struct Exported {
    session: Session,
    batches: Vec<Batch>,
    /// Calls of the last message of the model that have no result yet.
    open: BTreeMap<String, ToolCall>,
}

/// Messages that one model gave the answers of.
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
            let line = line.map_err(|error| error.to_string())?;
            let at = |problem: String| format!("line {number}: {problem}");
            let mut object: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(&line).map_err(|error| at(error.to_string()))?;
            if let Some(session) = object.remove("session") {
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
            self.begin_batch(&entry.model);
        }
        for part in &message.parts {
            match &part.content {
                Some(Content::ToolCall(call)) => drop(self.open.insert(call.call_id.clone(), call.clone())),
                Some(Content::ToolResult(result)) => drop(self.open.remove(&result.call_id)),
                _ => {}
            }
        }
        self.push(message);
        Ok(())
    }

    /// Begins another batch if this one is full, or of another model.
    fn begin_batch(&mut self, model: &str) {
        let is_full = self.batches.last().is_none_or(|batch| {
            batch.messages.len() >= MESSAGES_MAX
                || batch.bytes >= BYTES_MAX
                || (!model.is_empty() && !batch.model.is_empty() && batch.model != model)
        });
        if is_full {
            self.batches.push(Batch::default());
        }
        if let Some(batch) = self.batches.last_mut().filter(|batch| batch.model.is_empty()) {
            model.clone_into(&mut batch.model);
        }
    }

    /// Gives every open call a result: without one, the model could not be shown the call.
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
            self.push(Message { role: Role::Tool.into(), parts: vec![part] });
        }
    }

    fn push(&mut self, message: Message) {
        if self.batches.is_empty() {
            self.batches.push(Batch::default());
        }
        let batch = self.batches.last_mut().expect("there is one");
        batch.bytes += message.encoded_len();
        batch.messages.push(message);
    }
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
            (&["nonsense"], "line 1: "),
            (&[SESSION, damaged], "line 2: entry 7 is damaged"),
            (&[r#"{"session":7}"#], "line 1: "),
        ] {
            let refused = read(lines).expect_err("no export");
            assert!(refused.contains(told), "{refused}");
        }
    }
}
