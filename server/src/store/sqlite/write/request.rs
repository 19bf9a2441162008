//! A write as it waits in the queue, and its result.

use std::sync::Arc;

use agentloop_core::id::{RuleId, RunId, RunKey, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use tokio::sync::oneshot;

use crate::audit::{Act, AuditEntry};
use crate::store::append::{EncodedAppend, WriterCache};
use crate::store::sqlite::write::blobs::{BlobOp, BlobResult};
use crate::store::sqlite::write::sessions::{NewFork, NewNotes, NewSession, NewUpdate};
use crate::store::{ClaimedRow, JobId, SessionRow, StoreError, ToolRow};

/// The tenant of a write; `None` for writes of the server's own.
pub(in crate::store::sqlite) type Lane = Option<TenantId>;

/// A write that the store offers.
#[derive(Debug)]
pub(in crate::store::sqlite) enum WriteOp {
    Append(Box<EncodedAppend>),
    Claim {
        tenant: TenantId,
        run: RunId,
    },
    CreateSession(NewSession),
    GetOrCreateSession(NewSession),
    UpdateSession(NewUpdate),
    Fork(NewFork),
    DeleteSession {
        tenant: TenantId,
        session: SessionId,
        /// A live run that does not keep the session, because its journal is damaged.
        damaged: Option<RunId>,
        /// True if there is a search index, which has to drop its documents too.
        indexed: bool,
    },
    DeleteRule {
        tenant: TenantId,
        rule: RuleId,
    },
    SetNotes(NewNotes),
    RetryJob {
        job: JobId,
        due_at: Timestamp,
        error: String,
    },
    FinishJob {
        job: JobId,
    },
    SaveTools {
        tenant: TenantId,
        tools: Vec<ToolRow>,
    },
    ForgetTool {
        tenant: TenantId,
        name: String,
    },
    /// Forgets the numbers of documents that the search index has deleted.
    ForgetDeleted(Vec<i64>),
    /// Rows of the audit log, with nothing else.
    Audit(Vec<AuditEntry>),
    Blob(BlobOp),
    Check,
}

/// The result of a [`WriteOp`].
#[derive(Debug)]
pub(in crate::store::sqlite) enum WriteResult {
    /// Of `Append`, `RetryJob`, `FinishJob`, `SaveTools`, `ForgetDeleted`, `Audit` and `Check`.
    Done,
    /// Of `Claim`. `None`: there is no such run.
    Claimed(Option<Box<ClaimedRow>>),
    /// Of `CreateSession`, `GetOrCreateSession`, `UpdateSession` and `Fork`: the session as it is now.
    Session(Box<SessionRow>),
    /// Of `DeleteSession`, `DeleteRule`, `ForgetTool` and `SetNotes`: false if there was nothing to change.
    Existed(bool),
    /// Of `Blob`.
    Blob(BlobResult),
}

/// A [`WriteOp`] in the writer's queue, with the sender of its result.
#[derive(Debug)]
pub(in crate::store::sqlite) struct WriteRequest {
    pub(in crate::store::sqlite) op: WriteOp,
    /// The call that it is for, whose row of the audit log goes into the same commit.
    pub(in crate::store::sqlite) act: Option<Arc<Act>>,
    pub(in crate::store::sqlite) reply: oneshot::Sender<Result<WriteResult, StoreError>>,
}

impl WriteOp {
    /// The tenant that it is for.
    pub(in crate::store::sqlite) fn lane(&self) -> Lane {
        match self {
            Self::Append(append) => Some(append.run.tenant.clone()),
            Self::Claim { tenant, .. }
            | Self::DeleteSession { tenant, .. }
            | Self::DeleteRule { tenant, .. }
            | Self::SaveTools { tenant, .. }
            | Self::ForgetTool { tenant, .. } => Some(tenant.clone()),
            Self::CreateSession(new) | Self::GetOrCreateSession(new) => Some(new.tenant.clone()),
            Self::UpdateSession(new) => Some(new.tenant.clone()),
            Self::Fork(new) => Some(new.tenant.clone()),
            Self::SetNotes(new) => Some(new.tenant.clone()),
            Self::RetryJob { job, .. } | Self::FinishJob { job } => Some(job.tenant.clone()),
            Self::Blob(op) => Some(op.tenant().clone()),
            Self::ForgetDeleted(_) | Self::Audit(_) | Self::Check => None,
        }
    }

    /// True if a caller's act may consist of it.
    pub(in crate::store::sqlite) fn is_act(&self) -> bool {
        match self {
            Self::Append(_)
            | Self::CreateSession(_)
            | Self::GetOrCreateSession(_)
            | Self::UpdateSession(_)
            | Self::Fork(_)
            | Self::DeleteSession { .. }
            | Self::DeleteRule { .. }
            | Self::SaveTools { .. }
            | Self::ForgetTool { .. } => true,
            // The other writes of a blob follow this one, or are for no caller.
            Self::Blob(op) => matches!(op, BlobOp::Announce { .. }),
            Self::Claim { .. }
            | Self::SetNotes(_)
            | Self::RetryJob { .. }
            | Self::FinishJob { .. }
            | Self::ForgetDeleted(_)
            | Self::Audit(_)
            | Self::Check => false,
        }
    }

    /// The rows of the audit log that go into its commit. The write fills in its session and run where the call did not.
    pub(in crate::store::sqlite) fn audited(&self, act: Option<&Arc<Act>>) -> Vec<AuditEntry> {
        if let Self::Audit(entries) = self {
            return entries.clone();
        }
        let Some(mut entry) = act.filter(|act| !act.is_recorded()).map(|act| act.entry()) else {
            return Vec::new();
        };
        let (session, run) = match self {
            Self::Append(append) => (append.session.1.as_str(), append.run.run.as_str()),
            Self::CreateSession(new) | Self::GetOrCreateSession(new) => (new.session.as_str(), ""),
            Self::UpdateSession(new) => (new.session.as_str(), ""),
            Self::Fork(new) => (new.session.as_str(), ""),
            Self::DeleteSession { session, .. } => (session.as_str(), ""),
            _ => ("", ""),
        };
        for (known, found) in [(&mut entry.session, session), (&mut entry.run, run)] {
            if known.is_empty() {
                found.clone_into(known);
            }
        }
        vec![entry]
    }

    pub(in crate::store::sqlite) fn as_append(&self) -> Option<&EncodedAppend> {
        if let Self::Append(append) = self { Some(append) } else { None }
    }

    /// Drops from the cache what is no longer true once this is done.
    pub(in crate::store::sqlite) fn invalidate(&self, cache: &mut WriterCache) {
        match self {
            Self::Claim { tenant, run } => cache.drop_run(&RunKey::new(tenant.clone(), run.clone())),
            Self::CreateSession(NewSession { tenant, session, .. })
            | Self::GetOrCreateSession(NewSession { tenant, session, .. })
            | Self::Fork(NewFork { tenant, session, .. }) => {
                cache.drop_session(&(tenant.clone(), session.clone()));
                // It takes the next number.
                cache.drop_numbers();
            }
            // Its runs are deleted with it.
            Self::DeleteSession { .. } => cache.clear(),
            Self::Append(_)
            | Self::UpdateSession(_)
            | Self::DeleteRule { .. }
            | Self::SetNotes(_)
            | Self::RetryJob { .. }
            | Self::FinishJob { .. }
            | Self::SaveTools { .. }
            | Self::ForgetTool { .. }
            | Self::ForgetDeleted(_)
            | Self::Audit(_)
            | Self::Blob(_)
            | Self::Check => {}
        }
    }

    pub(in crate::store::sqlite) fn bytes(&self) -> usize {
        self.as_append().map_or(0, EncodedAppend::bytes)
    }

    /// The write as errors name it.
    pub(in crate::store::sqlite) fn describe(&self) -> String {
        match self {
            Self::Append(append) => {
                format!("append to {}/{} after {}", append.run.tenant, append.run.run, append.after.0)
            }
            Self::Claim { tenant, run } => format!("claim of {tenant}/{run}"),
            Self::CreateSession(new) | Self::GetOrCreateSession(new) => {
                format!("new session {}/{}", new.tenant, new.session)
            }
            Self::UpdateSession(new) => format!("update of session {}/{}", new.tenant, new.session),
            Self::Fork(new) => format!("fork {}/{} of {}", new.tenant, new.session, new.source),
            Self::DeleteSession { tenant, session, .. } => format!("deletion of session {tenant}/{session}"),
            Self::SetNotes(new) => format!("notes on session {}/{}", new.tenant, new.session),
            Self::RetryJob { job, .. } | Self::FinishJob { job } => format!("job {}/{job}", job.tenant),
            Self::SaveTools { tenant, .. } => format!("tools of {tenant}"),
            Self::ForgetTool { tenant, name } => format!("tool {tenant}/{name}"),
            Self::ForgetDeleted(_) => "deletion from the search index".to_owned(),
            Self::DeleteRule { tenant, rule } => format!("rule {tenant}/{rule}"),
            Self::Audit(_) => "rows of the audit log".to_owned(),
            Self::Blob(_) => "row of a blob".to_owned(),
            Self::Check => "check".to_owned(),
        }
    }
}
