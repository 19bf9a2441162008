//! Records calls of extensions.

use crate::extension::ExtensionCall;
use crate::id::CallSlot;
use crate::run::event::Event;
use crate::run::transition::builder::TransitionBuilder;

/// Records calls of extensions; `slot` is the tool call that they are about.
pub(in crate::run::transition) fn record(
    builder: &mut TransitionBuilder<'_>,
    slot: Option<CallSlot>,
    applied: Vec<ExtensionCall>,
) {
    for applied in applied {
        builder.emit(Event::ExtensionApplied { slot, applied });
    }
}
