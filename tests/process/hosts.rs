//! Several hosts of one tool.

use serde_json::json;

use crate::support::follow::Follower;
use crate::support::host::Host;
use crate::support::model::Model;
use crate::support::server::{Server, Setting, input};

#[tokio::test]
async fn share_the_load() {
    let mut model = Model::start().await;
    let server = Server::start(&Setting { max_parallel: 8, ..model.setting() }).await;
    let (one, two) = (Host::start(&server, "h-1").await, Host::start(&server, "h-2").await);
    let mut run = Follower::start(&server, input("r-1", "s-1", "Wait much")).await;
    // Each host takes four at a time.
    let calls: Vec<_> = (0..8).map(|_| ("slow", json!({ "seconds": 2.0 }))).collect();
    model.call().await.use_tools(&calls).await;
    for _ in 0..8 {
        run.result().await;
    }
    model.call().await.say("Waited.").await;
    assert_eq!(run.answer().await, "Waited.");
    assert_eq!((one.did("slow-start").len(), two.did("slow-start").len()), (4, 4));
}
