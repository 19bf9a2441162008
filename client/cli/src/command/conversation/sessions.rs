//! `agentloop sessions`: lists sessions, shows the messages of one, changes or deletes one.

use std::time::SystemTime;

use agentloop_client::{
    Client, Error,
    v1::{
        ContextCompacted, DeleteSessionResponse, Entry, ListEntriesRequest, ListSessionsRequest, Message,
        Part, Role, Session, SessionFilter, UpdateSessionRequest, part::Content,
    },
};

use crate::{
    args::{Global, Label, SessionsArgs, SessionsCommand},
    command::{
        conversation::{
            overview::{SessionOverview, overviews},
            transfer,
        },
        ids::{self, Kind},
    },
    exit::{Exit, Failure},
    terminal::format,
    terminal::json,
    terminal::print,
    terminal::style::Style,
};

const PAGE_SIZE: u32 = 500;

pub(crate) async fn sessions(global: &Global, args: SessionsArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    if let Some(command) = args.command {
        match command {
            SessionsCommand::Export { session } => transfer::export(&client, &session).await?,
            SessionsCommand::Import { file, id } => transfer::import(global, &client, &file, id).await?,
            SessionsCommand::Rename { session, title } => {
                let change = UpdateSessionRequest { title: Some(title), ..UpdateSessionRequest::default() };
                update(global, &client, &session, change).await?;
            }
            SessionsCommand::Label { session, set, remove: remove_labels } => {
                let set_labels = Label::map(set);
                let change =
                    UpdateSessionRequest { set_labels, remove_labels, ..UpdateSessionRequest::default() };
                update(global, &client, &session, change).await?;
            }
        }
        return Ok(Exit::Completed);
    }
    match args.session {
        Some(session_id) if args.delete => {
            let existed = client.delete_session(&session_id).await?;
            if global.json() {
                print::line(&json::line("DeleteSessionResponse", &DeleteSessionResponse { existed }))?;
            } else {
                print::line(if existed { "deleted" } else { "there is no such session" })?;
            }
        }
        Some(given) => show(global, &client, ids::session(&client, &given).await?).await?,
        None => list(global, all(&client, args).await?)?,
    }
    Ok(Exit::Completed)
}

/// Changes the title or the labels of a session.
async fn update(
    global: &Global,
    client: &Client,
    given: &str,
    change: UpdateSessionRequest,
) -> Result<(), Failure> {
    let update = |session_id: String| async {
        client.update_session(UpdateSessionRequest { session_id, ..change.clone() }).await
    };
    let session = ids::called(client, Kind::Session, given, update).await?;
    if global.json() {
        return Ok(print::line(&json::line("Session", &session))?);
    }
    let style = Style::of(&std::io::stdout());
    let labels: Vec<String> = session.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    for line in [session.session_id, session.title, labels.join(" ")].iter().filter(|line| !line.is_empty()) {
        print::line(&style.strip_unsafe(line))?;
    }
    Ok(())
}

async fn all(client: &Client, args: SessionsArgs) -> Result<Vec<Session>, Error> {
    let SessionsArgs { limit, label, text, status, agent, .. } = args;
    let filter = SessionFilter {
        labels: Label::map(label),
        text: text.unwrap_or_default(),
        statuses: status.into_iter().map(i32::from).collect(),
        agents: agent,
        ..SessionFilter::default()
    };
    let mut sessions = Vec::new();
    let mut request = ListSessionsRequest { filter: Some(filter), ..ListSessionsRequest::default() };
    loop {
        let missing = limit as usize - sessions.len();
        request.page_size = u32::try_from(missing).unwrap_or(PAGE_SIZE).min(PAGE_SIZE);
        let page = client.list_sessions(request.clone()).await?;
        sessions.extend(page.sessions);
        sessions.truncate(limit as usize);
        if page.next_page_token.is_empty() || sessions.len() == limit as usize {
            return Ok(sessions);
        }
        request.page_token = page.next_page_token;
    }
}

fn list(global: &Global, sessions: Vec<Session>) -> Result<(), Failure> {
    if global.json() {
        return Ok(sessions.iter().try_for_each(|session| print::line(&json::line("Session", session)))?);
    }
    let (style, now) = (Style::of(&std::io::stdout()), SystemTime::now());
    let rows: Vec<_> = overviews(sessions)
        .into_iter()
        .map(|overview| {
            let age = overview.age(now);
            let SessionOverview { session, about, agent, state } = overview;
            let about = style.strip_unsafe(&format::first_line(&about, 60)).into_owned();
            [session.session_id, age, session.entry_count.to_string(), agent, state, about]
        })
        .collect();
    Ok(print::table(["SESSION", "AGE", "ENTRIES", "AGENT", "STATE", "TITLE OR FIRST PROMPT"], &rows)?)
}

