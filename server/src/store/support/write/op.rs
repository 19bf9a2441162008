//! A write, and its result.

use std::fmt::Debug;
use std::sync::Arc;

use agentloop_core::id::{HostId, RuleId, RunId, RunKey, SessionId, TenantId};
use agentloop_core::time::Timestamp;

use super::session::SessionOp;
use crate::audit::{Act, AuditEntry};
use crate::store::support::append::{EncodedAppend, WriterCache};
use crate::store::{ClaimedRow, HostClaim, JobId, SessionRow, ToolRow};

/// A write that only one of the stores has.
pub(in crate::store) trait OwnOp: Debug + Send + 'static {
    /// The result of such a write, if it says more than [`WriteResult::Done`].
    type Result: Debug + Send + 'static;

    /// The tenant that it is for; `None` for writes of the server's own.
    fn tenant(&self) -> Option<&TenantId>;

    /// True if it may carry out a caller's act. It then commits the act's row of the audit log, too.
    fn is_act(&self) -> bool;

    /// True if it may touch many rows: as many as a blob has.
    fn is_long(&self) -> bool;

    /// The words by which errors name the write.
    fn describe(&self) -> &'static str;
}

/// A write that a store offers; `O` are those that only this store has.
#[derive(Debug)]
pub(in crate::store) enum WriteOp<O> {
    /// Events of a run, with everything that follows from them.
    Append(Box<EncodedAppend>),
    /// Makes this server the owner of a run.
    Claim { tenant: TenantId, run: RunId },
    /// Makes, changes or deletes a session.
    Session(SessionOp),
    /// Deletes a remembered rule.
    DeleteRule { tenant: TenantId, rule: RuleId },
    /// Records a failed attempt of a job, and when the next one is due.
    RetryJob { job: JobId, due_at: Timestamp, error: String },
    /// Deletes a job that is done or given up.
    FinishJob { job: JobId },
    /// Inserts or replaces the rows of tools.
    SaveTools { tenant: TenantId, tools: Vec<ToolRow> },
    /// Deletes the row of a tool.
    ForgetTool { tenant: TenantId, name: String },
    /// Gives a host's id to a principal, unless another one has it.
    ClaimHost(HostClaim),
    /// Records when hosts were last seen, and frees the ids of those that were not seen for long.
    SeeHosts { hosts: Vec<(TenantId, HostId)>, at: Timestamp, free_before: Timestamp },
    /// Rows of the audit log, with nothing else.
    Audit(Vec<AuditEntry>),
    /// Writes a row that nobody needs, to see that the store can.
    Check,
    /// A write that only this store has.
    Own(O),
}

/// The result of a [`WriteOp`].
#[derive(Debug)]
pub(in crate::store) enum WriteResult<R> {
    /// The result of `Append`, `RetryJob`, `FinishJob`, `SaveTools`, `SeeHosts`, `Audit` and `Check`; of some of the store's own.
    Done,
    /// The result of `Claim`. `None`: there is no such run.
    Claimed(Option<Box<ClaimedRow>>),
    /// The result of a [`SessionOp`] that leaves a session: the session as it is now.
    Session(Box<SessionRow>),
    /// The result of `SessionOp::Delete`, `SessionOp::SetNotes`, `DeleteRule` and `ForgetTool`: false if there was
    /// nothing to change. Of `ClaimHost`: false if the id is another principal's.
    Existed(bool),
    /// The result of the other writes of the store's own.
    Own(R),
}

