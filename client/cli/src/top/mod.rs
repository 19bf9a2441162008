//! `agentloop top`: the open runs, hosts and questions of a server on one screen that refreshes itself.

mod action;
mod dialog;
mod meter;
mod state;
mod view;

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal as _},
    time::{Duration, Instant, SystemTime},
};

use agentloop_client::{
    Client, Error, WatchUpdate,
    v1::{
        Decision, ErrorReason, HumanRequest, ListPendingRequest, Run, RunFilter, RunStatus,
        SubmitApprovalRequest, SubmitInputRequest, decision::Decision as Kind, submit_input_request::Input,
        watch_runs_response::Change,
    },
};
use crossterm::event::{Event as TerminalEvent, EventStream};
use futures_util::StreamExt as _;
use tokio::{sync::mpsc, task::JoinSet, time::MissedTickBehavior};

use self::{
    action::Action,
    dialog::Size,
    state::{Top, TopEvent},
};
use crate::{
    args::{ENDLESS_BACKOFF, Global},
    chat::screen::Screen,
    command::conversation::run::user,
    exit::{Exit, Failure, in_one_line},
    terminal::render::status::{AskedQuestion, answered},
    terminal::signals::EndSignals,
};

/// Statuses of runs that have not ended.
const OPEN: [RunStatus; 8] = [
    RunStatus::Queued,
    RunStatus::Preparing,
    RunStatus::ModelRunning,
    RunStatus::ToolRunning,
    RunStatus::AwaitingHuman,
    RunStatus::BackingOff,
    RunStatus::Compacting,
    RunStatus::Paused,
];
/// The meter has a list of all runs that were created in this time. Older ones are metered while they are open.
const METERED: Duration = Duration::from_secs(3600);
/// Time between two reads of hosts, tools and questions.
const POLL: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(500);
/// Questions of one page.
const QUESTIONS: u32 = 200;
/// Questions that are looked at, the oldest ones.
const QUESTIONS_MAX: usize = 2_000;
const EVENTS_MAX: usize = 1024;
/// Runs that have left the list whose last row is not read yet. Of more, the meter counts what it has seen.
const LAST_ROWS_MAX: usize = 256;
/// Events that are handled before the screen is drawn again.
const BATCH: usize = 256;

pub(crate) async fn top(global: &Global) -> Result<Exit, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "top needs a terminal; for scripts there is `agentloop runs --watch`".into(),
        ));
    }
    let client = global.client()?;
    // An absent server is reported before the screen is taken.
    let lists = lists(&client).await?;
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let mut tasks = JoinSet::new();
    let since = SystemTime::now().checked_sub(METERED).unwrap_or(SystemTime::UNIX_EPOCH);
    let (ended, last_rows) = mpsc::channel(LAST_ROWS_MAX);
    tasks.spawn(watch_open(client.clone(), since, ended, sender.clone()));
    tasks.spawn(read_last_rows(client.clone(), last_rows, sender.clone()));
    tasks.spawn(meter(client.clone(), since, sender.clone()));
    tasks.spawn(poll(client.clone(), sender.clone()));

    let mut top = Top { connected: true, ..Top::default() };
    top.handle_event(lists);
    let mut signals = EndSignals::listen();
    let mut screen = Screen::take()?;
    let mut keys = EventStream::new();
    let mut ticks = tokio::time::interval(TICK);
    let start = Instant::now();
    loop {
        let now = SystemTime::now();
        screen.terminal.draw(|frame| {
            let area = frame.area();
            top.size = Size { columns: area.width, rows: area.height };
            view::draw(&top, now, area, frame.buffer_mut());
        })?;
        tokio::select! {
            key = keys.next() => match key {
                Some(Ok(TerminalEvent::Key(key))) => match top.key(key) {
                    Action::None => {}
                    Action::Quit => return Ok(Exit::Completed),
                    action => drop(tasks.spawn(perform(client.clone(), action, sender.clone()))),
                },
                Some(Ok(TerminalEvent::Paste(text))) => top.paste(&text),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                // The terminal is gone.
                None => return Ok(Exit::Interrupted),
            },
            Some(event) = events.recv() => {
                top.handle_event(event);
                let more = std::iter::from_fn(|| events.try_recv().ok());
                more.take(BATCH).for_each(|event| top.handle_event(event));
            }
            _ = ticks.tick() => {}
            _ = signals.next() => return Ok(Exit::Interrupted),
        }
        top.tick(start.elapsed());
        while tasks.try_join_next().is_some() {}
    }
}

