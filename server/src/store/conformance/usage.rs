use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::id::{Attempt, CallSlot, TenantId};
use agentloop_core::message::{Message, Part, Role, ToolResult, ToolStatus, Usage};
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::event::{Event, Outcome};
use agentloop_core::run::state::CallCounts;
use agentloop_core::run::status::{RunError, RunErrorCode, RunStatus};
use agentloop_core::time::{Millis, Timestamp};

use super::fixture::*;
use crate::store::{Append, Store, UsageGroups, UsageQuery, UsageRow};

const HOUR: u64 = 3_600_000;

/// The usage of the first ten hours, in buckets of this many milliseconds.
fn query(bucket: u64) -> UsageQuery {
    UsageQuery {
        before: Timestamp(10 * HOUR),
        bucket: Millis(bucket),
        rows_max: 100,
        ..UsageQuery::default()
    }
}

async fn rows(store: &Arc<dyn Store>, query: &UsageQuery) -> Vec<UsageRow> {
    store.usage(&tenant(), query).await.unwrap()
}

fn used() -> Usage {
    Usage { input_tokens: 100, output_tokens: 7, cost_micros: 5, ..Usage::default() }
}

fn answer(owner: &Owner) -> Event {
    let Event::AssistantMessage {
        model_call,
        attempt,
        entry,
        message,
        finish,
        first_token,
        duration,
        tools,
        decision,
        full,
        ..
    } = assistant(owner.entry.next(), "well")
    else {
        unreachable!("an answer")
    };
    let usage = used();
    Event::AssistantMessage {
        model_call,
        attempt,
        entry,
        message,
        finish,
        usage,
        first_token,
        duration,
        tools,
        decision,
        full,
    }
}

fn failure() -> Event {
    let error = RunError::new(RunErrorCode::Model(ModelErrorKind::Timeout), "too late");
    Event::ModelCallFailed { model_call: 1, attempt: Attempt(1), error, retry_at: None }
}

fn settled(owner: &Owner, status: ToolStatus) -> Event {
    let result = ToolResult {
        slot: CallSlot::from((1, 0)),
        provider_id: "p\",\"output\":\"q".to_owned(),
        name: "weather".to_owned(),
        status,
        output: "{\"kind\":\"finished\"}".to_owned(),
        images: Vec::new(),
        attachments: Default::default(),
    };
    Event::CallSettled {
        slot: CallSlot::from((1, 0)),
        attempt: Attempt(1),
        host: None,
        entry: owner.entry.next(),
        message: Arc::new(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] }),
        duration: Millis(1),
        outcome: None,
    }
}

/// Adds one call of a model and what follows of it to the sums that an append has.
fn counting(mut append: Append, usage: Usage, calls: CallCounts) -> Append {
    (append.summary.usage, append.summary.calls) = (usage, calls);
    append
}

/// A run with a failed attempt and an answer in the first hour, a failed call of a tool in the second, and an end in the third.
async fn long_run(store: &Arc<dyn Store>, session_name: &str, run_name: &str) {
    let mut owner = Owner::started(store, session_name, run_name).await;
    let mut calls = CallCounts { failed_model_attempts: 1, model_calls: 1, ..CallCounts::default() };
    let events = vec![failure(), answer(&owner)];
    let append = counting(owner.append(RunStatus::ToolRunning, events), used(), calls);
    owner.write(append).await.unwrap();
    owner.now = Timestamp(HOUR + 5);
    (calls.tool_calls, calls.failed_tool_calls) = (1, 1);
    let event = settled(&owner, ToolStatus::TimedOut);
    let append = counting(owner.append(RunStatus::ModelRunning, vec![event]), used(), calls);
    owner.write(append).await.unwrap();
    owner.now = Timestamp(2 * HOUR);
    let error = RunError::new(RunErrorCode::LimitTokens, "too many");
    let end =
        Event::Finished { outcome: Outcome::Failed, error: Some(error.clone()), totals: Default::default() };
    let mut append = counting(owner.append(RunStatus::Failed, vec![end]), used(), calls);
    append.summary.error = Some(error);
    owner.write(append).await.unwrap();
}

#[track_caller]
fn check_long_run(rows: &[UsageRow]) {
    let [first, second, third] = rows else { panic!("three hours: {rows:#?}") };
    let starts: Vec<u64> = rows.iter().map(|row| row.key.start.0).collect();
    assert_eq!(starts, [0, HOUR, 2 * HOUR]);
    let calls = CallCounts { failed_model_attempts: 1, model_calls: 1, ..CallCounts::default() };
    assert_eq!((first.usage, first.calls, first.runs), (used(), calls, 0));
    let calls = CallCounts { tool_calls: 1, failed_tool_calls: 1, ..CallCounts::default() };
    assert_eq!((second.usage, second.calls, second.runs), (Usage::default(), calls, 0));
    assert_eq!((third.usage, third.calls, third.runs), (Usage::default(), CallCounts::default(), 1));
    assert_eq!(third.errors, [(RunErrorCode::LimitTokens, 1)]);
}

