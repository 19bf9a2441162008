//! Writes as they wait for a store's writer, the same for both stores. A store adds the writes that only it has.

mod op;
mod queue;
mod request;
mod send;
mod session;

pub(in crate::store) use self::op::{OwnOp, WriteOp, WriteResult};
pub(in crate::store) use self::queue::{Lane, WeakWriteSender, WriteQueue, WriteSender, write_queue};
pub(in crate::store) use self::request::{
    WriteCounters, WriteGroup, WriteReply, WriteRequest, audit_rows, groups, only_appends, replies_of,
    set_recorded,
};
pub(in crate::store) use self::send::closed;
pub(in crate::store) use self::session::{DeleteSession, NewNotes, NewUpdate, SessionOp};
