//! Conversion of the request and the rows of `GetUsage`.

use agentloop_core::limits::{SHORT_TEXT_BYTES_MAX, USAGE_ROWS_MAX};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_proto::v1 as wire;
use tonic::Status;

use super::filter::time_of;
use crate::grpc::convert::message::usage;
use crate::grpc::convert::run::error_name;
use crate::grpc::convert::run_input::input::labels;
use crate::grpc::convert::{millis, short, timestamp};
use crate::grpc::status::Violations;
use crate::store::{UsageGroups, UsageQuery, UsageRow};

/// The unit of buckets.
const MINUTE: Millis = Millis::secs(60);
/// Length of a bucket that a request does not give.
const BUCKET: Millis = Millis::secs(3_600);
/// Stretch of time that a request which does not say from when is about.
const DAY: Millis = Millis::secs(86_400);

/// Converts a request. `now` is the end of a stretch without an end.
///
/// # Errors
/// INVALID_ARGUMENT with every invalid field.
pub fn query(request: wire::GetUsageRequest, now: Timestamp) -> Result<UsageQuery, Status> {
    let mut bad = Violations::default();
    let bucket = request.bucket.as_ref().map_or(BUCKET, |given| bucket(given, &mut bad));
    let mut time = |field, given: Option<prost_types::Timestamp>| {
        given.and_then(|given| bad.take(field, time_of(&given)))
    };
    let to = time("to_time", request.to_time).unwrap_or(now);
    let from = time("from_time", request.from_time).unwrap_or(to.before(DAY));
    if from >= to {
        bad.add("from_time", "must be before to_time");
    }
    let by = groups(&request.group_by, request.label_key, &mut bad);
    let name = |field, name: String, bad: &mut Violations| bad.take(field, short(name)).unwrap_or_default();
    let query = UsageQuery {
        from: Timestamp(from.0 / bucket.0 * bucket.0),
        before: Timestamp(to.0.div_ceil(bucket.0).saturating_mul(bucket.0)),
        bucket,
        by,
        agent: name("agent", request.agent, &mut bad),
        model: name("model", request.model, &mut bad),
        labels: labels("labels", request.labels, &mut bad),
        created_by: None,
        rows_max: USAGE_ROWS_MAX,
    };
    bad.check()?;
    Ok(query)
}

fn bucket(given: &prost_types::Duration, bad: &mut Violations) -> Millis {
    let length = bad.take("bucket", millis(given)).unwrap_or(BUCKET);
    if given.nanos == 0 && length.0.is_multiple_of(MINUTE.0) {
        return length;
    }
    bad.add("bucket", "must be a whole number of minutes");
    BUCKET
}

fn groups(given: &[i32], label_key: String, bad: &mut Violations) -> UsageGroups {
    let mut by = UsageGroups::default();
    let mut by_label = false;
    for (at, group) in given.iter().enumerate() {
        match wire::UsageGroup::try_from(*group) {
            Ok(wire::UsageGroup::Agent) => by.agent = true,
            Ok(wire::UsageGroup::Model) => by.model = true,
            Ok(wire::UsageGroup::Label) => by_label = true,
            Ok(wire::UsageGroup::CreatedBy) => by.created_by = true,
            Ok(wire::UsageGroup::Unspecified) | Err(_) => {
                bad.add(format!("group_by[{at}]"), "must be AGENT, MODEL, LABEL or CREATED_BY");
            }
        }
    }
    match (by_label, label_key.is_empty()) {
        (true, true) => bad.add("label_key", "is required to keep the values of a label apart"),
        (false, false) => bad.add("label_key", "needs USAGE_GROUP_LABEL in group_by"),
        _ if label_key.len() > SHORT_TEXT_BYTES_MAX => {
            bad.add("label_key", format!("must be at most {SHORT_TEXT_BYTES_MAX} bytes"));
        }
        (true, false) => by.label = Some(label_key),
        (false, true) => {}
    }
    by
}

/// Converts the usage of one group in one bucket.
#[must_use]
pub fn row(row: UsageRow) -> wire::UsageRow {
    let errors = row.errors.into_iter().map(|(code, runs)| (error_name(code), runs));
    wire::UsageRow {
        start: Some(timestamp(row.key.start)),
        agent: row.key.agent,
        model: row.key.model,
        label_value: row.key.label,
        created_by: row.key.created_by,
        runs: row.runs,
        model_calls: row.calls.model_calls,
        tool_calls: row.calls.tool_calls,
        run_errors: errors.collect(),
        failed_model_attempts: row.calls.failed_model_attempts,
        failed_tool_calls: row.calls.failed_tool_calls,
        usage: Some(usage(row.usage)),
        model_calls_without_price: row.usage.unpriced_calls,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(100 * 3_600_000 + 1);

    fn seconds(seconds: i64) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos: 0 })
    }

    #[test]
    fn times_are_whole_buckets() {
        let day = query(wire::GetUsageRequest::default(), NOW).unwrap();
        assert_eq!((day.from.0 / 3_600_000, day.before.0 / 3_600_000), (76, 101));
        assert_eq!(day.bucket, BUCKET);
        let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 1 });
        let request = wire::GetUsageRequest {
            from_time: at(119),
            to_time: at(120),
            bucket: seconds(60),
            ..Default::default()
        };
        let minutes = query(request, NOW).unwrap();
        assert_eq!((minutes.from.0, minutes.before.0), (60_000, 180_000));
        let exact = wire::GetUsageRequest {
            to_time: Some(prost_types::Timestamp { seconds: 7_200, nanos: 0 }),
            from_time: at(0),
            ..Default::default()
        };
        assert_eq!(query(exact, NOW).unwrap().before.0, 7_200_000);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        let given = wire::GetUsageRequest::default;
        for (field, request) in [
            ("bucket", wire::GetUsageRequest { bucket: seconds(30), ..given() }),
            ("bucket", wire::GetUsageRequest { bucket: seconds(0), ..given() }),
            ("bucket", wire::GetUsageRequest { bucket: seconds(-60), ..given() }),
            ("bucket", wire::GetUsageRequest { bucket: seconds(90), ..given() }),
            ("from_time", wire::GetUsageRequest { from_time: at(10), to_time: at(10), ..given() }),
            ("from_time", wire::GetUsageRequest { from_time: at(i64::MAX), ..given() }),
            ("group_by[0]", wire::GetUsageRequest { group_by: vec![0], ..given() }),
            ("group_by[1]", wire::GetUsageRequest { group_by: vec![1, 99], ..given() }),
            ("label_key", wire::GetUsageRequest { group_by: vec![3], ..given() }),
            ("label_key", wire::GetUsageRequest { label_key: "team".to_owned(), ..given() }),
            ("agent", wire::GetUsageRequest { agent: "x".repeat(5_000), ..given() }),
        ] {
            let refused = query(request, NOW).expect_err(field);
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{field}");
            assert!(refused.message().contains(field), "{refused:?}");
        }
    }
}
