//! The open calls of the runs of this replica, with everything that is needed to request them again from another hub. The runs
//! that are live bound their number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{Attempt, CallId, CallKey, CallSlot, Epoch, HostId, RunId, TenantId};
use agentloop_core::run::effect::Offer;
use agentloop_core::text::json::encoded_len;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::frame::{Command, CommandNo, ToHub};
use crate::tool::CallOrigin;
use crate::tool::host::state::LinkNo;

/// Commands that wait to be done, while the hub cannot be reached. Beyond this the oldest is given up, and the log says so.
const COMMANDS_MAX: usize = 4_096;
/// Bytes of all commands that wait. Beyond this the oldest is given up, too.
const COMMANDS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The open calls, and the commands that are not known to be done.
#[derive(Debug, Default)]
pub(super) struct CallTable {
    calls: BTreeMap<CallKey, OpenCall>,
    /// The calls that are still to be requested over the present link.
    unrequested: BTreeSet<CallKey>,
    commands: VecDeque<WaitingCommand>,
    /// Bytes of all commands.
    command_bytes: usize,
    last_command: CommandNo,
    /// The last command that was sent over the present link.
    last_sent: CommandNo,
}

/// A command that is not known to be done.
#[derive(Debug)]
struct WaitingCommand {
    no: CommandNo,
    command: Command,
    bytes: usize,
}

/// A call that has a host, or looks for one.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) origin: CallOrigin,
    pub(super) state: OpenCallState,
    /// The run's task, while it waits for the hub's response to its seek.
    waiting: Option<oneshot::Sender<CallUpdate>>,
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
        self.unrequested.remove(&key);
        self.calls.insert(key, OpenCall { origin: origin.clone(), state, waiting: None });
    }

    /// Has the hub's response to the seek of this call sent to its task. `None` if the call does not look for a host.
    pub(super) fn wait(&mut self, tenant: &TenantId, call: &CallId) -> Option<oneshot::Receiver<CallUpdate>> {
        let open = self.calls.get_mut(&CallKey::new(tenant.clone(), call.clone()))?;
        if !matches!(open.state, OpenCallState::Sought { .. }) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        open.waiting = Some(sender);
        Some(receiver)
    }

    /// No task waits for a response any more.
    pub(super) fn stop_waiting(&mut self) {
        self.calls.values_mut().for_each(|open| open.waiting = None);
    }

    /// The task that waits for the response to the seek of this call, once.
    pub(super) fn take_waiting(
        &mut self,
        tenant: &TenantId,
        call: &CallId,
    ) -> Option<oneshot::Sender<CallUpdate>> {
        self.calls.get_mut(&CallKey::new(tenant.clone(), call.clone()))?.waiting.take()
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

    /// All open calls, to request them again.
    pub(super) fn calls(&self) -> Vec<(CallId, CallOrigin, OpenCallState)> {
        let calls = self.calls.iter();
        calls.map(|(key, open)| (key.call.clone(), open.origin.clone(), open.state.clone())).collect()
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

    /// Keeps a command until it is done.
    pub(super) fn command(&mut self, command: Command) {
        let bytes = encoded_len(&command);
        while self.commands.len() >= COMMANDS_MAX || self.command_bytes + bytes > COMMANDS_BYTES_MAX {
            let Some(lost) = self.pop_command() else { break };
            let (_, run) = lost.run();
            tracing::warn!(run.id = %run, "a command for a tool host is given up: too many wait for the hub");
        }
        self.last_command.0 += 1;
        self.command_bytes += bytes;
        self.commands.push_back(WaitingCommand { no: self.last_command, command, bytes });
    }

    /// The commands up to this one are done.
    pub(super) fn done(&mut self, no: CommandNo) {
        while self.commands.front().is_some_and(|first| first.no <= no) {
            self.pop_command();
        }
    }

    /// Takes all commands, in their order.
    pub(super) fn take_commands(&mut self) -> impl Iterator<Item = Command> {
        self.command_bytes = 0;
        std::mem::take(&mut self.commands).into_iter().map(|waiting| waiting.command)
    }

    fn pop_command(&mut self) -> Option<Command> {
        let first = self.commands.pop_front()?;
        self.command_bytes -= first.bytes;
        Some(first.command)
    }

    /// A new link is open: all open calls are to be requested, and then all commands are to be sent.
    pub(super) fn request_again(&mut self) {
        self.unrequested = self.calls.keys().cloned().collect();
        self.last_sent = CommandNo::default();
    }

    /// The next frame to send over the present link, of those that wait for room on it.
    pub(super) fn next_frame(&mut self) -> Option<ToHub> {
        while let Some(key) = self.unrequested.pop_first() {
            let Some(OpenCall { origin, state, .. }) = self.calls.get(&key) else { continue };
            let (origin, call) = (origin.clone(), key.call);
            match state.clone() {
                OpenCallState::Sought { tool, on, .. } => {
                    return Some(ToHub::Seek { origin, call, tool, on });
                }
                OpenCallState::Offered { offer, .. } => return Some(ToHub::Reclaim { origin, call, offer }),
                // Its run offers it, or gives it up. The room that it had on an earlier link is gone.
                OpenCallState::Granted { .. } => {}
            }
        }
        let next = self.commands.partition_point(|waiting| waiting.no <= self.last_sent);
        let WaitingCommand { no, command, .. } = self.commands.get(next)?;
        self.last_sent = *no;
        Some(ToHub::Command { no: *no, command: command.clone() })
    }

    /// True if [`Self::next_frame`] has more.
    pub(super) fn has_frame(&self) -> bool {
        !self.unrequested.is_empty() || self.commands.back().is_some_and(|last| last.no > self.last_sent)
    }
}

/// The lowest key that a call of this run can have.
fn first_of(tenant: &TenantId, run: &RunId) -> CallKey {
    CallKey::new(tenant.clone(), CallId { run: run.clone(), slot: CallSlot { model_call: 0, position: 0 } })
}

#[cfg(test)]
mod tests {
    use agentloop_core::question::InputAnswer;

    use super::*;
    use crate::tool::tests::harness::{call_ref, tenant};

    #[test]
    fn commands_that_wait_have_a_bound_in_bytes_and_the_oldest_goes_first() {
        let mut table = CallTable::default();
        let answer = InputAnswer::Refused("x".repeat(COMMANDS_BYTES_MAX / 4));
        for input in ["a", "b", "c", "d", "e"] {
            table.command(Command::AnswerInput {
                tenant: tenant(),
                call: call_ref("r/1.0", 1),
                input: input.to_owned(),
                answer: answer.clone(),
            });
        }
        let frames = std::iter::from_fn(|| table.next_frame());
        let sent: Vec<_> = frames
            .map(|frame| match frame {
                ToHub::Command { no, command: Command::AnswerInput { input, .. } } => (no, input),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [(3, "c"), (4, "d"), (5, "e")].map(|(no, input)| (CommandNo(no), input.to_owned()));
        assert_eq!(sent, expected);
        assert!(!table.has_frame());
        table.done(CommandNo(4));
        table.request_again();
        assert!(matches!(table.next_frame(), Some(ToHub::Command { no: CommandNo(5), .. })));
        assert!(table.command_bytes < COMMANDS_BYTES_MAX / 3);
    }
}
