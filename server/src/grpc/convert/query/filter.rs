//! Conversion of the filters of lists.

use std::ops::RangeInclusive;

use agentloop_core::id::{RunId, SessionId};
use agentloop_core::limits::{FILTER_TEXT_BYTES_MAX, FILTER_VALUES_MAX};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_proto::v1 as wire;
use tonic::Status;

use crate::grpc::convert::people::human;
use crate::grpc::convert::run_input::input::labels;
use crate::grpc::convert::{run, short};
use crate::grpc::status::{Violations, permission_denied};
use crate::mask::Masks;
use crate::store::{RequestFilter, RunFilter, SessionFilter, TimeRange};

/// The filter of `ListRuns`: the older fields of the request, and its filter. `None`: together they leave no run.
///
/// # Errors
/// INVALID_ARGUMENT with every invalid field.
pub fn runs(message: &mut wire::ListRunsRequest) -> Result<Option<RunFilter>, Status> {
    let mut bad = Violations::default();
    let session = session("session_id", std::mem::take(&mut message.session_id), &mut bad);
    let statuses = statuses("statuses", &message.statuses, &mut bad);
    let filter = run_filter(message.filter.take().unwrap_or_default(), &mut bad);
    bad.check()?;
    let (Some(session), Some(statuses)) =
        (both(filter.session.clone(), session), overlap(&filter.statuses, statuses))
    else {
        return Ok(None);
    };
    Ok(Some(RunFilter { session, statuses, ..filter }))
}

/// Converts a filter of runs.
pub fn run_filter(filter: wire::RunFilter, bad: &mut Violations) -> RunFilter {
    let mut created = times("filter.created", filter.created_after, filter.created_before, bad);
    if !filter.parent_run_id.is_empty()
        && bad.take("filter.parent_run_id", RunId::parse(filter.parent_run_id)).is_some()
    {
        // No run of another one can match.
        created = NEVER;
    }
    RunFilter {
        session: session("filter.session_id", filter.session_id, bad),
        statuses: statuses("filter.statuses", &filter.statuses, bad),
        labels: labels("filter.labels", filter.labels, bad),
        agents: names("filter.agents", filter.agents, bad),
        models: names("filter.models", filter.models, bad),
        created,
        created_by: created_by(filter.created_by, bad),
        root: root(filter.root_run_id, bad),
        text: text("filter.text", filter.text, bad),
    }
}

/// The seconds since 1970 that protobuf can express: the years 1 to 9999.
const TIMESTAMP_SECONDS: RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// A stretch of time in which nothing lies.
const NEVER: TimeRange = TimeRange { from: None, before: Some(Timestamp(0)) };

/// The caller whose rows a filter names. A caller that sees only its own may name no other.
///
/// # Errors
/// PERMISSION_DENIED if another caller is named. A list without that caller's rows would look complete.
pub fn only_of(own: Option<&str>, wanted: Option<String>) -> Result<Option<String>, Status> {
    match (own, wanted) {
        (Some(own), Some(wanted)) if own != wanted => {
            Err(permission_denied("filter.created_by names another caller"))
        }
        (own, wanted) => Ok(own.map(str::to_owned).or(wanted)),
    }
}

/// Parses the run at the top of a tree of runs. Empty means any.
fn root(id: String, bad: &mut Violations) -> Option<RunId> {
    if id.is_empty() { None } else { bad.take("filter.root_run_id", RunId::parse(id)) }
}

/// Checks the name of the caller whose runs are meant. Empty means any.
fn created_by(name: String, bad: &mut Violations) -> Option<String> {
    let name = bad.take("filter.created_by", short(name)).unwrap_or_default();
    (!name.is_empty()).then_some(name)
}

