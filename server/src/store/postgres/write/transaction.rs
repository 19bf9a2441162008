//! A commit: one statement for appends alone, or a transaction with other writes and rows of the audit log.

use agentloop_core::time::Millis;
use sqlx::{Error, Executor as _, PgConnection};

use crate::clock::{Clock as _, SystemClock};
use crate::store::postgres::connect::settings;
use crate::store::postgres::owner::ServerKind;
use crate::store::postgres::write::append::{self, CommitPlan};
use crate::store::postgres::write::own::{WriteOp, WriteReply, WriteRequest, WriteResult};
use crate::store::postgres::write::sessions::SessionTables;
use crate::store::postgres::write::task::{AttemptError, LockPatience, Writer};
use crate::store::postgres::write::wait::in_time;
use crate::store::postgres::write::{audit, blobs, commit, ops};
use crate::store::postgres::{owner, rows};
use crate::store::sql::write::{WriteError, sessions, to_reply};
use crate::store::support::append::{EncodedAppend, LastNumbers};
use crate::store::support::write::{WriteGroup, audit_rows, groups, only_appends, replies_of, set_recorded};

/// Time for which a replica relies on a spec that it has stored, or found stored. Others delete it after
/// [`SPECS_UNUSED_FOR`](blobs::SPECS_UNUSED_FOR) at the earliest.
const SPECS_KNOWN_FOR: Millis = Millis::secs(30 * 60);
/// Numbers of a block that are left for the commit under way when the next block is taken.
const SPARE_NUMBERS: i64 = 1 << 20;

/// The waits of a write's transaction for locks, which [`settings::SHORT_WAITS`] have bounded for one of them.
fn waits(server: ServerKind, patience: LockPatience) -> &'static str {
    match (server, patience) {
        (ServerKind::Alone, _) => settings::UNBOUNDED_WAITS,
        (ServerKind::Replica, LockPatience::Batch) => settings::USUAL_WAITS,
        (ServerKind::Replica, LockPatience::Alone) => settings::SHORT_WAITS,
    }
}

/// Appends of one statement.
struct WrittenAppends {
    replies: Vec<WriteReply>,
    /// False if all of them were refused, so the database was told nothing.
    is_any: bool,
}

impl Writer {
    /// Carries out a commit.
    pub(super) async fn write_to(
        &mut self,
        db: &mut PgConnection,
        requests: &[WriteRequest],
        batch: i64,
    ) -> Result<Vec<WriteReply>, AttemptError> {
        self.look_for_claims(db).await?;
        in_time(self.take_numbers(db)).await?;
        if self.patience == LockPatience::Batch
            && let Some(appends) = only_appends(requests)
        {
            let written = self.write_appends(db, &appends, batch, true).await?;
            if written.is_any {
                self.acknowledged = batch;
            }
            return Ok(written.replies);
        }
        self.write_transaction(db, requests, batch).await
    }

    /// Takes a new block of numbers before the one in use comes to its end, and for new shards.
    async fn take_numbers(&mut self, db: &mut PgConnection) -> Result<(), Error> {
        let LastNumbers { run, session, document } = self.numbers;
        let additions = self.scope.additions();
        let is_used = |no: i64| no % ops::BLOCK_NUMBERS >= ops::BLOCK_NUMBERS - SPARE_NUMBERS;
        if additions != self.additions || [run, session, document].into_iter().any(is_used) {
            self.numbers = ops::number_block(db, self.owner).await?;
            self.additions = additions;
        }
        Ok(())
    }

    /// Writes appends by one statement. `guesses`: the commit can be carried out again, if a blind start has overlooked something.
    async fn write_appends(
        &mut self,
        db: &mut PgConnection,
        appends: &[&EncodedAppend],
        batch: i64,
        guesses: bool,
    ) -> Result<WrittenAppends, AttemptError> {
        self.forget_old_specs();
        let plan = in_time(append::plan(db, &mut self.cache, self.numbers, appends, guesses)).await?;
        // They are not given out again, whatever becomes of the commit.
        self.numbers = plan.rows.last;
        if plan.accepted.is_empty() {
            let replies = replies_of(plan.replies).collect();
            return Ok(WrittenAppends { replies, is_any: false });
        }
        match in_time(commit::write(db, self.owner, self.server, batch, &plan)).await {
            Ok(Some(())) => {
                let CommitPlan { replies, rows, .. } = plan;
                self.cache.update(rows);
                Ok(WrittenAppends { replies: replies_of(replies).collect(), is_any: true })
            }
            Ok(None) => Err(AttemptError::Fenced),
            Err(error) if rows::is_lost(&error) => {
                Err(AttemptError::Lost { error, replies: Some(replies_of(plan.replies).collect()) })
            }
            Err(error) if !plan.guessed.is_empty() && rows::contradicts(&error) => {
                Err(AttemptError::GuessedWrong)
            }
            Err(error) => Err(AttemptError::Refused(error)),
        }
    }

