//! A model that responds from a recording only.

use std::path::Path;

use agentloop_core::model::delta::Delta;
use agentloop_core::tool::Digest;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use parking_lot::Mutex;

use super::file::{self, RecordingError};
use super::format::{CallEnd, RecordedRequest};
use super::outline::{Outline, SharedTexts};
use crate::model::response::failure::short;
use crate::model::{Model, ModelError, ModelRequest};

/// Replays a recording. Each recorded call serves one request, and after a restart one more.
#[derive(Debug)]
pub(crate) struct ReplayModel {
    file: String,
    responses: Vec<RecordedResponse>,
    /// True for each response that was replayed.
    played: Mutex<Vec<bool>>,
}

#[derive(Debug)]
struct RecordedResponse {
    line: usize,
    digest: Digest,
    outline: Outline,
    deltas: Vec<Delta>,
    end: CallEnd,
}

impl ReplayModel {
    /// Reads a recording.
    ///
    /// # Errors
    /// If the file cannot be read. A cut last line is logged and ignored.
    pub(crate) fn load(path: &Path) -> Result<Self, RecordingError> {
        let recording = file::read(path)?;
        let file = path.display().to_string();
        if let Some(line) = recording.cut {
            tracing::warn!(file, line, "the last line of the recording is cut and is left out");
        }
        let mut texts = SharedTexts::default();
        let responses: Vec<RecordedResponse> = recording
            .lines
            .into_iter()
            .map(|(line, recorded)| {
                let outline = Outline::of(&recorded.request, &mut texts);
                let digest = outline.digest();
                RecordedResponse { line, digest, outline, deltas: recorded.deltas, end: recorded.end }
            })
            .collect();
        let played = Mutex::new(vec![false; responses.len()]);
        Ok(Self { file, responses, played })
    }

    /// Returns the first recorded response to this request that was not replayed yet. Cancelled calls come last,
    /// because the rest of their response is unknown.
    fn response_to(&self, requested: &Outline) -> Result<&RecordedResponse, ModelError> {
        let digest = requested.digest();
        let mut played = self.played.lock();
        let position = |cancelled: bool| {
            self.responses.iter().zip(played.iter()).position(|(response, played)| {
                !played
                    && response.digest == digest
                    && matches!(response.end, CallEnd::Cancelled) == cancelled
            })
        };
        let found = position(false)
            .or_else(|| position(true))
            .ok_or_else(|| self.no_recording(requested, &digest))?;
        played[found] = true;
        Ok(&self.responses[found])
    }

    fn no_recording(&self, requested: &Outline, digest: &Digest) -> ModelError {
        let Self { file, responses, .. } = self;
        let same: Vec<String> = responses
            .iter()
            .filter(|response| response.digest == *digest)
            .map(|response| response.line.to_string())
            .collect();
        if !same.is_empty() {
            let lines = same.join(", ");
            return ModelError::bad_request(short(&format!(
                "every recording of this request in {file} was played before (line {lines})"
            )));
        }
        // The first of several that are equally similar.
        let nearest = responses.iter().rev().max_by_key(|response| response.outline.likeness(requested));
        let difference =
            nearest.and_then(|response| Some((response.line, response.outline.difference(requested)?)));
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

impl Model for ReplayModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let requested = Outline::of(&RecordedRequest::from(&request), &mut SharedTexts::default());
        let items = match self.response_to(&requested) {
            Ok(response) => {
                let deltas = response.deltas.iter().cloned().map(Ok);
                deltas.chain(response.end.error().map(Err)).collect()
            }
            Err(error) => vec![Err(error)],
        };
        stream::iter(items).boxed()
    }
}
