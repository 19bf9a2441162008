//! Uploads to a server that is killed again and again.

use std::fs;

use agentloop_client::{Backoff, Client};
use futures_util::future::join_all;

use crate::support::model::Model;
use crate::support::server::Server;

/// Bytes of one upload, different for each.
fn contents(round: usize, number: usize) -> Vec<u8> {
    let seed = round * 100 + number;
    (0..300_000 + seed).map(|at| (at * 31 + seed * 7) as u8).collect()
}

async fn upload(client: Client, contents: Vec<u8>) -> Option<(String, Vec<u8>)> {
    let reader = std::io::Cursor::new(contents.clone());
    let stored = client.put_blob(reader, "application/octet-stream").await.ok()?;
    Some((stored.header?.digest, contents))
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_kills() {
    let model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let mut acknowledged = Vec::new();
    for round in 0..4 {
        let once = Backoff { max_retries: 0, ..Backoff::default() };
        let client =
            Client::builder(format!("http://{}", server.address())).backoff(once).build().expect("a client");
        let mut uploads = Vec::new();
        for number in 0..12 {
            uploads.push(tokio::spawn(upload(client.clone(), contents(round, number))));
        }
        // The kill comes when some are acknowledged and others are under way.
        for first in uploads.drain(..round + 1) {
            acknowledged.extend(first.await.expect("it does not panic"));
        }
        server.kill().await;
        let rest = join_all(uploads).await;
        acknowledged.extend(rest.into_iter().filter_map(|done| done.expect("it does not panic")));
        server.start_again().await;
        let left = fs::read_dir(server.file("agentloop.db-blobs/tmp")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "what was not finished is deleted at the start");
    }
    assert!(acknowledged.len() >= 4, "{} uploads", acknowledged.len());
    let client = server.client();
    for (digest, contents) in acknowledged {
        let mut read = Vec::new();
        client.copy_blob(digest.clone(), &mut read).await.expect("it is there");
        assert!(read == contents, "{digest}");
    }
}