impl<O: OwnOp> WriteOp<O> {
    /// The tenant that it is for; `None` for writes of the server's own.
    pub(in crate::store) fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Append(append) => Some(&append.run.tenant),
            Self::Session(op) => Some(op.session().0),
            Self::Claim { tenant, .. }
            | Self::DeleteRule { tenant, .. }
            | Self::SaveTools { tenant, .. }
            | Self::ForgetTool { tenant, .. }
            | Self::RetryJob { job: JobId { tenant, .. }, .. }
            | Self::FinishJob { job: JobId { tenant, .. } }
            | Self::ClaimHost(HostClaim { tenant, .. }) => Some(tenant),
            Self::SeeHosts { .. } | Self::Audit(_) | Self::Check => None,
            Self::Own(op) => op.tenant(),
        }
    }

    /// The session that the write changes, where it names one.
    pub(in crate::store) fn session(&self) -> Option<(&TenantId, &SessionId)> {
        match self {
            Self::Append(append) => Some((&append.session.tenant, &append.session.session)),
            Self::Session(op) => Some(op.session()),
            Self::Claim { .. }
            | Self::DeleteRule { .. }
            | Self::RetryJob { .. }
            | Self::FinishJob { .. }
            | Self::SaveTools { .. }
            | Self::ForgetTool { .. }
            | Self::ClaimHost(_)
            | Self::SeeHosts { .. }
            | Self::Audit(_)
            | Self::Check
            | Self::Own(_) => None,
        }
    }

    /// True if it may carry out a caller's act. It then commits the act's row of the audit log, too.
    pub(in crate::store) fn is_act(&self) -> bool {
        match self {
            Self::Append(_) | Self::DeleteRule { .. } | Self::SaveTools { .. } | Self::ForgetTool { .. } => {
                true
            }
            Self::Session(op) => op.is_act(),
            Self::Own(op) => op.is_act(),
            Self::Claim { .. }
            | Self::RetryJob { .. }
            | Self::FinishJob { .. }
            | Self::ClaimHost(_)
            | Self::SeeHosts { .. }
            | Self::Audit(_)
            | Self::Check => false,
        }
    }

    /// True for a write that touches as many rows as a session or a blob has.
    pub(in crate::store) fn is_long(&self) -> bool {
        match self {
            Self::Session(op) => op.is_long(),
            Self::Own(op) => op.is_long(),
            Self::Append(_)
            | Self::Claim { .. }
            | Self::DeleteRule { .. }
            | Self::RetryJob { .. }
            | Self::FinishJob { .. }
            | Self::SaveTools { .. }
            | Self::ForgetTool { .. }
            | Self::ClaimHost(_)
            | Self::SeeHosts { .. }
            | Self::Audit(_)
            | Self::Check => false,
        }
    }

    /// The rows of the audit log that go into its commit. The write fills in its session and run where the call did not.
    pub(in crate::store) fn audited(&self, act: Option<&Arc<Act>>) -> Vec<AuditEntry> {
        if let Self::Audit(entries) = self {
            return entries.clone();
        }
        let Some(mut entry) = act.filter(|act| !act.is_recorded()).map(|act| act.entry()) else {
            return Vec::new();
        };
        let session = self.session().map_or("", |(_, session)| session.as_str());
        let run = self.as_append().map_or("", |append| append.run.run.as_str());
        for (known, found) in [(&mut entry.session, session), (&mut entry.run, run)] {
            if known.is_empty() {
                found.clone_into(known);
            }
        }
        vec![entry]
    }

    pub(in crate::store) fn as_append(&self) -> Option<&EncodedAppend> {
        if let Self::Append(append) = self { Some(append) } else { None }
    }

    /// Drops from the cache what is no longer true once this is done. Called before it.
    pub(in crate::store) fn invalidate(&self, cache: &mut WriterCache) {
        match self {
            Self::Claim { tenant, run } => cache.drop_run(&RunKey::new(tenant.clone(), run.clone())),
            Self::Session(op) => op.invalidate(cache),
            Self::Append(_)
            | Self::DeleteRule { .. }
            | Self::RetryJob { .. }
            | Self::FinishJob { .. }
            | Self::SaveTools { .. }
            | Self::ForgetTool { .. }
            | Self::ClaimHost(_)
            | Self::SeeHosts { .. }
            | Self::Audit(_)
            | Self::Check
            | Self::Own(_) => {}
        }
    }

    pub(in crate::store) fn bytes(&self) -> usize {
        self.as_append().map_or(0, EncodedAppend::bytes)
    }

    /// The write as errors name it.
    pub(in crate::store) fn describe(&self) -> String {
        match self {
            Self::Append(append) => {
                format!("append to {}/{} after {}", append.run.tenant, append.run.run, append.after.0)
            }
            Self::Claim { tenant, run } => format!("claim of {tenant}/{run}"),
            Self::Session(op) => op.describe(),
            Self::RetryJob { job, .. } | Self::FinishJob { job } => format!("job {}/{job}", job.tenant),
            Self::SaveTools { tenant, .. } => format!("tools of {tenant}"),
            Self::ForgetTool { tenant, name } => format!("tool {tenant}/{name}"),
            Self::ClaimHost(claim) => format!("host id {}/{}", claim.tenant, claim.host),
            Self::SeeHosts { .. } => "ids of hosts".to_owned(),
            Self::DeleteRule { tenant, rule } => format!("rule {tenant}/{rule}"),
            Self::Audit(_) => "rows of the audit log".to_owned(),
            Self::Check => "check".to_owned(),
            Self::Own(op) => op.describe().to_owned(),
        }
    }
}
