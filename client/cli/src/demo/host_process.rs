//! The tool host of the demo: this program again, as a child process.

use std::{
    fs::File,
    process::Stdio,
    time::{Duration, Instant},
};

use agentloop_client::Client;
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

use super::files::DemoFiles;
use crate::exit::Failure;

const TOOLS: usize = 3;
const REGISTER_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A tool host in a child process, which ends with this process.
pub(crate) struct HostProcess {
    child: Child,
}

impl HostProcess {
    pub(crate) fn start(server: &str, files: &DemoFiles) -> Result<HostProcess, Failure> {
        let log = File::create(&files.host_log)
            .map_err(|error| Failure::cannot("write", &files.host_log, &error))?;
        let child = Command::new(std::env::current_exe()?)
            .args(["host", "--with-parent", "--server", server, "--host-id", "demo-host", "--outbox"])
            .arg(&files.outbox)
            .env_remove("AGENTLOOP_TOKEN")
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        Ok(HostProcess { child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Waits until every tool is registered and has a host.
    pub(crate) async fn wait_for_tools(&mut self, client: &Client) -> Result<(), Failure> {
        let until = Instant::now() + REGISTER_TIMEOUT;
        loop {
            let tools = client.list_tools().await?;
            if tools.iter().filter(|tool| !tool.host_ids.is_empty()).count() >= TOOLS {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(Failure::Other(format!("the tool host ended ({status}); its log says why")));
            }
            if Instant::now() > until {
                return Err(Failure::Other("the tool host did not register its tools in time".into()));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Stops the host, by closing its standard input.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        if timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}
