use super::lease::{LeaseTimes, OwnerLease};
use super::member::{
    BUSY_KEPT_MAX, ClusterView, KEPT_FOR, Member, MemberAction, MemberInput, OwnerSeen, Shed,
};
use super::shard::{Beat, OwnerNo, ShardNo, Term};
use super::suspicion::{Suspect, Suspicion};
use crate::time::Timestamp;

const ME: OwnerNo = OwnerNo(1);
const OTHER: OwnerNo = OwnerNo(2);
const TIMES: fn() -> LeaseTimes = LeaseTimes::default;

fn at(milliseconds: u64) -> Timestamp {
    Timestamp(100_000 + milliseconds)
}

fn view(owners: &[(OwnerNo, u64)], mine: &[(u16, u64)], free: u16) -> ClusterView {
    let seen =
        |(owner, beat): &(OwnerNo, u64)| OwnerSeen { owner: *owner, beat: Beat(*beat), is_draining: false };
    ClusterView {
        owners: owners.iter().map(seen).collect(),
        half_fenced: Vec::new(),
        mine: mine.iter().map(|(shard, term)| (ShardNo(*shard), Term(*term))).collect(),
        free,
        shards: 8,
    }
}

fn beaten(member: &mut Member, sent: u64, confirmed: u64, view: ClusterView) -> Vec<MemberAction> {
    member.handle(MemberInput::Beaten { sent: at(sent), view }, at(confirmed))
}

fn shed(count: u16) -> MemberAction {
    MemberAction::Shed(Shed { count, keeps_busy: true })
}

/// No owner trusts its lease for as long as another waits before it fences.
#[test]
fn an_owner_falls_silent_before_anybody_may_act() {
    let mut lease = OwnerLease::new(TIMES(), at(0));
    assert!(!lease.is_valid(at(0)), "no beat was confirmed");
    assert!(lease.poll_beat(at(0)));
    assert!(lease.handle_response(at(0)));
    // The beat was on its way for a second: the lease counts from its start, the suspicion from its end.
    let mut suspicion = Suspicion::new(TIMES());
    assert_eq!(suspicion.handle_beats([(ME, Beat(1))], at(990), at(1_000)), []);
    assert!(lease.is_valid(at(1_999)));
    assert!(!lease.is_valid(at(2_000)));
    assert_eq!(suspicion.handle_beats([(ME, Beat(1))], at(3_499), at(3_500)), []);
    let suspects = suspicion.handle_beats([(ME, Beat(1))], at(3_500), at(3_501));
    assert_eq!(suspects, [Suspect { owner: ME, beat: Beat(1) }]);
}

#[test]
fn a_counter_that_moves_is_not_suspected() {
    let mut suspicion = Suspicion::new(TIMES());
    for second in 0..20 {
        let time = at(second * 1_000);
        assert_eq!(suspicion.handle_beats([(OTHER, Beat(second / 2))], time, time), []);
    }
}

#[test]
fn after_a_gap_nobody_is_suspected_for_a_while() {
    let mut suspicion = Suspicion::new(TIMES());
    suspicion.handle_gap(at(0));
    for time in (0..15_000).step_by(500) {
        assert_eq!(suspicion.handle_beats([(OTHER, Beat(1))], at(time), at(time)), [], "{time}");
    }
    assert_eq!(suspicion.handle_beats([(OTHER, Beat(1))], at(15_000), at(15_000)).len(), 1);
}

#[test]
fn a_server_that_does_not_move_does_not_beat() {
    let mut lease = OwnerLease::new(TIMES(), at(0));
    assert!(lease.poll_beat(at(0)));
    assert!(!lease.poll_beat(at(600)), "one beat at a time");
    lease.handle_failure();
    assert!(lease.poll_beat(at(999)));
    lease.handle_failure();
    assert!(!lease.poll_beat(at(5_000)), "the runtime stands still");
    lease.handle_pulse(at(5_000));
    assert!(lease.poll_beat(at(5_000)));
}

