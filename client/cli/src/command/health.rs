//! `agentloop health`.

use crate::{
    args::Global,
    exit::{Exit, Failure},
    terminal::print,
};

pub(crate) async fn health(global: &Global) -> Result<Exit, Failure> {
    let ready = global.client()?.is_ready().await?;
    if global.json() {
        // As the standard health service says it.
        print::line(if ready { r#"{"status":"SERVING"}"# } else { r#"{"status":"NOT_SERVING"}"# })?;
    } else {
        print::line(if ready { "ready" } else { "not ready" })?;
    }
    Ok(if ready { Exit::Completed } else { Exit::Failed })
}
