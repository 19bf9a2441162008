//! Maps every error to a gRPC status with one reason of the contract's `ErrorReason`.

use std::collections::HashMap;
use std::time::Duration;

use agentloop_core::blob::BlobDigest;
use agentloop_core::limits::LABELS_MAX;
use agentloop_core::run::human::{BadAnswer, CannotRemember};
use agentloop_core::run::refusal::Refusal;
use agentloop_proto::v1::ErrorReason;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::auth::QuotaExceeded;
use crate::engine::error::{EngineError, damaged_entry};
use crate::grpc::bounded::{self, InvalidFields};
use crate::store::StoreError;

/// The domain of every `ErrorInfo`.
const DOMAIN: &str = "agentloop.v1";
/// The delay in `RetryInfo` for errors that pass with time.
const RETRY_SOON: Duration = Duration::from_secs(1);

/// Stands for a person who gave no name. No name is empty, so that clients can tell it from a missing one.
const UNNAMED: &str = "anonymous";

/// A status whose `ErrorInfo` holds the reason and `metadata`.
#[must_use]
pub fn status(
    code: Code,
    reason: ErrorReason,
    message: impl Into<String>,
    metadata: impl IntoIterator<Item = (&'static str, String)>,
) -> Status {
    finished(code, message, details(reason, metadata))
}

/// A status of a size that every client accepts.
fn finished(code: Code, message: impl Into<String>, details: ErrorDetails) -> Status {
    Status::with_error_details(code, bounded::message(message.into()), details)
}

fn details(reason: ErrorReason, metadata: impl IntoIterator<Item = (&'static str, String)>) -> ErrorDetails {
    let name = reason.as_str_name().trim_start_matches("ERROR_REASON_");
    let metadata: HashMap<String, String> =
        metadata.into_iter().map(|(key, value)| (key.to_owned(), bounded::metadata(value))).collect();
    ErrorDetails::with_error_info(name, DOMAIN, metadata)
}

/// Like [`status`], with a `RetryInfo` that tells the caller how long to wait before it tries again.
#[must_use]
pub fn retryable(code: Code, reason: ErrorReason, message: impl Into<String>) -> Status {
    let mut details = details(reason, []);
    details.set_retry_info(Some(RETRY_SOON));
    finished(code, message, details)
}

/// UNAVAILABLE, with RetryInfo: there is no owner that does the RPC now.
#[must_use]
pub fn owner_unavailable(message: &str) -> Status {
    retryable(Code::Unavailable, ErrorReason::OwnerUnavailable, message)
}

/// The header of a response to an RPC that was not done, because another replica owns its session. The replica that sent the
/// RPC looks for the owner again, and does not show the response to its caller.
pub const LOOK_AGAIN: &str = "agentloop-look-again";

/// UNAVAILABLE, with RetryInfo and [`LOOK_AGAIN`].
#[must_use]
pub fn look_again(message: &str) -> Status {
    let mut status = owner_unavailable(message);
    status.metadata_mut().insert(LOOK_AGAIN, MetadataValue::from_static("1"));
    status
}

/// True if the RPC was refused because a quota is used up.
#[must_use]
pub fn is_quota(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted && has_reason(status, ErrorReason::QuotaExceeded)
}

/// True if the details of a status name this reason.
fn has_reason(status: &Status, reason: ErrorReason) -> bool {
    let named = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    reason.as_str_name().trim_start_matches("ERROR_REASON_") == named
}

/// True if the replica that says so stops or has lost its sessions, so that another one may do the RPC.
#[must_use]
pub fn leaves_it_to_another(status: &Status) -> bool {
    let says = |reason: ErrorReason| has_reason(status, reason);
    match status.code() {
        Code::Unavailable => {
            [ErrorReason::ShuttingDown, ErrorReason::StoreUnavailable, ErrorReason::OwnerUnavailable]
                .into_iter()
                .any(says)
        }
        Code::Aborted => says(ErrorReason::OwnershipLost),
        _ => false,
    }
}

/// UNAUTHENTICATED, with this message.
#[must_use]
pub fn unauthenticated(message: &str) -> Status {
    status(Code::Unauthenticated, ErrorReason::Unauthenticated, message, [])
}

/// PERMISSION_DENIED, for this reason.
#[must_use]
pub fn permission_denied(message: &str) -> Status {
    status(Code::PermissionDenied, ErrorReason::PermissionDenied, message, [])
}

/// RESOURCE_EXHAUSTED: a quota is used up. Names it, and says when it allows more.
#[must_use]
pub fn quota_exceeded(exceeded: &QuotaExceeded) -> Status {
    let mut details = details(ErrorReason::QuotaExceeded, [("quota", exceeded.quota.to_owned())]);
    details.set_retry_info(Some(exceeded.retry_after));
    finished(Code::ResourceExhausted, exceeded.to_string(), details)
}

fn agent_not_found(name: &str, configured: String) -> Status {
    let message = format!("no agent {name:?} is configured; there are: {configured}");
    status(Code::NotFound, ErrorReason::AgentNotFound, message, [("agent", name.to_owned())])
}

/// NOT_FOUND for an agent that is not configured. The message lists those that are.
#[must_use]
pub fn no_such_agent<'a>(name: &str, configured: impl Iterator<Item = &'a String>) -> Status {
    let names: Vec<&str> = configured.map(String::as_str).collect();
    agent_not_found(name, if names.is_empty() { "none".to_owned() } else { names.join(", ") })
}

/// ALREADY_EXISTS: the run id was used before, with other content. Names the field that differs, if it is known.
#[must_use]
pub fn id_reused(field: Option<&'static str>) -> Status {
    let mut message = EngineError::IdReused.to_string();
    if let Some(field) = field {
        message.push_str(&format!(": {field} differs; to join the run, give its run_id and nothing else"));
    }
    let metadata = field.map(|field| ("field", field.to_owned()));
    status(Code::AlreadyExists, ErrorReason::IdReused, message, metadata)
}

/// FAILED_PRECONDITION: no provider serves the model. The message says which one and what to configure.
#[must_use]
pub fn model_not_configured(message: String) -> Status {
    status(Code::FailedPrecondition, ErrorReason::ModelNotConfigured, message, [])
}

/// The invalid fields of a request, collected so that one status reports them all, as far as they fit.
#[derive(Debug, Default)]
pub struct Violations(InvalidFields);

impl Violations {
    /// Adds a field and its problem. The problem continues the field's name: `must be at most 10`.
    pub fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.add(field.into(), problem.into());
    }

    /// Returns the value, or adds the error as this field's problem.
    pub fn take<T, E: std::fmt::Display>(&mut self, field: &str, value: Result<T, E>) -> Option<T> {
        value.map_err(|problem| self.add(field, problem.to_string())).ok()
    }

    /// Succeeds if no field is invalid.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with every violation that fits.
    pub fn check(self) -> Result<(), Status> {
        let Some(first) = self.0.first() else { return Ok(()) };
        let message = match first.field.as_str() {
            // A fault of the whole message, such as one that cannot be decoded.
            "" => first.description.clone(),
            field => format!("{field}: {}", first.description),
        };
        let mut details = details(ErrorReason::InvalidField, []);
        details.set_bad_request(self.0.into_violations());
        Err(finished(Code::InvalidArgument, message, details))
    }

    /// INVALID_ARGUMENT for one field.
    #[must_use]
    pub fn single(field: impl Into<String>, problem: impl Into<String>) -> Status {
        let mut violations = Self::default();
        violations.add(field, problem);
        violations.check().expect_err("there is a violation")
    }
}

