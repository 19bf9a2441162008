//! `agentloop store`: copies a database.

use crate::{
    args::{Global, StoreArgs, StoreCommand, StoreCopyArgs},
    embedded::store,
    exit::{Exit, Failure},
    terminal::print,
};

pub(crate) async fn store(global: &Global, args: StoreArgs) -> Result<Exit, Failure> {
    match args.command {
        StoreCommand::Copy(args) => copy(global, args).await,
    }
}

async fn copy(global: &Global, args: StoreCopyArgs) -> Result<Exit, Failure> {
    let report = store::copy(&args.from, &args.to).await?;
    if global.json() {
        let tables: serde_json::Map<_, _> =
            report.tables.iter().map(|(name, rows)| ((*name).to_owned(), (*rows).into())).collect();
        let report = serde_json::json!({
            "sessions": report.sessions, "runs": report.runs, "events": report.events,
            "blobs": report.blobs, "damaged_blobs": report.damaged_blobs, "rows": tables,
        });
        print::line(&report.to_string())?;
        return Ok(Exit::Completed);
    }
    print::line(&format!(
        "copied and compared: {} sessions, {} runs with {} events; start the server with store.url",
        report.sessions, report.runs, report.events
    ))?;
    if report.damaged_blobs > 0 {
        print::line(&format!(
            "{} damaged blobs are copied without their bytes; standard error names them",
            report.damaged_blobs
        ))?;
    }
    Ok(Exit::Completed)
}
