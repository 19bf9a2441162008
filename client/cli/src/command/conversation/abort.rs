//! `agentloop abort`: ends a run, or the live run of a session.

use crate::{
    args::{AbortArgs, Global},
    command::ids::{self, Kind},
    exit::{Exit, Failure},
    terminal::format,
    terminal::json,
    terminal::print,
};

pub(crate) async fn abort(global: &Global, args: AbortArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    let ended = match (args.run, args.session) {
        (Some(run), _) => {
            let abort = |id: String| async { client.abort_run(id, args.reason.clone()).await };
            ids::called(&client, Kind::Run, &run, abort).await?
        }
        (None, Some(session)) => {
            let abort = |id: String| async { client.abort_session(id, args.reason.clone()).await };
            ids::called(&client, Kind::Session, &session, abort).await?
        }
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
