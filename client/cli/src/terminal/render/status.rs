//! Events other than the model's text, one line each.

use std::collections::HashMap;

use agentloop_client::v1::{
    AssistantMessage, ContextCompacted, Decision, HumanAnswer, HumanRequest, HumanRequestKind, HumanResolved,
    ModelCallFailed, RunError, RunFinished, RunStarted, RunStatus, ToolCallAccepted, ToolCallAttemptFailed,
    ToolCallOutput, ToolCallProgress, ToolCallProposed, ToolCallResult, ToolCallState, ToolStatus,
    decision::Decision as Kind, human_input::Input, part::Content, run_event::Event,
};

use crate::terminal::{commands::quoted, format, rule, style::Style, text::escape_hidden};

/// Bounds on arguments, results and options on a line, in characters. The session has the whole.
const ARGUMENTS_CHARS: usize = 200;
const RESULT_CHARS: usize = 300;
const OPTION_CHARS: usize = 200;

/// Facts from earlier events that lines need.
#[derive(Debug, Default)]
pub(super) struct StatusLines {
    /// Tool calls by id.
    calls: HashMap<String, CallFacts>,
}

/// Tool and arguments of a call.
#[derive(Debug, Default)]
struct CallFacts {
    tool: String,
    arguments: String,
}

impl StatusLines {
    /// Remembers the tool calls of a message.
    pub(super) fn remember_calls(&mut self, message: &AssistantMessage) {
        let parts = message.message.iter().flat_map(|message| &message.parts);
        for part in parts {
            if let Some(Content::ToolCall(call)) = &part.content {
                let facts = CallFacts { tool: call.name.clone(), arguments: call.arguments_json.clone() };
                self.calls.insert(call.call_id.clone(), facts);
            }
        }
    }

    fn tool<'a>(&'a self, call_id: &'a str) -> &'a str {
        self.calls.get(call_id).map_or(call_id, |call| call.tool.as_str())
    }

    /// The line for an event; `None` if a person needs none.
    pub(super) fn line(&mut self, style: Style, event: &Event) -> Option<String> {
        let line = match event {
            Event::RunStarted(started) => style.dim(&run_started(started)),
            Event::ToolCallProposed(proposed) => self.proposed(style, proposed),
            Event::ToolCallOffered(offered) => {
                // A late subscriber has not seen the message with the call.
                let call = self.calls.entry(offered.call_id.clone()).or_default();
                call.tool.clone_from(&offered.tool);
                return None;
            }
            Event::ToolCallAccepted(accepted) => style.dim(&self.accepted(accepted)),
            Event::ToolCallProgress(progress) => style.dim(&self.progress(style, progress)),
            Event::ToolCallOutput(output) => style.dim(&tool_output(style, output)?),
            Event::ToolCallAttemptFailed(failed) => style.yellow(&self.attempt_failed(style, failed)),
            Event::ToolCallResult(result) => tool_result(style, result)?,
            Event::HumanRequested(requested) => {
                style.bold(&question(style, requested.request.as_ref()?, OptionNames::Numbers))
            }
            Event::HumanResolved(resolved) => style.dim(&human_resolved(style, resolved)?),
            Event::RunPaused(paused) => {
                style.yellow(&format!("‖ paused: {}", error(style, paused.error.as_ref())))
            }
            Event::RunResumed(resumed) => style.dim(&format!("▶ resumed by {}", resumed.resumed_by)),
            Event::ContextCompacted(compacted) => style.dim(&context_compacted(compacted)),
            Event::RunFinished(finished) => run_finished(style, finished),
            _ => return None,
        };
        Some(line)
    }

    /// The lines for a failed attempt of a model call. `void` is true if text of it was shown.
    pub(super) fn model_call_failed(&self, style: Style, failed: &ModelCallFailed, void: bool) -> String {
        let mut line = format!("✗ the model failed: {}", error(style, failed.error.as_ref()));
        if void {
            line.push_str("\n  the text above is void");
        }
        if failed.retry_at.is_some() {
            line.push_str(&format!(
                "\n  it is tried again at {} UTC",
                format::time(failed.retry_at.as_ref())
            ));
        }
        style.yellow(&line)
    }

    fn proposed(&self, style: Style, proposed: &ToolCallProposed) -> String {
        let arguments = self.calls.get(&proposed.call_id).map_or("", |call| call.arguments.as_str());
        let arguments = format::first_line(&style.strip_unsafe(arguments), ARGUMENTS_CHARS);
        format!("→ {} {}", style.bold(&proposed.tool), style.dim(&arguments))
    }

    fn accepted(&self, accepted: &ToolCallAccepted) -> String {
        let again = if accepted.attempt > 1 { format!(", try {}", accepted.attempt) } else { String::new() };
        format!("  {} runs on {}{again}", self.tool(&accepted.call_id), accepted.host_id)
    }

    fn progress(&self, style: Style, progress: &ToolCallProgress) -> String {
        let percent =
            progress.fraction.map_or(String::new(), |fraction| format!(" {:.0} %", fraction * 100.0));
        format!("  {}{percent} {}", self.tool(&progress.call_id), style.strip_unsafe(&progress.message))
    }

    fn attempt_failed(&self, style: Style, failed: &ToolCallAttemptFailed) -> String {
        let tool = self.tool(&failed.call_id);
        let next = match failed.state() {
            ToolCallState::InDoubt => "nobody knows whether it took effect",
            ToolCallState::Settled => "it is not tried again",
            _ => "it is tried again",
        };
        format!("✗ {tool}, try {}: {}; {next}", failed.attempt, style.strip_unsafe(&failed.message))
    }
}

