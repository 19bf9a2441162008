//! Charges and reservations, of one tenant and of several.

use std::task::Poll;

use futures_util::poll;

use super::*;

#[tokio::test]
async fn tenants_are_served_in_turn() {
    let red = TenantId::parse("red").unwrap();
    let (ledger, quiet) = (MemoryLedger::new(100), TenantId::parse("quiet").unwrap());
    let held = ledger.charge(100);
    let mut noisy: Vec<_> = (0..1_000).map(|_| Box::pin(ledger.reserve(&red, 100))).collect();
    for one in &mut noisy {
        assert!(poll!(one.as_mut()).is_pending());
    }
    let mut other = Box::pin(ledger.reserve(&quiet, 100));
    assert!(poll!(other.as_mut()).is_pending());
    drop(held);
    let Poll::Ready(first) = poll!(noisy[0].as_mut()) else { panic!("it came first") };
    drop(first);
    let Poll::Ready(second) = poll!(other.as_mut()) else { panic!("it is the other tenant's turn") };
    drop(second);
    assert!(poll!(noisy[1].as_mut()).is_ready());
}

#[test]
fn what_is_dropped_is_released() {
    let (ledger, red) = (MemoryLedger::new(100), TenantId::parse("red").unwrap());
    let mut held = ledger.charge(70);
    assert!(ledger.try_reserve(&red, 31).is_none());
    let more = ledger.try_reserve(&red, 30).unwrap();
    assert_eq!((ledger.used(), ledger.free(), more.bytes()), (100, 0, 30));
    held.grow(10);
    assert_eq!(ledger.used(), 110, "what is held already is charged past the bound");
    held.set(5);
    drop(more);
    assert_eq!(ledger.used(), 5);
    drop(held);
    assert_eq!(ledger.used(), 0);
}

#[tokio::test]
async fn reservations_are_granted_in_their_order() {
    let red = TenantId::parse("red").unwrap();
    let ledger = MemoryLedger::new(100);
    let mut held = ledger.charge(90);
    let mut large = Box::pin(ledger.reserve(&red, 60));
    let mut small = Box::pin(ledger.reserve(&red, 5));
    assert!(poll!(large.as_mut()).is_pending() && poll!(small.as_mut()).is_pending());
    assert!(ledger.try_reserve(&red, 1).is_none(), "nobody passes those that wait");
    held.set(30);
    let large = large.await;
    assert_eq!(ledger.used(), 95);
    let small = small.await;
    assert_eq!((large.bytes(), small.bytes()), (60, 5));
    assert!(!ledger.is_wanted());
    drop((large, small, held));
    assert_eq!(ledger.used(), 0);
}

#[tokio::test]
async fn a_reservation_that_is_given_up_holds_nobody_back() {
    let red = TenantId::parse("red").unwrap();
    let ledger = MemoryLedger::new(100);
    let held = ledger.charge(50);
    let mut first = Box::pin(ledger.reserve(&red, 80));
    let mut second = Box::pin(ledger.reserve(&red, 40));
    assert!(poll!(first.as_mut()).is_pending() && poll!(second.as_mut()).is_pending());
    drop(first);
    drop(held);
    assert_eq!(second.await.bytes(), 40);
    assert_eq!(ledger.used(), 0);
}

#[tokio::test]
async fn those_behind_a_reservation_that_is_given_up_go_on_at_once() {
    let red = TenantId::parse("red").unwrap();
    let ledger = MemoryLedger::new(100);
    let held = ledger.charge(50);
    let mut first = Box::pin(ledger.reserve(&red, 80));
    let mut second = Box::pin(ledger.reserve(&red, 40));
    assert!(poll!(first.as_mut()).is_pending() && poll!(second.as_mut()).is_pending());
    drop(first);
    let Poll::Ready(second) = poll!(second.as_mut()) else { panic!("there is room") };
    assert_eq!((second.bytes(), ledger.used(), ledger.is_wanted()), (40, 90, false));
    // One that is given up when it was granted already, and nobody has looked.
    drop(second);
    let mut granted = Box::pin(ledger.reserve(&red, 60));
    let mut behind = Box::pin(ledger.reserve(&red, 50));
    assert!(poll!(granted.as_mut()).is_pending() && poll!(behind.as_mut()).is_pending());
    drop(held);
    assert_eq!(ledger.used(), 60);
    drop(granted);
    assert_eq!(behind.await.bytes(), 50);
    assert_eq!(ledger.used(), 0);
}

#[tokio::test]
async fn more_than_the_bound_waits_for_everything_else() {
    let red = TenantId::parse("red").unwrap();
    let ledger = MemoryLedger::new(100);
    let held = ledger.charge(1);
    let mut waiting = Box::pin(ledger.reserve(&red, 200));
    assert!(poll!(waiting.as_mut()).is_pending());
    drop(held);
    assert_eq!(waiting.await.bytes(), 200);
}

