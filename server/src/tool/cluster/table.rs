//! The open calls of the runs of this replica, with everything that is needed to ask for them again at another hub. The runs that
//! are live bound their number.

use std::collections::{BTreeMap, VecDeque};

use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{Attempt, CallId, CallKey, CallSlot, Epoch, HostId, RunId, TenantId};
use agentloop_core::run::effect::Offer;
use tokio::time::Instant;

use super::frame::{Command, CommandNo};
use crate::tool::CallOrigin;
use crate::tool::host::state::LinkNo;

/// Commands that wait to be done, while the hub cannot be reached. Beyond this the oldest is given up, and the log says so.
const COMMANDS_MAX: usize = 4_096;

/// The open calls, and the commands that are not known to be done.
#[derive(Debug, Default)]
pub(super) struct CallTable {
    calls: BTreeMap<CallKey, OpenCall>,
    commands: VecDeque<(CommandNo, Command)>,
    last_command: CommandNo,
}

/// A call that has a host, or looks for one.
#[derive(Debug, Clone)]
pub(super) struct OpenCall {
    pub(super) origin: CallOrigin,
    pub(super) state: OpenCallState,
}

/// The stage of an open call, as far as the hub has told it.
#[derive(Debug, Clone)]
pub(super) enum OpenCallState {
    /// It looks for a host.
    Sought { tool: String, on: Option<HostId>, since: Instant },
    /// A host has room for it. The room is lost when this link ends.
    Granted { link: LinkNo },
    /// It was offered to a host, or reclaimed.
    Offered {
        /// Without the content, which only the host needs.
        offer: Box<Offer>,
        /// True once the run knows that the host works on it.
        is_accepted: bool,
    },
}

/// The action to take on an update of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpdateAction {
    /// The run is told.
    Pass,
    /// The call does not look for room: it is given back.
    GiveBack,
    /// The update means nothing for the run.
    Drop,
}

impl CallTable {
    pub(super) fn get(&self, tenant: &TenantId, call: &CallId) -> Option<&OpenCall> {
        self.calls.get(&CallKey::new(tenant.clone(), call.clone()))
    }

    /// True if a call of this run is open.
    pub(super) fn has_run(&self, tenant: &TenantId, run: &RunId) -> bool {
        self.of_run(tenant, run).next().is_some()
    }

    /// True if a call of this run is open, of a later claim of the run than this one.
    pub(super) fn has_claim_after(&self, tenant: &TenantId, run: &RunId, epoch: Epoch) -> bool {
        self.of_run(tenant, run).any(|(_, open)| open.origin.epoch > epoch)
    }

    fn of_run(&self, tenant: &TenantId, run: &RunId) -> impl Iterator<Item = (&CallKey, &OpenCall)> {
        let from = self.calls.range(first_of(tenant, run)..);
        from.take_while(move |(key, _)| key.tenant == *tenant && key.call.run == *run)
    }

    pub(super) fn set(&mut self, origin: &CallOrigin, call: &CallId, state: OpenCallState) {
        let key = CallKey::new(origin.tenant.clone(), call.clone());
        self.calls.insert(key, OpenCall { origin: origin.clone(), state });
    }

    /// Notes that the call was sent to its host, or may have been.
    pub(super) fn offered(&mut self, origin: &CallOrigin, call: &CallId, offer: &Offer) {
        let offer = Offer {
            arguments: String::new(),
            checkpoint: None,
            resume_state: None,
            answers: Vec::new(),
            runtime: None,
            ..offer.clone()
        };
        self.set(origin, call, OpenCallState::Offered { offer: Box::new(offer), is_accepted: false });
    }

    /// The call needs no room any more.
    pub(super) fn stop_seeking(&mut self, tenant: &TenantId, call: &CallId) {
        let key = CallKey::new(tenant.clone(), call.clone());
        let is_sought = |open: &OpenCall| {
            matches!(open.state, OpenCallState::Sought { .. } | OpenCallState::Granted { .. })
        };
        if self.calls.get(&key).is_some_and(is_sought) {
            self.calls.remove(&key);
        }
    }

    /// This attempt of the call is over.
    pub(super) fn over(&mut self, tenant: &TenantId, call: &CallRef) {
        let key = CallKey::new(tenant.clone(), call.call.clone());
        let is_it = |open: &OpenCall| matches!(&open.state, OpenCallState::Offered { offer, .. } if offer.attempt == call.attempt);
        if self.calls.get(&key).is_some_and(is_it) {
            self.calls.remove(&key);
        }
    }

