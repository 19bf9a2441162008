//! The text of the statement that a commit of appends is.
//!
//! PostgreSQL prepares every part of a statement for each execution, also for no rows: that is most of what a small commit costs it.
//! So a statement has the groups of parts that its commit needs, and only their parameters.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::OnceLock;

use crate::store::postgres::owner::ServerKind;
use crate::store::postgres::write::append::{CommitPlan, has_overlooked};
use crate::store::support::append::EncodedAppend;

/// The fence. All other parts refer to it.
const FENCE: &str = "
WITH fence AS MATERIALIZED (
    UPDATE owners SET batch = $3 WHERE owner_no = $1 AND conn = $2 AND NOT fenced RETURNING owner_no)";

/// Writes that nearly every commit has: events, and the rows of runs and sessions that they change.
///
/// While a run goes on, the times that indexes name move once in 1000 ms: rows whose indexed columns stay as they are cost no
/// index anything. `greatest` of both times of a row is exact.
const CHANGES: &str = ",
sessions_up AS (
    UPDATE sessions AS s
    SET last_entry = v.last_entry, live_run_no = v.live_run_no, last_queue_no = v.last_queue_no,
        updated_at = CASE WHEN v.live_run_no = v.live_run_before AND v.updated_at < s.updated_at + 1000
                          THEN s.updated_at ELSE v.updated_at END,
        last_entry_at = v.updated_at
    FROM fence, unnest($14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $105::bigint[],
                       $106::bigint[])
        AS v (session_no, last_entry, live_run_no, last_queue_no, updated_at, last_entry_before, live_run_before)
    WHERE s.session_no = v.session_no AND s.last_entry = v.last_entry_before
      AND s.live_run_no IS NOT DISTINCT FROM v.live_run_before
    RETURNING 1),
states_up AS (
    UPDATE run_states AS t
    SET last_seq = v.last_seq, status = v.status, goes_on = v.goes_on, at_hosts = v.at_hosts, wake_at = v.wake_at,
        queue_no = v.queue_no, error = v.error, usage = v.usage, iterations = v.iterations,
        tool_calls = v.tool_calls, bytes = t.bytes + v.bytes,
        updated_at = CASE WHEN t.goes_on AND v.goes_on AND v.updated_at < t.updated_at + 1000
                          THEN t.updated_at ELSE v.updated_at END,
        last_event_at = v.updated_at
    FROM fence, unnest($45::bigint[], $46::bigint[], $47::bigint[], $48::bigint[], $49::bigint[], $50::boolean[],
                       $51::boolean[], $52::bigint[], $53::bigint[], $54::text[], $55::text[], $56::bigint[],
                       $57::bigint[], $58::bigint[], $59::bigint[])
        AS v (run_no, after, epoch, last_seq, status, goes_on, at_hosts, wake_at, queue_no, error, usage, iterations,
              tool_calls, updated_at, bytes)
    WHERE t.run_no = v.run_no AND t.epoch = v.epoch AND t.last_seq = v.after
    RETURNING 1),
events_in AS (
    INSERT INTO run_events (run_no, seq, at, status, version, payload, checksum)
    SELECT v.* FROM fence, unnest($60::bigint[], $61::bigint[], $62::bigint[], $63::bigint[], $64::bigint[],
                                  $65::text[], $66::bigint[]) AS v),
entries_in AS (
    INSERT INTO session_entries (session_no, entry_no, run_no, seq, search_no)
    SELECT v.* FROM fence, unnest($67::bigint[], $68::bigint[], $69::bigint[], $70::bigint[], $71::bigint[]) AS v)";

/// Runs and sessions that begin.
const NEW_RUNS: &str = ",
sessions_in AS (
    INSERT INTO sessions (session_no, tenant, session_id, shard, last_entry, live_run_no, last_queue_no, updated_at,
                          created_at, created_by)
    SELECT v.* FROM fence, unnest($4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[],
                                  $10::bigint[], $11::bigint[], $12::bigint[], $13::text[]) AS v),