impl From<EngineError> for Status {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::RunNotFound => status(Code::NotFound, ErrorReason::RunNotFound, message, []),
            EngineError::SessionNotFound => status(Code::NotFound, ErrorReason::SessionNotFound, message, []),
            EngineError::RequestNotFound => status(Code::NotFound, ErrorReason::RequestNotFound, message, []),
            EngineError::UnknownPlanner { .. } => Violations::single("input.planner", message),
            EngineError::ToolNotOffered { .. } => {
                Violations::single("input.model_options.tool_choice.name", message)
            }
            EngineError::NoToolOffered => Violations::single("input.model_options.tool_choice.mode", message),
            EngineError::IdReused => status(Code::AlreadyExists, ErrorReason::IdReused, message, []),
            EngineError::SessionBusy { run } => {
                let metadata = [("run_id", run.to_string())];
                status(Code::FailedPrecondition, ErrorReason::SessionBusy, message, metadata)
            }
            EngineError::QueueFull => retryable(Code::ResourceExhausted, ErrorReason::QueueFull, message),
            EngineError::TooManyRuns | EngineError::TooManyRunsOfTenant => {
                retryable(Code::ResourceExhausted, ErrorReason::TooManyRuns, message)
            }
            EngineError::QuotaExceeded(exceeded) => quota_exceeded(&exceeded),
            EngineError::MemoryExhausted => {
                retryable(Code::ResourceExhausted, ErrorReason::MemoryExhausted, message)
            }
            EngineError::RequestTooLarge { .. } => {
                status(Code::ResourceExhausted, ErrorReason::MemoryExhausted, message, [])
            }
            EngineError::SeqAhead { last } => {
                let metadata = [("last_seq", last.0.to_string())];
                status(Code::OutOfRange, ErrorReason::SeqAhead, message, metadata)
            }
            EngineError::BadResumeToken => {
                Violations::single("resume_token", "is not one that this server gave out for this session")
            }
            EngineError::SubscriberTooSlow => {
                retryable(Code::ResourceExhausted, ErrorReason::SubscriberTooSlow, message)
            }
            EngineError::BadArguments(problem) => {
                Violations::single("decision.approve_with_edits.arguments_json", problem)
            }
            EngineError::Refused(refusal) => refusal_status(refusal),
            EngineError::Store(error) => store_status(error),
            EngineError::Fault => status(Code::Internal, ErrorReason::Internal, message, []),
            EngineError::ShuttingDown => retryable(Code::Unavailable, ErrorReason::ShuttingDown, message),
        }
    }
}