fn open_runs() -> RunFilter {
    RunFilter { statuses: OPEN.map(i32::from).to_vec(), ..RunFilter::default() }
}

/// Tells the changes of the list of open runs. Those that the meter's own list is too young for are metered here, too.
/// The last rows of these are read by [`read_last_rows`]: the list must not wait for an answer.
async fn watch_open(
    client: Client,
    since: SystemTime,
    ended: mpsc::Sender<String>,
    events: mpsc::Sender<TopEvent>,
) {
    let watch = match client.watch_runs(open_runs()).await {
        Ok(watch) => watch,
        Err(error) => return drop(events.send(TopEvent::Failed(in_one_line(&error))).await),
    };
    let mut watch = watch.with_backoff(ENDLESS_BACKOFF);
    let since = prost_types::Timestamp::from(since);
    let is_old =
        |run: &Run| run.created_at.is_none_or(|at| (at.seconds, at.nanos) < (since.seconds, since.nanos));
    let mut old = BTreeSet::new();
    loop {
        let new_events = match watch.next_update().await {
            Ok(WatchUpdate::Item(change)) => match *change {
                Change::Reset(_) => vec![TopEvent::Reset],
                Change::Run(run) if is_old(&run) => {
                    let is_new = old.insert(run.run_id.clone());
                    let row = Box::new(run.clone());
                    let used = if is_new { TopEvent::Known(row) } else { TopEvent::Used(row) };
                    vec![used, TopEvent::Run(Box::new(run))]
                }
                Change::Run(run) => vec![TopEvent::Run(Box::new(run))],
                Change::Removed(removed) => {
                    if old.remove(&removed.run_id) {
                        // Without room, the meter keeps the row before.
                        let _ = ended.try_send(removed.run_id.clone());
                    }
                    vec![TopEvent::Removed(removed.run_id)]
                }
                Change::Synced(_) => continue,
            },
            Ok(WatchUpdate::Lost) => vec![TopEvent::Connected(false)],
            Ok(WatchUpdate::Resumed) => vec![TopEvent::Connected(true)],
            Err(error) => return drop(events.send(TopEvent::Failed(in_one_line(&error))).await),
        };
        for event in new_events {
            if events.send(event).await.is_err() {
                return;
            }
        }
    }
}

/// Tells the last rows of runs that have left the list, for the meter.
async fn read_last_rows(client: Client, mut ended: mpsc::Receiver<String>, events: mpsc::Sender<TopEvent>) {
    while let Some(run_id) = ended.recv().await {
        if let Ok(last) = client.get_run(run_id).await
            && events.send(TopEvent::Used(Box::new(last))).await.is_err()
        {
            return;
        }
    }
}

/// Tells the rows of runs that were created lately, for the meter.
async fn meter(client: Client, since: SystemTime, events: mpsc::Sender<TopEvent>) {
    let filter = RunFilter { created_after: Some(since.into()), ..RunFilter::default() };
    let watch = match client.watch_runs(filter).await {
        Ok(watch) => watch,
        Err(error) => return drop(events.send(TopEvent::Failed(in_one_line(&error))).await),
    };
    let mut watch = watch.with_backoff(ENDLESS_BACKOFF);
    loop {
        let event = match watch.next_update().await {
            Ok(WatchUpdate::Item(change)) => match *change {
                Change::Run(run) => TopEvent::Used(Box::new(run)),
                Change::Synced(_) => TopEvent::Metered,
                Change::Reset(_) | Change::Removed(_) => continue,
            },
            // The other list tells it.
            Ok(WatchUpdate::Lost | WatchUpdate::Resumed) => continue,
            Err(error) => TopEvent::Failed(in_one_line(&error)),
        };
        let is_over = matches!(event, TopEvent::Failed(_));
        if events.send(event).await.is_err() || is_over {
            return;
        }
    }
}

