//! `agentloop health`: exits with 0 if the server is ready.

use crate::{
    args::{Global, HealthArgs},
    embedded,
    exit::{Exit, Failure},
    terminal::print,
};

pub(crate) async fn health(global: &Global, args: &HealthArgs) -> Result<Exit, Failure> {
    let global = match args.local {
        true => Global { server: embedded::configured_url()?, ..global.clone() },
        false => global.clone(),
    };
    let ready = global.client()?.is_ready().await?;
    if global.json() {
        // The JSON of the standard gRPC health response.
        print::line(if ready { r#"{"status":"SERVING"}"# } else { r#"{"status":"NOT_SERVING"}"# })?;
    } else {
        print::line(if ready { "ready" } else { "not ready" })?;
    }
    Ok(if ready { Exit::Completed } else { Exit::Failed })
}