runs_in AS (
    INSERT INTO runs (run_no, tenant, run_id, session_no, shard, spec_digest, request_digest, agent, model, labels,
                      preview, created_by, created_at)
    SELECT v.* FROM fence, unnest($19::bigint[], $20::text[], $21::text[], $22::bigint[], $23::bigint[], $24::text[],
                                  $25::text[], $26::text[], $27::text[], $28::text[], $29::text[], $30::text[],
                                  $31::bigint[]) AS v),
states_in AS (
    INSERT INTO run_states (run_no, tenant, session_no, shard, epoch, last_seq, status, goes_on, at_hosts, wake_at,
                            queue_no, error, usage, iterations, tool_calls, updated_at, bytes)
    SELECT v.* FROM fence, unnest($19::bigint[], $20::text[], $22::bigint[], $23::bigint[], $32::bigint[],
                                  $33::bigint[], $34::bigint[], $35::boolean[], $36::boolean[], $37::bigint[],
                                  $38::bigint[], $39::text[], $40::text[], $41::bigint[], $42::bigint[],
                                  $43::bigint[], $44::bigint[]) AS v)";

/// Questions to people, their answers and the rules that these leave.
const QUESTIONS: &str = ",
asked AS (
    INSERT INTO human_requests (run_no, question, tenant, asked_at, asked_seq, answered_seq)
    SELECT v.* FROM fence, unnest($76::bigint[], $77::text[], $78::text[], $79::bigint[], $80::bigint[],
                                  $81::bigint[]) AS v),
answered AS (
    UPDATE human_requests AS q SET answered_seq = v.seq
    FROM fence, unnest($82::bigint[], $83::text[], $84::bigint[]) AS v (run_no, question, seq)
    WHERE q.run_no = v.run_no AND q.question = v.question),
rules_in AS (
    INSERT INTO remembered_rules (tenant, rule_id, session_id, request_id, rule, decided_by, decided_at, checksum)
    SELECT v.* FROM fence, unnest($85::text[], $86::text[], $87::text[], $88::text[], $89::text[], $90::text[],
                                  $91::bigint[], $92::bigint[]) AS v)";

/// Specs of new runs, of a server alone.
const SPECS: &str = ",
specs_in AS (
    INSERT INTO specs (digest, spec)
    SELECT v.* FROM fence, unnest($103::text[], $104::text[]) AS v
    ON CONFLICT (digest) DO NOTHING)";

/// Specs of new runs, of a replica. Another one may be about to delete one that was not used for long: it has locked the note
/// of that, or finds it gone. So the note comes first.
const NOTED_SPECS: &str = ",
noted AS (
    DELETE FROM unused_specs AS u USING fence WHERE u.digest = ANY ($103::text[])
    RETURNING 1),
specs_in AS (
    INSERT INTO specs (digest, spec)
    SELECT v.* FROM fence, unnest($103::text[], $104::text[]) AS v
    WHERE (SELECT count(*) FROM noted) >= 0
    ON CONFLICT (digest) DO NOTHING)";

/// Writes that few commits have: steers, jobs, to-do lists and names of blobs. A request that two replicas let steer two
/// sessions at once has misused its id: it is known of the first one alone, and a repetition at the other is refused.
const OTHERS: &str = ",
steers_in AS (
    INSERT INTO steers (tenant, request_id, run_no, seq)
    SELECT v.* FROM fence, unnest($72::text[], $73::text[], $74::bigint[], $75::bigint[]) AS v
    ON CONFLICT (tenant, request_id) DO NOTHING),
jobs_in AS (
    INSERT INTO jobs (run_no, kind, due_at, tenant)
    SELECT v.* FROM fence, unnest($93::bigint[], $94::text[], $95::bigint[], $96::text[]) AS v
    ON CONFLICT (run_no, kind) DO NOTHING),
todos_in AS (
    INSERT INTO session_todos (session_no, entry_no, items)
    SELECT v.* FROM fence, unnest($97::bigint[], $98::bigint[], $99::text[]) AS v),