#[test]
fn the_response_to_a_beat_that_was_long_under_way_is_a_gap() {
    let mut lease = OwnerLease::new(TIMES(), at(0));
    assert!(lease.handle_response(at(0)));
    assert!(lease.handle_response(at(500)));
    assert!(!lease.handle_response(at(2_500)));
    assert!(lease.is_valid(at(2_600)));
}

#[test]
fn a_lone_replica_claims_everything() {
    let mut member = Member::new(ME, TIMES(), at(0));
    assert!(member.poll_beat(at(0)));
    assert_eq!(beaten(&mut member, 0, 10, view(&[(ME, 1)], &[], 8)), [MemberAction::Claim(8)]);
    assert_eq!(beaten(&mut member, 500, 510, view(&[(ME, 2)], &[], 8)), [], "one claim at a time");
    let claimed = vec![(ShardNo(3), Term(7))];
    let gained = member.handle(MemberInput::Claimed(claimed), at(520));
    assert_eq!(gained, [MemberAction::Gain(ShardNo(3), Term(7))]);
    assert!(member.may_act(ShardNo(3), at(2_499)));
    assert!(!member.may_act(ShardNo(4), at(520)), "it is not its own");
    assert!(!member.may_act(ShardNo(3), at(2_500)), "the lease is over");
}

#[test]
fn a_new_replica_gets_its_share() {
    let mut member = Member::new(ME, TIMES(), at(0));
    let all: Vec<(u16, u64)> = (0..8).map(|shard| (shard, 1)).collect();
    assert_eq!(beaten(&mut member, 0, 1, view(&[(ME, 1)], &all, 0)).len(), 8, "each is gained");
    let beat = |member: &mut Member, sent: u64, confirmed: u64| {
        beaten(member, sent, confirmed, view(&[(ME, sent), (OTHER, sent)], &all, 0))
    };
    for time in (500..3_000).step_by(500) {
        assert_eq!(beat(&mut member, time, time + 1), [], "it has just come: {time}");
    }
    assert_eq!(beat(&mut member, 3_000, 3_001), [shed(4)]);
    assert_eq!(member.release(ShardNo(0)), Some(Term(1)));
    assert_eq!(member.release(ShardNo(0)), None);
    assert!(!member.may_act(ShardNo(0), at(3_002)), "nothing is done for a shard that is given away");
    assert_eq!(beat(&mut member, 3_500, 3_501), [], "the release is under way");
    assert_eq!(member.handle(MemberInput::Released(ShardNo(0)), at(3_600)), []);
    // Requested before the release was confirmed: it may list the shard, and says nothing.
    let late = beat(&mut member, 3_550, 3_601);
    assert_eq!(late, [shed(3)]);
    assert_eq!(member.term(ShardNo(0)), None);
}

/// One after the other comes, is counted, and beats no more. Their shards would be nobody's for most of the time.
#[test]
fn replicas_that_come_and_end_at_once_are_given_nothing() {
    let mut member = Member::new(ME, TIMES(), at(0));
    let all: Vec<(u16, u64)> = (0..8).map(|shard| (shard, 1)).collect();
    for time in (0..30_000).step_by(500) {
        let short_lived = OwnerNo(10 + time / 2_000);
        let actions = beaten(&mut member, time, time + 1, view(&[(ME, time), (short_lived, 1)], &all, 0));
        assert!(!actions.iter().any(|action| matches!(action, MemberAction::Shed(_))), "{time}: {actions:?}");
    }
}

#[test]
fn idle_shards_go_in_place_of_busy_ones() {
    let owned = || (0..6).map(ShardNo);
    let is_busy = |shard: ShardNo| shard.0 < 4;
    let choose = |count, keeps_busy| Shed { count, keeps_busy }.choose(owned(), is_busy);
    assert_eq!(choose(1, true), [ShardNo(4)]);
    assert_eq!(choose(3, true), [ShardNo(4), ShardNo(5)], "the others stay");
    assert_eq!(choose(3, false), [ShardNo(4), ShardNo(5), ShardNo(0)]);
}

