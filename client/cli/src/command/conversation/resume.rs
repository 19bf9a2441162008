//! `agentloop resume`: lets a paused run go on.

use agentloop_client::v1::ResumeRunRequest;

use crate::{
    args::{Global, ResumeArgs},
    command::ids::{self, Kind},
    exit::{Exit, Failure},
    terminal::format,
    terminal::json,
    terminal::print,
};

pub(crate) async fn resume(global: &Global, args: ResumeArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    let resume = |run_id: String| async {
        let resumed_by = args.resumed_by.clone();
        client.resume_run(ResumeRunRequest { run_id, resumed_by, ..ResumeRunRequest::default() }).await
    };
    let run = ids::called(&client, Kind::Run, &args.run, resume).await?;
    if global.json() {
        print::line(&json::line("Run", &run))?;
    } else {
        print::line(&format!("{} {}", run.run_id, format::status(run.status())))?;
    }
    Ok(Exit::Completed)
}
