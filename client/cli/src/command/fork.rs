//! `agentloop fork`: makes a session that begins with another's entries.

use agentloop_client::v1::ForkSessionRequest;

use crate::{
    args::{ForkArgs, Global},
    exit::{Exit, Failure},
    terminal::json,
    terminal::print,
};

pub(crate) async fn fork(global: &Global, args: ForkArgs) -> Result<Exit, Failure> {
    let request =
        ForkSessionRequest { session_id: args.session, at_entry_no: args.at, new_session_id: args.id };
    let session = global.client()?.fork_session(request).await?;
    if global.json() {
        print::line(&json::line("Session", &session))?;
    } else {
        print::line(&session.session_id)?;
    }
    Ok(Exit::Completed)
}