/// The filter of `ListPending`: the older fields of the request, and its filter.
///
/// # Errors
/// INVALID_ARGUMENT with every invalid field.
pub fn pending(message: &mut wire::ListPendingRequest) -> Result<RequestFilter, Status> {
    let mut bad = Violations::default();
    let run = std::mem::take(&mut message.run_id);
    let run = if run.is_empty() { None } else { bad.take("run_id", RunId::parse(run)) };
    let session = session("session_id", std::mem::take(&mut message.session_id), &mut bad);
    let filter = message.filter.take().unwrap_or_default();
    let mut asked = times("filter.created", filter.created_after, filter.created_before, &mut bad);
    // A run has no runs below it, so it is the whole tree.
    let run = match (run, root(filter.root_run_id, &mut bad)) {
        (Some(run), Some(root)) if run != root => {
            asked = NEVER;
            Some(run)
        }
        (run, root) => run.or(root),
    };
    let kinds = filter.kinds.iter().enumerate().filter_map(|(at, kind)| {
        bad.take(&format!("filter.kinds[{at}]"), human::kind_of(*kind).ok_or("is not a kind"))
    });
    let kinds = kinds.collect();
    let filter = RequestFilter {
        session,
        run,
        created_by: None,
        kinds,
        tools: names("filter.tools", filter.tools, &mut bad),
        labels: labels("filter.labels", filter.labels, &mut bad),
        agents: names("filter.agents", filter.agents, &mut bad),
        models: names("filter.models", filter.models, &mut bad),
        asked,
        text: text("filter.text", filter.text, &mut bad),
        masks: Masks::default(),
        answerer: None,
    };
    bad.check()?;
    Ok(filter)
}

/// Converts a filter of sessions.
///
/// # Errors
/// INVALID_ARGUMENT with every invalid field.
pub fn sessions(filter: wire::SessionFilter) -> Result<SessionFilter, Status> {
    let mut bad = Violations::default();
    let filter = SessionFilter {
        labels: labels("filter.labels", filter.labels, &mut bad),
        statuses: statuses("filter.statuses", &filter.statuses, &mut bad),
        agents: names("filter.agents", filter.agents, &mut bad),
        models: names("filter.models", filter.models, &mut bad),
        updated: times("filter.updated", filter.updated_after, filter.updated_before, &mut bad),
        text: text("filter.text", filter.text, &mut bad),
        forked_from: session("filter.forked_from_session_id", filter.forked_from_session_id, &mut bad),
        created_by: created_by(filter.created_by, &mut bad),
    };
    bad.check()?;
    Ok(filter)
}

/// A range of times from two fields, whose names end in `_after` and `_before`.
pub fn times(
    field: &str,
    after: Option<prost_types::Timestamp>,
    before: Option<prost_types::Timestamp>,
    bad: &mut Violations,
) -> TimeRange {
    let mut time = |end: &str, at: Option<prost_types::Timestamp>| {
        at.and_then(|at| bad.take(&format!("{field}_{end}"), time_of(&at)))
    };
    TimeRange { from: time("after", after), before: time("before", before) }
}

/// The first stored time that is not before this one: stored times are whole milliseconds.
pub(super) fn time_of(at: &prost_types::Timestamp) -> Result<Timestamp, &'static str> {
    let nanos = u64::try_from(at.nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    let nanos = nanos.ok_or("must have 0 to 999,999,999 nanos")?;
    if !TIMESTAMP_SECONDS.contains(&at.seconds) {
        return Err("must be of the years 1 to 9999, the range of protobuf");
    }
    // A time before 1970 is before all stored ones.
    let Ok(seconds) = u64::try_from(at.seconds) else { return Ok(Timestamp(0)) };
    Ok(Timestamp(seconds.saturating_mul(1_000).saturating_add(nanos.div_ceil(1_000_000))))
}

/// Checks a text that a list is filtered by.
pub fn text(field: &str, text: String, bad: &mut Violations) -> String {
    if text.len() > FILTER_TEXT_BYTES_MAX {
        bad.add(field, format!("must be at most {FILTER_TEXT_BYTES_MAX} bytes"));
    }
    text
}

