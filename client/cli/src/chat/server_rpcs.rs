//! Performs the commands of the chat: calls the server, and sends each result back as an event.

use std::{collections::BTreeSet, pin::pin, time::Duration};

use agentloop_client::{
    Client, Error, EventStream, SessionStream, StreamUpdate, WatchUpdate,
    v1::{
        Entry, ListEntriesRequest, ListRunsRequest, ListSessionsRequest, RememberedRule, ResumeRunRequest,
        RunEvent, RunInput, Session, SubscribeSessionRequest, Usage, run_event,
        subscribe_session_response::Item,
    },
};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tonic::Code;

use super::event::{Command, Event, OpenedSession, RpcError};
use crate::{
    args::ENDLESS_BACKOFF,
    command::conversation::{overview::overviews, queue},
    exit::{Failure, in_one_line},
};

const PAGE_SIZE: u32 = 500;
/// Time between two looks for a session that does not exist yet.
const LOOK_FOR_SESSION_EVERY: Duration = Duration::from_secs(2);
/// Time without an answer after which the server is shown as away.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Bound on the entries that are read when a session is opened.
const ENTRIES_MAX: u64 = 1000;
/// Bound on the listed sessions. Older ones can be opened by their id.
const SESSIONS_MAX: u32 = 100;

/// Performs commands in tasks, and sends their results as events.
pub(super) struct ServerRpcs {
    client: Client,
    who: String,
    events: mpsc::Sender<Event>,
    tasks: JoinSet<()>,
    following: Option<AbortHandle>,
    watching: Option<AbortHandle>,
}

impl ServerRpcs {
    pub(super) fn new(client: Client, who: String, events: mpsc::Sender<Event>) -> ServerRpcs {
        ServerRpcs { client, who, events, tasks: JoinSet::new(), following: None, watching: None }
    }

    /// Starts a command. `Quit` is for the driver.
    pub(super) fn perform(&mut self, command: Command) {
        let client = self.client.clone();
        let events = self.events.clone();
        match command {
            Command::Start(input) => self.follow(start(client, input, events)),
            Command::FollowRun(run_id) => self.follow(subscribe(client, run_id, events)),
            Command::Unfollow => {
                self.unfollow();
                self.unwatch();
            }
            Command::WatchSession(session_id) => {
                self.unwatch();
                self.watching = Some(self.tasks.spawn(watch(client, session_id, events)));
            }
            Command::Quit(_) => {}
            other => {
                let who = self.who.clone();
                self.tasks.spawn(async move {
                    if let Some(event) = Box::pin(answer(&client, other, who)).await {
                        // The send fails only if the chat has ended.
                        let _ = events.send(event).await;
                    }
                });
            }
        }
    }

    /// Waits for the end of a task, so that its panic is not lost. Never returns while there is no task.
    pub(super) async fn finished(&mut self) -> Result<(), Failure> {
        match self.tasks.join_next().await {
            Some(Err(error)) if error.is_panic() => Err(Failure::Other("a fault in the chat".into())),
            Some(_) => Ok(()),
            None => std::future::pending().await,
        }
    }

    fn follow(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.unfollow();
        self.following = Some(self.tasks.spawn(task));
    }

    fn unwatch(&mut self) {
        if let Some(watching) = self.watching.take() {
            watching.abort();
        }
    }

    fn unfollow(&mut self) {
        if let Some(following) = self.following.take() {
            following.abort();
        }
    }
}

async fn start(client: Client, input: Box<RunInput>, events: mpsc::Sender<Event>) {
    let run_id = input.run_id.clone().unwrap_or_default();
    follow(run_id, Box::pin(client.run_stream(*input)).await, events).await;
}

async fn subscribe(client: Client, run_id: String, events: mpsc::Sender<Event>) {
    let stream = client.subscribe(run_id.clone(), 0).await;
    follow(run_id, stream, events).await;
}

