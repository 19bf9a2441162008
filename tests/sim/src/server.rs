//! A process of the server: the real engine and the real fleet, and its two ends.

use std::sync::Arc;
use std::time::Duration;

use agentloop_server::engine::Engine;
use agentloop_server::lifecycle::Tasks;
use agentloop_server::tool::RemoteTools;

/// Time after which a graceful stop becomes a kill.
const GRACE: Duration = Duration::from_secs(5);

/// One process of the server. Clones are the same.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) number: u64,
    pub(crate) engine: Engine,
    pub(crate) tools: Arc<RemoteTools>,
    pub(crate) tasks: Tasks,
}

impl Server {
    /// Ends the process where it is.
    pub(crate) fn kill(&self) {
        self.tasks.hard().cancel();
    }

    /// Ends the process in good order.
    pub(crate) async fn stop(&self) {
        self.tasks.soft().cancel();
        self.tools.go_away();
        self.tools.close();
        self.tasks.shut_down(GRACE).await;
        self.kill();
    }
}
