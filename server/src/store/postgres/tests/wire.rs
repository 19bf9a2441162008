//! A wire to the database that can fall silent: its connections stay open, and bytes are lost on them. It can be cut, too.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::replicas::until;
use super::*;

/// The direction in which a connection loses everything from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// Only the responses of the database. It hears everything.
    Responses,
    /// All that either side says.
    Everything,
    /// The ends of requests: the database carries statements out, and commits none of them.
    Ends,
}

/// The message that ends a request. The database commits a statement when it reads this.
const SYNC: &[u8] = b"S\0\0\0\x04";

/// A proxy of the database, on a port of its own.
pub(super) struct Wire {
    pub(super) options: PostgresOptions,
    /// The connections that there were, and what they lose.
    silence: watch::Sender<(usize, Option<Lost>)>,
    accepted: Arc<AtomicUsize>,
    cut: watch::Sender<bool>,
    /// Bytes that the database was sent.
    requested: Arc<AtomicUsize>,
    /// Requests that were sent after a response, or were the first of a connection.
    trips: Arc<AtomicUsize>,
}

impl Wire {
    /// A wire to the database of these options.
    pub(super) async fn to(options: &PostgresOptions) -> Self {
        let url = options.url.expose();
        let parsed: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
        let far = format!("{}:{}", parsed.get_host(), parsed.get_port());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = listener.local_addr().unwrap().to_string();
        assert!(url.contains(&far), "the address of the database is written out");
        let options = PostgresOptions { url: Secret::new(url.replace(&far, &near)), ..options.clone() };
        let (silence, heard) = watch::channel((0, None));
        let accepted = Arc::new(AtomicUsize::new(0));
        let (requested, trips) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, bytes, turns) = (accepted.clone(), requested.clone(), trips.clone());
        let cut = watch::Sender::new(false);
        let is_cut = cut.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if *is_cut.borrow() {
                    continue;
                }
                let number = counted.fetch_add(1, Ordering::Relaxed);
                let (from_near, to_near) = near.into_split();
                let (from_far, to_far) = TcpStream::connect(&far).await.unwrap().into_split();
                let (requests, responses) = (heard.clone(), heard.clone());
                let (bytes, turns) = (bytes.clone(), turns.clone());
                let asks = Arc::new(AtomicBool::new(false));
                let responds = asks.clone();
                let carried = carry(from_near, to_far, move |read| {
                    bytes.fetch_add(read.len(), Ordering::Relaxed);
                    if !asks.swap(true, Ordering::Relaxed) {
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                    let (before, lost) = *requests.borrow();
                    match lost.filter(|_| number < before) {
                        Some(Lost::Everything) => &[],
                        Some(Lost::Ends) => read.strip_suffix(SYNC).unwrap_or(read),
                        Some(Lost::Responses) | None => read,
                    }
                });
                tokio::spawn(until_cut(is_cut.subscribe(), carried));
                let carried = carry(from_far, to_near, move |read| {
                    responds.store(false, Ordering::Relaxed);
                    let (before, lost) = *responses.borrow();
                    match lost.filter(|_| number < before) {
                        Some(Lost::Everything | Lost::Responses) => &[],
                        Some(Lost::Ends) | None => read,
                    }
                });
                tokio::spawn(until_cut(is_cut.subscribe(), carried));
            }
        });
        Self { options, silence, accepted, cut, requested, trips }
    }

    /// Trips to the database so far: requests that waited for the response to the one before.
    pub(super) fn trips(&self) -> usize {
        self.trips.load(Ordering::Relaxed)
    }

    /// Bytes that the database was sent so far.
    pub(super) fn requested(&self) -> usize {
        self.requested.load(Ordering::Relaxed)
    }

    /// From now on, there are no connections.
    pub(super) fn is_cut(&self) {
        self.cut.send_replace(true);
    }

    /// Waits until a cut has ended every connection.
    pub(super) async fn has_no_connection(&self) {
        until(async || self.cut.receiver_count() == 0).await;
    }

    /// From now on, new connections are well.
    pub(super) fn is_back(&self) {
        self.cut.send_replace(false);
    }

    /// From now on, the connections that there are lose this. New ones are well.
    pub(super) fn falls_silent(&self, lost: Lost) {
        self.silence.send_replace((self.accepted.load(Ordering::Relaxed), Some(lost)));
    }
}

async fn until_cut(mut cut: watch::Receiver<bool>, carried: impl Future<Output = ()>) {
    tokio::select! { biased;
        _cut = cut.wait_for(|is_cut| *is_cut) => {}
        () = carried => {}
    }
}

/// Carries what `kept` returns of each piece.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, kept: impl Fn(&[u8]) -> &[u8]) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if to.write_all(kept(&buffer[..read])).await.is_err() {
            break;
        }
    }
}