#[tokio::test]
async fn holders_that_all_wait_go_on_one_by_one() {
    let red = TenantId::parse("red").unwrap();
    let ledger = MemoryLedger::new(100);
    let standing = [(), ()].map(|()| ledger.charge_standing(45));
    let mut waiting = [(), ()].map(|()| Box::pin(ledger.reserve(&red, 60)));
    let [first, second] = &mut waiting;
    let Poll::Ready(granted) = poll!(first.as_mut()) else { panic!("nothing else is held") };
    assert!(poll!(second.as_mut()).is_pending(), "one at a time");
    drop(granted);
    drop(second.await);
    drop(waiting);
    drop(standing);
    assert_eq!(ledger.used(), 0);
}

fn of(tenant: &str) -> TenantId {
    TenantId::parse(tenant).unwrap()
}

/// Takes ten bytes again and again, until there is no room.
fn fill(ledger: &MemoryLedger, tenant: &str) -> Vec<Charge> {
    std::iter::from_fn(|| ledger.try_reserve(&of(tenant), 10)).collect()
}

#[test]
fn a_tenant_that_takes_all_that_it_can_leaves_room_for_others() {
    let ledger = MemoryLedger::divided(1_000);
    let noisy = fill(&ledger, "noisy");
    assert_eq!(noisy.len(), 90);
    assert_eq!((fill(&ledger, "quiet").len(), fill(&ledger, "third").len()), (9, 1));
    assert_eq!(fill(&MemoryLedger::new(1_000), "noisy").len(), 100, "where there are no others");
}

#[tokio::test]
async fn a_tenant_that_waits_for_room_holds_up_no_other_within_its_part() {
    let (ledger, noisy, quiet) = (MemoryLedger::divided(1_000), of("noisy"), of("quiet"));
    let mut held = fill(&ledger, "noisy");
    let mut waits = Box::pin(ledger.reserve(&noisy, 100));
    assert!(poll!(waits.as_mut()).is_pending());
    assert!(ledger.try_reserve(&noisy, 1).is_none(), "its own wait comes before");
    let started = ledger.try_reserve(&quiet, 50).expect("it holds nothing yet");
    let Poll::Ready(asked) = poll!(Box::pin(ledger.reserve(&quiet, 40)).as_mut()) else {
        panic!("it has less than its part")
    };
    // Places that the noisy one gives back go to both in turn.
    let mut again = Box::pin(ledger.reserve(&quiet, 40));
    assert!(poll!(again.as_mut()).is_pending(), "there is no room");
    held.truncate(80);
    let Poll::Ready(again) = poll!(again.as_mut()) else { panic!("it has less than its part") };
    assert!(poll!(waits.as_mut()).is_pending(), "it has more");
    drop((started, asked, again, held));
    assert_eq!(waits.await.bytes(), 100);
    assert_eq!(ledger.used(), 0);
}

#[tokio::test]
async fn a_tenant_beyond_its_equal_part_comes_behind_those_that_wait() {
    let (ledger, large, busy) = (MemoryLedger::divided(1_000), of("large"), of("busy"));
    let mut held = fill(&ledger, "busy");
    held.truncate(70);
    let mut waits = Box::pin(ledger.reserve(&large, 450));
    assert!(poll!(waits.as_mut()).is_pending());
    assert!(ledger.try_reserve(&busy, 10).is_none(), "there is room, but another waits");
    held.truncate(54);
    assert_eq!(waits.await.bytes(), 450);
}

#[tokio::test]
async fn tenants_whose_runs_all_wait_go_on_one_by_one() {
    let ledger = MemoryLedger::divided(100);
    let standing = ["red", "blue"].map(|tenant| ledger.of(&of(tenant)).charge_standing(48));
    let mut waiting = ["red", "blue"].map(|tenant| {
        let (ledger, tenant) = (ledger.clone(), of(tenant));
        Box::pin(async move { ledger.reserve(&tenant, 60).await })
    });
    let [first, second] = &mut waiting;
    let Poll::Ready(granted) = poll!(first.as_mut()) else { panic!("nothing else is held") };
    assert!(poll!(second.as_mut()).is_pending(), "one at a time");
    drop(granted);
    drop(second.await);
    drop((waiting, standing));
    assert_eq!(ledger.used(), 0);
}

#[tokio::test]
async fn holders_hear_that_memory_is_wanted() {
    let red = TenantId::parse("red").unwrap();
    let ledger = MemoryLedger::new(100);
    let held = ledger.charge(100);
    let mut wanted = Box::pin(ledger.wanted());
    assert!(poll!(wanted.as_mut()).is_pending());
    let mut waiting = Box::pin(ledger.reserve(&red, 1));
    assert!(poll!(waiting.as_mut()).is_pending());
    wanted.await;
    drop(held);
    assert_eq!(waiting.await.bytes(), 1);
}
