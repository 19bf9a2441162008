//! `agentloop abort`: ends a run, or the live run of a session.

use crate::{
    args::{AbortArgs, Global},
    exit::{Exit, Failure},
    terminal::format,
    terminal::json,
    terminal::print,
};

pub(crate) async fn abort(global: &Global, args: AbortArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    let ended = match (args.run, args.session) {
        (Some(run), _) => client.abort_run(run, args.reason).await?,
        (None, Some(session)) => client.abort_session(session, args.reason).await?,
        (None, None) => return Err(Failure::Usage("name a run or a session".into())),
    };
    if global.json() {
        print::line(&json::line("AbortResponse", &ended))?;
    } else if ended.run_id.is_empty() {
        print::line("the session has no live run")?;
    } else {
        print::line(&format!("{} {}", ended.run_id, format::status(ended.status())))?;
    }
    Ok(Exit::Completed)
}
