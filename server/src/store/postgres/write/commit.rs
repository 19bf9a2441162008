//! A commit of appends as one statement: whatever the number of appends, it is one round trip and one transaction.
//!
//! Each table is a part of the statement that takes its rows as arrays, one for each column. The first part is the fence. All
//! others refer to it: if this server does not own the database any more, nothing is written.

use std::collections::HashMap;

use agentloop_core::cluster::shard::shard_of;
use agentloop_core::id::{Epoch, RunKey, SessionId, SessionKey};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Error, PgConnection, Postgres, Row as _};

use crate::store::postgres::owner::{Owner, ServerKind};
use crate::store::postgres::rows::clean;
use crate::store::postgres::write::append::CommitPlan;
use crate::store::postgres::write::statement::{self, Needs};
use crate::store::support::append::{NumberedAppend, RunValues, SessionChange, SessionValues};
use crate::store::support::checksum;
use crate::store::support::codec::text;
use crate::store::support::number::int;

/// Writes what a plan accepts. `None`: this server does not own the database any more, and nothing is written.
///
/// # Errors
/// SQL's own. Nothing is written then, unless the connection is lost.
pub(in crate::store::postgres) async fn write(
    db: &mut PgConnection,
    owner: Owner,
    server: ServerKind,
    batch: i64,
    plan: &CommitPlan<'_>,
) -> Result<Option<()>, Error> {
    let row: Option<PgRow> = query(owner, server, batch, plan).fetch_optional(db).await?;
    row.map(|row| row.try_get::<bool, _>("is_written").map(|_| ())).transpose()
}

/// The statement with everything that is to be written. Parameters are bound in the order of their numbers in
/// [`statement`](crate::store::postgres::write::statement), those of groups that it does not need left out.
fn query<'a>(
    owner: Owner,
    server: ServerKind,
    batch: i64,
    plan: &CommitPlan<'_>,
) -> Query<'a, Postgres, PgArguments> {
    let (sessions, new_runs, changed_runs) = (Sessions::of(plan), NewRuns::of(plan), ChangedRuns::of(plan));
    let begins = !sessions.created.columns.nos.is_empty() || !new_runs.nos.is_empty();
    let needs = Needs::of(plan, begins, server);
    let rows = (sessions, new_runs, changed_runs);
    bound(sqlx::query(statement::text(needs)).bind(owner.no).bind(owner.conn).bind(batch), needs, rows, plan)
}

/// The query with its rows, those of the groups that it needs.
fn bound<'q>(
    mut query: Bound<'q>,
    needs: Needs,
    (sessions, new_runs, changed_runs): (Sessions<'_>, NewRuns<'_>, ChangedRuns),
    plan: &CommitPlan<'_>,
) -> Bound<'q> {
    if needs.new_runs {
        query = sessions.created.bind(query);
    }
    query = sessions.changed.bind(query);
    if needs.new_runs {
        query = new_runs.bind(query);
    }
    query = entries(plan, events(plan, changed_runs.bind(query)));
    if needs.others {
        query = steers(plan, query);
    }
    if needs.questions {
        query = rules(plan, questions(plan, query));
    }
    if needs.others {
        query = blobs(plan, todos(plan, jobs(plan, query)));
    }
    if needs.specs {
        query = specs(plan, query);
    }
    query = sessions_before(plan, query);
    if needs.guessed {
        query = guessed(plan, query);
    }
    query
}

type Bound<'q> = Query<'q, Postgres, PgArguments>;

/// New and changed sessions.
#[derive(Default)]
struct Sessions<'a> {
    created: CreatedSessions<'a>,
    changed: SessionColumns,
}

/// Columns of sessions that begin.
#[derive(Default)]
struct CreatedSessions<'a> {
    columns: SessionColumns,
    tenants: Vec<&'a str>,
    ids: Vec<&'a str>,
    shards: Vec<i64>,
    created_at: Vec<i64>,
    created_by: Vec<Option<String>>,
}

