//! Serde helpers: defaults of fields.

use crate::id::Attempt;
use crate::message::Usage;

pub(super) fn first_attempt() -> Attempt {
    Attempt::FIRST
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) fn is_first_attempt(attempt: &Attempt) -> bool {
    *attempt == Attempt::FIRST
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) fn is_none(number: &u32) -> bool {
    *number == 0
}

pub(super) fn is_nothing(usage: &Usage) -> bool {
    *usage == Usage::default()
}
