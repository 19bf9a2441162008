//! `agentloop fork`: makes a session that begins with another's entries.

use agentloop_client::v1::ForkSessionRequest;

use crate::{
    args::{ForkArgs, Global},
    command::ids::{self, Kind},
    exit::{Exit, Failure},
    terminal::json,
    terminal::print,
};

pub(crate) async fn fork(global: &Global, args: ForkArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    let fork = |session_id: String| async {
        let new_session_id = args.id.clone();
        client.fork_session(ForkSessionRequest { session_id, at_entry_no: args.at, new_session_id }).await
    };
    let session = ids::called(&client, Kind::Session, &args.session, fork).await?;
    if global.json() {
        print::line(&json::line("Session", &session))?;
    } else {
        print::line(&session.session_id)?;
    }
    Ok(Exit::Completed)
}