#[test]
fn busy_shards_above_the_share_stay_for_a_while() {
    let mut member = Member::new(ME, TIMES(), at(0));
    let all: Vec<(u16, u64)> = (0..8).map(|shard| (shard, 1)).collect();
    let mut last_action = |time: u64, owners: &[OwnerNo]| {
        let owners: Vec<_> = owners.iter().map(|owner| (*owner, time)).collect();
        beaten(&mut member, time, time, view(&owners, &all, 0)).last().cloned()
    };
    let (alone, both) = ([ME], [ME, OTHER]);
    assert!(matches!(last_action(0, &alone), Some(MemberAction::Gain(..))));
    let mut waits_anew = |joined: u64| {
        for time in (joined..joined + 2_500).step_by(500) {
            assert_eq!(last_action(time, &both), None, "it has just come: {time}");
        }
        for time in (joined + 2_500..joined + 2_500 + BUSY_KEPT_MAX.0).step_by(500) {
            assert_eq!(last_action(time, &both), Some(shed(4)), "{time}");
        }
        let anything = MemberAction::Shed(Shed { count: 4, keeps_busy: false });
        assert_eq!(last_action(joined + 2_500 + BUSY_KEPT_MAX.0, &both), Some(anything));
        assert_eq!(last_action(joined + 3_000 + BUSY_KEPT_MAX.0, &alone), None, "the other one has left");
    };
    waits_anew(500);
    waits_anew(64_500);
}

/// Else nobody serves it: each view would bring it back and take it away.
#[test]
fn a_shard_that_was_kept_is_served_for_a_while_before_it_goes() {
    let mut member = Member::new(ME, TIMES(), at(0));
    let all: Vec<(u16, u64)> = (0..8).map(|shard| (shard, 1)).collect();
    let beat = |member: &mut Member, time: u64| {
        beaten(member, time, time + 1, view(&[(ME, time), (OTHER, time)], &all, 0))
    };
    assert_eq!(beat(&mut member, 0).len(), 8, "each is gained");
    for time in (500..2_500).step_by(500) {
        assert_eq!(beat(&mut member, time), [], "the other has just come: {time}");
    }
    assert_eq!(beat(&mut member, 2_500), [shed(4)]);
    for shard in (4..8).map(ShardNo) {
        assert_eq!(member.release(shard), Some(Term(1)));
    }
    for shard in (4..8).map(ShardNo) {
        assert_eq!(member.handle(MemberInput::Kept(shard), at(2_900)), []);
    }
    let gained = beat(&mut member, 3_000);
    assert_eq!(gained, [4, 5, 6, 7].map(|shard| MemberAction::Gain(ShardNo(shard), Term(1))));
    for time in (3_500..2_900 + KEPT_FOR.0).step_by(500) {
        assert_eq!(beat(&mut member, time), [], "{time}");
        assert!(member.may_act(ShardNo(7), at(time + 1)), "{time}");
    }
    assert_eq!(beat(&mut member, 3_000 + KEPT_FOR.0), [shed(4)]);
}

#[test]
fn a_claim_whose_response_was_lost_comes_with_the_next_beat() {
    let mut member = Member::new(ME, TIMES(), at(0));
    assert_eq!(beaten(&mut member, 0, 1, view(&[(ME, 1)], &[], 8)), [MemberAction::Claim(8)]);
    assert_eq!(member.handle(MemberInput::ClaimLost, at(400)), []);
    let actions = beaten(&mut member, 500, 501, view(&[(ME, 2)], &[(1, 4), (2, 9)], 0));
    let gains = [MemberAction::Gain(ShardNo(1), Term(4)), MemberAction::Gain(ShardNo(2), Term(9))];
    assert_eq!(actions, gains);
    assert_eq!(beaten(&mut member, 1_000, 1_001, view(&[(ME, 3)], &[(1, 4), (2, 9)], 0)), []);
}

