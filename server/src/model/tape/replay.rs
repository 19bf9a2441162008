//! A model that answers from a recording, and from nothing else.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use agentloop_core::delta::Delta;
use agentloop_core::tool::Digest;
use futures_util::stream::{self, BoxStream, StreamExt as _};

use super::file::{self, TapeError};
use super::line::{Asked, End};
use super::outline::{Outline, Texts};
use crate::model::response::failure::short;
use crate::model::{Model, ModelError, ModelRequest};

/// Plays a recording. Each recorded call answers one request; after a restart of the server, one again.
#[derive(Debug)]
pub(crate) struct Replayed {
    file: String,
    takes: Vec<Take>,
    /// Which of them were played.
    played: Mutex<Vec<bool>>,
}

#[derive(Debug)]
struct Take {
    line: usize,
    digest: Digest,
    outline: Outline,
    deltas: Vec<Delta>,
    end: End,
}

impl Replayed {
    /// Reads a recording.
    ///
    /// # Errors
    /// When it cannot be read. A last line that is cut is reported in the log and left out.
    pub(crate) fn load(path: &Path) -> Result<Self, TapeError> {
        let tape = file::read(path)?;
        let file = path.display().to_string();
        if let Some(line) = tape.cut {
            tracing::warn!(file, line, "the last line of the recording is cut and is left out");
        }
        let mut texts = Texts::default();
        let takes: Vec<Take> = tape
            .lines
            .into_iter()
            .map(|(line, recorded)| {
                let outline = Outline::of(&recorded.request, &mut texts);
                let digest = outline.digest();
                Take { line, digest, outline, deltas: recorded.deltas, end: recorded.end }
            })
            .collect();
        let played = Mutex::new(vec![false; takes.len()]);
        Ok(Self { file, takes, played })
    }

    /// The first recording of this request that was not played, those that were cancelled last: how they would have
    /// gone on, nobody knows.
    fn take(&self, asked: &Outline) -> Result<&Take, ModelError> {
        let digest = asked.digest();
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |cancelled: bool| {
            self.takes.iter().zip(played.iter()).position(|(take, played)| {
                !played && take.digest == digest && matches!(take.end, End::Cancelled) == cancelled
            })
        };
        let found = fits(false).or_else(|| fits(true)).ok_or_else(|| self.nothing(asked, &digest))?;
        played[found] = true;
        Ok(&self.takes[found])
    }

    fn nothing(&self, asked: &Outline, digest: &Digest) -> ModelError {
        let Self { file, takes, .. } = self;
        let same: Vec<String> =
            takes.iter().filter(|take| take.digest == *digest).map(|take| take.line.to_string()).collect();
        if !same.is_empty() {
            let lines = same.join(", ");
            return ModelError::bad_request(short(&format!(
                "every recording of this request in {file} was played before (line {lines})"
            )));
        }
        // Of several that are equally near, the first.
        let nearest = takes.iter().rev().max_by_key(|take| take.outline.likeness(asked));
        let difference = nearest.and_then(|take| Some((take.line, take.outline.difference(asked)?)));
        ModelError::bad_request(short(&match difference {
            Some((line, difference)) => {
                format!(
                    "{file} has no recording of this request; in the nearest one, line {line}, {difference}"
                )
            }
            None => format!("{file} has no recording at all"),
        }))
    }
}

impl Model for Replayed {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let asked = Outline::of(&Asked::from(&request), &mut Texts::default());
        let items = match self.take(&asked) {
            Ok(take) => {
                let deltas = take.deltas.iter().cloned().map(Ok);
                deltas.chain(take.end.error().map(Err)).collect()
            }
            Err(error) => vec![Err(error)],
        };
        stream::iter(items).boxed()
    }
}
