//! Events other than the model's text, one line each.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use agentloop_client::v1::{
    AssistantMessage, ContextCompacted, Decision, HumanAnswer, HumanApproved, HumanRequest, HumanRequestKind,
    HumanResolved, ModelCallFailed, RunError, RunFinished, RunStarted, RunStatus, SelectOption, TodoItem,
    ToolCallAccepted, ToolCallAttemptFailed, ToolCallOutput, ToolCallProgress, ToolCallProposed,
    ToolCallResult, ToolCallState, ToolStatus, UrlOutcome, decision::Decision as Kind, human_input::Input,
    part::Content, run_event::Event,
};

use prost_types::Timestamp;

use crate::terminal::{
    commands::quoted,
    format, rule,
    style::Style,
    text::{escape_hidden, sanitize},
};

/// Bounds on arguments, results and options on a line, in characters. The session has the whole.
const ARGUMENTS_CHARS: usize = 200;
const RESULT_CHARS: usize = 300;
const OPTION_CHARS: usize = 200;
const TITLE_CHARS: usize = 120;

/// Facts from earlier events that lines need.
#[derive(Debug, Default)]
pub(super) struct StatusLines {
    /// Tool calls by id.
    calls: HashMap<String, CallFacts>,
    /// Open questions, by id.
    asked: HashMap<String, AskedQuestion>,
}

/// The facts of a question that its answer is told with. By default, those of a question that was not seen.
#[derive(Debug, Default)]
pub(crate) struct AskedQuestion {
    kind: HumanRequestKind,
    options: Vec<SelectOption>,
}

impl AskedQuestion {
    pub(crate) fn of(request: &HumanRequest) -> AskedQuestion {
        AskedQuestion { kind: request.kind(), options: request.options.clone() }
    }
}

/// Tool, title and arguments of a call.
#[derive(Debug, Default)]
struct CallFacts {
    tool: String,
    /// Empty if the call has none.
    title: String,
    arguments: String,
}

impl StatusLines {
    /// Remembers the tool calls of a message.
    pub(super) fn remember_calls(&mut self, message: &AssistantMessage) {
        let parts = message.message.iter().flat_map(|message| &message.parts);
        for part in parts {
            if let Some(Content::ToolCall(call)) = &part.content {
                let (tool, arguments) = (call.name.clone(), call.arguments_json.clone());
                let facts = CallFacts { tool, arguments, ..CallFacts::default() };
                self.calls.insert(call.call_id.clone(), facts);
            }
        }
    }