pub async fn what_runs_use_counts_when_it_happens(store: Arc<dyn Store>) {
    assert_eq!(rows(&store, &query(HOUR)).await, []);
    long_run(&store, "s", "r").await;
    check_long_run(&rows(&store, &query(HOUR)).await);
    // In one bucket, the row of the run says the same.
    let [all] = &rows(&store, &query(5 * HOUR)).await[..] else { panic!("one bucket") };
    let calls = CallCounts { failed_model_attempts: 1, model_calls: 1, tool_calls: 1, failed_tool_calls: 1 };
    assert_eq!((all.usage, all.calls, all.runs), (used(), calls, 1));
    assert_eq!(all.errors, [(RunErrorCode::LimitTokens, 1)]);
    let hour =
        |from: u64| UsageQuery { from: Timestamp(from), before: Timestamp(from + HOUR), ..query(HOUR) };
    let second = rows(&store, &hour(HOUR)).await;
    assert_eq!((second.len(), second[0].calls.tool_calls), (1, 1), "only what is asked for: {second:?}");
    assert_eq!(rows(&store, &hour(3 * HOUR)).await, []);
    assert_eq!(store.usage(&TenantId::parse("other").unwrap(), &query(HOUR)).await.unwrap(), []);
}

pub async fn an_open_run_counts_as_far_as_it_is(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    let (mut sum, mut calls) = (Usage::default(), CallCounts::default());
    for status in [RunStatus::ModelRunning, RunStatus::AwaitingHuman, RunStatus::Paused] {
        sum += used();
        calls.model_calls += 1;
        let event = answer(&owner);
        let append = counting(owner.append(status, vec![event]), sum, calls);
        owner.write(append).await.unwrap();
        let found = rows(&store, &query(HOUR)).await;
        let sums: Vec<_> = found.iter().map(|row| (row.runs, row.calls, row.usage)).collect();
        assert_eq!(sums, [(0, calls, sum)], "{status:?}");
    }
}

pub async fn usage_is_kept_apart_by_what_is_asked(store: Arc<dyn Store>) {
    for (at, by) in [Some("ada"), Some("bob"), None].into_iter().enumerate() {
        let mut owner = Owner::new(&store, &format!("s{at}"), &format!("r{at}"));
        let mut append = owner.creation();
        let create = append.create.as_mut().unwrap();
        create.created_by = by.map(str::to_owned);
        create.agent = format!("agent{}", at % 2);
        create.labels =
            BTreeMap::from([("team".to_owned(), format!("t{at}")), ("odd\"$.".to_owned(), "x".to_owned())]);
        append = counting(append, Usage::default(), CallCounts::default());
        owner.write(append).await.unwrap();
        let calls = CallCounts { model_calls: 1, ..CallCounts::default() };
        let events = vec![answer(&owner), finished()];
        let append = counting(owner.append(RunStatus::Completed, events), used(), calls);
        owner.write(append).await.unwrap();
    }
    let by = |by: UsageGroups| UsageQuery { by, ..query(HOUR) };
    let all = rows(&store, &query(HOUR)).await;
    assert_eq!((all.len(), all[0].runs, all[0].usage.input_tokens), (1, 3, 300));
    let agents = rows(&store, &by(UsageGroups { agent: true, ..UsageGroups::default() })).await;
    let agents: Vec<_> = agents.iter().map(|row| (row.key.agent.as_str(), row.runs)).collect();
    assert_eq!(agents, [("agent0", 2), ("agent1", 1)]);
    let label = |key: &str| by(UsageGroups { label: Some(key.to_owned()), ..UsageGroups::default() });
    let teams = rows(&store, &label("team")).await;
    let teams: Vec<_> = teams.iter().map(|row| row.key.label.as_str()).collect();
    assert_eq!(teams, ["t0", "t1", "t2"]);
    assert_eq!(rows(&store, &label("odd\"$.")).await[0].key.label, "x");
    assert_eq!(rows(&store, &label("none")).await[0].key.label, "");
    let authors = rows(&store, &by(UsageGroups { created_by: true, ..UsageGroups::default() })).await;
    let authors: Vec<_> = authors.iter().map(|row| row.key.created_by.as_str()).collect();
    assert_eq!(authors, ["", "ada", "bob"]);
    for (filtered, runs) in [
        (UsageQuery { agent: "agent1".to_owned(), ..query(HOUR) }, 1),
        (UsageQuery { model: "openai/gpt-5".to_owned(), ..query(HOUR) }, 3),
        (UsageQuery { labels: BTreeMap::from([("team".to_owned(), "t2".to_owned())]), ..query(HOUR) }, 1),
        (UsageQuery { created_by: Some("ada".to_owned()), ..query(HOUR) }, 1),
        (UsageQuery { created_by: Some("eve".to_owned()), ..query(HOUR) }, 0),
    ] {
        let found = rows(&store, &filtered).await;
        assert_eq!(found.iter().map(|row| row.runs).sum::<u64>(), runs, "{filtered:?}");
    }
    let few = UsageQuery { rows_max: 1, ..label("team") };
    assert_eq!(rows(&store, &few).await.len(), 2, "one more says that there are more");
}

pub async fn usage_outlives_its_session(store: Arc<dyn Store>) {
    long_run(&store, "s", "r").await;
    assert!(store.delete_session(&tenant(), &session("s")).await.unwrap());
    check_long_run(&rows(&store, &query(HOUR)).await);
    let by = UsageGroups { agent: true, model: true, label: Some("team".to_owned()), created_by: true };
    let found = rows(&store, &UsageQuery { by, ..query(HOUR) }).await;
    let key = &found[0].key;
    assert_eq!(
        (key.agent.as_str(), key.model.as_str(), key.label.as_str()),
        ("default", "openai/gpt-5", "blue")
    );
    // A session of the same id counts beside it.
    long_run(&store, "s", "r").await;
    assert_eq!(rows(&store, &query(HOUR)).await[0].calls.model_calls, 2);
}
