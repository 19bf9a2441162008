//! The workloads, one file each.

mod cancel;
mod idle;
mod live;
mod loaded;
mod parked;
mod session;
mod watched;

use std::path::PathBuf;

use tokio::process::Command;

use crate::Failure;
use crate::options::{Options, Workload};
use crate::report::Report;
use crate::role::model::Script;
use crate::setting::Setting;

const ALL: [Workload; 10] = [
    Workload::Idle,
    Workload::W1,
    Workload::W10,
    Workload::Ws,
    Workload::Wl,
    Workload::Wf,
    Workload::Wh,
    Workload::Live,
    Workload::Cancel,
    Workload::Wi,
];

/// Measures what was asked for, and prints a table as soon as each workload is done.
#[expect(clippy::print_stdout, reason = "the figures are what the program is for")]
pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let program = match &options.server {
        Some(program) => program.clone(),
        None => build().await?,
    };
    let mut setting = Setting { options, program, report: Report::default() };
    let asked = if options.workloads.is_empty() { &ALL[..] } else { &options.workloads };
    for workload in asked {
        let name = measure(&mut setting, *workload).await?;
        println!("{}", setting.report.table(name));
        if let Some(file) = &options.json {
            std::fs::write(file, serde_json::to_string_pretty(&setting.report)?)?;
        }
    }
    Ok(())
}

async fn measure(setting: &mut Setting<'_>, workload: Workload) -> Result<&'static str, Failure> {
    match workload {
        Workload::W1 => loaded::run(setting, "W1", Script::W1, 1).await?,
        Workload::W10 => loaded::run(setting, "W10", Script { rounds: 10, ..Script::W1 }, 1).await?,
        Workload::Ws => {
            loaded::run(setting, "WS", Script { rounds: 0, deltas: 200, ..Script::W1 }, 1).await?
        }
        Workload::Wh => loaded::run(setting, "WH", Script::W1, 1_000).await?,
        Workload::Wi => parked::run(setting).await?,
        Workload::Wl => session::run(setting).await?,
        Workload::Wf => watched::run(setting).await?,
        Workload::Cancel => cancel::run(setting).await?,
        Workload::Live => live::run(setting).await?,
        Workload::Idle => idle::run(setting).await?,
    }
    Ok(match workload {
        Workload::W1 => "W1",
        Workload::W10 => "W10",
        Workload::Ws => "WS",
        Workload::Wh => "WH",
        Workload::Wi => "WI",
        Workload::Wl => "WL",
        Workload::Wf => "WF",
        Workload::Cancel => "cancel",
        Workload::Live => "live",
        Workload::Idle => "idle",
    })
}

/// Builds the release server of this workspace.
async fn build() -> Result<PathBuf, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = ["build", "--release", "--locked", "--package", "agentloop-cli", "--bin", "agentloop"];
    if !Command::new(cargo).args(args).status().await?.success() {
        return Err("the server cannot be built".into());
    }
    Ok(std::env::current_exe()?.with_file_name("agentloop"))
}
