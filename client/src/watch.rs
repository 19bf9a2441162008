//! Streams that go on for as long as somebody reads: a watched list of runs, and everything that happens in a session.
//! Both survive lost connections and restarts of the server.

use std::{fmt, future::Future, time::Duration};

use agentloop_proto::v1::{
    ErrorReason, RunFilter, SubscribeSessionRequest, SubscribeSessionResponse, WatchRunsRequest,
    WatchRunsResponse, subscribe_session_response::Item, watch_runs_response::Change,
};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Response, Status, Streaming};

use crate::{Backoff, Client, Error, retry::Retries};

/// Time that the server may take to open a stream. There is no timeout between messages.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// The next item of a stream, for callers that show the state of the connection.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchUpdate<T> {
    /// The next item of the stream.
    Item(Box<T>),
    /// The connection was lost; the stream will be reopened.
    Lost,
    /// The stream was reopened; nothing is missing.
    Resumed,
}

/// A list of runs that stays live: keep a map from `run_id` to `Run`, and apply each change to it.
///
/// The stream is reopened where it was lost. If the server cannot continue it, `reset` comes, and a snapshot follows.
#[derive(Debug)]
pub struct RunWatch(Continued<RunList>);

/// Everything that happens in a session, whoever started it: each durable event once.
///
/// The stream is reopened after the last durable event that was returned, also after a restart of the server.
#[derive(Debug)]
pub struct SessionStream(Continued<Session>);

impl Client {
    /// Watches a list of runs, which stays live: a snapshot first, then each run whose row changes.
    pub async fn watch_runs(&self, filter: RunFilter) -> Result<RunWatch, Error> {
        RunWatch::open(self.clone(), filter).await
    }

    /// Follows everything that happens in a session. `resume_token` is that of an earlier subscription, or empty: then it
    /// begins with the events of the runs that are open.
    pub async fn subscribe_session(&self, request: SubscribeSessionRequest) -> Result<SessionStream, Error> {
        SessionStream::open(self.clone(), request).await
    }
}

impl RunWatch {
    async fn open(client: Client, filter: RunFilter) -> Result<Self, Error> {
        Continued::open(client, RunList(filter)).await.map(Self)
    }

    /// Sets the backoff of this stream, in place of the client's.
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.0.retries = Retries::new(backoff);
        self
    }

    /// The next change. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the stream cannot be reopened.
    pub async fn next(&mut self) -> Result<Change, Error> {
        loop {
            if let WatchUpdate::Item(change) = self.next_update().await? {
                return Ok(*change);
            }
        }
    }

    /// As [`RunWatch::next`], but also reports that the connection was lost and that it is back.
    ///
    /// # Errors
    /// When the stream cannot be reopened.
    pub async fn next_update(&mut self) -> Result<WatchUpdate<Change>, Error> {
        loop {
            match self.0.next().await? {
                Step::Message(message) => {
                    if let Some(change) = message.change {
                        return Ok(WatchUpdate::Item(Box::new(change)));
                    }
                }
                Step::Lost => return Ok(WatchUpdate::Lost),
                Step::Resumed => return Ok(WatchUpdate::Resumed),
            }
        }
    }
}

impl SessionStream {
    async fn open(client: Client, request: SubscribeSessionRequest) -> Result<Self, Error> {
        let token = request.resume_token.clone();
        Continued::continued(client, Session { request, is_over: false }, token).await.map(Self)
    }

