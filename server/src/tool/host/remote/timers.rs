//! The work that goes on beside the streams: deadlines of the fleet, delivery of updates, refreshes of the catalogue.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::host::CallUpdate;
use agentloop_core::id::{CallId, TenantId};
use agentloop_core::time::Timestamp;

use super::{RemoteTools, Sink};
use crate::tool::CallSink;
use crate::tool::host::deliver::{AcceptedResult, deliver};

/// The shortest time between two refreshes of the catalogue, however short tools are kept: each writes the rows of all tools that
/// are served.
const REFRESH_PERIOD_MIN: Duration = Duration::from_secs(30);

impl RemoteTools {
    /// Runs timers and delivers updates to the engine until it is dropped. Run it once, on a task of its own. Before that,
    /// updates wait, and hosts that reconnect with calls are sent away.
    pub async fn drive(self: Arc<Self>, sink: Arc<dyn CallSink>) {
        let reports_receiver = self.reports_receiver.lock().take();
        let (Some(reports_receiver), Ok(())) = (reports_receiver, self.sink.set(Sink(sink.clone()))) else {
            tracing::error!("RemoteTools::drive was called twice; the second call does nothing");
            return;
        };
        let (tools, engine) = (&*self, &*sink);
        let tell = move |tenant: TenantId, call: CallId, update: CallUpdate| async move {
            engine.report_update(&tenant, &call, update).await;
        };
        // If a result cannot be recorded, the run treats the call as lost when its deadline passes.
        let record = move |tenant: TenantId, result: AcceptedResult| async move {
            let _ = tools.record_now(&tenant, result).await;
        };
        tokio::join!(deliver(reports_receiver, tell, record), self.run_timer(), self.refresh_catalogue());
    }

    async fn run_timer(&self) {
        loop {
            let moved = self.deadline_moved.notified();
            let deadline = self.arm_timer();
            let due = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(self.timeline.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! { biased;
                () = due => self.handle_due(),
                () = moved => {}
            }
        }
    }

    /// Sets the time that the timer task sleeps until. [`Self::route`] wakes it if a deadline becomes earlier.
    fn arm_timer(&self) -> Option<Timestamp> {
        let mut state = self.lock();
        state.timer_deadline = state.fleet.deadline();
        state.timer_deadline
    }

    fn handle_due(&self) {
        let mut state = self.lock();
        let now = self.now();
        let out = state.fleet.handle_time(now);
        self.perform(&mut state, out, now);
    }

    async fn refresh_catalogue(&self) {
        let period = (self.options.tool_retention.duration() / 2).max(REFRESH_PERIOD_MIN);
        loop {
            tokio::time::sleep(period).await;
            self.lock().catalogue.refresh();
            self.unsaved.notify_one();
        }
    }
}