fn refusal_status(refusal: Refusal) -> Status {
    let message = refusal.to_string();
    match refusal {
        Refusal::WrongPhase(run) => {
            let name = run.map_or("not_started", |run| run.as_str());
            let metadata = [("status", name.to_owned())];
            let message = format!("not possible while the run is {name}");
            status(Code::FailedPrecondition, ErrorReason::WrongState, message, metadata)
        }
        Refusal::UnknownRequest => status(Code::NotFound, ErrorReason::RequestNotFound, message, []),
        Refusal::UnknownCall => status(Code::NotFound, ErrorReason::CallNotFound, message, []),
        Refusal::AlreadyResolved(answer) => {
            let by = if answer.by.is_empty() { UNNAMED.to_owned() } else { answer.by };
            let metadata = [("decision", answer.decision.name().to_owned()), ("decided_by", by)];
            status(Code::FailedPrecondition, ErrorReason::AlreadyResolved, message, metadata)
        }
        Refusal::DigestMismatch => status(Code::FailedPrecondition, ErrorReason::DigestMismatch, message, []),
        Refusal::NotAnApprover(_) => {
            status(Code::PermissionDenied, ErrorReason::PermissionDenied, message, [])
        }
        Refusal::NotADecision => Violations::single("decision", message),
        Refusal::DeniedByRule(_) => Violations::single("decision.approve_with_edits.arguments_json", message),
        Refusal::CannotRemember(why) => Violations::single(memory_field(&why), message),
        Refusal::BadAnswer(bad) => Violations::single(answer_field(&bad), message),
        Refusal::IdReused => status(Code::AlreadyExists, ErrorReason::IdReused, message, []),
        Refusal::TooManyWaitingMessages => {
            retryable(Code::ResourceExhausted, ErrorReason::QueueFull, message)
        }
        Refusal::NotStepped
        | Refusal::SeveralApprovals(_)
        | Refusal::StaleModelCall
        | Refusal::StaleDecision
        | Refusal::DuplicateResult
        | Refusal::StaleAttempt => status(Code::FailedPrecondition, ErrorReason::WrongState, message, []),
    }
}

/// The field of `SubmitApproval` or `SubmitInput` that the fault is about.
fn answer_field(bad: &BadAnswer) -> String {
    let field = match bad {
        BadAnswer::InputWanted | BadAnswer::DecisionWanted => "request_id",
        BadAnswer::NoEdits(_) => "decision",
        BadAnswer::TextWanted
        | BadAnswer::SelectionWanted
        | BadAnswer::FormWanted
        | BadAnswer::VisitWanted
        | BadAnswer::NoRoom { .. } => "input",
        BadAnswer::EmptyText => "text",
        BadAnswer::Field { field, .. } if !field.is_empty() => return format!("form_json.{field}"),
        BadAnswer::Field { .. } | BadAnswer::UnreadableForm(_) => "form_json",
        BadAnswer::UnknownOption(_) | BadAnswer::OneWanted => "selection.option_ids",
    };
    field.to_owned()
}

