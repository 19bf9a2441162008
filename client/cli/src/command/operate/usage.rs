//! `agentloop usage`: the usage of runs in buckets of time.

use std::time::{Duration, SystemTime};

use agentloop_client::v1::{GetUsageRequest, Quota, UsageGroup, UsageRow};

use crate::{
    args::{Global, Label, UsageArgs, UsageBy},
    exit::{Exit, Failure},
    terminal::format,
    terminal::json,
    terminal::print,
    terminal::text::sanitize,
};

/// Prints the rows, and their sum.
pub(crate) async fn usage(global: &Global, args: UsageArgs) -> Result<Exit, Failure> {
    let by = args.by.clone();
    if by.iter().filter(|by| matches!(by, UsageBy::Label(_))).count() > 1 {
        return Err(Failure::Usage("--by takes one label; ask once for each label".to_owned()));
    }
    let answer = global.client()?.get_usage(request(args)).await?;
    if global.json() {
        answer.rows.iter().try_for_each(|row| print::line(&json::line("UsageRow", row)))?;
        answer.quotas.iter().try_for_each(|quota| print::line(&json::line("Quota", quota)))?;
        return Ok(Exit::Completed);
    }
    let mut rows: Vec<_> = answer.rows.iter().map(|row| cells(row, &by)).collect();
    if answer.rows.len() > 1 {
        let mut sum = cells(&added(&answer.rows), &by);
        "all".clone_into(&mut sum[0]);
        sum[1..=by.len()].iter_mut().for_each(String::clear);
        rows.push(sum);
    }
    print::columns(&heading(&by), &rows)?;
    if !answer.quotas.is_empty() {
        print::line("")?;
        let quotas: Vec<_> = answer.quotas.iter().map(quota_cells).collect();
        print::table(["QUOTA", "OF", "USED", "LIMIT", "WINDOW"], &quotas)?;
    }
    Ok(Exit::Completed)
}

fn quota_cells(quota: &Quota) -> [String; 5] {
    let window = quota.window.and_then(|window| Duration::try_from(window).ok());
    [
        quota.name.clone(),
        sanitize(&quota.holder),
        quota.used.to_string(),
        quota.limit.to_string(),
        window.map_or_else(|| "-".to_owned(), |window| format!("{}s", window.as_secs())),
    ]
}

fn request(args: UsageArgs) -> GetUsageRequest {
    let key = args.by.iter().find_map(|by| match by {
        UsageBy::Label(key) => Some(key.clone()),
        UsageBy::Agent | UsageBy::Model | UsageBy::CreatedBy => None,
    });
    let group = |by: &UsageBy| match by {
        UsageBy::Agent => UsageGroup::Agent.into(),
        UsageBy::Model => UsageGroup::Model.into(),
        UsageBy::Label(_) => UsageGroup::Label.into(),
        UsageBy::CreatedBy => UsageGroup::CreatedBy.into(),
    };
    let time = |time: Option<SystemTime>| time.map(prost_types::Timestamp::from);
    GetUsageRequest {
        from_time: time(args.from),
        to_time: time(args.to),
        bucket: args.bucket.and_then(|length| prost_types::Duration::try_from(length).ok()),
        group_by: args.by.iter().map(group).collect(),
        label_key: key.unwrap_or_default(),
        agent: args.agent,
        model: args.model,
        labels: Label::map(args.label),
    }
}

/// The heading of the table: the time, a column for each group, and the counts.
fn heading(by: &[UsageBy]) -> Vec<String> {
    let counts = ["RUNS", "FAILED", "MODEL CALLS", "FAILED", "TOOL CALLS", "FAILED"];
    let used = ["IN", "CACHED", "OUT", "COST"];
    let first = std::iter::once("FROM".to_owned()).chain(by.iter().map(UsageBy::heading));
    first.chain(counts.into_iter().chain(used).map(str::to_owned)).collect()
}

/// The row of the table for these groups.
fn cells(row: &UsageRow, by: &[UsageBy]) -> Vec<String> {
    let group = by.iter().map(|by| match by {
        UsageBy::Agent => row.agent.as_str(),
        UsageBy::Model => row.model.as_str(),
        UsageBy::Label(_) => row.label_value.as_str(),
        UsageBy::CreatedBy => row.created_by.as_str(),
    });
    let group = group.map(|name| if name.is_empty() { "-".to_owned() } else { sanitize(name) });
    let usage = row.usage.unwrap_or_default();
    let counts = [
        row.runs.to_string(),
        row.run_errors.values().sum::<u64>().to_string(),
        row.model_calls.to_string(),
        row.failed_model_attempts.to_string(),
        row.tool_calls.to_string(),
        row.failed_tool_calls.to_string(),
        usage.input_tokens.to_string(),
        usage.cached_input_tokens.to_string(),
        usage.output_tokens.to_string(),
        cost(usage.cost_micros, row.model_calls_without_price),
    ];
    std::iter::once(format::time(row.start.as_ref())).chain(group).chain(counts).collect()
}

/// A cost in the currency of the configured prices. `?` says that calls without a price are not in it.
fn cost(micros: u64, without_price: u64) -> String {
    let known = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    match (micros, without_price) {
        (0, 1..) => "?".to_owned(),
        (_, 0) => known,
        (_, 1..) => format!("{known} + ?"),
    }
}

fn added(rows: &[UsageRow]) -> UsageRow {
    let mut sum = UsageRow::default();
    let mut usage = agentloop_client::v1::Usage::default();
    for row in rows {
        let used = row.usage.unwrap_or_default();
        sum.runs += row.runs;
        sum.model_calls += row.model_calls;
        sum.tool_calls += row.tool_calls;
        sum.failed_model_attempts += row.failed_model_attempts;
        sum.failed_tool_calls += row.failed_tool_calls;
        sum.model_calls_without_price += row.model_calls_without_price;
        for (code, runs) in &row.run_errors {
            *sum.run_errors.entry(code.clone()).or_default() += runs;
        }
        usage.input_tokens = usage.input_tokens.saturating_add(used.input_tokens);
        usage.output_tokens = usage.output_tokens.saturating_add(used.output_tokens);
        usage.cached_input_tokens = usage.cached_input_tokens.saturating_add(used.cached_input_tokens);
        usage.cost_micros = usage.cost_micros.saturating_add(used.cost_micros);
    }
    UsageRow { usage: Some(usage), ..sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_says_what_it_lacks() {
        assert_eq!(cost(1_500_000, 0), "1.500000");
        assert_eq!(cost(0, 0), "0.000000");
        assert_eq!(cost(0, 3), "?");
        assert_eq!(cost(20, 3), "0.000020 + ?");
    }

    #[test]
    fn each_group_has_its_column_and_one_without_a_name_a_dash() {
        let row = UsageRow { agent: "a".to_owned(), runs: 3, ..UsageRow::default() };
        let by = [UsageBy::Agent, UsageBy::Label("team".to_owned())];
        assert_eq!(heading(&by)[..4], ["FROM", "AGENT", "TEAM", "RUNS"]);
        assert_eq!(cells(&row, &by)[1..4], ["a", "-", "3"]);
        for by in [&by[..], &[]] {
            assert_eq!(heading(by).len(), cells(&row, by).len());
        }
    }
}
