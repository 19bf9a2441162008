//! The results of one host that are being recorded, and their bounds.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

/// Results recorded at a time, but for those that wait for the owners of their runs. At the limit the host's stream is not read.
const AT_ONCE_MAX: usize = 64;
/// Bytes of results that wait for the owners of their runs. An owner may be slow: the stream is read on for the others up to
/// this.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Memory counted for each of these beside its text.
const RESULT_BYTES: usize = 4 * 1024;

/// The part of the bounds that a result takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// One of those that are recorded at a time.
    Counted,
    /// It waits for the owner of its run, which is known, with these bytes.
    Waiting(usize),
}

impl Weight {
    /// The weight of a result with a text of this length, for a known owner.
    pub(super) fn waiting(text: usize) -> Self {
        Self::Waiting(RESULT_BYTES + text)
    }
}

/// The results, each with the future that records it and returns its weight.
pub(super) struct PendingResults<F> {
    recording: FuturesUnordered<F>,
    counted: usize,
    waiting_bytes: usize,
}

impl<F: Future<Output = Weight>> PendingResults<F> {
    pub(super) fn new() -> Self {
        Self { recording: FuturesUnordered::new(), counted: 0, waiting_bytes: 0 }
    }

    pub(super) fn push(&mut self, weight: Weight, recording: F) {
        match weight {
            Weight::Counted => self.counted += 1,
            Weight::Waiting(bytes) => self.waiting_bytes += bytes,
        }
        self.recording.push(recording);
    }

    /// True while no further result may be read.
    pub(super) fn is_full(&self) -> bool {
        self.counted >= AT_ONCE_MAX || self.waiting_bytes >= WAITING_BYTES_MAX
    }

    /// Goes on until a result is recorded or given up. `None` if there is none.
    pub(super) async fn next(&mut self) -> Option<()> {
        match self.recording.next().await? {
            Weight::Counted => self.counted -= 1,
            Weight::Waiting(bytes) => self.waiting_bytes -= bytes,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use super::*;

    #[tokio::test]
    async fn results_of_both_kinds_have_their_bounds() {
        let mut results = PendingResults::<Ready<Weight>>::new();
        for weight in [Weight::Counted, Weight::waiting(WAITING_BYTES_MAX / AT_ONCE_MAX)] {
            let mut count = 0;
            while !results.is_full() {
                results.push(weight, ready(weight));
                count += 1;
                assert!(count <= AT_ONCE_MAX);
            }
            assert!(count > 60);
            while results.next().await.is_some() {}
            assert!(!results.is_full());
        }
    }
}
