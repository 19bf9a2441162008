//! What a run's events change in what is shown.

use agentloop_client::v1::{
    AssistantMessage, ContextCompacted, HumanRequest, HumanRequestKind, HumanResolved, ModelCallFailed,
    ModelDelta, PartialMessage, RunError, RunFinished, RunStatus, ToolCallAttemptFailed, ToolCallResult,
    ToolCallState, decision::Decision as Kind, model_delta::Delta, part::Content, run_event::Event,
};

use super::{Block, Moment, Said, State, Tone, Transcript};
use crate::{
    terminal::names,
    terminal::render::status::{answered, error},
    terminal::style::Style,
};

impl Transcript {
    /// Takes up an event of a run.
    pub(crate) fn event(&mut self, event: &Event, now: Moment) {
        match event {
            Event::InputMessage(input) => {
                if let Some(message) = &input.message {
                    self.message(message);
                }
            }
            Event::ModelDelta(delta) => self.delta(delta),
            Event::PartialMessage(partial) => self.partial(partial),
            Event::AssistantMessage(message) => self.finished_message(message),
            Event::ModelCallFailed(failed) => self.model_call_failed(failed),
            Event::RunPaused(paused) => {
                self.note(Tone::Warning, &format!("paused: {}", why(paused.error.as_ref())));
            }
            Event::RunResumed(resumed) => {
                self.note(Tone::Quiet, &format!("resumed by {}", resumed.resumed_by));
            }
            Event::HumanRequested(requested) => {
                if let Some(request) = &requested.request {
                    self.asked(request);
                }
            }
            Event::HumanResolved(resolved) => self.resolved(resolved),
            Event::RunFinished(finished) => self.run_finished(finished),
            other => self.beside(other, now),
        }
    }

    /// What neither model nor human says.
    fn beside(&mut self, event: &Event, now: Moment) {
        match event {
            Event::ContextAdded(added) => {
                self.note(Tone::Quiet, &format!("{} added to the context", added.source));
            }
            Event::CompactionStarted(started) => {
                self.note(Tone::Quiet, &format!("making the context smaller ({})", started.strategy));
            }
            Event::CompactionFailed(failed) => {
                let why = why(failed.error.as_ref());
                self.note(Tone::Warning, &format!("the context was not made smaller: {why}"));
            }
            Event::ContextCompacted(compacted) => self.compacted(compacted),
            Event::ExtensionApplied(applied) if !applied.error.is_empty() => {
                self.note(Tone::Warning, &format!("{} failed: {}", applied.name, applied.error));
            }
            Event::ExtensionApplied(applied) if !applied.outcome.is_empty() => {
                self.note(Tone::Quiet, &format!("{}: {}", applied.name, applied.outcome));
            }
            other => self.tool_event(other, now),
        }
    }

    pub(super) fn compacted(&mut self, compacted: &ContextCompacted) {
        let tokens = match (compacted.tokens_before, compacted.tokens_after) {
            (0, _) => String::new(),
            (before, after) => format!(", about {before} tokens before, {after} after"),
        };
        self.note(Tone::Quiet, &format!("the context was made smaller ({}{tokens})", compacted.strategy));
    }

    fn tool_event(&mut self, event: &Event, now: Moment) {
        match event {
            Event::ToolCallProposed(proposed) => self.call(&proposed.call_id).named(&proposed.tool),
            Event::ToolCallOffered(offered) => {
                let call = self.call(&offered.call_id);
                call.named(&offered.tool);
                call.state = State::Pending { why: format!("offered to {}", offered.host_id) };
            }
            Event::ToolCallAccepted(accepted) => {
                let (host, attempt) = (accepted.host_id.clone(), accepted.attempt);
                self.call(&accepted.call_id).state = State::Running { host, attempt, since: now };
            }
            Event::ToolCallProgress(progress) => {
                let percent =
                    progress.fraction.map_or(String::new(), |fraction| format!("{:.0} % ", fraction * 100.0));
                let line = names::brief(&super::tame(&progress.message), 200);
                self.call(&progress.call_id).progress = format!("{percent}{line}");
            }
            Event::ToolCallOutput(output) => self.call(&output.call_id).put_out(&output.data),
            Event::ToolCallAttemptFailed(failed) => self.attempt_failed(failed),
            Event::ToolCallResult(result) => self.result(result),
            _ => {}
        }
    }

    fn delta(&mut self, delta: &ModelDelta) {
        self.speaks((delta.model_call, delta.attempt));
        match &delta.delta {
            Some(Delta::Text(text)) => self.grow(text, false),
            Some(Delta::Reasoning(text)) => self.grow(text, true),
            // A call is shown when the message is finished.
            Some(Delta::ToolCall(_)) | None => {}
        }
    }

