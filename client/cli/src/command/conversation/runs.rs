//! `agentloop runs`: lists runs, or shows one.

use agentloop_client::{
    Client, Error, WatchUpdate,
    v1::{
        FinishReason, ListRunsRequest, Run, RunFilter, WaitingOn, WatchRunsResponse,
        watch_runs_response::Change,
    },
};

use crate::{
    args::{ENDLESS_BACKOFF, Global, Label, RunsArgs},
    command::ids::{self, Kind},
    exit::{Exit, Failure},
    terminal::commands,
    terminal::format,
    terminal::json,
    terminal::print,
    terminal::render::status::{OptionNames, error, question},
    terminal::signals::EndSignals,
    terminal::style::Style,
    terminal::text::sanitize,
};

const PAGE_SIZE: u32 = 500;
/// Characters of a prompt in the list.
const PREVIEW_CHARS: usize = 60;

pub(crate) async fn runs(global: &Global, args: RunsArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    match args.run {
        Some(run_id) => {
            let read = |id: String| async { client.get_run(id).await };
            show(global, &ids::called(&client, Kind::Run, &run_id, read).await?)?;
        }
        None => {
            let (limit, stays) = (args.limit, args.watch);
            let session = ids::session_filter(&client, args.session.clone()).await?;
            let filter = filter(session, args);
            if stays {
                return watch(global, client, filter).await;
            }
            let request = ListRunsRequest { filter: Some(filter), ..Default::default() };
            list(global, &all(&client, request, limit).await?)?;
        }
    }
    Ok(Exit::Completed)
}

fn filter(session: Option<String>, args: RunsArgs) -> RunFilter {
    RunFilter {
        session_id: session.unwrap_or_default(),
        statuses: args.status.iter().map(|status| i32::from(*status)).collect(),
        labels: Label::map(args.label),
        agents: args.agent,
        models: args.model,
        text: args.text,
        ..RunFilter::default()
    }
}

async fn all(client: &Client, mut request: ListRunsRequest, limit: u32) -> Result<Vec<Run>, Error> {
    let mut runs = Vec::new();
    loop {
        let missing = limit as usize - runs.len();
        request.page_size = u32::try_from(missing).unwrap_or(PAGE_SIZE).min(PAGE_SIZE);
        let page = client.list_runs(request.clone()).await?;
        runs.extend(page.runs);
        runs.truncate(limit as usize);
        if page.next_page_token.is_empty() || runs.len() == limit as usize {
            return Ok(runs);
        }
        request.page_token = page.next_page_token;
    }
}

/// Prints each change of the list, until ctrl-C or another signal. The server may be away for a while.
async fn watch(global: &Global, client: Client, filter: RunFilter) -> Result<Exit, Failure> {
    let mut signals = EndSignals::listen();
    let mut watch = client.watch_runs(filter).await?.with_backoff(ENDLESS_BACKOFF);
    loop {
        let update = tokio::select! {
            update = watch.next_update() => update?,
            _ = signals.next() => return Ok(Exit::Interrupted),
        };
        let change = match update {
            WatchUpdate::Item(change) => *change,
            WatchUpdate::Lost => {
                eprintln!("agentloop: the connection is lost; waiting for the server");
                continue;
            }
            WatchUpdate::Resumed => {
                eprintln!("agentloop: the server is back");
                continue;
            }
        };
        if global.json() {
            let message = WatchRunsResponse { change: Some(change), ..Default::default() };
            print::line(&json::line("WatchRunsResponse", &message))?;
        } else if let Some(line) = changed(&change) {
            print::line(&line)?;
        }
    }
}

/// A change of a watched list as a line; `None` for what people need not see.
fn changed(change: &Change) -> Option<String> {
    match change {
        Change::Run(run) => {
            let Run { run_id, session_id, .. } = run;
            let at = format::time(run.updated_at.as_ref());
            let status = format::status(run.status());
            let mut line = format!("{at}  {run_id}  {status:<14}  {session_id}");
            if let Some(waiting) = &run.waiting_on {
                line.push_str(&format!("  for {}", format::waited_for(waiting.kind(), &waiting.what)));
            }
            Some(sanitize(&line))
        }
        Change::Removed(removed) if removed.deleted => Some(format!("{}  was deleted", removed.run_id)),
        Change::Removed(removed) => Some(format!("{}  left the list", removed.run_id)),
        Change::Reset(_) | Change::Synced(_) => None,
    }
}

fn list(global: &Global, runs: &[Run]) -> Result<(), Failure> {
    if global.json() {
        return Ok(runs.iter().try_for_each(|run| print::line(&json::line("Run", run)))?);
    }
    let rows: Vec<_> = runs
        .iter()
        .map(|run| {
            [
                run.run_id.clone(),
                format::status(run.status()),
                run.model.clone(),
                format::time(run.created_at.as_ref()),
                run.session_id.clone(),
                format::first_line(&run.preview, PREVIEW_CHARS),
            ]
        })
        .collect();
    Ok(print::table(["RUN", "STATUS", "MODEL", "CREATED", "SESSION", "PROMPT"], &rows)?)
}