    /// Other replicas delete specs that were not used for long. So what is known to be stored is known for a time only, which
    /// is shorter.
    fn forget_old_specs(&mut self) {
        if self.server == ServerKind::Alone {
            return;
        }
        let now = SystemClock.now();
        if now.since(self.specs_since) >= SPECS_KNOWN_FOR {
            self.specs_since = now;
            self.cache.forget_specs();
        }
    }

    async fn write_transaction(
        &mut self,
        db: &mut PgConnection,
        requests: &[WriteRequest],
        batch: i64,
    ) -> Result<Vec<WriteReply>, AttemptError> {
        in_time(db.execute("BEGIN")).await?;
        if !in_time(owner::fence(db, self.owner, batch)).await? {
            return Err(AttemptError::Fenced);
        }
        if self.patience == LockPatience::Alone && self.server == ServerKind::Replica {
            in_time(db.execute(settings::SHORT_WAITS)).await?;
        }
        let mut replies = Vec::with_capacity(requests.len());
        for group in groups(requests) {
            match group {
                WriteGroup::Alone(op) => {
                    op.invalidate(&mut self.cache);
                    let writing = async { to_reply(self.write_alone(db, op).await) };
                    // A long one that is given up after the time of a commit would be tried again without an end.
                    replies.push(if op.is_long() { writing.await? } else { in_time(writing).await? });
                }
                WriteGroup::Appends(appends) => {
                    replies.extend(self.write_appends(db, &appends, batch, false).await?.replies);
                }
            }
        }
        let rows = audit_rows(requests, &replies);
        if !rows.is_empty() {
            let written = audit::write(db, self.server, self.audited.take(), rows);
            self.audited = Some(in_time(written).await?);
        }
        match in_time(db.execute("COMMIT")).await {
            Ok(_) => {
                self.acknowledged = batch;
                set_recorded(requests, &replies);
                Ok(replies)
            }
            Err(error) if rows::is_lost(&error) => Err(AttemptError::Lost { error, replies: Some(replies) }),
            Err(error) => Err(AttemptError::Refused(error)),
        }
    }

    /// Everything but appends: one write at a time, in a transaction that is open.
    async fn write_alone(&mut self, db: &mut PgConnection, op: &WriteOp) -> Result<WriteResult, WriteError> {
        Ok(match op {
            WriteOp::Append(_) => unreachable!("appends are written together"),
            WriteOp::Claim { tenant, run } => {
                let claimed = ops::claim(db, &self.scope, tenant, run, self.epoch).await?;
                WriteResult::Claimed(claimed.map(Box::new))
            }
            WriteOp::Session(op) => {
                let last_no = &mut self.numbers.session;
                let waits = waits(self.server, self.patience);
                let mut tables = SessionTables { db, server: self.server, waits, last_no };
                sessions::write(&mut tables, op).await?
            }
            WriteOp::RetryJob { job, due_at, error } => {
                ops::retry_job(db, job, *due_at, error).await?;
                WriteResult::Done
            }
            WriteOp::FinishJob { job } => {
                ops::finish_job(db, job).await?;
                WriteResult::Done
            }
            WriteOp::DeleteRule { tenant, rule } => {
                WriteResult::Existed(ops::delete_rule(db, tenant, rule).await?)
            }
            WriteOp::SaveTools { tenant, tools } => {
                ops::save_tools(db, tenant, tools).await?;
                WriteResult::Done
            }
            WriteOp::ClaimHost(claim) => WriteResult::Existed(ops::claim_host(db, claim).await?),
            WriteOp::SeeHosts { hosts, at, free_before } => {
                ops::see_hosts(db, hosts, *at, *free_before).await?;
                WriteResult::Done
            }
            WriteOp::ForgetTool { tenant, name } => {
                WriteResult::Existed(ops::forget_tool(db, tenant, name).await?)
            }
            // They are written with the rows of other writes.
            WriteOp::Audit(_) => WriteResult::Done,
            WriteOp::Own(op) => {
                if op.deletes_specs() {
                    self.cache.forget_specs();
                }
                WriteResult::Own(blobs::write(db, op).await?)
            }
            WriteOp::Check => {
                ops::check(db, self.server).await?;
                WriteResult::Done
            }
        })
    }
}