/// Else the late response brings the shard back, and the replica writes after its own release.
#[test]
fn a_shard_that_is_given_away_before_its_claim_is_confirmed_stays_away() {
    let mut member = Member::new(ME, TIMES(), at(0));
    assert_eq!(beaten(&mut member, 0, 1, view(&[(ME, 1)], &[], 8)), [MemberAction::Claim(8)]);
    assert_eq!(beaten(&mut member, 500, 501, view(&[(ME, 2)], &[(1, 4)], 0)).len(), 1);
    assert_eq!(member.release(ShardNo(1)), Some(Term(4)));
    let actions = member.handle(MemberInput::Claimed(vec![(ShardNo(1), Term(4))]), at(600));
    assert_eq!(actions, []);
    assert!(!member.may_act(ShardNo(1), at(600)));
}

#[test]
fn shards_that_their_taker_does_not_take_are_taken_by_anybody() {
    let mut member = Member::new(ME, TIMES(), at(0));
    let mine: Vec<(u16, u64)> = (0..4).map(|shard| (shard, 1)).collect();
    for time in (0..2_500).step_by(500) {
        let owners = [(ME, time), (OTHER, time)];
        let actions = beaten(&mut member, time, time, view(&owners, &mine, 4));
        assert!(!actions.iter().any(|action| matches!(action, MemberAction::Claim(_))), "{time}");
    }
    let actions = beaten(&mut member, 2_500, 2_500, view(&[(ME, 9), (OTHER, 9)], &mine, 4));
    assert_eq!(actions, [MemberAction::Claim(4)]);
}

#[test]
fn a_replica_that_drains_gives_everything_away_and_takes_nothing() {
    let mut member = Member::new(ME, TIMES(), at(0));
    beaten(&mut member, 0, 1, view(&[(ME, 1)], &[(0, 1), (1, 1)], 0));
    assert_eq!(member.handle(MemberInput::Drain, at(2)), []);
    let both = [(ME, 2), (OTHER, 1)];
    let actions = beaten(&mut member, 500, 501, view(&both, &[(0, 1), (1, 1)], 6));
    assert_eq!(actions, [MemberAction::Shed(Shed { count: 2, keeps_busy: false })]);
    for shard in [ShardNo(0), ShardNo(1)] {
        assert_eq!(member.release(shard), Some(Term(1)));
        assert_eq!(member.handle(MemberInput::Released(shard), at(600)), []);
    }
    // Without the drain it would claim them: they stay free for longer than `unclaimed_for`.
    for time in (1_000..5_000).step_by(500) {
        assert_eq!(beaten(&mut member, time, time + 1, view(&[(ME, time)], &[], 8)), [], "{time}");
    }
}

/// Its lease is over when the response comes: another replica may have fenced it.
#[test]
fn a_view_that_was_long_under_way_claims_nothing() {
    let mut member = Member::new(ME, TIMES(), at(0));
    assert_eq!(beaten(&mut member, 0, 2_000, view(&[(ME, 1)], &[], 8)), []);
    assert_eq!(beaten(&mut member, 2_001, 2_002, view(&[(ME, 2)], &[], 8)), [MemberAction::Claim(8)]);
}

/// A database that was away stops the beats of all. The first replica that is back must not fence the others.
#[test]
fn a_replica_fences_nobody_after_a_gap_in_its_own_beats() {
    let mut member = Member::new(ME, TIMES(), at(0));
    let both = || view(&[(ME, 1), (OTHER, 1)], &[], 0);
    assert_eq!(beaten(&mut member, 0, 1, both()), []);
    for time in (3_000..18_000).step_by(500) {
        assert_eq!(beaten(&mut member, time, time + 1, both()), [], "{time}");
    }
    let suspect = Suspect { owner: OTHER, beat: Beat(1) };
    assert_eq!(beaten(&mut member, 18_001, 18_002, both()), [MemberAction::Fence(suspect)]);
}

#[test]
fn a_fence_that_was_begun_is_finished_by_anybody() {
    let mut member = Member::new(ME, TIMES(), at(0));
    let half = ClusterView { half_fenced: vec![OTHER], ..view(&[(ME, 1)], &[], 0) };
    assert_eq!(beaten(&mut member, 0, 1, half), [MemberAction::FinishFence(OTHER)]);
}

