//! `agentloop watch`: shows the events of a run and follows it to its end.

use crate::{
    args::{Global, WatchArgs},
    command::ids::{self, Kind},
    exit::{Exit, Failure},
    follow::FollowOptions,
    terminal::render::View,
    terminal::signals::EndSignals,
};

pub(crate) async fn watch(global: &Global, args: WatchArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    let signals = EndSignals::listen();
    let subscribe = |run_id: String| async { client.subscribe(run_id, args.after).await };
    let stream = ids::called(&client, Kind::Run, &args.run, subscribe).await?;
    let follow = FollowOptions {
        client,
        view: View::new(global.json()),
        approve: None,
        person: None,
        wait: true,
        abort: false,
        decided_by: String::new(),
        signals,
        server_option: global.server_option(),
        says_next: false,
    };
    follow.until_end(stream).await
}
