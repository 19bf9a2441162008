//! `agentloop resume`: lets a paused run go on.

use agentloop_client::v1::ResumeRunRequest;

use crate::{
    args::{Global, ResumeArgs},
    exit::{Exit, Failure},
    terminal::format,
    terminal::json,
    terminal::print,
};

pub(crate) async fn resume(global: &Global, args: ResumeArgs) -> Result<Exit, Failure> {
    let request =
        ResumeRunRequest { run_id: args.run, resumed_by: args.resumed_by, ..ResumeRunRequest::default() };
    let run = global.client()?.resume_run(request).await?;
    if global.json() {
        print::line(&json::line("Run", &run))?;
    } else {
        print::line(&format!("{} {}", run.run_id, format::status(run.status())))?;
    }
    Ok(Exit::Completed)
}
