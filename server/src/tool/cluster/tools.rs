//! [`Tools`] of a replica: the catalogue is its own, calls go to the hub.

use agentloop_core::agent::RunSpec;
use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{CallId, HostId, RunId, RuntimeId, TenantId};
use agentloop_core::message::ToolCall;
use agentloop_core::question::InputAnswer;
use agentloop_core::run::effect::{CancelCause, Offer};
use agentloop_core::run::input::{CallFacts, NotOffered};
use agentloop_core::tool::Digest;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::frame::{Command, ToHub};
use super::table::{OpenCall, OpenCallState};
use super::{ClusterTools, HubConnection};
use crate::tool::{BadOutput, CallOrigin, Offered, Seek, Tools};

impl Tools for ClusterTools {
    fn offered(&self, tenant: &TenantId, spec: &RunSpec) -> Offered {
        self.own.offered(tenant, spec)
    }

    fn not_offered(&self, tenant: &TenantId, spec: &RunSpec) -> NotOffered {
        self.own.not_offered(tenant, spec)
    }

    fn facts(&self, tenant: &TenantId, spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts> {
        self.own.facts(tenant, spec, calls)
    }

    fn validate(&self, tenant: &TenantId, tool: &str, arguments: &str) -> Result<(), String> {
        self.own.validate(tenant, tool, arguments)
    }

    fn check_output(
        &self,
        tenant: &TenantId,
        tool: &str,
        declared: Option<&Digest>,
        structured: &str,
    ) -> Result<(), BadOutput> {
        self.own.check_output(tenant, tool, declared, structured)
    }

    fn seek(&self, origin: &CallOrigin, call: &CallId, tool: &str, on: Option<&HostId>) -> Seek {
        let mut state = self.lock();
        let sought =
            || OpenCallState::Sought { tool: tool.to_owned(), on: on.cloned(), since: Instant::now() };
        if matches!(state.hub, HubConnection::Here) {
            if !self.claim_here(origin, call) {
                // The task that seeks is at its end.
                return Seek::Queued;
            }
            // This is the next attempt. Only an attempt that was offered has updates that a new owner must hear.
            self.pending_updates.forget_call(&origin.tenant, call);
            let seek = self.own.seek(origin, call, tool, on);
            let link = state.link;
            match &seek {
                Seek::Granted { .. } => state.table.set(origin, call, OpenCallState::Granted { link }),
                Seek::Queued => state.table.set(origin, call, sought()),
                Seek::Denied(_) => state.table.stop_seeking(&origin.tenant, call),
            }
            return seek;
        }
        let is_sought = |open: &OpenCall| matches!(&open.state, OpenCallState::Sought { tool: before, .. } if before == tool);
        if !state.table.get(&origin.tenant, call).is_some_and(is_sought) {
            state.table.set(origin, call, sought());
            state.send(&ToHub::Seek {
                origin: origin.clone(),
                call: call.clone(),
                tool: tool.to_owned(),
                on: on.cloned(),
            });
        }
        Seek::Queued
    }

    fn seek_response(&self, tenant: &TenantId, call: &CallId) -> Option<oneshot::Receiver<CallUpdate>> {
        let mut state = self.lock();
        let responds = matches!(state.hub, HubConnection::Link(_)) && state.says_queued;
        // Otherwise a later grant comes through the sink.
        responds.then(|| state.table.wait(tenant, call)).flatten()
    }

    fn is_offer_open(&self, tenant: &TenantId, call: &CallId) -> bool {
        let state = self.lock();
        match &state.hub {
            HubConnection::Here => self.own.is_offer_open(tenant, call),
            HubConnection::Link(_) => state
                .table
                .get(tenant, call)
                .is_some_and(|open| matches!(open.state, OpenCallState::Offered { is_accepted: false, .. })),
            HubConnection::Away(_) => false,
        }
    }

    fn close_runtime(&self, tenant: &TenantId, host: &HostId, runtime: &RuntimeId) {
        let (tenant, host, runtime) = (tenant.clone(), host.clone(), runtime.clone());
        self.command(&mut self.lock(), Command::CloseRuntime { tenant, host, runtime });
    }

    fn stop_seeking(&self, tenant: &TenantId, call: &CallId) {
        let mut state = self.lock();
        state.table.stop_seeking(tenant, call);
        match &state.hub {
            HubConnection::Here if self.is_at_another(&state, tenant, &call.run, None) => {}
            HubConnection::Here => self.own.stop_seeking(tenant, call),
            HubConnection::Link(link) => {
                link.send(&ToHub::StopSeeking { tenant: tenant.clone(), call: call.clone() })
            }
            HubConnection::Away(_) => {}
        }
    }

    fn offer(&self, origin: &CallOrigin, call: &CallId, offer: Offer) {
        // Another hub checks them itself. One that becomes the hub in between has no room for the call any more.
        let unfit = self.is_hub().then(|| self.own.unfit(&origin.tenant, &offer)).flatten();
        let mut state = self.lock();
        if matches!(state.hub, HubConnection::Here) {
            if !self.claim_here(origin, call) {
                return self.not_sent(&origin.tenant, call, offer.attempt);
            }
            state.table.offered(origin, call, &offer);
            return self.own.offer_checked(origin, call, offer, unfit);
        }
        let present = state.link;
        let has_room = matches!(
            state.table.get(&origin.tenant, call),
            Some(OpenCall { state: OpenCallState::Granted { link }, .. }) if *link == present
        );
        match &state.hub {
            HubConnection::Link(link) if has_room => {
                let link = link.clone();
                state.table.offered(origin, call, &offer);
                link.send(&ToHub::Offer {
                    origin: origin.clone(),
                    call: call.clone(),
                    offer: Box::new(offer),
                });
            }
            HubConnection::Here | HubConnection::Link(_) | HubConnection::Away(_) => {
                state.table.stop_seeking(&origin.tenant, call);
                self.not_sent(&origin.tenant, call, offer.attempt);
            }
        }
    }

    fn reclaim(&self, origin: &CallOrigin, call: &CallId, offer: Offer) {
        let mut state = self.lock();
        if matches!(state.hub, HubConnection::Here) && !self.claim_here(origin, call) {
            return;
        }
        state.table.offered(origin, call, &offer);
        match &state.hub {
            HubConnection::Here => {
                // Another replica may have owned the run, and it did not hear them. They come before what follows from the reclaim.
                for update in self.pending_updates.of(&origin.tenant, call) {
                    self.own.tell_again(&origin.tenant, call, update);
                }
                self.own.reclaim(origin, call, offer);
            }
            HubConnection::Link(_) => {
                let (origin, call) = (origin.clone(), call.clone());
                state.send(&ToHub::Reclaim { origin, call, offer: Box::new(offer) });
            }
            // It is reclaimed as soon as there is a connection.
            HubConnection::Away(_) => {}
        }
    }

    fn cancel(&self, tenant: &TenantId, call: &CallRef, cause: CancelCause, reason: &str) {
        let mut state = self.lock();
        state.table.over(tenant, call);
        let (tenant, call, reason) = (tenant.clone(), call.clone(), reason.to_owned());
        self.command(&mut state, Command::Cancel { tenant, call, cause, reason });
    }

    fn answer_input(&self, tenant: &TenantId, call: &CallRef, input: &str, answer: InputAnswer) {
        let (tenant, call, input) = (tenant.clone(), call.clone(), input.to_owned());
        self.command(&mut self.lock(), Command::AnswerInput { tenant, call, input, answer });
    }

    fn ack_resume_state(&self, tenant: &TenantId, call: &CallRef, resume_no: u64) {
        let (tenant, call) = (tenant.clone(), call.clone());
        self.command(&mut self.lock(), Command::AckResumeState { tenant, call, resume_no });
    }

    fn release_call(&self, tenant: &TenantId, call: &CallRef) {
        let mut state = self.lock();
        state.table.over(tenant, call);
        let (tenant, call) = (tenant.clone(), call.clone());
        self.command(&mut state, Command::ReleaseCall { tenant, call });
    }

    fn release(&self, tenant: &TenantId, run: &RunId) {
        let mut state = self.lock();
        state.table.release(tenant, run);
        match &state.hub {
            HubConnection::Here => self.release_at_hosts(&state, tenant, run),
            HubConnection::Link(link) => {
                link.send(&ToHub::Release { tenant: tenant.clone(), run: run.clone() })
            }
            // The hub has released the calls when the link broke.
            HubConnection::Away(_) => {}
        }
    }
}

impl ClusterTools {
    /// As the hub: the run's calls come from this replica itself. Returns false if another owner has claimed the run since.
    fn claim_here(&self, origin: &CallOrigin, call: &CallId) -> bool {
        let is_latest = self.routes.claim_here(&origin.tenant, &call.run, origin.epoch);
        if !is_latest {
            tracing::info!(run.id = %call.run, "a call of an earlier claim of its run is left out");
        }
        is_latest
    }
}