fn show(global: &Global, run: &Run) -> Result<(), Failure> {
    if global.json() {
        return Ok(print::line(&json::line("Run", run))?);
    }
    let style = Style::of(&std::io::stdout());
    let mut lines = vec![
        format!("run      {}", run.run_id),
        format!("session  {}", run.session_id),
        format!("status   {}", style.bold(&format::status(run.status()))),
        sanitize(&format!("agent    {}, model {}", run.agent, run.model)),
        format!(
            "created  {}, last moved {}",
            format::time(run.created_at.as_ref()),
            format::time(run.updated_at.as_ref())
        ),
        format!("so far   {}, {}", format::calls(run.iterations, run.tool_calls), usage(run)),
        format!("last     event {}", run.last_seq),
    ];
    if run.queue_position > 0 {
        lines.push(format!("queue    place {} of its session", run.queue_position));
    }
    lines.extend(
        run.waiting_on.as_ref().map(|waiting| sanitize(&format!("waits    {}", waiting_on(waiting)))),
    );
    lines.extend(run.tool_calls_open.iter().map(|call| {
        let state = format::enum_name(call.state().as_str_name(), "TOOL_CALL_STATE_");
        sanitize(&format!("call     {} {} {state} {}", call.call_id, call.tool, call.host_id))
    }));
    lines.extend(run.last_error.as_ref().map(|last| format!("error    {}", error(style, Some(last)))));
    lines.extend(run.pending.iter().flat_map(|request| {
        let command = commands::answer(request) + &global.server_option();
        let command = style.strip_unsafe(&command);
        [question(style, request, OptionNames::Ids), style.dim(&format!("  {command}"))]
    }));
    let cut = match run.finish_reason() {
        FinishReason::Length => " (cut off at the model's limit)",
        _ => "",
    };
    lines.extend(
        run.final_assistant_message
            .as_ref()
            .map(|message| format!("answer{cut}\n{}", sanitize(&format::text(message)))),
    );
    Ok(print::line(&lines.join("\n"))?)
}

fn usage(run: &Run) -> String {
    run.usage.as_ref().map(format::usage).unwrap_or_default()
}

/// The reason why a run waits, as a sentence.
fn waiting_on(waiting: &WaitingOn) -> String {
    let mut line = format!("for {}", format::waited_for(waiting.kind(), &waiting.what));
    line.push_str(&format!(", since {}", format::time(waiting.since.as_ref())));
    if waiting.attempt > 1 {
        line.push_str(&format!(", try {}", waiting.attempt));
    }
    if waiting.next_at.is_some() {
        line.push_str(&format!(", next at {}", format::time(waiting.next_at.as_ref())));
    }
    if let Some(last) = &waiting.last_error {
        line.push_str(&format!("; last error: {} [{}]", last.message, format::error_code(last.code())));
    }
    line
}

#[cfg(test)]
mod tests {
    use agentloop_client::v1::{RunError, RunErrorCode, RunRemoved, WaitKind, WatchSynced};

    use super::*;

    #[test]
    fn a_change_is_a_line() {
        let run = Run {
            run_id: "r-1".into(),
            session_id: "trip".into(),
            status: agentloop_client::v1::RunStatus::ModelRunning.into(),
            waiting_on: Some(WaitingOn {
                kind: WaitKind::Model.into(),
                what: "demo/m\u{1b}[2J".into(),
                ..WaitingOn::default()
            }),
            ..Run::default()
        };
        let line = changed(&Change::Run(run)).expect("a line");
        assert!(
            line.contains("r-1  model_running   trip  for the model demo/m") && !line.contains('\u{1b}'),
            "{line:?}"
        );
        let removed = |deleted| RunRemoved { run_id: "r-1".into(), deleted };
        assert_eq!(changed(&Change::Removed(removed(false))).as_deref(), Some("r-1  left the list"));
        assert_eq!(changed(&Change::Removed(removed(true))).as_deref(), Some("r-1  was deleted"));
        assert_eq!(changed(&Change::Synced(WatchSynced::default())), None);
    }

    #[test]
    fn the_reason_for_a_wait_is_a_sentence() {
        let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        let waiting = WaitingOn {
            kind: WaitKind::Backoff.into(),
            since: at(0),
            what: "demo/scripted".into(),
            attempt: 2,
            next_at: at(5),
            last_error: Some(RunError {
                code: RunErrorCode::ModelUnavailable.into(),
                message: "overloaded".into(),
                http_status: 529,
            }),
        };
        assert_eq!(
            waiting_on(&waiting),
            "for the next try of demo/scripted, since 1970-01-01 00:00:00, try 2, next at 1970-01-01 00:00:05; \
             last error: overloaded [model_unavailable]"
        );
    }
}