async fn show(global: &Global, client: &Client, session_id: String) -> Result<(), Failure> {
    let style = Style::of(&std::io::stdout());
    let mut request = ListEntriesRequest { session_id, after_entry_no: 0, page_size: PAGE_SIZE };
    loop {
        let page = client.list_entries(request.clone()).await?;
        for entry in &page.entries {
            let text = if global.json() {
                json::line("Entry", entry)
            } else {
                style.strip_unsafe(&describe(entry)).into()
            };
            print::line(&text)?;
        }
        match page.entries.last() {
            Some(last) if page.more => request.after_entry_no = last.entry_no,
            _ => return Ok(()),
        }
    }
}

/// An entry such as `3 assistant: the text`, with a line for each part.
fn describe(entry: &Entry) -> String {
    if entry.damaged {
        return format!("{:>3} is damaged and cannot be read", entry.entry_no);
    }
    if let Some(compaction) = &entry.compaction {
        return format!("{:>3} {}", entry.entry_no, compacted(compaction));
    }
    let message = entry.message.clone().unwrap_or_default();
    let who = role(&message);
    let parts: Vec<String> = message.parts.iter().map(part).collect();
    format!("{:>3} {who}: {}", entry.entry_no, parts.join("\n    "))
}

/// A compaction: the entries that the model no longer reads as they are, and the text that it reads in their place.
fn compacted(compaction: &ContextCompacted) -> String {
    let ContextCompacted { strategy, up_to_entry_no, summary, cut_up_to_entry_no, .. } = compaction;
    let mut parts = Vec::new();
    if *up_to_entry_no > 0 {
        let what = if summary.is_empty() { "leaves out" } else { "replaces" };
        parts.push(format!("{what} entries up to {up_to_entry_no}"));
    }
    if *cut_up_to_entry_no > 0 {
        parts.push(format!("cuts long tool outputs up to entry {cut_up_to_entry_no}"));
    }
    let summary = if summary.is_empty() { String::new() } else { format!(":\n    {summary}") };
    format!("compaction ({strategy}) {}{summary}", parts.join(", "))
}

fn role(message: &Message) -> String {
    match message.role() {
        Role::Unspecified => "unknown".to_owned(),
        role => format::enum_name(role.as_str_name(), "ROLE_"),
    }
}

fn part(part: &Part) -> String {
    match &part.content {
        Some(Content::Text(text)) => text.clone(),
        Some(Content::Reasoning(reasoning)) => format!("(thinks) {}", reasoning.text),
        Some(Content::Image(image)) => format!("(picture {})", image.media_type),
        Some(Content::ToolCall(call)) => {
            let title = if call.title.is_empty() { String::new() } else { format!("{}  ", call.title) };
            format!("→ {title}{} {}", call.name, call.arguments_json)
        }
        Some(Content::ToolResult(result)) => {
            format!(
                "← {} {}: {}",
                result.name,
                format::tool_status(result.status()),
                format::tool_output(result)
            )
        }
        None => "(unknown)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use agentloop_client::v1::ToolCall;

    use super::*;

    #[test]
    fn an_entry_reads_like_a_conversation() {
        let call =
            ToolCall { name: "add".into(), arguments_json: r#"{"a":1}"#.into(), ..ToolCall::default() };
        let titled = ToolCall { title: "Adds 1".into(), ..call.clone() };
        let parts = [Content::Text("Let me see".into()), Content::ToolCall(call), Content::ToolCall(titled)];
        let message = Message {
            role: Role::Assistant.into(),
            parts: parts.into_iter().map(|content| Part { content: Some(content) }).collect(),
        };
        let entry = Entry { entry_no: 2, message: Some(message), ..Entry::default() };
        assert_eq!(
            describe(&entry),
            "  2 assistant: Let me see\n    → add {\"a\":1}\n    → Adds 1  add {\"a\":1}"
        );
        let compaction = ContextCompacted {
            strategy: "summarize".into(),
            up_to_entry_no: 3,
            cut_up_to_entry_no: 4,
            summary: "They met.".into(),
            ..ContextCompacted::default()
        };
        let mut entry = Entry { entry_no: 5, compaction: Some(compaction), ..Entry::default() };
        assert_eq!(
            describe(&entry),
            "  5 compaction (summarize) replaces entries up to 3, cuts long tool outputs up to entry 4:\n    They met."
        );
        entry.compaction = entry.compaction.map(|compaction| ContextCompacted {
            strategy: "truncate".into(),
            summary: String::new(),
            cut_up_to_entry_no: 0,
            ..compaction
        });
        assert_eq!(describe(&entry), "  5 compaction (truncate) leaves out entries up to 3");
        let damaged = Entry { entry_no: 3, damaged: true, ..Entry::default() };
        assert_eq!(describe(&damaged), "  3 is damaged and cannot be read");
    }
}