/// Tells of each run of a session once, of changes of its row, and of its end. It comes back after a restart of the server.
async fn watch(client: Client, session_id: String, events: mpsc::Sender<Event>) {
    let request = SubscribeSessionRequest {
        session_id: session_id.clone(),
        durable_only: true,
        ..SubscribeSessionRequest::default()
    };
    let opened = open_stream(&client, &request, &events).await;
    if opened.as_ref().is_err_and(is_not_found) {
        return wait_for_session(client, request, events).await;
    }
    if let Ok(stream) = opened {
        let mut stream = stream.with_backoff(ENDLESS_BACKOFF);
        let mut known = BTreeSet::new();
        while let Some(Ok(update)) = stream.next_update().await {
            let session_id = session_id.clone();
            let item = match update {
                WatchUpdate::Item(item) => *item,
                WatchUpdate::Lost | WatchUpdate::Resumed => {
                    let up = matches!(update, WatchUpdate::Resumed);
                    if events.send(Event::SessionConnection { session_id, up }).await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            let event = match item {
                Item::Event(event) => {
                    let is_end = matches!(event.event, Some(run_event::Event::RunFinished(_)));
                    let is_new = known.insert(event.run_id.clone());
                    if is_end {
                        known.remove(&event.run_id);
                    }
                    if !is_new {
                        continue;
                    }
                    Event::SessionRun { session_id, run_id: event.run_id }
                }
                Item::Session(session) => Event::SessionChanged(Box::new(session)),
                Item::Synced(_) => continue,
                Item::Deleted(_) => Event::SessionDeleted { session_id },
            };
            if events.send(event).await.is_err() {
                return;
            }
        }
    }
    let _ = events.send(Event::SessionNotWatched { session_id }).await;
}

/// Opens the stream of a session. While the server cannot be reached, it is tried again, and the chat is told that it is away.
async fn open_stream(
    client: &Client,
    request: &SubscribeSessionRequest,
    events: &mpsc::Sender<Event>,
) -> Result<SessionStream, Error> {
    let connection = |up| Event::SessionConnection { session_id: request.session_id.clone(), up };
    let mut is_away = false;
    loop {
        let mut opening = pin!(client.subscribe_session(request.clone()));
        let opened = match timeout(ANSWER_WAIT, &mut opening).await {
            Ok(opened) => opened,
            Err(_) => {
                is_away = true;
                // A chat that has ended listens no more, and ends this task.
                let _ended = events.send(connection(false)).await;
                opening.await
            }
        };
        if opened.as_ref().is_err_and(Error::is_unreachable) && !events.is_closed() {
            continue;
        }
        if is_away {
            let _ended = events.send(connection(true)).await;
        }
        return opened;
    }
}

/// Tells when a session begins that does not exist yet.
async fn wait_for_session(client: Client, request: SubscribeSessionRequest, events: mpsc::Sender<Event>) {
    let session_id = request.session_id.clone();
    let not_yet = Event::SessionNotWatched { session_id: session_id.clone() };
    if events.send(not_yet).await.is_err() {
        return;
    }
    loop {
        tokio::time::sleep(LOOK_FOR_SESSION_EVERY).await;
        match open_stream(&client, &request, &events).await {
            Ok(_) => break,
            Err(_) if events.is_closed() => return,
            Err(_) => {}
        }
    }
    let _ = events.send(Event::SessionBegun { session_id }).await;
}

fn is_not_found(error: &Error) -> bool {
    error.code() == Some(Code::NotFound)
}

/// Sends the updates of a run as events. It waits while the chat has too many.
async fn follow(run_id: String, stream: Result<EventStream, Error>, events: mpsc::Sender<Event>) {
    let lost = |error: &Error| Event::RunLost { run_id: run_id.clone(), error: RpcError::from(error) };
    let mut stream = match stream {
        Ok(stream) => stream.with_backoff(ENDLESS_BACKOFF),
        Err(error) => {
            let _ = events.send(lost(&error)).await;
            return;
        }
    };
    while let Some(update) = stream.next_update().await {
        let event = match update {
            Ok(StreamUpdate::Event(event)) => Event::Run(event),
            Ok(StreamUpdate::Lost) => Event::Connection { run_id: run_id.clone(), up: false },
            Ok(StreamUpdate::Resumed) => Event::Connection { run_id: run_id.clone(), up: true },
            Err(error) => lost(&error),
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// Performs a command with a single result.
async fn answer(client: &Client, command: Command, who: String) -> Option<Event> {
    let event = match command {
        Command::OpenSession(session_id) => match open(client, session_id).await {
            Ok(opened) => Event::SessionOpened(Box::new(opened)),
            Err(error) => Event::SessionNotOpened(in_one_line(&error)),
        },
        Command::ListSessions => {
            let request = ListSessionsRequest { page_size: SESSIONS_MAX, ..ListSessionsRequest::default() };
            Event::Sessions(match client.list_sessions(request).await {
                Ok(page) => Ok(overviews(page.sessions)),
                Err(error) => Err(in_one_line(&error)),
            })
        }
        Command::Decide(request) => {
            let request_id = request.request_id.clone();
            answer_result(request_id, client.submit_approval(*request).await)
        }
        Command::Answer(request) => {
            let request_id = request.request_id.clone();
            answer_result(request_id, client.submit_input(*request).await)
        }
        // The run's own events report the success of these.
        Command::Abort(run_id) => call_failed("the abort", client.abort_run(run_id, "ctrl-C").await)?,
        Command::Resume(run_id) => {
            let request = ResumeRunRequest { run_id, resumed_by: who, ..ResumeRunRequest::default() };
            call_failed("the resumption", client.resume_run(request).await)?
        }
        Command::CheckRule { request_id, check } => {
            let candidate = Box::new(check.candidate.clone().unwrap_or_default());
            let answer = client.check_policy(*check).await;
            let answer = answer.map(Box::new).map_err(|error| in_one_line(&error));
            Event::RuleChecked { request_id, candidate, answer }
        }
        Command::ListAgents => Event::Agents(client.list_agents().await.map_err(|error| in_one_line(&error))),
        // A server that tells nothing of itself refuses an unknown model by itself.
        Command::ListProviders => {
            Event::Providers(client.server_info().await.map(|info| info.providers).unwrap_or_default())
        }
        Command::ListRules(session_id) => {
            Event::Rules(rules(client, session_id).await.map_err(|error| in_one_line(&error)))
        }
        Command::DeleteRule(rule_id) => {
            let answer = client.delete_rule(&rule_id).await.map(|_| ()).map_err(|error| in_one_line(&error));
            Event::RuleDeleted { rule_id, answer }
        }
        Command::ListQueue(session_id) => {
            let answer = queue::list_queued(client, &session_id).await.map_err(|error| in_one_line(&error));
            Event::QueueListed { session_id, answer }
        }
        Command::SendToBusy(input) => send_to_busy(client, *input).await,
        Command::Remove { session_id, run_id } => {
            let removed = queue::remove(client, &session_id, &run_id).await;
            Event::RunRemoved { run_id, answer: removed.map(|_| ()).map_err(|failure| failure.to_string()) }
        }
        // A failure is not reported: the status line just lacks the reason for the wait.
        Command::ReadRun(run_id) => Event::RunRead(Box::new(client.get_run(run_id).await.ok()?)),
        Command::Start(_)
        | Command::FollowRun(_)
        | Command::Unfollow
        | Command::WatchSession(_)
        | Command::Quit(_) => return None,
    };
    Some(event)
}

fn answer_result(request_id: String, answer: Result<agentloop_client::v1::HumanRequest, Error>) -> Event {
    match answer {
        Ok(request) => Event::AnswerAccepted(Box::new(request)),
        Err(error) => Event::AnswerRefused { request_id, error: RpcError::from(&error) },
    }
}

/// The remembered rules: those for every run, then those of the session.
async fn rules(client: &Client, session_id: Option<String>) -> Result<Vec<RememberedRule>, Error> {
    let mut rules = client.list_rules("").await?;
    if let Some(session_id) = session_id {
        rules.extend(client.list_rules(session_id).await?);
    }
    Ok(rules)
}

/// Sends a message to a busy session. The first event shows which run accepted it.
async fn send_to_busy(client: &Client, input: RunInput) -> Event {
    let sent_as = input.run_id.clone().unwrap_or_default();
    let first = match client.run_stream(input).await {
        Ok(mut stream) => stream.next().await.unwrap_or_else(|| Ok(RunEvent::default())),
        Err(error) => Err(error),
    };
    match first {
        Ok(event) => Event::MessageAccepted { by: event.run_id, sent_as },
        Err(error) => Event::MessageRefused { error: RpcError::from(&error), sent_as },
    }
}

fn call_failed<T>(what: &str, answer: Result<T, Error>) -> Option<Event> {
    answer
        .err()
        .map(|error| Event::CommandFailed(format!("the server refused {what}: {}", in_one_line(&error))))
}

/// Reads a session with its last entries and the usage of its runs. A session that does not exist is empty.
async fn open(client: &Client, session_id: String) -> Result<OpenedSession, Error> {
    let session = match client.get_session(session_id.clone()).await {
        Ok(session) => session,
        Err(error) if is_not_found(&error) => {
            let session = Session { session_id, ..Session::default() };
            return Ok(OpenedSession { session, ..OpenedSession::default() });
        }
        Err(error) => return Err(error),
    };
    let usage = usage_of_runs(client, session_id.clone());
    let (entries, usage_of_runs) = tokio::join!(last_entries(client, &session), usage);
    // Without its sums, the session can be read all the same.
    Ok(OpenedSession { entries: entries?, usage_of_runs: usage_of_runs.unwrap_or_default(), session })
}

async fn last_entries(client: &Client, session: &Session) -> Result<Vec<Entry>, Error> {
    let after_entry_no = session.entry_count.saturating_sub(ENTRIES_MAX);
    let session_id = session.session_id.clone();
    let mut request = ListEntriesRequest { session_id, after_entry_no, page_size: PAGE_SIZE };
    let mut entries = Vec::new();
    loop {
        let page = client.list_entries(request.clone()).await?;
        entries.extend(page.entries);
        match entries.last() {
            Some(last) if page.more => request.after_entry_no = last.entry_no,
            _ => return Ok(entries),
        }
    }
}

/// Tokens and cost of each run of a session. The server keeps the sums of every run, so no journal is read.
async fn usage_of_runs(client: &Client, session_id: String) -> Result<Vec<(String, Usage)>, Error> {
    let mut request = ListRunsRequest { session_id, page_size: PAGE_SIZE, ..ListRunsRequest::default() };
    let mut usage = Vec::new();
    loop {
        let page = client.list_runs(request.clone()).await?;
        usage.extend(page.runs.into_iter().filter_map(|run| Some((run.run_id, run.usage?))));
        if page.next_page_token.is_empty() {
            return Ok(usage);
        }
        request.page_token = page.next_page_token;
    }
}

impl From<&Error> for RpcError {
    fn from(error: &Error) -> Self {
        let busy_run = error.status().and_then(|status| status.metadata.get("run_id")).cloned();
        let reason = error.reason();
        let is_busy = reason == Some(agentloop_client::v1::ErrorReason::SessionBusy);
        RpcError {
            message: in_one_line(error),
            reason,
            busy_run: busy_run.filter(|_| is_busy),
            unreachable: error.is_unreachable(),
        }
    }
}