    /// The title of a call, or else the name of its tool.
    fn label<'a>(&'a self, call_id: &'a str) -> &'a str {
        match self.calls.get(call_id) {
            Some(call) if !call.title.is_empty() => &call.title,
            Some(call) => &call.tool,
            None => call_id,
        }
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
            Event::ToolCallResult(result) => self.result(style, result)?,
            Event::TodosUpdated(updated) => style.dim(&todos(style, &updated.items)),
            Event::HumanRequested(requested) => self.asked(style, requested.request.as_ref()?),
            Event::HumanApproved(partly) => style.dim(&format!("  {}", approved(style, partly))),
            Event::HumanResolved(resolved) => style.dim(&self.resolved(style, resolved)?),
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

    /// The lines for an attempt of a model call that failed `at` a time. `void` is true if text of it was shown.
    pub(super) fn model_call_failed(
        &self,
        style: Style,
        failed: &ModelCallFailed,
        at: Option<&Timestamp>,
        void: bool,
    ) -> String {
        let mut line = format!("✗ the model failed: {}", error(style, failed.error.as_ref()));
        if void {
            line.push_str("\n  the text above is void");
        }
        if let Some(retry_at) = &failed.retry_at {
            // On a terminal, a line below counts it down.
            let wait = at.filter(|_| !style.is_terminal()).and_then(|at| between(at, retry_at));
            let wait = wait.map(|wait| format!("in {}, ", format::countdown(wait))).unwrap_or_default();
            line.push_str(&format!("\n  it is tried again {wait}at {} UTC", format::time(Some(retry_at))));
        }
        style.yellow(&line)
    }

    fn proposed(&mut self, style: Style, proposed: &ToolCallProposed) -> String {
        let call = self.calls.entry(proposed.call_id.clone()).or_default();
        call.tool.clone_from(&proposed.tool);
        call.title = format::first_line(&style.strip_unsafe(&proposed.title), TITLE_CHARS);
        let arguments = format::first_line(&style.strip_unsafe(&call.arguments), ARGUMENTS_CHARS);
        let title =
            if call.title.is_empty() { String::new() } else { format!("{}  ", style.bold(&call.title)) };
        format!("→ {title}{} {}", style.bold(&proposed.tool), style.dim(&arguments))
    }

    fn asked(&mut self, style: Style, request: &HumanRequest) -> String {
        self.asked.insert(request.request_id.clone(), AskedQuestion::of(request));
        style.bold(&question(style, request, OptionNames::Numbers))
    }

    fn resolved(&mut self, style: Style, resolved: &HumanResolved) -> Option<String> {
        let asked = self.asked.remove(&resolved.request_id).unwrap_or_default();
        let answer = resolved.answer.as_ref()?;
        Some(format!("  {}", style.strip_unsafe(&answered(answer, &asked))))
    }

    fn result(&self, style: Style, event: &ToolCallResult) -> Option<String> {
        let result = event.result.as_ref()?;
        let good = matches!(result.status(), ToolStatus::Succeeded | ToolStatus::Answered);
        let output = format::tool_output(result);
        let output = format::first_line(&style.strip_unsafe(&output), RESULT_CHARS);
        let took = match format::duration(event.duration.as_ref()) {
            took if took.is_empty() || event.attempt == 0 => String::new(),
            took => format!(" in {took}"),
        };
        let known = self.calls.contains_key(&result.call_id);
        let label = if known { self.label(&result.call_id) } else { &result.name };
        let head = format!("{label} {}{took}", format::tool_status(result.status()));
        let head = if good { format!("← {head}") } else { style.red(&format!("✗ {head}")) };
        Some(format!("{head}: {}", style.dim(&output)))
    }

    fn accepted(&self, accepted: &ToolCallAccepted) -> String {
        let again = if accepted.attempt > 1 { format!(", try {}", accepted.attempt) } else { String::new() };
        format!("  {} runs on {}{again}", self.label(&accepted.call_id), accepted.host_id)
    }

    fn progress(&self, style: Style, progress: &ToolCallProgress) -> String {
        let percent =
            progress.fraction.map_or(String::new(), |fraction| format!(" {:.0} %", fraction * 100.0));
        format!("  {}{percent} {}", self.label(&progress.call_id), style.strip_unsafe(&progress.message))
    }

    fn attempt_failed(&self, style: Style, failed: &ToolCallAttemptFailed) -> String {
        let label = self.label(&failed.call_id);
        let next = match failed.state() {
            ToolCallState::InDoubt => "nobody knows whether it took effect",
            ToolCallState::Settled => "it is not tried again",
            _ => "it is tried again",
        };
        format!("✗ {label}, try {}: {}; {next}", failed.attempt, style.strip_unsafe(&failed.message))
    }
}

fn todos(style: Style, items: &[TodoItem]) -> String {
    let lines = format::todos(items).into_iter().map(|line| format!("  {}", style.strip_unsafe(&line)));
    std::iter::once("☰ to do".to_owned()).chain(lines).collect::<Vec<_>>().join("\n")
}

fn run_started(started: &RunStarted) -> String {
    sanitize(&format!("agent {}, model {}", started.agent, started.model))
}

fn tool_output(style: Style, output: &ToolCallOutput) -> Option<String> {
    let text = String::from_utf8_lossy(&output.data);
    let lines: Vec<String> = text.lines().map(|line| format!("  │ {}", style.strip_unsafe(line))).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The time from one moment to a later one.
fn between(from: &Timestamp, to: &Timestamp) -> Option<Duration> {
    let at = |time: &Timestamp| SystemTime::try_from(*time).ok();
    at(to)?.duration_since(at(from)?).ok()
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
    if names == OptionNames::Ids && request.multiple {
        lines.push("  several --choose may be given".to_owned());
    }
    if !request.url.is_empty() {
        lines.push(format!("  {}", escape_hidden(&request.url)));
    }
    lines.extend(approvers(style, request).map(|approvers| format!("  {approvers}")));
    lines.push(format!("  question {}", request.request_id));
    lines.join("\n")
}

/// The people who may answer, and how many have approved. `None` where anyone may and one is enough.
pub(crate) fn approvers(style: Style, request: &HumanRequest) -> Option<String> {
    let mut words = Vec::new();
    if !request.approvers.is_empty() {
        words.push(format!("for {}", style.strip_unsafe(&request.approvers.join(", "))));
    }
    if request.forbid_requester {
        words.push("not for whoever started the run".to_owned());
    }
    if request.quorum > 1 {
        let approvals = &request.partial_approvals;
        let by: Vec<String> =
            approvals.iter().map(|approval| style.strip_unsafe(&approval.decided_by).into_owned()).collect();
        let by = if by.is_empty() { String::new() } else { format!(" (by {})", by.join(", ")) };
        words.push(format!("{} of {} approvals{by}", approvals.len(), request.quorum));
    }
    (!words.is_empty()).then(|| words.join("; "))
}

/// One of several approvals.
pub(crate) fn approved(style: Style, approved: &HumanApproved) -> String {
    let by = approved.approval.as_ref().map(|approval| approval.decided_by.as_str()).unwrap_or_default();
    format!("approved by {}: {} of {} approvals", style.strip_unsafe(by), approved.approvals, approved.quorum)
}

/// An answer as text, with the person who gave it and the rule that is remembered.
pub(crate) fn answered(answer: &HumanAnswer, asked: &AskedQuestion) -> String {
    let by = if answer.decided_by.is_empty() { String::new() } else { format!(" by {}", answer.decided_by) };
    let words = format!("{}{by}", given(answer, asked));
    match (&answer.applied_rule, &answer.remembered_rule) {
        (Some(rule), _) => format!("{words}, as remembered: {}", rule::describe(rule)),
        (None, Some(rule)) => format!("{words}, and remembered: {}", rule::describe(rule)),
        (None, None) => words,
    }
}

fn given(answer: &HumanAnswer, asked: &AskedQuestion) -> String {
    let label = |id: &String| {
        let option = asked.options.iter().find(|option| option.id == *id && !option.label.is_empty());
        option.map_or_else(|| id.clone(), |option| option.label.clone())
    };
    match (&answer.decision, answer.input.as_ref().and_then(|input| input.input.as_ref())) {
        (_, Some(Input::Text(text))) if text.trim().is_empty() => "answered with an empty text".to_owned(),
        (_, Some(Input::Text(text))) => format!("answered: {text}"),
        (_, Some(Input::Selection(chosen))) if chosen.option_ids.is_empty() => "chosen: none".to_owned(),
        (_, Some(Input::Selection(chosen))) => {
            let labels: Vec<String> = chosen.option_ids.iter().map(label).collect();
            format!("chosen: {}", labels.join(", "))
        }
        (_, Some(Input::FormJson(form_json))) => format!("filled in: {form_json}"),
        (_, Some(Input::Url(outcome))) => match UrlOutcome::try_from(*outcome) {
            Ok(UrlOutcome::Done) => "done at the link".to_owned(),
            _ => "not done at the link".to_owned(),
        },
        (_, Some(Input::Declined(declined))) if declined.message.is_empty() => "declined".to_owned(),
        (_, Some(Input::Declined(declined))) => format!("declined: {}", declined.message),
        (Some(decided), None) => decision(decided, asked.kind),
        (None, None) => "decided".to_owned(),
    }
}

/// A decision as text, with its message.
fn decision(decision: &Decision, of: HumanRequestKind) -> String {
    let with = |word: &str, message: &str| {
        if message.is_empty() { word.to_owned() } else { format!("{word} ({message})") }
    };
    match &decision.decision {
        Some(Kind::Approve(_)) => "approved".to_owned(),
        Some(Kind::ApproveWithEdits(edits)) => format!("approved as {}", edits.arguments_json),
        Some(Kind::Deny(deny)) => with("denied", &deny.message),
        Some(Kind::DenyAndStop(stop)) => with("denied, and the run stopped", &stop.message),
        Some(Kind::AnswerInPlace(_)) => "answered in the tool's place".to_owned(),
        Some(Kind::Expired(_)) => format!("nobody answered in time{}", unanswered(of)),
        Some(Kind::Withdrawn(_)) => "withdrawn: no answer is needed any more".to_owned(),
        None => "decided".to_owned(),
    }
}

/// The end of a question that nobody answered. A call that asks goes on, or ends as its host decides.
fn unanswered(kind: HumanRequestKind) -> &'static str {
    match kind {
        HumanRequestKind::Approve => ": denied",
        HumanRequestKind::InDoubt => ": the outcome stays unknown",
        HumanRequestKind::Unspecified
        | HumanRequestKind::Prompt
        | HumanRequestKind::Select
        | HumanRequestKind::Form
        | HumanRequestKind::Url => "",
    }
}

fn context_compacted(compacted: &ContextCompacted) -> String {
    format!("⋯ the context was made smaller ({})", compacted.strategy)
}

/// An error as text, with its code.
pub(crate) fn error(style: Style, error: Option<&RunError>) -> String {
    let Some(error) = error else { return "no reason given".to_owned() };
    if error.message.is_empty() {
        return format!("[{}]", format::error_code(error.code()));
    }
    format!("{} [{}]", style.strip_unsafe(&error.message), format::error_code(error.code()))
}

fn run_finished(style: Style, finished: &RunFinished) -> String {
    let usage = finished.usage.as_ref().map(format::usage).unwrap_or_default();
    let took = format::duration(finished.duration.as_ref());
    let facts = format!("{}, {usage}, {took}", format::calls(finished.iterations, finished.tool_calls));
    match finished.status() {
        RunStatus::Completed => style.dim(&format!("✓ completed: {facts}")),
        status => {
            let head = format!("✗ {}: {}", format::status(status), error(style, finished.error.as_ref()));
            format!("{}\n{}", style.red(&head), style.dim(&format!("  {facts}")))
        }
    }
}
