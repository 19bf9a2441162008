//! Tests that every store has to pass. Each function tests one behaviour of an empty store.
//!
//! With the feature `conformance` other packages can test their stores, by `agentloop_server::conforms!(open())` in a module of
//! tests. `open` is an async function that returns an empty `Arc<dyn Store>` and a guard, or `None` where there is nothing to
//! test with.

mod accounts;
mod appends;
pub mod blobs;
pub mod fixture;
mod forks;
mod jobs;
mod lists;
mod notes;
mod questions;
mod queue;
mod rules;
mod runs;
mod search;
mod sessions;
mod start;
mod usage;

pub use self::{
    accounts::*, appends::*, forks::*, jobs::*, lists::*, notes::*, questions::*, queue::*, rules::*,
    runs::*, search::*, sessions::*, start::*, usage::*,
};

/// Makes a test of each behaviour. `$open` returns an empty store, and a guard that lives as long as the store.
#[macro_export]
macro_rules! conforms {
    ($open:expr) => {
        $crate::conforms! { $open;
            appended_events_are_read_back
            events_come_in_stretches
            stretches_end_by_bytes
            odd_text_and_numbers_survive
            many_events_are_one_append
            another_epoch_writes_nothing
            another_sequence_writes_nothing
            another_session_writes_nothing
            a_refused_append_leaves_those_beside_it
            appends_of_one_run_may_share_a_commit
            a_run_is_created_once
            a_row_says_where_its_run_stands
            what_runs_use_counts_when_it_happens
            an_open_run_counts_as_far_as_it_is
            usage_is_kept_apart_by_what_is_asked
            usage_outlives_its_session
            a_claim_fences_the_old_owner
            claims_rise
            unfinished_runs_of_every_tenant_are_found
            due_runs_are_found_by_their_time
            a_session_is_created_when_that_is_asked
            a_busy_session_names_its_run
            a_finished_run_frees_its_session
            a_session_that_moved_refuses_a_run
            entries_of_all_runs_are_one_history
            times_of_a_run_that_goes_on_are_those_of_its_last_event
            entries_come_in_stretches
            an_entry_out_of_place_is_refused
            creating_a_session_twice_is_creating_it_once
            what_a_caller_changes_stays_changed
            the_session_of_a_user_is_found_or_created
            long_labels_are_labels
            calls_for_one_user_create_one_session
            the_last_todo_list_counts
            idle_sessions_come_the_longest_unused_first
            a_deleted_session_takes_everything_along
            a_busy_session_is_not_deleted
            a_queued_run_waits_for_its_session
            a_queued_run_may_create_its_session
            a_queued_run_adds_no_entries
            a_run_enters_a_session_that_is_free
            a_session_is_handed_over_in_one_commit
            a_start_sees_its_run_and_its_session
            a_start_sees_the_request_that_steered_a_run
            a_blind_start_of_a_new_run_is_written
            a_blind_start_in_a_session_that_is_there_is_refused
            a_blind_start_under_an_id_that_is_known_is_refused
            a_blind_start_that_would_miss_rules_is_refused
            a_queue_keeps_its_order
            a_queued_run_may_end_without_entering
            a_session_with_a_queue_is_not_deleted
            those_that_interrupt_come_first
            open_and_later_runs_of_a_session_are_found
            who_was_steered_is_found_by_the_request
            the_heads_of_all_queues_are_found
            a_fork_begins_like_its_source
            without_an_entry_a_fork_shares_all
            branches_go_on_by_themselves
            what_cannot_be_forked_is_refused
            forking_twice_is_forking_once
            a_fork_outlives_its_source
            a_source_outlives_its_forks
            ids_of_a_deleted_source_are_free
            what_was_held_before_it_entered_is_shared_too
            forks_stay_with_their_tenant
            a_fork_shares_only_what_its_maker_may_read
            jobs_come_with_the_end_of_their_run
            jobs_of_a_refused_append_are_none
            a_failed_job_comes_again_at_its_time
            due_jobs_are_bounded
            due_jobs_are_those_of_tenants_in_turn
            jobs_go_with_their_session
            a_title_is_made_where_none_was_given
            a_summary_only_goes_forward
            a_fork_has_notes_on_what_it_shares
            a_question_is_open_until_it_is_answered
            open_questions_are_filtered_and_paged
            questions_are_filtered_by_what_they_ask
            what_is_remembered_with_an_answer_is_found
            a_forgotten_rule_is_gone
            rules_of_a_session_go_with_it
            a_start_is_told_of_rules
            runs_are_listed_newest_first
            runs_are_filtered
            runs_are_filtered_by_what_was_asked
            sessions_are_listed_by_their_last_touch
            sessions_are_filtered
            a_token_of_nobody_is_refused
            a_page_has_bounds
            tools_are_remembered_by_name
            a_host_id_is_one_principals_until_its_host_is_gone_for_long
            tenants_are_apart
            journals_and_blobs_count_in_bytes
            a_blob_that_is_stored_again_keeps_its_type
            it_can_be_checked
        }
    };
    ($open:expr; $($behaviour:ident)*) => {$(
        #[tokio::test]
        async fn $behaviour() {
            let Some((store, _guard)) = Option::from($open.await) else { return };
            $crate::store::conformance::$behaviour(store).await;
        }
    )*};
}

/// As [`conforms!`](crate::conforms), for a store with an audit log.
#[macro_export]
macro_rules! conforms_in_accounts {
    ($open:expr) => {
        $crate::conforms! { $open;
            an_act_has_one_row_however_much_it_writes
            a_page_of_the_audit_log_looks_at_so_many_rows
            a_deletion_of_nothing_takes_no_row_along
        }
    };
}

/// As [`conforms!`](crate::conforms), for a store with full-text search. A store without it answers
/// [`StoreError::SearchOff`](super::StoreError::SearchOff).
#[macro_export]
macro_rules! conforms_in_search {
    ($open:expr) => {
        $crate::conforms! { $open;
            what_was_said_is_found
            only_what_was_said_is_found
            a_query_is_no_language
            scripts_without_spaces_are_searched
            words_with_a_nukta_are_searched
            a_search_has_borders
            what_was_held_is_found_once_it_has_entered
            what_is_deleted_is_not_found
            what_forks_share_is_found_once
            what_others_say_changes_no_hit
        }
    };
}
