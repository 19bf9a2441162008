//! The roles in which this program starts itself: a process around the server, or one that measures a floor.

use clap::ValueEnum as _;

use crate::protection::Credentials;
use crate::role::{host, model};
use crate::{Failure, floor};

/// Plays a role until it is done or killed.
pub(crate) async fn play(role: &str, args: &[String]) -> Result<(), Failure> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match (role, &args[..]) {
        ("model", []) => model::run().await,
        ("host", [server, count]) => host::run(server, count.parse()?, None).await,
        ("host", [server, count, ca, token]) => {
            let credentials = Credentials { ca: ca.into(), token: (*token).to_owned() };
            host::run(server, count.parse()?, Some(credentials)).await
        }
        ("floor-read", [address, format, script, concurrency, runs]) => {
            let format = model::Format::from_str(format, false)?;
            let script = model::Script::read(script).ok_or("not a script")?;
            floor::read::run(address, format, script, concurrency.parse()?, runs.parse()?).await
        }
        ("floor-stream", [frames]) => floor::stream::run(frames.as_ref(), 0).await,
        ("floor-stream", [frames, pace]) => floor::stream::run(frames.as_ref(), pace.parse()?).await,
        ("floor-commit", [rows, appends, concurrency, runs]) => {
            floor::commit::run(rows.as_ref(), appends.parse()?, concurrency.parse()?, runs.parse()?).await
        }
        ("floor-round-trip", [rounds, concurrency, runs]) => {
            floor::round_trip::run(rounds.parse()?, concurrency.parse()?, runs.parse()?).await
        }
        ("floor-host", [url]) => floor::round_trip::host(url).await,
        _ => Err(format!("no such role: {role} {args:?}").into()),
    }
}
