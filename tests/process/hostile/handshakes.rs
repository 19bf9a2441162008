//! Handshakes of TLS that are no good: garbled, of another protocol, slow, and never finished in great number.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::peer::client_config;
use super::{Siege, honest_model, scaled};
use crate::support::memory::MIB;
use crate::support::server::Setting;
use crate::support::soon;

/// Handshakes that are begun and never finished.
const HALF_OPEN: usize = 10_000;
/// Connections that nobody finishes a handshake on hold this much together, and not more the more there are: the oldest ends
/// for the newest.
const GROWTH_MAX: usize = 128 * MIB;

async fn encrypted() -> Siege {
    Siege::begin(&Setting { tls: true, ..honest_model().await }).await
}

async fn dial(siege: &Siege) -> TcpStream {
    TcpStream::connect(siege.server.address()).await.expect("it listens")
}

/// A message that begins a handshake, as a client sends it.
fn client_hello(root: &str) -> Vec<u8> {
    let name = ServerName::try_from("localhost").expect("a name");
    let config = Arc::new(client_config(root, &[b"h2"]));
    let mut client = rustls::ClientConnection::new(config, name).expect("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("it is written to memory");
    hello
}

/// The number of sockets that this process may have open beside everything else.
fn sockets_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("Linux says it");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("there is a limit");
    let soft = line.split_whitespace().nth(3).expect("a number");
    soft.parse().map_or(HALF_OPEN, |soft: usize| soft.saturating_sub(200) / 2)
}

#[tokio::test]
async fn handshakes_that_never_end_are_bounded_and_keep_nobody_out() {
    let siege = encrypted().await;
    let hello = client_hello(&siege.server.root().expect("it is encrypted"));
    let count = scaled(HALF_OPEN).min(sockets_max());
    let mut half_open = Vec::with_capacity(count);
    for at in 0..count {
        let mut socket = dial(&siege).await;
        // Some say nothing, some the half of it, some all of it and then no more.
        let said = [0, hello.len() / 2, hello.len()][at % 3];
        // It may be the oldest already.
        let _heard = socket.write_all(&hello[..said]).await;
        half_open.push(socket);
        if at == count / 2 {
            siege.serves("between").await;
        }
    }
    println!("{count} handshakes were begun");
    siege.serves("beside").await;
    // The first of them was ended for the others.
    let mut said = Vec::new();
    let _end = soon("the end of the oldest", half_open[0].read_to_end(&mut said)).await;
    siege.end("half-open handshakes", GROWTH_MAX).await;
}

#[tokio::test]
async fn handshakes_that_are_no_good_are_hung_up_on() {
    let siege = encrypted().await;
    let root = siege.server.root().expect("it is encrypted");
    let hello = client_hello(&root);
    let mut turned = hello.clone();
    turned.iter_mut().skip(9).step_by(7).for_each(|byte| *byte ^= 0x55);
    let huge = [&[22, 3, 1, 0xFF, 0xFF][..], &vec![0xAB; 70_000]].concat();
    let garbage = [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
        vec![0; 100_000],
        turned,
        huge,
        [&hello[..], &hello[..]].concat(),
        // An old version, and an alert.
        b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10".to_vec(),
        b"\x15\x03\x03\x00\x02\x02\x28".to_vec(),
    ];
    for _ in 0..scaled(20) {
        for bytes in &garbage {
            let mut socket = dial(&siege).await;
            // The other side may hang up in the middle of it.
            let _heard = socket.write_all(bytes).await;
            let _heard = socket.shutdown().await;
            let mut said = Vec::new();
            let _end = soon("the end of a connection", socket.read_to_end(&mut said)).await;
            assert!(said.len() < 8_192, "there is little to say to that: {}", said.len());
        }
    }
    // Whole handshakes of a client that offers another protocol, or none.
    let protocols: [&[&[u8]]; 2] = [&[b"http/1.1"], &[]];
    for protocols in protocols {
        let connector = TlsConnector::from(Arc::new(client_config(&root, protocols)));
        let name = ServerName::try_from("localhost").expect("a name");
        let connected = soon("an answer", connector.connect(name, dial(&siege).await)).await;
        if let Ok(mut stream) = connected {
            let mut byte = [0];
            let ended = soon("the end of a connection", stream.read(&mut byte)).await;
            assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        }
    }
    siege.end("bad handshakes", GROWTH_MAX).await;
}

#[tokio::test]
async fn a_handshake_that_is_slow_is_ended() {
    let siege = encrypted().await;
    let hello = client_hello(&siege.server.root().expect("it is encrypted"));
    let mut slow = dial(&siege).await;
    let (mut reading, mut writing) = slow.split();
    let trickle = async {
        for byte in hello.iter().cycle() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if writing.write_all(&[*byte]).await.is_err() {
                return;
            }
        }
    };
    let mut said = Vec::new();
    let ended = async {
        // It ends after handshake_timeout, 10 s by default, whatever comes.
        let _end = soon("the end of a slow handshake", reading.read_to_end(&mut said)).await;
    };
    tokio::select! {
        () = trickle => {}
        () = ended => {}
    }
    siege.end("a slow handshake", GROWTH_MAX).await;
}

#[tokio::test]
async fn certificates_are_renewed_under_load_without_a_failed_call() {
    const CALLERS: usize = 8;
    const CALLS: usize = 25;
    const RENEWALS: usize = 10;
    let siege = encrypted().await;
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let builder = siege.server.client_builder();
            tokio::spawn(async move {
                let kept = builder.clone().build().expect("a client");
                for _ in 0..CALLS {
                    // One call on a connection that stays, and one on a new one.
                    let new = builder.clone().build().expect("a client");
                    for client in [&kept, &new] {
                        soon("an answer", client.server_info()).await.expect("no call fails");
                    }
                }
            })
        })
        .collect();
    for _ in 0..RENEWALS {
        siege.server.renew_certificate();
        siege.server.signal("HUP").await;
        siege.serves("meanwhile").await;
    }
    for caller in callers {
        soon("a caller", caller).await.expect("no call failed");
    }
    siege.end("renewed certificates", GROWTH_MAX).await;
}
