//! Ids and counters. Each is a type of its own, so that two of them cannot be swapped by accident.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits::ID_BYTES_MAX;
use crate::time::Timestamp;

/// A request id begins with the id of its run. The rest names the call or the planner that asks people, and a number.
const REQUEST_ID_BYTES_MAX: usize = ID_BYTES_MAX + 64;

/// Reasons why a text is not a valid id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty.
    #[error("must not be empty")]
    Empty,
    /// The text is longer than this many bytes.
    #[error("must be at most {0} bytes")]
    TooLong(usize),
    /// The text has a character outside `[A-Za-z0-9._:-]`.
    #[error("may contain only letters, digits, '.', '_', ':' and '-'")]
    BadCharacter,
}

fn check(text: &str, bytes_max: usize) -> Result<(), IdError> {
    match text {
        "" => Err(IdError::Empty),
        t if t.len() > bytes_max => Err(IdError::TooLong(bytes_max)),
        t if t.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b)) => Ok(()),
        _ => Err(IdError::BadCharacter),
    }
}

macro_rules! text_id {
    ($($(#[$doc:meta])* $name:ident: $bytes_max:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a text from outside.
            ///
            /// # Errors
            /// When it is empty, too long, or has characters other than `[A-Za-z0-9._:-]`.
            pub fn parse(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check(&text, $bytes_max)?;
                Ok(Self(text.into()))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The id as shared text, without a copy.
            #[must_use]
            pub fn shared(&self) -> Arc<str> {
                self.0.clone()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

text_id! {
    /// A tenant. Everything that is stored belongs to one; its id is part of every key.
    TenantId: ID_BYTES_MAX;
    /// A conversation: a sequence of entries that outlives its runs.
    SessionId: ID_BYTES_MAX;
    /// A run: one prompt and everything done to answer it.
    RunId: ID_BYTES_MAX;
    /// A tool-host process. The host chooses its id and keeps it when it reconnects.
    HostId: ID_BYTES_MAX;
    /// The process behind a host's id, or a part of its life: the name changes with each restart, and when the process
    /// forgets a call that it began. See [`crate::host`].
    InstanceId: ID_BYTES_MAX;
    /// A question to people. Derived from the run and the call, so that a repeated question is the same question.
    RequestId: REQUEST_ID_BYTES_MAX;
    /// A policy rule that was remembered with a decision. Derived from the question and the time of its answer.
    RuleId: REQUEST_ID_BYTES_MAX + 32;
}

impl TenantId {
    /// The tenant of every caller while authentication is not configured.
    #[must_use]
    pub fn local() -> Self {
        Self("local".into())
    }
}

/// A tool call, by its run and its slot.
///
/// Its text form is `<run>/<model_call>.<position>`. The id is the same for all attempts, reconnects and restarts. It names
/// its run, so that a result which arrives after a restart reaches that run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CallId {
    /// The run that owns the call.
    pub run: RunId,
    /// The place of the call in its run.
    pub slot: CallSlot,
}

/// The place of a tool call in its run. Slots sort in the order in which the model requested the calls.
///
/// It is stored as the pair of its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct CallSlot {
    /// Number of the model call that requested it, from 1.
    pub model_call: u32,
    /// Position among the tool calls of that model call, from 0.
    pub position: u32,
}

impl From<(u32, u32)> for CallSlot {
    fn from((model_call, position): (u32, u32)) -> Self {
        Self { model_call, position }
    }
}

impl From<CallSlot> for (u32, u32) {
    fn from(slot: CallSlot) -> Self {
        (slot.model_call, slot.position)
    }
}

impl fmt::Display for CallSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.model_call, self.position)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run, self.slot)
    }
}

