//! Refusals and failures of the store.

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::{EntryNo, RunId, SessionId};

/// A refusal or failure of the store. Nothing was written, except that after [`StoreError::Unavailable`] nobody knows.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another owner took the run, or has appended to it. The caller drops its state of the run.
    #[error("another owner took the run, or appended to it; read it again")]
    Conflict,
    /// The session is in a shard that this replica does not own. Nothing was written.
    #[error("another replica owns this session; send the request there")]
    Elsewhere,
    /// The tenant has a run of this id already, in this session or another one. Nothing was written.
    #[error("a run of this id exists")]
    RunExists,
    /// The session has a live run.
    #[error("the session is busy with run {run}")]
    SessionBusy {
        /// The live run, or the first one in the queue.
        run: RunId,
    },
    /// The session has changed since it was read.
    #[error("the session has changed since it was read; read it again")]
    SessionMoved,
    /// No session of this id exists, and none was to be created.
    #[error("no such session")]
    NoSession,
    /// A session of this id exists, with other content.
    #[error("a session of this id exists, with another title, other labels or another origin")]
    SessionExists,
    /// The session has no such entry yet.
    #[error("the session's last entry is {last}", last = .last.0)]
    EntryAhead {
        /// Number of the session's last entry.
        last: EntryNo,
    },
    /// The session would have more labels than it may.
    #[error("the session would have more than {max} labels", max = agentloop_core::limits::LABELS_MAX)]
    TooManyLabels,
    /// There is no search index.
    #[error("the search index is turned off; set store.search to use it")]
    SearchOff,
    /// The store keeps no blobs.
    #[error("this store keeps no blobs")]
    NoBlobs,
    /// A blob has more bytes than one may have.
    #[error("a blob may have at most {max} bytes")]
    BlobTooLarge {
        /// The bound, in bytes.
        max: u64,
    },
    /// All blobs together would have more bytes than they may.
    #[error("all blobs together may have at most {max} bytes, and there is no room for this one")]
    BlobsFull {
        /// The bound, in bytes.
        max: u64,
    },
    /// The bytes of an upload are not what was announced.
    #[error("{field} {problem}")]
    BlobMismatch {
        /// The field of the announcement.
        field: &'static str,
        /// The announced value, and the one that was found.
        problem: String,
    },
    /// A blob's bytes are not what was stored.
    #[error("the blob {digest} is damaged: {why}")]
    DamagedBlob {
        /// The digest that its bytes should have.
        digest: BlobDigest,
        /// The damage that was found, for people.
        why: String,
    },
    /// The page token was not given out by this store.
    #[error("the page token was not given out by this server")]
    BadPageToken,
    /// Stored data cannot be read.
    #[error("stored data cannot be read: {what}")]
    Corrupt {
        /// The row, and the reason.
        what: String,
    },
    /// An entry of a session is damaged. The others can be read.
    #[error("entry {entry} of session {session} is damaged: {why}", entry = .entry.0)]
    DamagedEntry {
        /// The session that was read.
        session: SessionId,
        /// Number of the entry in that session.
        entry: EntryNo,
        /// The row, and the damage.
        why: String,
    },
    /// A remembered rule is damaged. Until it is deleted, nothing can tell what it says.
    #[error("the remembered rule {rule} is damaged: {why}")]
    DamagedRule {
        /// Id of the rule, as it is stored.
        rule: String,
        /// The damage that was found, for people.
        why: String,
    },
    /// The store cannot be reached or cannot write.
    #[error("the store is unavailable: {what}")]
    Unavailable {
        /// The message of the database or its driver.
        what: String,
    },
}

impl StoreError {
    /// True if stored data is not what was written.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Corrupt { .. }
            | Self::DamagedEntry { .. }
            | Self::DamagedRule { .. }
            | Self::DamagedBlob { .. } => true,
            Self::Conflict
            | Self::Elsewhere
            | Self::RunExists
            | Self::SessionBusy { .. }
            | Self::SessionMoved
            | Self::NoSession
            | Self::SessionExists
            | Self::EntryAhead { .. }
            | Self::TooManyLabels
            | Self::SearchOff
            | Self::NoBlobs
            | Self::BlobTooLarge { .. }
            | Self::BlobsFull { .. }
            | Self::BlobMismatch { .. }
            | Self::BadPageToken
            | Self::Unavailable { .. } => false,
        }
    }
}