fn memory_field(why: &CannotRemember) -> &'static str {
    match why {
        CannotRemember::Kind
        | CannotRemember::TooMany
        | CannotRemember::Quorum(_)
        | CannotRemember::Requester => "remember",
        CannotRemember::NoSuggestion
        | CannotRemember::Sensitive(_)
        | CannotRemember::OtherCall
        | CannotRemember::OtherTools(_)
        | CannotRemember::Bad(_) => "remember_rule",
    }
}

/// Messages of the database go to the log only, because they may name files and hosts.
fn store_status(error: StoreError) -> Status {
    let message = error.to_string();
    match error {
        StoreError::Conflict => {
            let message = "another replica owns the run by now; try again";
            status(Code::Aborted, ErrorReason::OwnershipLost, message, [])
        }
        StoreError::Elsewhere => look_again(&message),
        StoreError::RunExists => status(Code::AlreadyExists, ErrorReason::IdReused, message, []),
        StoreError::SessionExists => status(Code::AlreadyExists, ErrorReason::IdReused, message, []),
        StoreError::SessionBusy { run } => EngineError::SessionBusy { run }.into(),
        StoreError::SessionMoved => retryable(Code::Unavailable, ErrorReason::StoreUnavailable, message),
        StoreError::NoSession => status(Code::NotFound, ErrorReason::SessionNotFound, message, []),
        StoreError::EntryAhead { last } => {
            let problem = format!("must be at most {}, the session's last entry", last.0);
            Violations::single("at_entry_no", problem)
        }
        StoreError::TooManyLabels => {
            Violations::single("set_labels", format!("must leave the session at most {LABELS_MAX} labels"))
        }
        StoreError::SearchOff => status(Code::FailedPrecondition, ErrorReason::SearchOff, message, []),
        StoreError::NoBlobs => status(Code::Unimplemented, ErrorReason::NotImplemented, message, []),
        StoreError::BlobTooLarge { .. } => blobs_exhausted("blobs.max_bytes", message),
        StoreError::BlobsFull { .. } => blobs_exhausted("blobs.total_bytes", message),
        StoreError::BlobMismatch { field, problem } => Violations::single(format!("header.{field}"), problem),
        StoreError::DamagedBlob { digest, why } => {
            tracing::error!(%digest, why, "a blob is damaged; store it again, or restore its file from a backup");
            let message = format!("the blob {digest} is damaged; storing it again repairs it");
            let metadata = [("digest", digest.to_string())];
            status(Code::DataLoss, ErrorReason::BlobNotFound, message, metadata)
        }
        StoreError::BadPageToken => Violations::single("page_token", "is not one that this server gave out"),
        StoreError::Corrupt { what } => {
            tracing::error!(what, "stored data cannot be read; restore the database from a backup");
            let message = "stored data of this run or session cannot be read";
            status(Code::DataLoss, ErrorReason::JournalCorrupt, message, [])
        }
        StoreError::DamagedEntry { session, entry, why } => {
            tracing::error!(session.id = %session, entry = entry.0, why, "an entry is damaged; fork its session before it");
            let metadata = [("session_id", session.to_string()), ("entry_no", entry.0.to_string())];
            status(Code::DataLoss, ErrorReason::JournalCorrupt, damaged_entry(&session, entry), metadata)
        }
        StoreError::DamagedRule { rule, why } => {
            tracing::error!(rule, why, "a remembered rule is damaged; delete it");
            let message = format!(
                "the remembered rule {rule} is damaged; `agentloop policy forget {rule}` deletes it, then decide anew"
            );
            status(Code::DataLoss, ErrorReason::JournalCorrupt, message, [("rule_id", rule)])
        }
        StoreError::Unavailable { what } => {
            tracing::warn!(what, "the store is unavailable; check its disk and locks");
            let message = "the store cannot serve this now; try again";
            retryable(Code::Unavailable, ErrorReason::StoreUnavailable, message)
        }
    }
}

/// RESOURCE_EXHAUSTED: a bound on blobs, by its key in the configuration. Waiting alone does not help.
fn blobs_exhausted(key: &str, message: String) -> Status {
    let metadata = [("quota", key.to_owned())];
    status(Code::ResourceExhausted, ErrorReason::QuotaExceeded, message, metadata)
}

/// NOT_FOUND for a blob.
#[must_use]
pub fn no_such_blob(digest: &BlobDigest) -> Status {
    let metadata = [("digest", digest.to_string())];
    status(Code::NotFound, ErrorReason::BlobNotFound, format!("no blob {digest} is stored"), metadata)
}

impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        store_status(error)
    }
}
