//! Serde helpers: defaults of fields.

use crate::message::Usage;

pub(super) fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) fn is_one(number: &u32) -> bool {
    *number == 1
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
