//! The tokens of watched lists. A token names a position in the changes of all tenants. It is scrambled, because the distance between
//! two of them would tell a caller how much others do.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use agentloop_core::id::TenantId;
use agentloop_core::tool::Digest;

use crate::engine::watch::watchers::ListPosition;
use crate::store::RunFilter;

/// Letters of a filter's digest in a token.
const FILTER_DIGEST_CHARS: usize = 12;
/// Rounds of the scrambling. Without the key, a Feistel cipher of four rounds of a keyed hash looks like a random permutation.
/// See Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988.
const ROUNDS: u8 = 4;

/// The key of this process. A token of another process is not continued anyway.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The part of a token that names its filter and tenant.
pub(super) fn digest_of(tenant: &TenantId, filter: &RunFilter) -> String {
    let digest = Digest::of(&[tenant.as_str().as_bytes(), format!("{filter:?}").as_bytes()]);
    digest.as_str().chars().take(FILTER_DIGEST_CHARS).collect()
}

/// The token of a position in the list with this digest.
pub(super) fn token_of(position: ListPosition, digest: &str) -> String {
    let ListPosition { process, no } = position;
    format!("{process:x}.{:x}.{digest}", scrambled(no, digest))
}

/// The position of a token; `None` if it is not one for the list with this digest.
pub(super) fn parse(token: &str, digest: &str) -> Option<ListPosition> {
    let mut parts = token.splitn(3, '.');
    let (process, no, of) = (parts.next()?, parts.next()?, parts.next()?);
    if of != digest {
        return None;
    }
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(ListPosition { process: number(process)?, no: unscrambled(number(no)?, digest) })
}

fn scrambled(no: u64, digest: &str) -> u64 {
    let (left, right) =
        (0..ROUNDS).fold(halves(no), |(left, right), round| (right, left ^ mask(round, right, digest)));
    whole(left, right)
}

fn unscrambled(no: u64, digest: &str) -> u64 {
    let (left, right) =
        (0..ROUNDS).rev().fold(halves(no), |(left, right), round| (right ^ mask(round, left, digest), left));
    whole(left, right)
}

fn mask(round: u8, half: u32, digest: &str) -> u32 {
    halves(KEY.hash_one((digest, round, half))).1
}

#[expect(clippy::cast_possible_truncation, reason = "it is the lower half")]
fn halves(no: u64) -> (u32, u32) {
    ((no >> 32) as u32, no as u32)
}

fn whole(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_filter_alone() {
        let filter = |text: &str| RunFilter { text: text.to_owned(), ..RunFilter::default() };
        let [one, other] = ["a", "b"].map(|text| digest_of(&TenantId::local(), &filter(text)));
        for no in [0, 1, 7, u64::from(u32::MAX) + 1, u64::MAX] {
            let position = ListPosition { process: 255, no };
            let token = token_of(position, &one);
            assert_eq!(parse(&token, &one), Some(position), "{token}");
            assert_eq!(parse(&token, &other), None);
        }
        for forged in ["", "0", "ff.7", "x.7.a", "ff.x.a", "ff..a", "ff.-1.a"] {
            assert_eq!(parse(forged, "a"), None, "{forged}");
        }
    }

    #[test]
    fn tokens_do_not_tell_how_far_apart_they_are() {
        let steps: Vec<u64> =
            (1..1_000).map(|no| scrambled(no, "a").wrapping_sub(scrambled(no - 1, "a"))).collect();
        let different: std::collections::BTreeSet<_> = steps.iter().collect();
        assert_eq!(different.len(), steps.len());
        assert!(steps.iter().filter(|step| **step < 1 << 32).count() < 10, "they are not near each other");
    }
}
