//! `agentloop serve`.

use crate::{
    args::ServeArgs,
    embedded,
    exit::{Exit, Failure},
};

pub(crate) async fn serve(args: ServeArgs) -> Result<Exit, Failure> {
    embedded::serve(args.config.as_deref()).await
}