    /// Sets the backoff of this stream, in place of the client's.
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.0.retries = Retries::new(backoff);
        self
    }

    /// Continues after the last durable item that was returned: for a subscription of another process.
    pub fn resume_token(&self) -> &str {
        &self.0.token
    }

    /// The next item; `None` after the session was deleted. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the stream cannot be reopened. There are no more items then.
    pub async fn next(&mut self) -> Option<Result<Item, Error>> {
        loop {
            match self.next_update().await? {
                Ok(WatchUpdate::Item(item)) => return Some(Ok(*item)),
                Ok(WatchUpdate::Lost | WatchUpdate::Resumed) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// As [`SessionStream::next`], but also reports that the connection was lost and that it is back.
    ///
    /// # Errors
    /// When the stream cannot be reopened. There are no more items then.
    pub async fn next_update(&mut self) -> Option<Result<WatchUpdate<Item>, Error>> {
        while !self.0.source.is_over {
            match self.0.next().await {
                Ok(Step::Message(message)) => {
                    let Some(item) = message.item else { continue };
                    self.0.source.is_over = matches!(item, Item::Deleted(_));
                    return Some(Ok(WatchUpdate::Item(Box::new(item))));
                }
                Ok(Step::Lost) => return Some(Ok(WatchUpdate::Lost)),
                Ok(Step::Resumed) => return Some(Ok(WatchUpdate::Resumed)),
                Err(error) => {
                    self.0.source.is_over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

/// A request whose stream is continued by a token.
trait Source: fmt::Debug {
    type Message: Send + 'static;

    fn send(
        &self,
        client: &Client,
        token: String,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Message>>, Status>> + Send;

    /// Continues after the message; empty where the last token still counts.
    fn token(message: &Self::Message) -> &str;
}

#[derive(Debug)]
struct RunList(RunFilter);

impl Source for RunList {
    type Message = WatchRunsResponse;

    async fn send(
        &self,
        client: &Client,
        resume_token: String,
    ) -> Result<Response<Streaming<WatchRunsResponse>>, Status> {
        let request = WatchRunsRequest { filter: Some(self.0.clone()), resume_token };
        client.agent_loop().watch_runs(request).await
    }

    fn token(message: &WatchRunsResponse) -> &str {
        &message.resume_token
    }
}

#[derive(Debug)]
struct Session {
    request: SubscribeSessionRequest,
    is_over: bool,
}

impl Source for Session {
    type Message = SubscribeSessionResponse;

    async fn send(
        &self,
        client: &Client,
        resume_token: String,
    ) -> Result<Response<Streaming<SubscribeSessionResponse>>, Status> {
        let request = SubscribeSessionRequest { resume_token, ..self.request.clone() };
        client.sessions().subscribe_session(request).await
    }

    fn token(message: &SubscribeSessionResponse) -> &str {
        &message.resume_token
    }
}

/// A stream that is reopened where it was lost.
struct Continued<S: Source> {
    client: Client,
    source: S,
    token: String,
    open: Option<Streaming<S::Message>>,
    retries: Retries,
    /// The time of the next attempt to open the stream.
    reopen_at: Instant,
}

enum Step<M> {
    Message(M),
    Lost,
    Resumed,
}

impl<S: Source> Continued<S> {
    async fn open(client: Client, source: S) -> Result<Self, Error> {
        Self::continued(client, source, String::new()).await
    }

    async fn continued(client: Client, source: S, token: String) -> Result<Self, Error> {
        let retries = client.retries();
        let mut stream = Self { client, source, token, open: None, retries, reopen_at: Instant::now() };
        stream.reopen().await?;
        Ok(stream)
    }

    async fn next(&mut self) -> Result<Step<S::Message>, Error> {
        let Some(stream) = &mut self.open else {
            self.reopen().await?;
            return Ok(Step::Resumed);
        };
        match stream.message().await {
            Ok(Some(message)) => {
                self.retries.reset();
                let token = S::token(&message);
                if !token.is_empty() {
                    token.clone_into(&mut self.token);
                }
                Ok(Step::Message(message))
            }
            // A server that shuts down may end the stream without a status.
            Ok(None) => self.lost(Error::Unreachable("the stream ended".into())),
            Err(status) => self.lost(Error::from(status)),
        }
    }

    /// Uses up a retry for each error, so that the stream gives up on a server that fails again and again.
    fn lost(&mut self, error: Error) -> Result<Step<S::Message>, Error> {
        let too_slow = error.reason() == Some(ErrorReason::SubscriberTooSlow);
        let wait = if too_slow { self.retries.next(error.retry_after()) } else { self.retries.after(&error) };
        let Some(wait) = wait else { return Err(error) };
        tracing::debug!(%error, ?wait, "stream lost; reopening it");
        self.open = None;
        self.reopen_at = Instant::now() + wait;
        Ok(Step::Lost)
    }

    /// Opens the stream, with as many attempts as the backoff allows.
    async fn reopen(&mut self) -> Result<(), Error> {
        loop {
            sleep_until(self.reopen_at).await;
            let opened = timeout(OPEN_TIMEOUT, self.source.send(&self.client, self.token.clone())).await;
            let error = match opened {
                Ok(Ok(response)) => {
                    self.open = Some(response.into_inner());
                    return Ok(());
                }
                Ok(Err(status)) => Error::from(status),
                Err(_) => Error::Unreachable(format!("no answer within {OPEN_TIMEOUT:?}")),
            };
            self.lost(error)?;
        }
    }
}

impl<S: Source> fmt::Debug for Continued<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Continued")
            .field("source", &self.source)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
