//! Events that bring messages, and texts of hooks.

use crate::extension::ExtensionCall;
use crate::id::{EntryNo, Seq};
use crate::message::{Role, SharedMessage};
use crate::run::event::Steer;
use crate::run::state::conversation::{LastMessage, WaitingMessage};
use crate::run::state::{Phase, RunState};

impl RunState {
    /// Before the first instruction, messages of hooks replace all that the run was started with.
    pub(super) fn message_added(&mut self) {
        if self.phase == Phase::Preparing {
            self.conversation.waiting.retain(|_, waiting| !waiting.initial);
        }
    }

    /// The last message of the model that is imported is the run's result.
    pub(super) fn imported(&mut self, entry: EntryNo, message: &SharedMessage) {
        if message.role == Role::Assistant {
            self.conversation.last_message =
                Some(LastMessage { entry, message: message.clone(), finish: None });
        }
    }

    pub(super) fn message_held(&mut self, message: &SharedMessage, steer: Option<&Steer>) {
        let initial = steer.is_none() && matches!(self.phase, Phase::Queued | Phase::Preparing);
        let waiting = WaitingMessage { message: message.clone(), initial };
        self.conversation.waiting.insert(self.position.seq, waiting);
        if let Some(steer) = steer {
            self.carried_out.steered.insert(steer.id.clone(), steer.digest.clone());
        }
    }

    pub(super) fn message_entered(&mut self, held: Seq) {
        self.conversation.waiting.remove(&held).expect("only a waiting message enters later");
    }

    pub(super) fn extension_applied(&mut self, applied: &ExtensionCall) {
        self.conversation.prompt_additions.push(&applied.system_prompt);
    }
}
