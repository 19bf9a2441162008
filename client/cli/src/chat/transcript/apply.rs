//! Applies the events of a run to the transcript.

use agentloop_client::v1::{
    AssistantMessage, CompactionFailed, CompactionStarted, ContextAdded, ContextCompacted, ExtensionApplied,
    HumanApproved, HumanRequest, HumanRequestKind, HumanRequested, HumanResolved, InputMessage,
    ModelCallFailed, ModelDelta, PartialMessage, RunError, RunFinished, RunPaused, RunResumed, RunStatus,
    ToolCallAccepted, ToolCallAttemptFailed, ToolCallOffered, ToolCallProgress, ToolCallProposed,
    ToolCallResult, ToolCallState, decision::Decision as Kind, model_delta::Delta, part::Content,
    run_event::Event,
};

use super::{Block, CallState, Elapsed, TextBlock, Tone, Transcript};
use crate::{
    terminal::format,
    terminal::model_attempt::ModelAttempt,
    terminal::render::status::{AskedQuestion, answered, error},
    terminal::style::Style,
};

impl Transcript {
    /// Applies an event of a run.
    pub(crate) fn event(&mut self, event: &Event, now: Elapsed) {
        match event {
            Event::InputMessage(input) => self.input(input),
            Event::ContextAdded(added) => self.context_added(added),
            Event::TodosUpdated(updated) => self.todos(&updated.items),
            Event::ModelDelta(delta) => self.delta(delta),
            Event::PartialMessage(partial) => self.partial(partial),
            Event::AssistantMessage(message) => self.finished_message(message),
            Event::ModelCallFailed(failed) => self.model_call_failed(failed),
            Event::CompactionStarted(started) => self.compaction_started(started),
            Event::CompactionFailed(failed) => self.compaction_failed(failed),
            Event::ContextCompacted(compacted) => self.compacted(compacted),
            Event::ExtensionApplied(applied) => self.extension_applied(applied),
            Event::ToolCallProposed(proposed) => self.call_proposed(proposed),
            Event::ToolCallOffered(offered) => self.call_offered(offered),
            Event::ToolCallAccepted(accepted) => self.call_accepted(accepted, now),
            Event::ToolCallProgress(progress) => self.call_progress(progress),
            Event::ToolCallOutput(output) => self.call(&output.call_id).put_out(&output.data),
            Event::ToolCallAttemptFailed(failed) => self.attempt_failed(failed),
            Event::ToolCallResult(result) => self.result(result),
            Event::HumanRequested(requested) => self.human_requested(requested),
            Event::HumanApproved(partly) => self.note(Tone::Quiet, &approved(partly)),
            Event::HumanResolved(resolved) => self.resolved(resolved),
            Event::RunPaused(paused) => self.run_paused(paused),
            Event::RunResumed(resumed) => self.run_resumed(resumed),
            Event::RunFinished(finished) => self.run_finished(finished),
            // The transcript shows nothing for these.
            Event::RunStarted(_)
            | Event::SessionEntered(_)
            | Event::InputEntered(_)
            | Event::InstructionPlanned(_)
            | Event::ModelCallStarted(_)
            | Event::ToolCallCheckpoint(_) => {}
        }
    }

    fn input(&mut self, input: &InputMessage) {
        if let Some(message) = &input.message {
            self.message(message);
        }
    }

    fn context_added(&mut self, added: &ContextAdded) {
        if added.source != "cut_off" {
            self.note(Tone::Quiet, &format!("{} added to the context", added.source));
        } else if let Some(message) = &added.message {
            self.message(message);
        }
    }

    fn compaction_started(&mut self, started: &CompactionStarted) {
        self.note(Tone::Quiet, &format!("making the context smaller ({})", started.strategy));
    }

    fn compaction_failed(&mut self, failed: &CompactionFailed) {
        let why = why(failed.error.as_ref());
        self.note(Tone::Warning, &format!("the context was not made smaller: {why}"));
    }

