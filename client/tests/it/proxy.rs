//! A TCP proxy whose connections can be cut.

use std::net::SocketAddr;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Forwards connections to a server. After a cut, new connections work again.
pub(crate) struct Proxy {
    address: SocketAddr,
    cuts: watch::Sender<u32>,
}

impl Proxy {
    pub(crate) async fn start(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (cuts, watched) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(forward(near, target, watched.clone()));
            }
        });
        Proxy { address, cuts }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes every connection that is open now.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn forward(mut near: TcpStream, target: SocketAddr, mut cuts: watch::Receiver<u32>) {
    cuts.mark_unchanged();
    let mut far = TcpStream::connect(target).await.expect("the server listens");
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => {}
        _ = cuts.changed() => {}
    }
}
