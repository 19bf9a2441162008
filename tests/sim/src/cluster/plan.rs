//! The plan that a seed makes: the number of replicas, and the rates of faults.

use crate::random::Random;

/// A bug that is planted on purpose, to test that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedClusterBug {
    /// The database accepts commits of fenced owners.
    FenceIgnored,
    /// Replicas send without checking that their lease is valid.
    LeaseNotChecked,
    /// Replicas beat although their runtime stands still.
    BeatWithoutPulse,
    /// Room that was granted twice is not given back.
    GrantNotGivenBack,
    /// A replica keeps a route although the one it sent a call to says that the shard has moved.
    RouteNeverRefreshed,
    /// A claim does not check that its owner is not fenced.
    ClaimNotFenced,
    /// A commit does not check which connection it came by.
    ConnectionNotChecked,
    /// Receivers accept frames of older terms.
    TermsNotChecked,
    /// A beat does not check that its owner is not marked, as if mark and counter were two rows.
    BeatIgnoresMark,
    /// Shards are freed with the mark of the beats, before the mark of the lane has waited for the commit under way.
    FreedBeforeTheLane,
    /// A claim does not look again at shards that another one has just taken, as if it saw them in its snapshot alone.
    ClaimFromSnapshot,
    /// A replica that had to keep shards gives them away again with the beat that brings them back.
    KeptShedAtOnce,
    /// A replica does not look if a beat shows the shards that it owns, and its commits do not look either.
    LostClaimsUnseen,
    /// A commit does not look for the claims of its owner's shards in a database to which its connection is new.
    ClaimsNotLookedFor,
    /// A release does not go through the lane, so commits of its shard may come after it.
    ReleaseOutsideLane,
    /// A write whose response was lost is sent again, and the number of the lane's last batch is not looked at.
    ResentWithoutLookUp,
    /// Nobody ends the connection whose open transaction holds a lane.
    HeldLaneNotEnded,
    /// A fence that was begun is left to the replica that began it.
    FenceLeftToBeginner,
    /// Beats do not free the shards of fenced owners: that is left to the end of the fence.
    FencedKeepShards,
    /// A replica is not quiet after a gap in its own beats.
    NoQuietAfterGap,
    /// Room that a fenced owner has, or waits for, stays its own.
    FencedKeepRoom,
}

/// The plan of a simulation.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) bug: Option<PlantedClusterBug>,
    pub(super) replicas: usize,
    pub(super) shards: u16,
    pub(super) callers: usize,
    /// Longest time between two faults, in milliseconds.
    pub(super) fault_every: u64,
    pub(super) kinds: Vec<FaultKind>,
    /// Statements whose connection breaks, in a thousand.
    pub(super) connection_breaks: u64,
    /// Frames whose link breaks, in a thousand.
    pub(super) link_breaks: u64,
    /// Commits that take a while, in a thousand.
    pub(super) slow_commits: u64,
}

/// A kind of fault that lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultKind {
    Kill,
    Freeze,
    RuntimeStands,
    CutOff,
    DatabaseAway,
    Slow,
    Drain,
    /// Commits take so long that no shard can be given away.
    LongCommits,
    /// An asynchronous standby takes the primary's place.
    GoesBack,
}

/// The kinds of every plan. The database goes back only in seeds that run with `goes_back`.
const KINDS: [FaultKind; 8] = [
    FaultKind::Kill,
    FaultKind::Freeze,
    FaultKind::RuntimeStands,
    FaultKind::CutOff,
    FaultKind::DatabaseAway,
    FaultKind::Slow,
    FaultKind::Drain,
    FaultKind::LongCommits,
];

impl Plan {
    pub(super) fn draw(seed: u64, bug: Option<PlantedClusterBug>, goes_back: bool) -> Self {
        let mut random = Random::of(seed, "cluster plan");
        // Most seeds have some faults and not others, so that each is also met where nothing hides it.
        let mut kinds: Vec<FaultKind> = KINDS.into_iter().filter(|_| random.chance(600)).collect();
        if kinds.is_empty() {
            kinds.push(random.pick(&KINDS));
        }
        kinds.extend(goes_back.then_some(FaultKind::GoesBack));
        Self {
            bug,
            replicas: random.pick(&[1, 2, 3, 3, 5]),
            shards: random.pick(&[4, 12, 24]),
            callers: random.pick(&[2, 5]),
            fault_every: random.pick(&[2_000, 6_000, 15_000]),
            kinds,
            connection_breaks: random.pick(&[0, 10, 60]),
            link_breaks: random.pick(&[0, 5, 30]),
            slow_commits: random.pick(&[0, 50, 300]),
        }
    }
}