    pub(super) fn compacted(&mut self, compacted: &ContextCompacted) {
        let tokens = match (compacted.tokens_before, compacted.tokens_after) {
            (0, _) => String::new(),
            (before, after) => format!(", about {before} tokens before, {after} after"),
        };
        self.note(Tone::Quiet, &format!("the context was made smaller ({}{tokens})", compacted.strategy));
    }

    fn extension_applied(&mut self, applied: &ExtensionApplied) {
        if !applied.error.is_empty() {
            self.note(Tone::Warning, &format!("{} failed: {}", applied.name, applied.error));
        } else if !applied.outcome.is_empty() {
            self.note(Tone::Quiet, &format!("{}: {}", applied.name, applied.outcome));
        }
    }

    fn call_proposed(&mut self, proposed: &ToolCallProposed) {
        let call = self.call(&proposed.call_id);
        call.named(&proposed.tool);
        call.titled(&proposed.title);
    }

    fn call_offered(&mut self, offered: &ToolCallOffered) {
        let call = self.call(&offered.call_id);
        call.named(&offered.tool);
        call.state = CallState::Pending { why: format!("offered to {}", offered.host_id) };
    }

    fn call_accepted(&mut self, accepted: &ToolCallAccepted, now: Elapsed) {
        let (host, attempt) = (accepted.host_id.clone(), accepted.attempt);
        self.call(&accepted.call_id).state = CallState::Running { host, attempt, since: now };
    }

    fn call_progress(&mut self, progress: &ToolCallProgress) {
        let percent =
            progress.fraction.map_or(String::new(), |fraction| format!("{:.0} % ", fraction * 100.0));
        let line = format::first_line(&super::sanitize(&progress.message), 200);
        self.call(&progress.call_id).progress = format!("{percent}{line}");
    }

    fn human_requested(&mut self, requested: &HumanRequested) {
        if let Some(request) = &requested.request {
            self.asked(request);
        }
    }

    fn run_paused(&mut self, paused: &RunPaused) {
        self.note(Tone::Warning, &format!("paused: {}", why(paused.error.as_ref())));
    }

    fn run_resumed(&mut self, resumed: &RunResumed) {
        self.note(Tone::Quiet, &format!("resumed by {}", resumed.resumed_by));
    }

    fn delta(&mut self, delta: &ModelDelta) {
        let ModelDelta { model_call, attempt, .. } = *delta;
        self.begin_attempt(ModelAttempt { model_call, attempt });
        match &delta.delta {
            Some(Delta::Text(text)) => self.grow(text, false),
            Some(Delta::Reasoning(text)) => self.grow(text, true),
            // A tool call is shown when the message is finished.
            Some(Delta::ToolCall(_)) | None => {}
        }
    }

    fn partial(&mut self, partial: &PartialMessage) {
        self.remove_unfinished();
        let PartialMessage { model_call, attempt, .. } = *partial;
        self.attempt = ModelAttempt { model_call, attempt };
        for part in partial.message.iter().flat_map(|message| &message.parts) {
            match &part.content {
                Some(Content::Text(text)) => self.grow(text, false),
                Some(Content::Reasoning(reasoning)) => self.grow(&reasoning.text, true),
                _ => {}
            }
        }
    }

    /// Replaces the deltas by the finished message. Reasoning stays if the finished message has none.
    fn finished_message(&mut self, finished: &AssistantMessage) {
        let Some(message) = &finished.message else { return };
        let has_reasoning = message.parts.iter().any(
            |part| matches!(&part.content, Some(Content::Reasoning(reasoning)) if !reasoning.text.is_empty()),
        );
        for block in &mut self.blocks {
            if let Block::Reasoning(text) = block
                && !has_reasoning
            {
                text.unfinished = false;
            }
        }
        self.remove_unfinished();
        self.message(message);
    }

