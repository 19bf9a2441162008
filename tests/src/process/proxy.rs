//! A TCP proxy that can be cut, fall silent and be joined again, or be pointed at another address.

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
    state: State,
    /// Number of cuts so far: each broke the connections of its time.
    cuts: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Whole,
    Cut,
    Silent,
}

impl Proxy {
    /// In front of this address, and whole.
    pub async fn start(target: String) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (route, watched) = watch::channel(Route { target, state: State::Whole, cuts: 0 });
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
        self.route.send_modify(|route| {
            route.state = State::Cut;
            route.cuts += 1;
        });
    }

    /// Passes nothing on from here on, and ends no connection: neither side learns of it, as when packets are lost.
    pub fn silence(&self) {
        self.route.send_modify(|route| route.state = State::Silent);
    }

    /// Lets connections through again. Those that were silent go on.
    pub fn join(&self) {
        self.route.send_modify(|route| route.state = State::Whole);
    }

    /// Breaks every connection, and lets new ones through to this address.
    pub fn point_to(&self, target: String) {
        self.route.send_modify(|route| {
            *route = Route { target, state: State::Whole, cuts: route.cuts + 1 };
        });
    }
}

async fn forward(mut near: TcpStream, mut route: watch::Receiver<Route>) {
    let Ok(taken) = route.wait_for(|route| route.state != State::Silent).await.map(|route| route.clone())
    else {
        return;
    };
    if taken.state == State::Cut {
        return;
    }
    let Ok(mut far) = TcpStream::connect(taken.target).await else { return };
    let mut copied = Box::pin(copy_bidirectional(&mut near, &mut far));
    loop {
        tokio::select! {
            _ = &mut copied => return,
            changed = route.changed() => {
                // While it is silent, the copy is not polled.
                let whole = route.wait_for(|route| route.state != State::Silent).await.map(|now| now.cuts);
                if changed.is_err() || whole.ok() != Some(taken.cuts) {
                    return;
                }
            }
        }
    }
}
