//! A TCP proxy that can be cut and joined again, or be pointed at another address.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards to an address while it is whole.
pub struct Proxy {
    address: SocketAddr,
    route: watch::Sender<Route>,
}

/// The way that connections take.
#[derive(Clone)]
struct Route {
    /// Host and port behind the proxy.
    target: String,
    is_whole: bool,
}

impl Proxy {
    /// In front of this address, and whole.
    pub async fn start(target: String) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (route, watched) = watch::channel(Route { target, is_whole: true });
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(forward(near, watched.clone()));
            }
        });
        Proxy { address, route }
    }

    /// The proxy's own address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The proxy's own host and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection, and lets none through.
    pub fn cut(&self) {
        self.route.send_modify(|route| route.is_whole = false);
    }

    /// Lets connections through again.
    pub fn join(&self) {
        self.route.send_if_modified(|route| !std::mem::replace(&mut route.is_whole, true));
    }

    /// Breaks every connection, and lets new ones through to this address.
    pub fn point_to(&self, target: String) {
        self.route.send_replace(Route { target, is_whole: true });
    }
}

async fn forward(mut near: TcpStream, mut route: watch::Receiver<Route>) {
    let taken = route.borrow_and_update().clone();
    if !taken.is_whole {
        return;
    }
    let Ok(mut far) = TcpStream::connect(taken.target).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => {}
        // Even if it is whole again at once, or leads to the same address.
        _ = route.changed() => {}
    }
}
