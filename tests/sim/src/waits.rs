//! Waits of those around the server: for an answer, and between two things that they do.

use std::time::Duration;

use crate::random::Random;
use crate::world::World;

/// Time after which a caller gives up a call; `None` if it waits to the end.
pub(crate) fn patience(world: &World, random: &mut Random) -> Option<Duration> {
    let leaves = !world.is_calm() && random.chance(world.plan.callers_leave);
    leaves.then(|| Duration::from_millis(random.pick(&[0, 1, 5, 300, 2_000])))
}

/// Waits for a time up to one of these choices, in milliseconds.
pub(crate) async fn pause(random: &mut Random, choices: &[u64]) {
    let most = random.pick(choices);
    tokio::time::sleep(Duration::from_millis(random.between(most / 2, most))).await;
}