    /// The run knows that the host works on this attempt.
    pub(super) fn accepted(&mut self, tenant: &TenantId, call: &CallId, of: Attempt) {
        if let Some(OpenCall { state: OpenCallState::Offered { offer, is_accepted }, .. }) =
            self.calls.get_mut(&CallKey::new(tenant.clone(), call.clone()))
            && offer.attempt == of
        {
            *is_accepted = true;
        }
    }

    /// The task of the run has ended.
    pub(super) fn release(&mut self, tenant: &TenantId, run: &RunId) {
        let keys: Vec<_> = self.of_run(tenant, run).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| drop(self.calls.remove(key)));
    }

    /// Notes an update that came over this link.
    pub(super) fn note(
        &mut self,
        tenant: &TenantId,
        call: &CallId,
        update: &CallUpdate,
        link: LinkNo,
    ) -> UpdateAction {
        let key = CallKey::new(tenant.clone(), call.clone());
        let is_sought =
            matches!(self.calls.get(&key), Some(OpenCall { state: OpenCallState::Sought { .. }, .. }));
        match update {
            CallUpdate::Granted { .. } => match self.calls.get_mut(&key) {
                Some(open) if is_sought => {
                    open.state = OpenCallState::Granted { link };
                    UpdateAction::Pass
                }
                Some(OpenCall { state: OpenCallState::Granted { link: before }, .. }) if *before == link => {
                    UpdateAction::Drop
                }
                Some(OpenCall { state: OpenCallState::Offered { .. }, .. }) => UpdateAction::Drop,
                Some(_) | None => UpdateAction::GiveBack,
            },
            CallUpdate::Denied { .. } if is_sought => {
                self.calls.remove(&key);
                UpdateAction::Pass
            }
            CallUpdate::Denied { .. } => UpdateAction::Drop,
            CallUpdate::Lost { attempt, .. } => {
                self.over(tenant, &CallRef { call: call.clone(), attempt: *attempt });
                UpdateAction::Pass
            }
            CallUpdate::Accepted { .. }
            | CallUpdate::Checkpoint { .. }
            | CallUpdate::Resumable { .. }
            | CallUpdate::InputNeeded { .. }
            | CallUpdate::Stopped { .. }
            | CallUpdate::Progress { .. }
            | CallUpdate::Output { .. } => UpdateAction::Pass,
        }
    }

    /// All open calls, to ask for them again.
    pub(super) fn calls(&self) -> Vec<(CallId, OpenCall)> {
        self.calls.iter().map(|(key, open)| (key.call.clone(), open.clone())).collect()
    }

    /// Takes the calls that have looked for a host since before this time, each with its tool.
    pub(super) fn take_sought_before(&mut self, time: Instant) -> Vec<(CallKey, String)> {
        let late = |open: &OpenCall| match &open.state {
            OpenCallState::Sought { tool, since, .. } if *since < time => Some(tool.clone()),
            OpenCallState::Sought { .. } | OpenCallState::Granted { .. } | OpenCallState::Offered { .. } => {
                None
            }
        };
        let late = self.calls.iter().filter_map(|(key, open)| Some((key.clone(), late(open)?)));
        let late: Vec<_> = late.collect();
        late.iter().for_each(|(key, _)| drop(self.calls.remove(key)));
        late
    }

    /// Keeps a command until it is done. Returns its number.
    pub(super) fn command(&mut self, command: Command) -> CommandNo {
        if self.commands.len() >= COMMANDS_MAX
            && let Some((_, lost)) = self.commands.pop_front()
        {
            let (_, run) = lost.run();
            tracing::warn!(run.id = %run, "a command for a tool host is given up: too many wait for the hub");
        }
        self.last_command.0 += 1;
        self.commands.push_back((self.last_command, command));
        self.last_command
    }

    /// The commands up to this one are done.
    pub(super) fn done(&mut self, no: CommandNo) {
        while self.commands.front().is_some_and(|(first, _)| *first <= no) {
            self.commands.pop_front();
        }
    }

    pub(super) fn commands(&self) -> &VecDeque<(CommandNo, Command)> {
        &self.commands
    }

    pub(super) fn take_commands(&mut self) -> VecDeque<(CommandNo, Command)> {
        std::mem::take(&mut self.commands)
    }
}

/// The lowest key that a call of this run can have.
fn first_of(tenant: &TenantId, run: &RunId) -> CallKey {
    CallKey::new(tenant.clone(), CallId { run: run.clone(), slot: CallSlot { model_call: 0, position: 0 } })
}