    fn model_call_failed(&mut self, failed: &ModelCallFailed) {
        self.remove_unfinished();
        let mut note = format!("the model failed: {}", why(failed.error.as_ref()));
        if failed.retry_at.is_some() {
            note.push_str(&format!("; it is tried again at {} UTC", format::time(failed.retry_at.as_ref())));
        }
        self.note(Tone::Warning, &note);
    }

    fn asked(&mut self, request: &HumanRequest) {
        self.asked.insert(request.request_id.clone(), AskedQuestion::of(request));
        if request.call_id.is_empty() {
            return;
        }
        let call = self.call(&request.call_id);
        if call.tool.is_empty() {
            call.named(&request.tool);
        }
        call.state = match request.kind() {
            HumanRequestKind::InDoubt => CallState::InDoubt,
            kind => CallState::AwaitingHuman(kind),
        };
    }

    fn resolved(&mut self, resolved: &HumanResolved) {
        let asked = self.asked.remove(&resolved.request_id).unwrap_or_default();
        let Some(answer) = &resolved.answer else { return };
        if !resolved.call_id.is_empty() {
            let call = self.call(&resolved.call_id);
            let decided = answer.decision.as_ref().and_then(|decided| decided.decision.as_ref());
            if let Some(Kind::ApproveWithEdits(edits)) = decided {
                call.with_arguments(&edits.arguments_json);
            }
            if matches!(call.state, CallState::AwaitingHuman(_) | CallState::InDoubt) {
                call.state = CallState::Pending { why: String::new() };
            }
        }
        self.note(Tone::Quiet, &answered(answer, &asked));
    }

    fn attempt_failed(&mut self, failed: &ToolCallAttemptFailed) {
        let message = format::first_line(&super::sanitize(&failed.message), 200);
        self.call(&failed.call_id).state = match failed.state() {
            ToolCallState::InDoubt => CallState::InDoubt,
            _ => CallState::Pending { why: format!("try {}: {message}", failed.attempt) },
        };
    }

    fn result(&mut self, event: &ToolCallResult) {
        let Some(result) = &event.result else { return };
        let took = if event.attempt == 0 { String::new() } else { format::duration(event.duration.as_ref()) };
        self.call(&result.call_id).settled(result, took);
    }

    fn run_finished(&mut self, finished: &RunFinished) {
        self.remove_unfinished();
        match finished.status() {
            RunStatus::Completed => {}
            status => {
                let note = format!("{}: {}", format::status(status), why(finished.error.as_ref()));
                let tone = if status == RunStatus::Aborted { Tone::Warning } else { Tone::Bad };
                self.note(tone, &note);
            }
        }
    }

    /// Begins an attempt of a model call. The unfinished text of an earlier one is removed.
    fn begin_attempt(&mut self, attempt: ModelAttempt) {
        if self.attempt != attempt {
            self.remove_unfinished();
            self.attempt = attempt;
        }
    }

    fn grow(&mut self, piece: &str, reasoning: bool) {
        let unfinished = match self.blocks.back_mut() {
            Some(Block::Text(text)) if !reasoning && text.unfinished => Some(text),
            Some(Block::Reasoning(text)) if reasoning && text.unfinished => Some(text),
            _ => None,
        };
        if let Some(text) = unfinished {
            text.grow(piece);
        } else if !piece.is_empty() {
            let text = TextBlock { unfinished: true, ..TextBlock::finished(piece) };
            self.push(if reasoning { Block::Reasoning(text) } else { Block::Text(text) });
        }
    }

    fn remove_unfinished(&mut self) {
        self.blocks
            .retain(|block| !matches!(block, Block::Text(text) | Block::Reasoning(text) if text.unfinished));
    }
}

fn why(run_error: Option<&RunError>) -> String {
    error(Style::plain(), run_error)
}

/// One of several approvals, for people.
fn approved(partly: &HumanApproved) -> String {
    let by = partly.approval.as_ref().map(|approval| approval.decided_by.as_str()).unwrap_or_default();
    format!("approved by {by}: {} of {} approvals", partly.approvals, partly.quorum)
}
