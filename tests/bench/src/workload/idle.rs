//! A server that does nothing.

use std::time::Duration;

use crate::Failure;
use crate::bed::Bed;
use crate::setting::Setting;

const NAME: &str = "idle";
const WATCHED: Duration = Duration::from_secs(20);

pub(crate) async fn run(setting: &mut Setting<'_>) -> Result<(), Failure> {
    let bed = Bed::make(setting, 0).await?;
    let before = bed.server.usage()?;
    tokio::time::sleep(WATCHED).await;
    let used = bed.server.usage()?.since(before);
    let seconds = WATCHED.as_secs_f64();
    setting.report.add(NAME, "", "resident memory", "MiB", bed.server.resident()? as f64 / 1048576.0);
    setting.report.add(NAME, "", "CPU", "µs/s", used.cpu as f64 / 1e3 / seconds);
    setting.report.add(NAME, "", "wake-ups", "1/s", used.switches as f64 / seconds);
    Ok(())
}