/// Reads hosts, tools and questions again and again.
async fn poll(client: Client, events: mpsc::Sender<TopEvent>) {
    let mut ticks = tokio::time::interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let event = match lists(&client).await {
            Ok(event) => event,
            // An absent server is seen by the watch, and a quota has room again.
            Err(error) if error.is_unreachable() || error.reason() == Some(ErrorReason::QuotaExceeded) => {
                continue;
            }
            Err(error) => TopEvent::Failed(in_one_line(&error)),
        };
        let is_over = matches!(event, TopEvent::Failed(_));
        if events.send(event).await.is_err() || is_over {
            return;
        }
    }
}

async fn lists(client: &Client) -> Result<TopEvent, Error> {
    let (hosts, tools, questions) =
        tokio::try_join!(client.list_hosts(), client.list_tools(), questions(client))?;
    Ok(TopEvent::Lists { hosts, tools, questions })
}

/// The open questions, the oldest first.
async fn questions(client: &Client) -> Result<Vec<HumanRequest>, Error> {
    let mut request = ListPendingRequest { page_size: QUESTIONS, ..ListPendingRequest::default() };
    let mut questions = Vec::new();
    loop {
        let page = client.list_pending(request.clone()).await?;
        questions.extend(page.requests);
        if page.next_page_token.is_empty() || questions.len() >= QUESTIONS_MAX {
            return Ok(questions);
        }
        request.page_token = page.next_page_token;
    }
}

async fn perform(client: Client, action: Action, events: mpsc::Sender<TopEvent>) {
    let done = match action {
        Action::None | Action::Quit => return,
        Action::Show(run_id) => client.get_run(run_id).await.map(|run| TopEvent::Shown(Box::new(run))),
        Action::Abort(run_id) => {
            let note = format!("aborted {run_id}");
            client.abort_run(run_id, "agentloop top").await.map(|_| TopEvent::Note(note))
        }
        Action::Decide { request, decision } => decide(&client, *request, decision).await,
        Action::Submit { request, input } => submit(&client, *request, input).await,
    };
    let event = done.unwrap_or_else(|error| TopEvent::Note(in_one_line(&error)));
    // The send fails only if the program has ended.
    let _ = events.send(event).await;
}

async fn decide(client: &Client, request: HumanRequest, decision: Kind) -> Result<TopEvent, Error> {
    let note = match &decision {
        Kind::Approve(_) => "approved",
        Kind::Deny(_) => "denied",
        _ => "answered",
    };
    let answer = SubmitApprovalRequest {
        request_id: request.request_id,
        decision: Some(Decision { decision: Some(decision) }),
        // The arguments that were on the screen.
        digest: request.digest,
        decided_by: user(),
        ..SubmitApprovalRequest::default()
    };
    let settled = client.submit_approval(answer).await?;
    let note = match settled.answer {
        None if settled.quorum > 1 => format!("approved; the call needs {} approvals", settled.quorum),
        _ => note.to_owned(),
    };
    Ok(TopEvent::Note(note))
}

async fn submit(client: &Client, request: HumanRequest, input: Input) -> Result<TopEvent, Error> {
    let answer =
        SubmitInputRequest { request_id: request.request_id, input: Some(input), answered_by: user() };
    let settled = client.submit_input(answer).await?;
    let words = settled.answer.as_ref().map(|answer| answered(answer, &AskedQuestion::of(&settled)));
    Ok(TopEvent::Note(words.unwrap_or_else(|| "answered".to_owned())))
}