/// Checks names that a list is filtered by.
pub fn names(field: &str, names: Vec<String>, bad: &mut Violations) -> Vec<String> {
    if names.len() > FILTER_VALUES_MAX {
        bad.add(field, format!("must be at most {FILTER_VALUES_MAX}"));
        return Vec::new();
    }
    let checked = names.into_iter().enumerate();
    checked.filter_map(|(at, name)| bad.take(&format!("{field}[{at}]"), short(name))).collect()
}

/// Parses the statuses that a list is filtered by.
pub fn statuses(field: &str, given: &[i32], bad: &mut Violations) -> Vec<RunStatus> {
    let mut statuses = Vec::new();
    for (at, status) in given.iter().enumerate() {
        let known = run::status_of(*status).ok_or("is not a status");
        let new = bad.take(&format!("{field}[{at}]"), known).filter(|status| !statuses.contains(status));
        statuses.extend(new);
    }
    statuses
}

fn session(field: &str, id: String, bad: &mut Violations) -> Option<SessionId> {
    if id.is_empty() { None } else { bad.take(field, SessionId::parse(id)) }
}

/// The one value that meets both conditions, of which either may be absent. The outer `None`: none does.
#[expect(clippy::option_option, reason = "no condition differs from no value")]
fn both<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (Some(one), Some(other)) => (one == other).then_some(Some(one)),
        (one, other) => Some(one.or(other)),
    }
}

/// The statuses that meet both conditions, where an empty list means any. `None`: none does.
fn overlap(one: &[RunStatus], other: Vec<RunStatus>) -> Option<Vec<RunStatus>> {
    if one.is_empty() || other.is_empty() {
        return Some(if one.is_empty() { other } else { one.to_vec() });
    }
    let shared: Vec<_> = other.into_iter().filter(|status| one.contains(status)).collect();
    (!shared.is_empty()).then_some(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_between_two_stored_ones_is_the_later_one() {
        let at = |seconds, nanos| time_of(&prost_types::Timestamp { seconds, nanos });
        assert_eq!(at(1, 0), Ok(Timestamp(1_000)));
        assert_eq!(at(1, 1), Ok(Timestamp(1_001)));
        assert_eq!(at(-1, 0), Ok(Timestamp(0)));
        assert!(at(1, -1).is_err() && at(1, 1_000_000_000).is_err());
        assert_eq!(at(-62_135_596_800, 0), Ok(Timestamp(0)));
        assert_eq!(at(253_402_300_799, 999_999_999), Ok(Timestamp(253_402_300_800_000)));
        assert!(
            at(-62_135_596_801, 0).is_err() && at(253_402_300_800, 0).is_err() && at(i64::MAX, 0).is_err()
        );
    }

    #[test]
    fn older_fields_and_the_filter_hold_together() {
        let filter = |session: &str, statuses: &[wire::RunStatus]| wire::RunFilter {
            session_id: session.to_owned(),
            statuses: statuses.iter().map(|status| i32::from(*status)).collect(),
            ..wire::RunFilter::default()
        };
        let check = |old: (&str, &[wire::RunStatus]), new: (&str, &[wire::RunStatus])| {
            let wire::RunFilter { session_id, statuses, .. } = filter(old.0, old.1);
            let filter = Some(filter(new.0, new.1));
            let mut request = wire::ListRunsRequest { session_id, statuses, filter, ..Default::default() };
            let both = runs(&mut request).expect("valid");
            both.map(|both| (both.session.map(|id| id.to_string()).unwrap_or_default(), both.statuses))
        };
        use wire::RunStatus::{Completed, Failed};
        assert_eq!(check(("a", &[]), ("", &[])), Some(("a".to_owned(), vec![])));
        assert_eq!(check(("a", &[]), ("a", &[])), Some(("a".to_owned(), vec![])));
        assert_eq!(check(("a", &[]), ("b", &[])), None);
        let completed = Some((String::new(), vec![RunStatus::Completed]));
        assert_eq!(check(("", &[Completed, Failed]), ("", &[Completed, Completed])), completed);
        assert_eq!(check(("", &[Failed]), ("", &[Completed])), None);
    }
}