blobs_in AS (
    INSERT INTO session_blobs (session_no, entry_no, digest)
    SELECT v.* FROM fence, unnest($100::bigint[], $101::bigint[], $102::text[]) AS v
    ON CONFLICT DO NOTHING)";

/// The outcome. It has no row if the fence holds this server off.
const OUTCOME: &str = "
SELECT agentloop_must((SELECT count(*) FROM states_up) = cardinality($45::bigint[]), 'a run')
   AND agentloop_must((SELECT count(*) FROM sessions_up) = cardinality($14::bigint[]), 'a session') AS is_written";

/// The end of the outcome where starts were guessed to be new: nobody has looked for anything of theirs.
pub(in crate::store::postgres) const GUESSED: &str = concat!(
    ",
    agentloop_must((
        SELECT count(*) = 0 FROM unnest($107::text[], $108::text[]) AS j (tenant, run_id)
        WHERE ",
    has_overlooked!(),
    "), 'a start')"
);

/// The end of the statement.
const FROM_FENCE: &str = "
FROM fence";

/// The groups of parts that a commit needs beside [`CHANGES`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    pub(super) new_runs: bool,
    pub(super) questions: bool,
    pub(super) specs: bool,
    pub(super) others: bool,
    pub(super) guessed: bool,
    server: ServerKind,
}

impl Needs {
    /// `begins`: a run or a session begins.
    pub(super) fn of(plan: &CommitPlan<'_>, begins: bool, server: ServerKind) -> Self {
        let any = |has: fn(&EncodedAppend) -> bool| plan.accepted.iter().any(|new| has(new.append));
        Self {
            new_runs: begins,
            questions: any(|append| {
                !(append.asked.is_empty() && append.answered.is_empty() && append.remembered.is_empty())
            }),
            specs: !plan.rows.specs.is_empty(),
            others: any(|append| {
                let is_empty = append.steers.is_empty() && append.jobs.is_empty();
                !(is_empty && append.todos.is_empty() && append.blobs.is_empty())
            }),
            guessed: !plan.guessed.is_empty(),
            server,
        }
    }

    /// All that there are.
    #[cfg(test)]
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..STATEMENTS).map(|bits| {
            let [new_runs, questions, specs, others, guessed, is_replica] =
                [1, 2, 4, 8, 16, 32].map(|bit| bits & bit != 0);
            let server = if is_replica { ServerKind::Replica } else { ServerKind::Alone };
            Self { new_runs, questions, specs, others, guessed, server }
        })
    }

    /// The place of its statement among all.
    fn place(self) -> usize {
        let is_replica = self.server == ServerKind::Replica;
        let flags = [self.new_runs, self.questions, self.specs, self.others, self.guessed, is_replica];
        flags.into_iter().fold(0, |place, flag| 2 * place + usize::from(flag))
    }
}

/// Number of statements: one for each set of needs.
const STATEMENTS: usize = 1 << 6;

/// The statement for these needs: a text of its own for each set of groups, so that the connection prepares each once. Its
/// parameters are those of its groups, in the same order.
pub(super) fn text(needs: Needs) -> &'static str {
    static TEXTS: [OnceLock<String>; STATEMENTS] = [const { OnceLock::new() }; STATEMENTS];
    TEXTS[needs.place()].get_or_init(|| {
        let groups = [
            (true, FENCE),
            (true, CHANGES),
            (needs.new_runs, NEW_RUNS),
            (needs.questions, QUESTIONS),
            (needs.specs && needs.server == ServerKind::Alone, SPECS),
            (needs.specs && needs.server == ServerKind::Replica, NOTED_SPECS),
            (needs.others, OTHERS),
            (true, OUTCOME),
            (needs.guessed, GUESSED),
            (true, FROM_FENCE),
        ];
        let needed = groups.into_iter().filter_map(|(is_needed, sql)| is_needed.then_some(sql));
        renumbered(&needed.collect::<String>())
    })
}