/// The columns of sessions that appends change.
#[derive(Default)]
struct SessionColumns {
    nos: Vec<i64>,
    last_entries: Vec<i64>,
    live_runs: Vec<Option<i64>>,
    last_queue_nos: Vec<i64>,
    updated_at: Vec<i64>,
}

impl SessionColumns {
    fn push(&mut self, session: SessionValues) {
        self.nos.push(session.no);
        self.last_entries.push(session.last_entry);
        self.live_runs.push(session.live_run);
        self.last_queue_nos.push(session.last_queue_no);
        self.updated_at.push(session.updated_at);
    }

    fn bind(self, query: Bound<'_>) -> Bound<'_> {
        let query = query.bind(self.nos).bind(self.last_entries).bind(self.live_runs);
        query.bind(self.last_queue_nos).bind(self.updated_at)
    }
}

impl<'a> Sessions<'a> {
    fn of(plan: &'a CommitPlan<'_>) -> Self {
        let mut all = Self::default();
        for (SessionKey { tenant, session: id }, session) in &plan.rows.sessions {
            match session.change {
                SessionChange::None => {}
                SessionChange::Updated => all.changed.push(SessionValues::of(&session.head)),
                SessionChange::Created(at) => {
                    let new = &mut all.created;
                    new.columns.push(SessionValues::of(&session.head));
                    new.tenants.push(tenant.as_str());
                    new.ids.push(id.as_str());
                    new.shards.push(shard_of(tenant, id).0.into());
                    new.created_at.push(int(at.0));
                    new.created_by.push(session.created_by.as_deref().map(|by| clean(by).into_owned()));
                }
            }
        }
        all
    }
}

impl CreatedSessions<'_> {
    fn bind(self, query: Bound<'_>) -> Bound<'_> {
        let Self { columns, tenants, ids, shards, created_at, created_by } = self;
        let query = query.bind(columns.nos).bind(tenants).bind(ids).bind(shards).bind(columns.last_entries);
        let query = query.bind(columns.live_runs).bind(columns.last_queue_nos).bind(columns.updated_at);
        query.bind(created_at).bind(created_by)
    }
}

/// The columns of runs that appends change.
#[derive(Default)]
struct StateColumns {
    epochs: Vec<i64>,
    last_seqs: Vec<i64>,
    statuses: Vec<i64>,
    go_on: Vec<bool>,
    at_hosts: Vec<bool>,
    wake_at: Vec<Option<i64>>,
    queue_nos: Vec<Option<i64>>,
    errors: Vec<Option<String>>,
    usages: Vec<String>,
    iterations: Vec<i64>,
    tool_calls: Vec<i64>,
    updated_at: Vec<i64>,
    bytes: Vec<i64>,
}

impl StateColumns {
    fn push(&mut self, epoch: Epoch, run: RunValues) {
        self.epochs.push(int(epoch.0));
        self.last_seqs.push(run.last_seq);
        self.statuses.push(run.status);
        self.go_on.push(run.goes_on);
        self.at_hosts.push(run.at_hosts);
        self.wake_at.push(run.wake_at);
        self.queue_nos.push(run.queue_no);
        self.errors.push(run.error);
        self.usages.push(run.usage);
        self.iterations.push(run.iterations);
        self.tool_calls.push(run.tool_calls);
        self.updated_at.push(run.updated_at);
        self.bytes.push(run.bytes);
    }

