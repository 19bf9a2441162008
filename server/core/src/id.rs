//! Identifiers and counters. Each is its own type, so that no two of them can be swapped by accident.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::ID_BYTES_MAX;

/// Why a text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty.
    #[error("must not be empty")]
    Empty,
    /// The text is longer than [`ID_BYTES_MAX`].
    #[error("must be at most {ID_BYTES_MAX} bytes")]
    TooLong,
    /// The text has a character outside `[A-Za-z0-9._:-]`.
    #[error("may contain only letters, digits, '.', '_', ':' and '-'")]
    BadCharacter,
}

fn check(text: &str) -> Result<(), IdError> {
    match text {
        "" => Err(IdError::Empty),
        t if t.len() > ID_BYTES_MAX => Err(IdError::TooLong),
        t if t.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b)) => Ok(()),
        _ => Err(IdError::BadCharacter),
    }
}

macro_rules! text_id {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes a text from outside.
            ///
            /// # Errors
            /// When it is empty, too long, or has characters other than `[A-Za-z0-9._:-]`.
            pub fn parse(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check(&text)?;
                Ok(Self(text))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
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
    /// The owner of everything that is stored; part of every key.
    TenantId;
    /// A conversation: a sequence of entries that outlives its runs.
    SessionId;
    /// One prompt and everything done to answer it.
    RunId;
    /// One tool-host process, as it names itself; stable across its reconnects.
    HostId;
    /// A question put to a human. Derived from the run and the call, so that asking twice is asking once.
    RequestId;
}

impl TenantId {
    /// The tenant of every caller while authentication is not configured.
    #[must_use]
    pub fn local() -> Self {
        Self("local".to_owned())
    }
}

/// One tool call of a run: the `index`th call that its `model_call`th model call asked for.
///
/// As text: `<run>/<model_call>.<index>`. It never changes across retries, reconnects and restarts, and it names
/// its run, so a result that arrives after a restart finds its way home.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The run that owns the call.
    pub run: RunId,
    /// Where in the run.
    pub slot: CallSlot,
}

/// The place of a call within its run. Ordered as the model asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallSlot(
    /// The model call that asked, from 1.
    pub u32,
    /// The position among its tool calls, from 0.
    pub u32,
);

impl fmt::Display for CallSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run, self.slot)
    }
}

impl CallId {
    /// Reads the textual form back. `None` for anything that this server cannot have issued.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (run, slot) = text.rsplit_once('/')?;
        let (model_call, index) = slot.split_once('.')?;
        let id = Self {
            run: RunId::parse(run).ok()?,
            slot: CallSlot(model_call.parse().ok()?, index.parse().ok()?),
        };
        (id.to_string() == text).then_some(id)
    }

    /// The id of the question whether this call may run, or what became of it: one per attempt that asks.
    #[must_use]
    pub fn request(&self, attempt: u32) -> RequestId {
        RequestId(format!("{}:{}:{attempt}", self.run, self.slot))
    }
}

/// The `number`th runtime that a run had opened, from 1: one after the other, since each goes with its host.
///
/// As text: `<run>/rt<number>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuntimeId {
    /// The run that it is for.
    pub run: RunId,
    /// Which of them.
    pub number: u32,
}

impl fmt::Display for RuntimeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/rt{}", self.run, self.number)
    }
}

impl RuntimeId {
    /// Reads the textual form back. `None` for anything that this server cannot have issued.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (run, number) = text.rsplit_once("/rt")?;
        let id = Self { run: RunId::parse(run).ok()?, number: number.parse().ok()? };
        (id.to_string() == text).then_some(id)
    }
}

impl RequestId {
    /// The run that a derived request id names. `None` for anything that this server cannot have issued.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        let mut parts = self.0.rsplitn(3, ':');
        let (_attempt, _slot) = (parts.next()?, parts.next()?);
        RunId::parse(parts.next()?).ok()
    }
}

/// Position of a durable event in its run's journal: dense, from 1. 0 stands for "before the first".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The one after.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Position of an entry in its session's history: dense, from 1. 0 stands for "before the first".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntryNo(pub u64);

impl EntryNo {
    /// The one after.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Fence of a run's ownership: every write names it, and a stale one writes nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_take_what_the_alphabet_allows() {
        for good in ["a", "run-1", "A.b_c:d-9"] {
            assert_eq!(RunId::parse(good).map(|id| id.to_string()), Ok(good.to_owned()));
        }
        assert_eq!(RunId::parse(""), Err(IdError::Empty));
        assert_eq!(RunId::parse("x".repeat(ID_BYTES_MAX + 1)), Err(IdError::TooLong));
        for bad in ["a b", "a/b", "ü", "a\n", "../x", "a\0"] {
            assert_eq!(RunId::parse(bad), Err(IdError::BadCharacter), "{bad:?}");
        }
    }

    #[test]
    fn call_ids_survive_the_round_trip() {
        let id = CallId { run: RunId::parse("r:1.2").unwrap(), slot: CallSlot(3, 0) };
        assert_eq!(id.to_string(), "r:1.2/3.0");
        assert_eq!(CallId::parse(&id.to_string()), Some(id));
        for forged in ["", "r", "r/", "r/1", "r/1.", "r/01.0", "r/+1.0", "/1.0", "r/1.0/2.0", "r/1.0x"] {
            assert_eq!(CallId::parse(forged), None, "{forged:?}");
        }
    }

    #[test]
    fn request_ids_name_their_run() {
        let id = CallId { run: RunId::parse("r:1").unwrap(), slot: CallSlot(3, 0) };
        assert_eq!(id.request(1).as_str(), "r:1:3.0:1");
        assert_eq!(id.request(1).run(), Some(id.run));
        assert_eq!(RequestId::parse("nonsense").unwrap().run(), None);
    }
}