#[test]
fn a_fenced_owner_stops_and_does_nothing_more() {
    let mut member = Member::new(ME, TIMES(), at(0));
    beaten(&mut member, 0, 1, view(&[(ME, 1)], &[(0, 1)], 0));
    assert_eq!(member.handle(MemberInput::Fenced, at(2)), [MemberAction::Stop]);
    assert!(!member.may_act(ShardNo(0), at(3)));
    assert!(!member.poll_beat(at(1_000)));
    assert_eq!(beaten(&mut member, 3, 4, view(&[(ME, 1)], &[], 8)), []);
}

/// A fail-over to an asynchronous standby may lose a claim. Nobody fences its owner, whose lane is as good as ever.
#[test]
fn an_owner_whose_claim_the_database_has_lost_stops() {
    for mine in [&[(1, 4)][..], &[(1, 4), (2, 5)], &[(1, 4), (2, 7)]] {
        let mut member = Member::new(ME, TIMES(), at(0));
        assert_eq!(beaten(&mut member, 0, 1, view(&[(ME, 1)], &[(1, 4)], 7)).len(), 2, "a gain and a claim");
        let gained = member.handle(MemberInput::Claimed(vec![(ShardNo(2), Term(6))]), at(700));
        assert_eq!(gained, [MemberAction::Gain(ShardNo(2), Term(6))]);
        // It was sent before the claim was confirmed, and says nothing.
        assert_eq!(beaten(&mut member, 700, 710, view(&[(ME, 2)], &[(1, 4)], 0)), [], "{mine:?}");
        assert!(member.may_act(ShardNo(2), at(710)), "{mine:?}");
        let stops = beaten(&mut member, 701, 720, view(&[(ME, 3)], mine, 0));
        assert_eq!(stops, [MemberAction::StopForLostClaim(ShardNo(2))], "{mine:?}");
        assert!(!member.may_act(ShardNo(1), at(721)) && !member.poll_beat(at(2_000)), "{mine:?}");
    }
}

/// Neither is a lost claim: the rows follow what the replica does itself.
#[test]
fn shards_that_are_given_away_or_kept_are_not_lost() {
    let mut member = Member::new(ME, TIMES(), at(0));
    assert_eq!(beaten(&mut member, 0, 1, view(&[(ME, 1)], &[(0, 1), (1, 1)], 0)).len(), 2);
    assert_eq!(member.release(ShardNo(0)), Some(Term(1)));
    assert_eq!(member.release(ShardNo(1)), Some(Term(1)));
    // The row is free, and the response to the release is still under way.
    assert_eq!(beaten(&mut member, 600, 610, view(&[(ME, 2)], &[(1, 1)], 0)), []);
    assert_eq!(member.handle(MemberInput::Released(ShardNo(0)), at(620)), []);
    assert_eq!(member.handle(MemberInput::Kept(ShardNo(1)), at(630)), []);
    let kept = beaten(&mut member, 1_200, 1_201, view(&[(ME, 3)], &[(1, 1)], 0));
    assert_eq!(kept, [MemberAction::Gain(ShardNo(1), Term(1))]);
    assert_eq!(beaten(&mut member, 1_800, 1_801, view(&[(ME, 4)], &[(1, 1)], 0)), []);
}

/// Rows are read, and responses come, in an order that the driver keeps. A driver that mixes them up leads to no earlier term.
#[test]
fn the_term_of_a_shard_never_falls() {
    let mut member = Member::new(ME, TIMES(), at(0));
    assert_eq!(beaten(&mut member, 0, 1, view(&[(ME, 1)], &[(0, 3)], 0)).len(), 1);
    for earlier in [Term(1), Term(2), Term(3)] {
        assert_eq!(member.handle(MemberInput::Claimed(vec![(ShardNo(0), earlier)]), at(2)), []);
        assert_eq!(member.term(ShardNo(0)), Some(Term(3)));
    }
    let later = member.handle(MemberInput::Claimed(vec![(ShardNo(0), Term(4))]), at(3));
    assert_eq!(later, [MemberAction::Gain(ShardNo(0), Term(4))]);
    assert_eq!(member.term(ShardNo(0)), Some(Term(4)));
}