/// The statement with its parameters numbered from 1 on, in the order of the numbers that they have.
fn renumbered(sql: &str) -> String {
    let mut pieces = sql.split('$');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    let numbered: Vec<(u32, &str)> = pieces
        .map(|piece| {
            let digits = piece.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(piece.len());
            (piece[..digits].parse().expect("the number of a parameter"), &piece[digits..])
        })
        .collect();
    let numbers: BTreeSet<u32> = numbered.iter().map(|(number, _)| *number).collect();
    for (number, rest) in numbered {
        let place = numbers.range(..=number).count();
        write!(text, "${place}{rest}").expect("a string takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a statement with their texts, in their order, and the text after the last one.
    fn parts(sql: &str) -> (Vec<(&str, &str)>, &str) {
        let (mut parts, mut rest) = (Vec::new(), sql.trim().strip_prefix("WITH ").unwrap());
        loop {
            let (name, after) = rest.split_once(" AS ").unwrap();
            let body = after.strip_prefix("MATERIALIZED ").unwrap_or(after);
            let mut depth = 0;
            let end = body.char_indices().find(|(_, letter)| {
                depth += i32::from(*letter == '(') - i32::from(*letter == ')');
                depth == 0
            });
            let (end, _) = end.unwrap();
            parts.push((name.trim(), &body[1..end]));
            match body[end + 1..].strip_prefix(',') {
                Some(next) => rest = next,
                None => return (parts, &body[end + 1..]),
            }
        }
    }

    /// The parts that write, and take no row from the fence: a part that writes is carried out whether or not another one refers
    /// to it.
    fn unfenced(sql: &str) -> Vec<&str> {
        let (parts, outcome) = parts(sql);
        let takes = |text: &str| text.contains("FROM fence") || text.contains("USING fence");
        let writes =
            |text: &str| ["INSERT", "UPDATE", "DELETE", "MERGE"].iter().any(|verb| text.contains(verb));
        let open = parts.iter().filter(|(name, text)| *name != "fence" && writes(text) && !takes(text));
        open.map(|(name, _)| *name).chain((!takes(outcome)).then_some("the outcome")).collect()
    }

    #[test]
    fn every_part_that_writes_takes_its_rows_from_the_fence() {
        let mut names = std::collections::BTreeSet::new();
        for needs in Needs::all() {
            let sql = text(needs);
            let (parts, _) = parts(sql);
            let (first, fence) = parts[0];
            assert_eq!(first, "fence", "{needs:?}");
            for condition in ["owner_no = $1", "conn = $2", "NOT fenced", "RETURNING owner_no"] {
                assert!(fence.contains(condition), "{fence}");
            }
            assert_eq!(unfenced(sql), Vec::<&str>::new(), "{needs:?}");
            names.extend(parts.iter().map(|(name, _)| (*name).to_owned()));
        }
        assert_eq!(names.len(), 17, "every group is among them: {names:?}");
    }

    #[test]
    fn a_part_without_the_fence_is_found() {
        let sql = "WITH fence AS MATERIALIZED (UPDATE owners SET batch = 1 RETURNING owner_no),
                   good AS (INSERT INTO t SELECT v.* FROM fence, unnest(ARRAY[(1)]) AS v),
                   bad AS (INSERT INTO t SELECT 1)
                   SELECT count(*) FROM good";
        assert_eq!(unfenced(sql), ["bad", "the outcome"]);
    }

    #[test]
    fn parameters_are_numbered_without_gaps() {
        assert_eq!(renumbered("SELECT $7::text[], $3, $7, $12"), "SELECT $2::text[], $1, $2, $3");
        assert_eq!(renumbered("SELECT 1"), "SELECT 1");
        let texts: BTreeSet<&str> = Needs::all().map(text).collect();
        // Without specs, a server alone and a replica have the same.
        assert_eq!(texts.len(), STATEMENTS - STATEMENTS / 4);
    }
}
