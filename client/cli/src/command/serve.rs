//! `agentloop serve`: runs the server in this process.

use std::process::ExitCode;

use crate::{args::ServeArgs, embedded, exit::Failure};

pub(crate) async fn serve(args: ServeArgs) -> Result<ExitCode, Failure> {
    embedded::serve(args.config.as_deref(), args.accept_loss).await
}
