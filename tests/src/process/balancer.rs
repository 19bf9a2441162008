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
    up: watch::Sender<Vec<bool>>,
}

impl Balancer {
    /// In front of these addresses, all of them up.
    pub async fn start(targets: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (up, watched) = watch::channel(vec![true; targets.len()]);
        let (targets, turn) = (Arc::new(targets), Arc::new(AtomicUsize::new(0)));
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(forward(near, targets.clone(), turn.clone(), watched.clone()));
            }
        });
        Self { address, up }
    }

    /// The balancer's own address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// As a check of its health would find it. The connections of a server that is down are broken.
    pub fn set(&self, server: usize, is_up: bool) {
        self.up.send_modify(|up| up[server] = is_up);
    }
}

async fn forward(
    mut near: TcpStream,
    targets: Arc<Vec<String>>,
    turn: Arc<AtomicUsize>,
    mut up: watch::Receiver<Vec<bool>>,
) {
    for _ in 0..targets.len() {
        let server = turn.fetch_add(1, Ordering::Relaxed) % targets.len();
        if !up.borrow()[server] {
            continue;
        }
        let Ok(mut far) = TcpStream::connect(&targets[server]).await else { continue };
        tokio::select! {
            _ = copy_bidirectional(&mut near, &mut far) => {}
            _ = up.wait_for(|up| !up[server]) => {}
        }
        return;
    }
}