    fn partial(&mut self, partial: &PartialMessage) {
        self.take_back_live();
        self.speaking = (partial.model_call, partial.attempt);
        for part in partial.message.iter().flat_map(|message| &message.parts) {
            match &part.content {
                Some(Content::Text(text)) => self.grow(text, false),
                Some(Content::Reasoning(reasoning)) => self.grow(&reasoning.text, true),
                _ => {}
            }
        }
    }

    /// A finished message is authoritative over its pieces. Reasoning that the provider does not repeat stays.
    fn finished_message(&mut self, finished: &AssistantMessage) {
        let Some(message) = &finished.message else { return };
        let has_reasoning = message.parts.iter().any(
            |part| matches!(&part.content, Some(Content::Reasoning(reasoning)) if !reasoning.text.is_empty()),
        );
        for block in &mut self.blocks {
            if let Block::Reasoning(said) = block
                && !has_reasoning
            {
                said.live = false;
            }
        }
        self.take_back_live();
        self.message(message);
    }

    fn model_call_failed(&mut self, failed: &ModelCallFailed) {
        self.take_back_live();
        let mut note = format!("the model failed: {}", why(failed.error.as_ref()));
        if failed.retry_at.is_some() {
            note.push_str(&format!("; it is tried again at {} UTC", names::time(failed.retry_at.as_ref())));
        }
        self.note(Tone::Warning, &note);
    }

    fn asked(&mut self, request: &HumanRequest) {
        if request.call_id.is_empty() {
            return;
        }
        let call = self.call(&request.call_id);
        if call.tool.is_empty() {
            call.named(&request.tool);
        }
        call.state = match request.kind() {
            HumanRequestKind::InDoubt => State::InDoubt,
            _ => State::AwaitingHuman,
        };
    }

    fn resolved(&mut self, resolved: &HumanResolved) {
        let Some(answer) = &resolved.answer else { return };
        if !resolved.call_id.is_empty() {
            let call = self.call(&resolved.call_id);
            let decided = answer.decision.as_ref().and_then(|decided| decided.decision.as_ref());
            if let Some(Kind::ApproveWithEdits(edits)) = decided {
                call.with_arguments(&edits.arguments_json);
            }
            if matches!(call.state, State::AwaitingHuman | State::InDoubt) {
                call.state = State::Pending { why: String::new() };
            }
        }
        self.note(Tone::Quiet, &answered(answer));
    }

    fn attempt_failed(&mut self, failed: &ToolCallAttemptFailed) {
        let message = names::brief(&super::tame(&failed.message), 200);
        self.call(&failed.call_id).state = match failed.state() {
            ToolCallState::InDoubt => State::InDoubt,
            _ => State::Pending { why: format!("try {}: {message}", failed.attempt) },
        };
    }

    fn result(&mut self, event: &ToolCallResult) {
        let Some(result) = &event.result else { return };
        let took = if event.attempt == 0 { String::new() } else { names::duration(event.duration.as_ref()) };
        self.call(&result.call_id).settled(result, took);
    }

    fn run_finished(&mut self, finished: &RunFinished) {
        self.take_back_live();
        match finished.status() {
            RunStatus::Completed => {}
            status => {
                let note = format!("{}: {}", names::status(status), why(finished.error.as_ref()));
                let tone = if status == RunStatus::Aborted { Tone::Warning } else { Tone::Bad };
                self.note(tone, &note);
            }
        }
    }

    /// Another try makes what was said before void.
    fn speaks(&mut self, of: (u32, u32)) {
        if self.speaking != of {
            self.take_back_live();
            self.speaking = of;
        }
    }

    fn grow(&mut self, piece: &str, reasoning: bool) {
        let goes_on = match self.blocks.back_mut() {
            Some(Block::Said(said)) if !reasoning && said.live => Some(said),
            Some(Block::Reasoning(said)) if reasoning && said.live => Some(said),
            _ => None,
        };
        if let Some(said) = goes_on {
            said.grow(piece);
        } else if !piece.is_empty() {
            let said = Said { live: true, ..Said::finished(piece) };
            self.push(if reasoning { Block::Reasoning(said) } else { Block::Said(said) });
        }
    }

    fn take_back_live(&mut self) {
        self.blocks.retain(|block| !matches!(block, Block::Said(said) | Block::Reasoning(said) if said.live));
    }
}

fn why(of: Option<&RunError>) -> String {
    error(Style::plain(), of)
}
