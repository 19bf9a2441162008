//! A balancer of TCP connections over servers, some of which may be down.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Gives each connection to the next server that takes it.
pub struct Balancer {
    address: SocketAddr,
    health: watch::Sender<Vec<Health>>,
}

/// A server, as the balancer has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Up,
    /// It gets no connection, and keeps those that it has.
    Unresponsive,
    Down,
}

impl Balancer {
    /// In front of these addresses, all of them up.
    pub async fn start(targets: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (health, watched) = watch::channel(vec![Health::Up; targets.len()]);
        let (targets, turn) = (Arc::new(targets), Arc::new(AtomicUsize::new(0)));
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(forward(near, targets.clone(), turn.clone(), watched.clone()));
            }
        });
        Self { address, health }
    }

    /// The balancer's own address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// As a check of its health would find it. The connections of a server that is down are broken.
    pub fn set(&self, server: usize, is_up: bool) {
        let found = if is_up { Health::Up } else { Health::Down };
        self.health.send_modify(|health| health[server] = found);
    }

    /// As a check of its health would find one that stands still, where the balancer leaves open connections alone.
    pub fn avoid(&self, server: usize) {
        self.health.send_modify(|health| health[server] = Health::Unresponsive);
    }
}

async fn forward(
    mut near: TcpStream,
    targets: Arc<Vec<String>>,
    turn: Arc<AtomicUsize>,
    mut health: watch::Receiver<Vec<Health>>,
) {
    for _ in 0..targets.len() {
        let server = turn.fetch_add(1, Ordering::Relaxed) % targets.len();
        if health.borrow()[server] != Health::Up {
            continue;
        }
        let Ok(mut far) = TcpStream::connect(&targets[server]).await else { continue };
        tokio::select! {
            _ = copy_bidirectional(&mut near, &mut far) => {}
            _ = health.wait_for(|health| health[server] == Health::Down) => {}
        }
        return;
    }
}
