//! The search index, which every replica fills with the messages of all.

use futures_util::future::join_all;

use super::*;

/// Sessions that a search finds, by their names.
async fn found(store: &Arc<PostgresStore>, query: &str) -> Vec<String> {
    let hits = store.search(&tenant(), query, SearchFilter::default(), 99).await.unwrap();
    let mut found: Vec<_> = hits.into_iter().map(|hit| hit.session.to_string()).collect();
    found.sort();
    found
}

async fn says(store: &Arc<PostgresStore>, session: &str, text: &str) {
    Owner::started(&shared(store), session, session).await.says(text).await.unwrap();
}

#[tokio::test]
async fn every_message_is_found_whoever_wrote_it_and_in_whatever_order() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    // The second one gives out higher numbers.
    says(&a, "s0", "another").await;
    says(&b, "s1", "zebra one").await;
    assert_eq!(found(&b, "zebra").await, ["s1"]);
    says(&a, "s2", "zebra two").await;
    assert_eq!(found(&b, "zebra").await, ["s1", "s2"]);
    says(&a, "s3", "zebra three").await;
    says(&b, "s4", "zebra four").await;
    for store in [&a, &b] {
        assert_eq!(found(store, "zebra").await, ["s1", "s2", "s3", "s4"]);
    }
    assert_eq!(count(&schema, "search_documents").await, 5);
}

#[tokio::test]
async fn two_that_fill_at_once_add_each_message_once() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    for (store, name) in [(&a, "a"), (&b, "b")] {
        let mut owner = Owner::started(&shared(store), name, name).await;
        for no in 0..300 {
            owner.says(&format!("zebra {no}")).await.unwrap();
        }
    }
    let searches = (0..8).map(|no| if no % 2 == 0 { found(&a, "zebra") } else { found(&b, "zebra") });
    for found in join_all(searches).await {
        assert_eq!(found.len(), 99);
    }
    assert_eq!(count(&schema, "search_documents").await, 600);
}

/// Deletions at other replicas wait for its locks.
#[tokio::test]
async fn a_batch_that_stands_still_is_broken_off_as_soon_as_a_write() {
    let Some(Two { a, schema, .. }) = two_stores().await else { return };
    let refuse = "CREATE FUNCTION bounded() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                      IF current_setting('idle_in_transaction_session_timeout') <> '3s' THEN RAISE EXCEPTION 'unbounded'; END IF;
                      RETURN NEW;
                  END $$;
                  CREATE TRIGGER bounded BEFORE INSERT ON search_documents FOR EACH ROW EXECUTE FUNCTION bounded()";
    schema.shell().await.execute(refuse).await.unwrap();
    says(&a, "s", "zebra").await;
    assert_eq!(found(&a, "zebra").await, ["s"]);
}

/// Two searches that fill at once do not refuse each other's writes, whatever isolation the database gives by itself.
#[tokio::test]
async fn a_server_alone_fills_the_index_by_its_own_isolation_in_a_database_of_repeatable_reads() {
    let Some(mut schema) = Schema::new().await else { return };
    let isolation = "%20-cdefault_transaction_isolation%3Drepeatable%5C%20read";
    schema.options.url = Secret::new(format!("{}{isolation}", schema.options.url.expose()));
    let store = schema.open().await;
    let refuse = "CREATE FUNCTION isolated() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                      IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE EXCEPTION 'repeatable'; END IF;
                      RETURN NEW;
                  END $$;
                  CREATE TRIGGER isolated BEFORE INSERT ON search_documents FOR EACH ROW EXECUTE FUNCTION isolated()";
    schema.shell().await.execute(refuse).await.unwrap();
    says(&store, "s", "zebra").await;
    assert_eq!(found(&store, "zebra").await, ["s"]);
}

/// A search does not wait for the deletion of a large session, and finds what comes after it.
#[tokio::test]
async fn messages_that_a_deletion_has_locked_are_passed_over_until_it_has_ended() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    says(&a, "s1", "zebra one").await;
    let mut shell = schema.shell().await;
    shell.execute("BEGIN; SELECT 1 FROM session_entries FOR UPDATE").await.unwrap();
    // More than one batch.
    let mut other = Owner::started(&shared(&a), "s2", "s2").await;
    let most = 300;
    for no in 0..most {
        other.says(&format!("horse {no}")).await.unwrap();
    }
    says(&a, "s3", "zebra three").await;
    for store in [&a, &b] {
        assert_eq!(found(store, "zebra").await, ["s3"]);
    }
    assert_eq!(count(&schema, "search_documents").await, most + 1);
    shell.execute("ROLLBACK").await.unwrap();
    assert_eq!(found(&b, "zebra").await, ["s1", "s3"]);
    assert_eq!(count(&schema, "search_documents").await, most + 2);
}