impl CallId {
    /// Reads the text form. `None` for any text that this server cannot have issued.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (run, slot) = text.rsplit_once('/')?;
        let (model_call, position) = slot.split_once('.')?;
        let id = Self {
            run: RunId::parse(run).ok()?,
            slot: CallSlot { model_call: model_call.parse().ok()?, position: position.parse().ok()? },
        };
        (id.to_string() == text).then_some(id)
    }

    /// Id of the first question about this call after this attempt: an approval, or the outcome of a call in doubt.
    #[must_use]
    pub fn request(&self, attempt: Attempt) -> RequestId {
        RequestId(format!("{}:{}:{attempt}", self.run, self.slot).into())
    }

    /// Id of another question about this call after the same attempt: the `number`th, from 2.
    #[must_use]
    pub fn request_again(&self, attempt: Attempt, number: u32) -> RequestId {
        RequestId(format!("{}:{}:{attempt}-{number}", self.run, self.slot).into())
    }

    /// Id of a question that the call itself asks: question `number` of this attempt, counted from 1.
    #[must_use]
    pub fn input(&self, attempt: Attempt, number: u32) -> RequestId {
        RequestId(format!("{}:{}:{attempt}.{number}", self.run, self.slot).into())
    }
}

impl From<CallId> for String {
    fn from(id: CallId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for CallId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::parse(&text).ok_or(IdError::BadCharacter)
    }
}

/// A run together with its tenant: unique on the whole server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunKey {
    /// The tenant that the run belongs to.
    pub tenant: TenantId,
    /// The run's id, unique within its tenant.
    pub run: RunId,
}

impl RunKey {
    /// The key of this tenant's run with this id.
    #[must_use]
    pub fn new(tenant: TenantId, run: RunId) -> Self {
        Self { tenant, run }
    }
}

/// A tool call together with its tenant: unique on the whole server. Keys sort by tenant, and by run within one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey {
    /// The tenant that the call's run belongs to.
    pub tenant: TenantId,
    /// The call's id, unique within its tenant.
    pub call: CallId,
}

impl CallKey {
    /// The key of this tenant's call with this id.
    #[must_use]
    pub fn new(tenant: TenantId, call: CallId) -> Self {
        Self { tenant, call }
    }
}

/// A session together with its tenant: unique on the whole server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// The tenant that the session belongs to.
    pub tenant: TenantId,
    /// The session's id, unique within its tenant.
    pub session: SessionId,
}

impl SessionKey {
    /// The key of this tenant's session with this id.
    #[must_use]
    pub fn new(tenant: TenantId, session: SessionId) -> Self {
        Self { tenant, session }
    }
}

/// A tool of hosts together with its tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolKey {
    /// The tenant whose hosts offer the tool.
    pub tenant: TenantId,
    /// The tool's name, unique within its tenant.
    pub name: String,
}

impl ToolKey {
    /// The key of this tenant's tool with this name.
    #[must_use]
    pub fn new(tenant: TenantId, name: String) -> Self {
        Self { tenant, name }
    }
}

impl RunId {
    /// Id of the question that the planner's instruction number `decision` asks, counted from 1.
    #[must_use]
    pub fn planned_question(&self, decision: u32) -> RequestId {
        RequestId(format!("{self}:plan:{decision}").into())
    }
}

/// A runtime of a run. A run has one at a time; when its host is lost, the run has the next one opened.
///
/// Its text form is `<run>/rt<number>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RuntimeId {
    /// The run that uses it.
    pub run: RunId,
    /// Number of the runtime in its run, from 1.
    pub number: u32,
}

impl fmt::Display for RuntimeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/rt{}", self.run, self.number)
    }
}

impl RuntimeId {
    /// Reads the text form. `None` for any text that this server cannot have issued.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (run, number) = text.rsplit_once("/rt")?;
        let id = Self { run: RunId::parse(run).ok()?, number: number.parse().ok()? };
        (id.to_string() == text).then_some(id)
    }
}

impl From<RuntimeId> for String {
    fn from(id: RuntimeId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for RuntimeId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::parse(&text).ok_or(IdError::BadCharacter)
    }
}

impl RequestId {
    /// Id of the rule that is remembered with an answer at this time. The time is part of it because a run's id may be
    /// used again after its session is deleted, while the rule stays.
    #[must_use]
    pub fn rule(&self, at: Timestamp) -> RuleId {
        RuleId(format!("{self}:{}", at.0).into())
    }

    /// The run that the request id names. `None` for an id that this server cannot have issued.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        self.parts().map(|(run, _)| run)
    }

    /// Splits the request id into its run and the rest, which tells the questions of the run apart. `None` for an id that
    /// this server cannot have issued.
    #[must_use]
    pub fn parts(&self) -> Option<(RunId, &str)> {
        let (before, _number) = self.0.rsplit_once(':')?;
        let (run, _asker) = before.rsplit_once(':')?;
        Some((RunId::parse(run).ok()?, &self.0[run.len() + 1..]))
    }
}