    fn bind(self, query: Bound<'_>) -> Bound<'_> {
        let query = query.bind(self.epochs).bind(self.last_seqs).bind(self.statuses).bind(self.go_on);
        let query = query.bind(self.at_hosts).bind(self.wake_at).bind(self.queue_nos).bind(self.errors);
        let query = query.bind(self.usages).bind(self.iterations).bind(self.tool_calls);
        query.bind(self.updated_at).bind(self.bytes)
    }
}

/// Columns of new runs.
#[derive(Default)]
struct NewRuns<'a> {
    nos: Vec<i64>,
    tenants: Vec<&'a str>,
    ids: Vec<&'a str>,
    sessions: Vec<i64>,
    shards: Vec<i64>,
    specs: Vec<Option<&'a str>>,
    requests: Vec<&'a str>,
    agents: Vec<String>,
    models: Vec<String>,
    labels: Vec<String>,
    previews: Vec<String>,
    created_by: Vec<Option<String>>,
    created_at: Vec<i64>,
    states: StateColumns,
}

impl<'a> NewRuns<'a> {
    fn of(plan: &'a CommitPlan<'_>) -> Self {
        let mut all = Self::default();
        for (RunKey { tenant, run: id }, run) in &plan.rows.runs {
            let Some(update) = &run.update else { continue };
            let Some(created) = &update.created else { continue };
            let create = created.create;
            all.states.push(run.head.epoch, RunValues::of(&run.head, update));
            all.nos.push(run.head.no);
            all.tenants.push(tenant.as_str());
            all.ids.push(id.as_str());
            all.sessions
                .push(plan.rows.session_no(&SessionKey::new(tenant.clone(), run.head.session.clone())));
            all.shards.push(shard_of(tenant, &run.head.session).0.into());
            all.specs.push(created.spec.map(|spec| spec.digest.as_str()));
            all.requests.push(create.request_digest.as_str());
            all.agents.push(clean(&create.agent).into_owned());
            all.models.push(clean(&create.model).into_owned());
            all.labels.push(text(&create.labels));
            all.previews.push(clean(&create.preview).into_owned());
            all.created_by.push(create.created_by.as_deref().map(|by| clean(by).into_owned()));
            all.created_at.push(int(created.at.0));
        }
        all
    }

    fn bind(self, query: Bound<'_>) -> Bound<'_> {
        let query = query.bind(self.nos).bind(self.tenants).bind(self.ids).bind(self.sessions);
        let query = query.bind(self.shards).bind(self.specs).bind(self.requests).bind(self.agents);
        let query = query.bind(self.models).bind(self.labels).bind(self.previews).bind(self.created_by);
        self.states.bind(query.bind(self.created_at))
    }
}

/// Columns of runs that are there.
#[derive(Default)]
struct ChangedRuns {
    nos: Vec<i64>,
    /// The last event before the commit.
    after: Vec<i64>,
    states: StateColumns,
}

impl ChangedRuns {
    fn of(plan: &CommitPlan<'_>) -> Self {
        let mut first = HashMap::with_capacity(plan.accepted.len());
        for NumberedAppend { append, run_no, .. } in &plan.accepted {
            first.entry(*run_no).or_insert(append.after);
        }
        let mut all = Self::default();
        for run in plan.rows.runs.values() {
            let Some(update) = run.update.as_ref().filter(|update| update.created.is_none()) else {
                continue;
            };
            all.nos.push(run.head.no);
            all.after.push(int(first[&run.head.no].0));
            all.states.push(run.head.epoch, RunValues::of(&run.head, update));
        }
        all
    }

