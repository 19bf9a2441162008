//! The state of a replica's write lane: one statement after the other.

use std::collections::VecDeque;

use super::database::{BatchNo, ConnectionNo, StatementNo, Write};

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) connection: ConnectionNo,
    pub(super) last: BatchNo,
    pub(super) queue: VecDeque<Write>,
    pub(super) in_flight: Option<(BatchNo, Write)>,
    /// The statement whose answer is awaited.
    pub(super) awaits: Option<StatementNo>,
    pub(super) is_connected: bool,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            connection: ConnectionNo(1),
            last: BatchNo(0),
            queue: VecDeque::new(),
            in_flight: None,
            awaits: None,
            is_connected: true,
        }
    }
}

impl Lane {
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_none()
    }
}
