//! Reads a server's metrics over HTTP, as Prometheus does.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The metrics of one scrape.
#[derive(Debug)]
pub struct Scrape {
    /// The whole text, as Prometheus reads it.
    pub text: String,
    samples: BTreeMap<String, f64>,
}

impl Scrape {
    /// Reads `GET /metrics`.
    ///
    /// # Panics
    /// When it is not answered as it should be.
    pub async fn of(address: SocketAddr) -> Self {
        let answer = get(address, "/metrics").await;
        let (head, text) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(head.contains("application/openmetrics-text"), "{head}");
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        });
        Self { samples: samples.collect(), text: text.to_owned() }
    }

    /// The value of `agentloop_` and this; 0 where there is no such sample.
    pub fn get(&self, sample: &str) -> f64 {
        self.samples.get(&format!("agentloop_{sample}")).copied().unwrap_or_default()
    }

    /// Checks that each of these samples has its value.
    ///
    /// # Panics
    /// When one has another.
    #[track_caller]
    pub fn assert(&self, expected: &[(&str, f64)]) {
        let found: Vec<(&str, f64)> = expected.iter().map(|(name, _)| (*name, self.get(name))).collect();
        assert_eq!(found, expected, "{}", self.text);
    }
}

/// The response to a path, head and body.
///
/// # Panics
/// When the endpoint does not answer.
pub async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("someone listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the request is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer in text");
    answer
}