    fn bind(self, query: Bound<'_>) -> Bound<'_> {
        self.states.bind(query.bind(self.nos).bind(self.after))
    }
}

fn events<'q>(plan: &CommitPlan<'_>, query: Bound<'q>) -> Bound<'q> {
    let count = plan.accepted.iter().map(|new| new.append.events.len()).sum();
    let numbers = || Vec::with_capacity(count);
    let (mut runs, mut seqs, mut at, mut statuses, mut versions, mut checksums) =
        (numbers(), numbers(), numbers(), numbers(), numbers(), numbers());
    let mut payloads: Vec<&str> = Vec::with_capacity(count);
    for new in &plan.accepted {
        for event in &new.append.events {
            runs.push(new.run_no);
            seqs.push(event.seq);
            at.push(event.at);
            statuses.push(i64::from(event.status.code()));
            versions.push(event.version);
            payloads.push(&event.payload);
            checksums.push(event.checksum);
        }
    }
    query.bind(runs).bind(seqs).bind(at).bind(statuses).bind(versions).bind(payloads).bind(checksums)
}

fn entries<'q>(plan: &CommitPlan<'_>, query: Bound<'q>) -> Bound<'q> {
    let (mut sessions, mut nos, mut runs, mut seqs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for new in &plan.accepted {
        for entry in &new.append.entries {
            sessions.push(new.session_no);
            nos.push(int(entry.entry.0));
            runs.push(new.run_no);
            seqs.push(int(entry.seq.0));
        }
    }
    query.bind(sessions).bind(nos).bind(runs).bind(seqs).bind(plan.documents.clone())
}

/// In the order of their keys, like all rows whose keys replicas share: two commits that insert the same ones in two orders wait
/// for each other.
fn steers<'q>(plan: &CommitPlan<'_>, query: Bound<'q>) -> Bound<'q> {
    let (mut tenants, mut ids, mut runs, mut seqs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let of = plan.accepted.iter().flat_map(|new| new.append.steers.iter().map(move |steer| (new, steer)));
    let mut all: Vec<_> = of.collect();
    // Two with the same key keep their order: the first is the one that is known.
    all.sort_by_key(|(new, steer)| (new.append.run.tenant.as_str(), steer.request.as_str()));
    for (new, steer) in all {
        tenants.push(new.append.run.tenant.as_str());
        ids.push(steer.request.as_str());
        runs.push(new.run_no);
        seqs.push(int(steer.seq.0));
    }
    query.bind(tenants).bind(ids).bind(runs).bind(seqs)
}

/// A question that is asked and answered in one commit is inserted with its answer: a part of the statement does not see the
/// rows that another part inserts.
fn questions<'q>(plan: &CommitPlan<'_>, query: Bound<'q>) -> Bound<'q> {
    let mut answers: HashMap<(i64, &str), i64> = HashMap::new();
    for new in &plan.accepted {
        for closed in &new.append.answered {
            answers.insert((new.run_no, &closed.question), int(closed.seq.0));
        }
    }
    let (mut runs, mut questions, mut tenants) = (Vec::new(), Vec::new(), Vec::new());
    let (mut at, mut seqs, mut answered) = (Vec::new(), Vec::new(), Vec::new());
    for new in &plan.accepted {
        for asked in &new.append.asked {
            runs.push(new.run_no);
            questions.push(asked.question.as_str());
            tenants.push(new.append.run.tenant.as_str());
            at.push(int(asked.asked_at.0));
            seqs.push(int(asked.seq.0));
            answered.push(answers.remove(&(new.run_no, asked.question.as_str())));
        }
    }
    let query = query.bind(runs).bind(questions).bind(tenants).bind(at).bind(seqs).bind(answered);
    let (mut runs, mut questions, mut seqs) = (Vec::new(), Vec::new(), Vec::new());
    for ((run, question), seq) in answers {
        runs.push(run);
        questions.push(question);
        seqs.push(seq);
    }
    query.bind(runs).bind(questions).bind(seqs)
}

fn rules<'q>(plan: &CommitPlan<'_>, query: Bound<'q>) -> Bound<'q> {
    let (mut tenants, mut ids, mut sessions, mut requests) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut rules, mut by, mut at, mut checksums) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for new in &plan.accepted {
        let tenant = &new.append.run.tenant;
        for row in &new.append.remembered {
            let rule = text(&row.rule);
            let row = crate::store::RuleRow { by: clean(&row.by).into_owned(), ..row.clone() };
            checksums.push(checksum::of_rule(tenant, &row, &rule));
            tenants.push(tenant.as_str());
            ids.push(row.id.as_str().to_owned());
            sessions.push(row.session.as_ref().map(SessionId::as_str).map(str::to_owned));
            requests.push(row.request.as_str().to_owned());
            rules.push(rule);
            at.push(int(row.at.0));
            by.push(row.by);
        }
    }
    let query = query.bind(tenants).bind(ids).bind(sessions).bind(requests);
    query.bind(rules).bind(by).bind(at).bind(checksums)
}

fn jobs<'q>(plan: &CommitPlan<'_>, query: Bound<'q>) -> Bound<'q> {
    let (mut runs, mut kinds, mut due, mut tenants) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for new in &plan.accepted {
        for kind in &new.append.jobs {
            runs.push(new.run_no);
            kinds.push(kind.to_string());
            due.push(int(new.append.ended_at.0));
            tenants.push(new.append.run.tenant.as_str());
        }
    }
    query.bind(runs).bind(kinds).bind(due).bind(tenants)
}

fn todos<'q>(plan: &CommitPlan<'_>, query: Bound<'q>) -> Bound<'q> {
    let (mut sessions, mut entries, mut items) = (Vec::new(), Vec::new(), Vec::new());
    for new in &plan.accepted {
        for todos in &new.append.todos {
            sessions.push(new.session_no);
            entries.push(int(todos.entry.0));
            items.push(todos.items.as_str());
        }
    }
    query.bind(sessions).bind(entries).bind(items)
}

/// A result may name a blob twice.
fn blobs<'q>(plan: &CommitPlan<'_>, query: Bound<'q>) -> Bound<'q> {
    let (mut sessions, mut entries, mut digests) = (Vec::new(), Vec::new(), Vec::new());
    for new in &plan.accepted {
        for (entry, digest) in &new.append.blobs {
            sessions.push(new.session_no);
            entries.push(int(entry.0));
            digests.push(digest.digits());
        }
    }
    query.bind(sessions).bind(entries).bind(digests)
}

fn specs<'q>(plan: &CommitPlan<'_>, query: Bound<'q>) -> Bound<'q> {
    let digests: Vec<_> = plan.rows.specs.keys().map(|digest| digest.as_str()).collect();
    let specs: Vec<_> = plan.rows.specs.values().copied().collect();
    query.bind(digests).bind(specs)
}

/// The columns of changed sessions that they must have still, in the order of [`Sessions`].
fn sessions_before<'q>(plan: &CommitPlan<'_>, query: Bound<'q>) -> Bound<'q> {
    let changed = plan.rows.sessions.values().filter(|session| session.change == SessionChange::Updated);
    let before = changed.map(|session| &plan.sessions_before[&session.head.no]);
    let (entries, live_runs): (Vec<_>, Vec<_>) =
        before.map(|session| (session.last_entry, session.live_run)).unzip();
    query.bind(entries).bind(live_runs)
}

fn guessed<'q>(plan: &CommitPlan<'_>, query: Bound<'q>) -> Bound<'q> {
    let (tenants, ids): (Vec<_>, Vec<_>) =
        plan.guessed.iter().map(|append| (append.run.tenant.as_str(), append.run.run.as_str())).unzip();
    query.bind(tenants).bind(ids)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use sqlx::{Arguments as _, Execute as _};

    use super::*;
    use crate::store::support::append::CommitRows;

    /// PostgreSQL refuses another number of parameters. Few sets of groups are met by other tests.
    #[test]
    fn each_statement_has_the_parameters_that_are_bound() {
        let plan = CommitPlan {
            replies: Vec::new(),
            accepted: Vec::new(),
            sessions_before: HashMap::new(),
            documents: Vec::new(),
            rows: CommitRows::default(),
            guessed: Vec::new(),
        };
        for needs in Needs::all() {
            let text = statement::text(needs);
            let query = sqlx::query(text).bind(1_i64).bind(1_i64).bind(1_i64);
            let rows = (Sessions::default(), NewRuns::default(), ChangedRuns::default());
            let bound = bound(query, needs, rows, &plan).take_arguments().unwrap().unwrap().len();
            let highest = (1..=bound + 1).take_while(|number| has_parameter(text, *number)).last();
            assert_eq!(highest, Some(bound), "{needs:?}");
        }
    }

    fn has_parameter(text: &str, number: usize) -> bool {
        let name = format!("${number}");
        let mut ends = text.match_indices(&name).map(|(at, _)| &text[at + name.len()..]);
        ends.any(|rest| !rest.starts_with(|letter: char| letter.is_ascii_digit()))
    }
}
