//! A TCP proxy that can be cut and joined again.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards to an address while it is whole.
pub struct Proxy {
    address: SocketAddr,
    whole: watch::Sender<bool>,
}

impl Proxy {
    /// In front of this address, and whole.
    pub async fn start(target: String) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (whole, watched) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(forward(near, target.clone(), watched.clone()));
            }
        });
        Proxy { address, whole }
    }

    /// The proxy's own address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Breaks every connection, and lets none through.
    pub fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// Lets connections through again.
    pub fn join(&self) {
        self.whole.send_replace(true);
    }
}

async fn forward(mut near: TcpStream, target: String, mut whole: watch::Receiver<bool>) {
    if !*whole.borrow_and_update() {
        return;
    }
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => {}
        _ = whole.wait_for(|whole| !whole) => {}
    }
}
