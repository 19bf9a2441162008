//! `agentloop watch`: shows the events of a run and follows it to its end.

use crate::{
    args::{Global, WatchArgs},
    exit::{Exit, Failure},
    terminal::follow::FollowOptions,
    terminal::interrupt::Interrupts,
    terminal::render::View,
};

pub(crate) async fn watch(global: &Global, args: WatchArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    let interrupts = Interrupts::listen();
    let stream = client.subscribe(args.run, args.after).await?;
    let follow = FollowOptions {
        client,
        view: View::new(global.json()),
        approve: None,
        person: None,
        wait: true,
        abort: false,
        decided_by: String::new(),
        interrupts,
    };
    follow.until_end(stream).await
}
