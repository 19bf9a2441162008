//! Records the answers of extensions.

use crate::extension::ExtensionCall;
use crate::id::CallSlot;
use crate::run::event::Event;
use crate::run::transition::builder::TransitionBuilder;

/// Records each extension that was asked; `slot` is the tool call that it was asked about.
pub(in crate::run::transition) fn record(
    builder: &mut TransitionBuilder<'_>,
    slot: Option<CallSlot>,
    applied: Vec<ExtensionCall>,
) {
    for applied in applied {
        builder.emit(Event::ExtensionApplied { slot, applied });
    }
}
