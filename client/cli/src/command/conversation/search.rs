//! `agentloop search`: finds messages by their words.

use std::time::{Duration, SystemTime};

use agentloop_client::v1::{EntryHit, Role, SearchEntriesRequest};

use crate::{
    args::{Global, SearchArgs},
    command::ids,
    exit::{Exit, Failure},
    terminal::{format, json, print, style::Style},
};

pub(crate) async fn search(global: &Global, args: SearchArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    let session_id = ids::session_filter(&client, args.session).await?.unwrap_or_default();
    let query = args.words.join(" ");
    let request =
        SearchEntriesRequest { query, session_id, limit: args.limit, ..SearchEntriesRequest::default() };
    let hits = client.search_entries(request).await?;
    if global.json() {
        hits.iter().try_for_each(|hit| print::line(&json::line("EntryHit", hit)))?;
        return Ok(Exit::Completed);
    }
    let style = Style::of(&std::io::stdout());
    let now = SystemTime::now();
    for hit in &hits {
        print::line(&style.bold(&style.strip_unsafe(&head(hit, now))))?;
        print::line(&format!("  {}", style.strip_unsafe(&hit.snippet).replace('\n', "\n  ")))?;
    }
    if hits.is_empty() {
        print::line("no message has these words")?;
    }
    Ok(Exit::Completed)
}

/// The place of a hit, such as `trip 4, user, 3m ago`.
fn head(hit: &EntryHit, now: SystemTime) -> String {
    let who = match hit.role() {
        Role::Unspecified => "unknown".to_owned(),
        role => format::enum_name(role.as_str_name(), "ROLE_"),
    };
    let at = hit.at.and_then(|at| SystemTime::try_from(at).ok());
    let age = at.map(|at| now.duration_since(at).unwrap_or(Duration::ZERO));
    let age = age.map(|age| format!(", {} ago", format::age(age))).unwrap_or_default();
    format!("{} {}, {who}{age}", hit.session_id, hit.entry_no)
}