/// More than one batch has, by their number and by their bytes.
#[tokio::test]
async fn long_messages_are_added_in_several_batches() {
    let Some(Two { a, schema, .. }) = two_stores().await else { return };
    let mut owner = Owner::started(&shared(&a), "s", "s").await;
    for no in 0..5 {
        owner.says(&format!("zebra {no} {}", incompressible(900_000))).await.unwrap();
    }
    assert_eq!(count(&schema, "search_blocks WHERE upto > first").await, 0);
    assert_eq!(found(&a, "zebra").await.len(), 5);
    assert_eq!(count(&schema, "search_documents").await, 5);
}

#[tokio::test]
async fn messages_of_a_replica_that_has_died_are_found_and_its_numbers_are_closed() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    says(&a, "s1", "zebra").await;
    // Its row goes when its fence is complete.
    let sql = "DELETE FROM owners WHERE owner_no = (SELECT min(owner_no) FROM owners)";
    schema.shell().await.execute(sql).await.unwrap();
    let c = replica(&schema).await;
    assert_eq!(found(&c, "zebra").await, ["s1"]);
    // Now the index lacks nothing of its block.
    let closed = "search_blocks WHERE is_done AND upto > first";
    let d = replica(&schema).await;
    let is_closed = async { while count(&schema, closed).await == 0 {} };
    tokio::time::timeout(BOUND, is_closed).await.expect("it is closed");
    says(&b, "s2", "zebra").await;
    says(&d, "s3", "zebra").await;
    for store in [&b, &c, &d] {
        assert_eq!(found(store, "zebra").await, ["s1", "s2", "s3"]);
    }
}

/// Every search looks at all blocks that are open.
#[tokio::test]
async fn blocks_of_numbers_are_closed_while_a_replica_gains_shards_again_and_again() {
    const GAINS: usize = 5;
    let Some(Two { a, schema, .. }) = two_stores().await else { return };
    for no in 0..GAINS {
        says(&a, &format!("s{no}"), "zebra").await;
        a.scope.add(ShardNo(0), Term(0));
        a.wake_runs_of_the_future().await.unwrap();
    }
    let first = "search_blocks WHERE owner_no = (SELECT min(owner_no) FROM owners)";
    assert!(count(&schema, first).await >= i64::try_from(GAINS).unwrap(), "each gain begins one");
    let open = format!("{first} AND NOT is_done");
    let are_closed = async { while count(&schema, &open).await > 1 {} };
    tokio::time::timeout(BOUND, are_closed).await.expect("all but the last are closed");
    assert_eq!(found(&a, "zebra").await.len(), GAINS);
}

#[tokio::test]
async fn messages_of_an_owner_of_an_earlier_version_are_found() {
    let Some(Two { a, schema, .. }) = two_stores().await else { return };
    says(&a, "old", "zebra").await;
    // Its numbers are lower, and it notes them elsewhere.
    let sql = "UPDATE session_entries SET search_no = 3 * 16777216 + 7;
               UPDATE meta SET value = 3 * 16777216 + 7 WHERE key = 'documents'";
    schema.shell().await.execute(sql).await.unwrap();
    says(&a, "new", "zebra").await;
    assert_eq!(found(&a, "zebra").await, ["new", "old"]);
    assert_eq!(count(&schema, "search_documents").await, 2);
}

#[tokio::test]
async fn an_index_that_was_emptied_is_filled_again_by_those_that_have_one() {
    let Some(Two { a, mut schema, .. }) = two_stores().await else { return };
    says(&a, "s1", "zebra").await;
    assert_eq!(found(&a, "zebra").await, ["s1"]);
    schema.options.search = false;
    let without = replica(&schema).await;
    assert_eq!(count(&schema, "search_documents").await, 0);
    says(&without, "s2", "zebra").await;
    assert_eq!(found(&a, "zebra").await, ["s1", "s2"]);
}