/// Number of a durable event in its run's journal: from 1, without gaps. 0 stands for "before the first".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The number of the event that follows.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Number of an entry in its session: from 1, without gaps. 0 stands for "before the first".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntryNo(pub u64);

impl EntryNo {
    /// The number of the entry that follows.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Number of an attempt of a model call or a tool call: from 1, without gaps. 0 stands for "none".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(pub u32);

impl Attempt {
    /// No attempt: before the first.
    pub const NONE: Self = Self(0);
    /// The attempt that a call or a model call begins with.
    pub const FIRST: Self = Self(1);

    /// The number of the attempt that follows.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The number of attempts after this one, up to the last.
    #[must_use]
    pub fn further_until(self, last: Self) -> u32 {
        last.0.saturating_sub(self.0)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number that fences writes: a write with another epoch than the run's is refused. It rises with each start of a server
/// and with each claim of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_only_allowed_characters() {
        for good in ["a", "run-1", "A.b_c:d-9"] {
            assert_eq!(RunId::parse(good).map(|id| id.to_string()), Ok(good.to_owned()));
        }
        assert_eq!(RunId::parse(""), Err(IdError::Empty));
        assert_eq!(RunId::parse("x".repeat(ID_BYTES_MAX + 1)), Err(IdError::TooLong(ID_BYTES_MAX)));
        for bad in ["a b", "a/b", "ü", "a\n", "../x", "a\0"] {
            assert_eq!(RunId::parse(bad), Err(IdError::BadCharacter), "{bad:?}");
        }
    }

    #[test]
    fn call_ids_survive_the_round_trip() {
        let id = CallId { run: RunId::parse("r:1.2").unwrap(), slot: CallSlot::from((3, 0)) };
        assert_eq!(id.to_string(), "r:1.2/3.0");
        assert_eq!(CallId::parse(&id.to_string()), Some(id));
        for forged in ["", "r", "r/", "r/1", "r/1.", "r/01.0", "r/+1.0", "/1.0", "r/1.0/2.0", "r/1.0x"] {
            assert_eq!(CallId::parse(forged), None, "{forged:?}");
        }
    }

    #[test]
    fn request_ids_name_their_run() {
        let id = CallId { run: RunId::parse("r:1").unwrap(), slot: CallSlot::from((3, 0)) };
        assert_eq!(id.request(Attempt(1)).as_str(), "r:1:3.0:1");
        assert_eq!(id.input(Attempt(1), 2).as_str(), "r:1:3.0:1.2");
        assert_eq!(id.run.planned_question(4).as_str(), "r:1:plan:4");
        for request in [id.request(Attempt(1)), id.input(Attempt(1), 2), id.run.planned_question(4)] {
            assert_eq!(request.run(), Some(id.run.clone()));
        }
        assert_eq!(id.request_again(Attempt::NONE, 2).parts(), Some((id.run.clone(), "3.0:0-2")));
        assert_eq!(id.input(Attempt(1), 2).parts(), Some((id.run.clone(), "3.0:1.2")));
        assert_eq!(id.run.planned_question(4).parts(), Some((id.run, "plan:4")));
        let longest = RunId::parse("x".repeat(ID_BYTES_MAX)).unwrap();
        let call = CallId { run: longest.clone(), slot: CallSlot::from((u32::MAX, u32::MAX)) };
        for request in [
            call.input(Attempt(u32::MAX), u32::MAX),
            call.request_again(Attempt(u32::MAX), u32::MAX),
            longest.planned_question(u32::MAX),
        ] {
            assert_eq!(RequestId::parse(request.as_str()).unwrap().run(), Some(longest.clone()));
            assert!(RuleId::parse(request.rule(Timestamp(u64::MAX)).as_str()).is_ok());
        }
        for nonsense in ["nonsense", "r:1", ":1:1"] {
            assert_eq!(RequestId::parse(nonsense).unwrap().parts(), None, "{nonsense:?}");
        }
    }
}