fn run_started(started: &RunStarted) -> String {
    format!("agent {}, model {}", started.agent, started.model)
}

fn tool_output(style: Style, output: &ToolCallOutput) -> Option<String> {
    let text = String::from_utf8_lossy(&output.data);
    let lines: Vec<String> = text.lines().map(|line| format!("  │ {}", style.strip_unsafe(line))).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn tool_result(style: Style, event: &ToolCallResult) -> Option<String> {
    let result = event.result.as_ref()?;
    let good = matches!(result.status(), ToolStatus::Succeeded | ToolStatus::Answered);
    let output = format::first_line(&style.strip_unsafe(&result.output), RESULT_CHARS);
    let took = match format::duration(event.duration.as_ref()) {
        took if took.is_empty() || event.attempt == 0 => String::new(),
        took => format!(" in {took}"),
    };
    let head = format!("{} {}{took}", result.name, format::tool_status(result.status()));
    let head = if good { format!("← {head}") } else { style.red(&format!("✗ {head}")) };
    Some(format!("{head}: {}", style.dim(&output)))
}

/// The names of options in a printed question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionNames {
    /// Numbers, which the prompt of `run` takes.
    Numbers,
    /// Ids, which `agentloop approve --choose` takes.
    Ids,
}

/// A question for a human, with its call, options and id.
pub(crate) fn question(style: Style, request: &HumanRequest, names: OptionNames) -> String {
    let asked = match request.kind() {
        HumanRequestKind::Approve => "may this run?",
        _ => request.question.as_str(),
    };
    let asked = format!(
        "? {}  {} {}",
        style.strip_unsafe(asked),
        request.tool,
        escape_hidden(&request.arguments_json)
    );
    let mut lines = vec![asked.trim_end().to_owned()];
    lines.extend((1..).zip(&request.options).map(|(n, option)| {
        let label = if option.label.is_empty() { &option.id } else { &option.label };
        let label = format::first_line(&style.strip_unsafe(label), OPTION_CHARS);
        match names {
            OptionNames::Numbers => format!("  {n} {label}"),
            OptionNames::Ids => format!("  --choose {}  {label}", quoted(&style.strip_unsafe(&option.id))),
        }
    }));
    lines.push(format!("  question {}", request.request_id));
    lines.join("\n")
}

fn human_resolved(style: Style, resolved: &HumanResolved) -> Option<String> {
    let answer = resolved.answer.as_ref()?;
    Some(format!("  {}", style.strip_unsafe(&answered(answer))))
}

/// An answer as text, with the person who gave it and the rule that is remembered.
pub(crate) fn answered(answer: &HumanAnswer) -> String {
    let by = if answer.decided_by.is_empty() { String::new() } else { format!(" by {}", answer.decided_by) };
    let words = format!("{}{by}", given(answer));
    match (&answer.applied_rule, &answer.remembered_rule) {
        (Some(rule), _) => format!("{words}, as remembered: {}", rule::describe(rule)),
        (None, Some(rule)) => format!("{words}, and remembered: {}", rule::describe(rule)),
        (None, None) => words,
    }
}

fn given(answer: &HumanAnswer) -> String {
    match (&answer.decision, answer.input.as_ref().and_then(|input| input.input.as_ref())) {
        (_, Some(Input::Text(text))) => format!("answered: {text}"),
        (_, Some(Input::Selection(chosen))) => format!("chosen: {}", chosen.option_ids.join(", ")),
        (Some(decided), None) => decision(decided),
        (None, None) => "decided".to_owned(),
    }
}

/// A decision as text, with its message.
pub(crate) fn decision(decision: &Decision) -> String {
    let with = |word: &str, message: &str| {
        if message.is_empty() { word.to_owned() } else { format!("{word} ({message})") }
    };
    match &decision.decision {
        Some(Kind::Approve(_)) => "approved".to_owned(),
        Some(Kind::ApproveWithEdits(edits)) => format!("approved as {}", edits.arguments_json),
        Some(Kind::Deny(deny)) => with("denied", &deny.message),
        Some(Kind::DenyAndStop(stop)) => with("denied, and the run stopped", &stop.message),
        Some(Kind::AnswerInPlace(_)) => "answered in the tool's place".to_owned(),
        Some(Kind::Expired(_)) => "nobody answered in time: denied".to_owned(),
        Some(Kind::Withdrawn(_)) => "withdrawn: the run ended first".to_owned(),
        None => "decided".to_owned(),
    }
}

fn context_compacted(compacted: &ContextCompacted) -> String {
    format!("⋯ the context was made smaller ({})", compacted.strategy)
}

/// An error as text, with its code.
pub(crate) fn error(style: Style, error: Option<&RunError>) -> String {
    let Some(error) = error else { return "no reason given".to_owned() };
    format!("{} [{}]", style.strip_unsafe(&error.message), format::error_code(error.code()))
}

fn run_finished(style: Style, finished: &RunFinished) -> String {
    let usage = finished.usage.as_ref().map(format::usage).unwrap_or_default();
    let took = format::duration(finished.duration.as_ref());
    let facts =
        format!("{} model calls, {} tool calls, {usage}, {took}", finished.iterations, finished.tool_calls);
    match finished.status() {
        RunStatus::Completed => style.dim(&format!("✓ completed: {facts}")),
        status => {
            let head = format!("✗ {}: {}", format::status(status), error(style, finished.error.as_ref()));
            format!("{}\n{}", style.red(&head), style.dim(&format!("  {facts}")))
        }
    }
}
