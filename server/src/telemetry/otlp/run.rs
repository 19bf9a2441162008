//! Turns the events of one run into spans, by OpenTelemetry's conventions for generative AI.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{Attempt, CallSlot, RequestId, RunId, SessionId};
use agentloop_core::message::{SharedMessage, Usage};
use agentloop_core::run::event::{Event, Outcome, Record, Totals};
use agentloop_core::run::human::Question;
use agentloop_core::run::status::RunError;
use agentloop_core::time::Timestamp;
use agentloop_core::trace::{RunSpan, RunTrace};
use opentelemetry::trace::SpanKind;
use opentelemetry::{Array, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::SpanData;
use serde_json::json;

use super::instruments::OtlpInstruments;
use super::span::Span;
use super::{Otlp, content};
use crate::telemetry::models::split;

/// Characters kept of a tool's name, which a model may have made up.
const NAME_CHARS_MAX: usize = 64;

/// Makes one run's spans. Keeps what later events need from earlier ones.
pub struct RunSpans {
    otlp: Otlp,
    run: RunId,
    session: SessionId,
    started: Option<RunStart>,
    model_call: Option<CurrentModelCall>,
    /// Calls that are proposed and not settled.
    calls: BTreeMap<CallSlot, Call>,
    questions: BTreeMap<RequestId, Question>,
    compaction: Option<CurrentCompaction>,
    /// The run's input messages, if their content is sent.
    input: Vec<SharedMessage>,
    /// Spans and metrics of the event that is taken in.
    ended: Vec<SpanData>,
    measured: Vec<Measurement>,
}

/// Adds to the metrics.
type Measurement = Box<dyn FnOnce(&OtlpInstruments) + Send + Sync>;

/// A model call that has begun and not ended.
struct CurrentModelCall {
    number: u32,
    /// The attempt under way, which has the open span.
    attempt: Attempt,
    began: Timestamp,
}

/// A compaction that has begun and not ended.
struct CurrentCompaction {
    number: u32,
    began: Timestamp,
    strategy: String,
}

/// The content of the run's first event.
struct RunStart {
    at: Timestamp,
    spec: Arc<RunSpec>,
    trace: RunTrace,
}

struct Call {
    /// The name as the model wrote it, cut to [`NAME_CHARS_MAX`].
    tool: String,
    /// True if the tool exists. An unknown name is not used in the span's name.
    is_known: bool,
    provider_id: String,
    arguments: String,
    proposed: Timestamp,
    offered: Option<Timestamp>,
}

impl RunSpans {
    pub(super) fn new(otlp: Otlp, run: RunId, session: SessionId) -> Self {
        Self {
            otlp,
            run,
            session,
            started: None,
            model_call: None,
            calls: BTreeMap::new(),
            questions: BTreeMap::new(),
            compaction: None,
            input: Vec::new(),
            ended: Vec::new(),
            measured: Vec::new(),
        }
    }

    /// Takes in an event from before a restart. Its spans and metrics were sent then, so none is sent.
    pub fn recall(&mut self, record: &Record) {
        self.handle(record);
        self.ended.clear();
        self.measured.clear();
    }

    /// Takes in a new event, and sends the spans that it ends and its metrics.
    pub fn show(&mut self, record: &Record) {
        self.handle(record);
        for span in self.ended.drain(..) {
            self.otlp.send(span);
        }
        for measurement in self.measured.drain(..) {
            measurement(self.otlp.instruments());
        }
    }

    fn handle(&mut self, record: &Record) {
        let at = record.at;
        match &record.event {
            Event::Started { spec, traceparent, .. } => {
                let trace = RunTrace::new(self.run.clone(), at, *traceparent);
                self.started = Some(RunStart { at, spec: spec.clone(), trace });
            }
            Event::MessageAdded { message, .. } | Event::MessageHeld { message, .. }
                if self.otlp.captures_content() =>
            {
                self.input.push(message.clone());
            }
            Event::ModelCallStarted { model_call, attempt, .. } => {
                self.model_called(*model_call, *attempt, at);
            }
            Event::ModelCallFailed { error, retry_at, .. } => {
                self.model_failed(at, error, *retry_at);
            }
            Event::AssistantMessage { .. } => self.model_responded(record),
            Event::CallProposed { slot, tool, arguments, .. } => {
                self.proposed(*slot, tool, arguments.as_deref(), at);
            }
            Event::CallOffered { slot, .. } => {
                self.offered(*slot, at);
            }
            Event::CallSettled { slot, attempt, message, .. } => {
                self.settled(*slot, *attempt, message, at);
            }
            Event::HumanRequested { question, .. } => {
                self.questions.insert(question.request.clone(), question.clone());
            }
            Event::HumanResolved { request, answer, .. } => {
                self.answered(request, answer.decision.name(), at);
            }
            Event::CompactionStarted { number, strategy, .. } => {
                self.compaction_began(*number, strategy, at);
            }
            Event::Compacted { usage, .. } => self.compacted(at, None, usage),
            Event::CompactionFailed { error, .. } => {
                self.compacted(at, Some(error.code.as_str()), &Usage::default());
            }
            Event::Finished { outcome, error, totals } => {
                self.finished(at, *outcome, error.as_ref(), totals);
            }
            _ => {}
        }
    }

    fn measure(&mut self, add: impl FnOnce(&OtlpInstruments) + Send + Sync + 'static) {
        self.measured.push(Box::new(add));
    }

    fn span<'a>(&self, of: RunSpan<'a>, name: String, began: Timestamp, ended: Timestamp) -> Span<'a> {
        let attributes = vec![
            KeyValue::new("gen_ai.conversation.id", self.session.to_string()),
            KeyValue::new("agentloop.run.id", self.run.to_string()),
        ];
        Span { of, name, kind: SpanKind::Internal, began, ended, attributes, error: None }
    }

    fn end(&mut self, span: Span<'_>) {
        if let Some(started) = &self.started {
            self.ended.push(span.data(&started.trace, self.otlp.scope()));
        }
    }

    /// Ends the current model call, and returns its span.
    fn model_span(&mut self, at: Timestamp) -> Option<Span<'static>> {
        let CurrentModelCall { number, attempt, began } = self.model_call.take()?;
        let spec = self.started.as_ref()?.spec.clone();
        let (provider, model) = split(&spec.model);
        let span = self.span(RunSpan::Model { call: number, attempt }, format!("chat {model}"), began, at);
        let span = Span { kind: SpanKind::Client, ..span }
            .with("gen_ai.operation.name", "chat")
            .with("gen_ai.provider.name", provider.to_owned())
            .with("gen_ai.request.model", model.to_owned())
            .with("gen_ai.request.stream", true)
            .with("agentloop.attempt", i64::from(attempt.0));
        Some(span)
    }

    fn model_called(&mut self, number: u32, attempt: Attempt, at: Timestamp) {
        self.cut_off(at, "interrupted");
        self.model_call = Some(CurrentModelCall { number, attempt, began: at });
    }

    fn cut_off(&mut self, at: Timestamp, why: &'static str) {
        if let Some(span) = self.model_span(at) {
            self.end(Span { error: Some(why), ..span });
        }
    }

    fn model_failed(&mut self, at: Timestamp, error: &RunError, retry_at: Option<Timestamp>) {
        let Some(span) = self.model_span(at) else { return };
        let code = error.code.as_str();
        let (labels, took) = (self.model_labels(), at.since(span.began));
        self.measure(move |metrics| metrics.model_failed(&labels, took, code, retry_at.is_some()));
        let status =
            error.http_status.map(|status| KeyValue::new("http.response.status_code", i64::from(status)));
        let mut span = Span { error: Some(code), ..span };
        span.attributes.extend(status);
        self.end(span);
    }

    fn model_responded(&mut self, record: &Record) {
        let Event::AssistantMessage { message, finish, usage, first_token, duration, .. } = &record.event
        else {
            return;
        };
        for call in message.tool_calls() {
            let arguments = if self.otlp.captures_content() { call.arguments.clone() } else { String::new() };
            let (tool, provider_id) =
                (call.name.chars().take(NAME_CHARS_MAX).collect(), call.provider_id.clone());
            let proposed = record.at;
            let call_of = Call { tool, is_known: false, provider_id, arguments, proposed, offered: None };
            self.calls.insert(call.slot, call_of);
        }
        let (labels, took, first, used) = (self.model_labels(), *duration, *first_token, *usage);
        self.measure(move |metrics| metrics.model_responded(&labels, took, first, &used));
        let Some(span) = self.model_span(record.at) else { return };
        let reasons = vec![StringValue::from(content::finish_reason(finish).to_owned())];
        let mut span = span
            .with("gen_ai.response.finish_reasons", Value::Array(Array::String(reasons)))
            .with("gen_ai.response.time_to_first_chunk", first_token.duration().as_secs_f64());
        span.attributes.extend(tokens(usage));
        if self.otlp.captures_content() {
            let said = json!([content::message(message, Some(finish), self.otlp.masks())]);
            span = span.with("gen_ai.output.messages", said.to_string());
        }
        self.end(span);
    }

    /// The labels of the model's metrics. Their values are bounded.
    fn model_labels(&self) -> [KeyValue; 3] {
        let reference = self.started.as_ref().map_or("", |started| started.spec.model.as_str());
        let (provider, model) = self.otlp.models().labels(reference);
        [
            KeyValue::new("gen_ai.operation.name", "chat"),
            KeyValue::new("gen_ai.provider.name", provider.to_owned()),
            KeyValue::new("gen_ai.request.model", model.to_owned()),
        ]
    }

    fn proposed(&mut self, slot: CallSlot, tool: &str, arguments: Option<&str>, at: Timestamp) {
        let call = self.calls.entry(slot).or_insert_with(|| Call {
            tool: tool.to_owned(),
            is_known: true,
            provider_id: String::new(),
            arguments: String::new(),
            proposed: at,
            offered: None,
        });
        call.is_known = true;
        if let Some(arguments) = arguments.filter(|_| self.otlp.captures_content()) {
            arguments.clone_into(&mut call.arguments);
        }
    }

    fn offered(&mut self, slot: CallSlot, at: Timestamp) {
        if let Some(call) = self.calls.get_mut(&slot) {
            call.offered.get_or_insert(at);
        }
    }

    fn settled(&mut self, slot: CallSlot, attempt: Attempt, message: &SharedMessage, at: Timestamp) {
        let Some(call) = self.calls.remove(&slot) else { return };
        let Some(result) = message.tool_result() else { return };
        let began = call.offered.unwrap_or(call.proposed);
        let error = result.status.is_error().then(|| result.status.as_str());
        if call.offered.is_some() {
            let (tool, took) = (call.tool.clone(), at.since(began));
            self.measure(move |metrics| metrics.tool_settled(&tool, took, error));
        }
        let name = match call.is_known {
            true => format!("execute_tool {}", call.tool),
            false => "execute_tool".to_owned(),
        };
        let captured = self.otlp.captures_content().then(|| {
            let masks = self.otlp.masks();
            let text = result.text_for_model();
            let text = masks.mask_result(&result.name, &text).unwrap_or_else(|| text.into_owned());
            (masks.mask(&call.tool, &call.arguments).unwrap_or(call.arguments), text)
        });
        let span = self
            .span(RunSpan::Call(slot), name, began, at)
            .with("gen_ai.operation.name", "execute_tool")
            .with("gen_ai.tool.name", call.tool)
            .with("gen_ai.tool.type", "function")
            .with("gen_ai.tool.call.id", call.provider_id)
            .with("agentloop.tool.outcome", result.status.as_str())
            .with("agentloop.attempt", i64::from(attempt.0));
        let mut span = Span { error, ..span };
        if let Some((arguments, text)) = captured {
            span = span.with("gen_ai.tool.call.arguments", arguments).with("gen_ai.tool.call.result", text);
        }
        self.end(span);
    }

    fn answered(&mut self, request: &RequestId, decision: &'static str, at: Timestamp) {
        let Some(question) = self.questions.remove(request) else { return };
        let span = self
            .span(RunSpan::Question(request.as_str()), "await_human".to_owned(), question.asked_at, at)
            .with("agentloop.human.decision", decision);
        let tool = Some(question.tool).filter(|tool| !tool.is_empty());
        let span = match tool {
            Some(tool) => span.with("gen_ai.tool.name", tool),
            None => span,
        };
        self.end(span);
    }

    fn compaction_began(&mut self, number: u32, strategy: &str, at: Timestamp) {
        // The model call was not made, because its request was too large.
        self.model_call = None;
        self.compaction = Some(CurrentCompaction { number, began: at, strategy: strategy.to_owned() });
    }

    fn compacted(&mut self, at: Timestamp, error: Option<&'static str>, usage: &Usage) {
        let Some(CurrentCompaction { number, began, strategy }) = self.compaction.take() else { return };
        let measured = strategy.clone();
        self.measure(move |metrics| metrics.compacted(&measured));
        let span = self.span(RunSpan::Compaction(number), "compact".to_owned(), began, at);
        let mut span = Span { error, ..span }.with("agentloop.compaction.strategy", strategy);
        span.attributes.extend(tokens(usage));
        self.end(span);
    }

    fn finished(&mut self, at: Timestamp, outcome: Outcome, error: Option<&RunError>, totals: &Totals) {
        let code = match outcome {
            Outcome::Completed => None,
            Outcome::Failed | Outcome::Aborted => Some(error.map_or("unknown", |error| error.code.as_str())),
        };
        self.cut_off(at, code.unwrap_or("interrupted"));
        let Some(started) = &self.started else { return };
        let (spec, began) = (started.spec.clone(), started.at);
        let (agent, (provider, model)) = (spec.agent.clone(), split(&spec.model));
        let (measured, took) = (agent.clone(), totals.duration);
        self.measure(move |metrics| metrics.run_finished(&measured, took, code));
        let span = self
            .span(RunSpan::Run, format!("invoke_agent {agent}"), began, at)
            .with("gen_ai.operation.name", "invoke_agent")
            .with("gen_ai.agent.name", agent)
            .with("gen_ai.provider.name", provider.to_owned())
            .with("gen_ai.request.model", model.to_owned())
            .with("agentloop.run.iterations", i64::from(totals.iterations))
            .with("agentloop.run.tool_calls", i64::from(totals.tool_calls));
        let mut span = Span { error: code, ..span };
        span.attributes.extend(tokens(&totals.usage));
        if self.otlp.captures_content() {
            let input: Vec<_> =
                self.input.iter().map(|message| content::message(message, None, self.otlp.masks())).collect();
            span = span.with("gen_ai.input.messages", json!(input).to_string());
        }
        self.end(span);
    }
}

fn tokens(usage: &Usage) -> impl Iterator<Item = KeyValue> {
    let count =
        |key: &'static str, tokens: u64| KeyValue::new(key, i64::try_from(tokens).unwrap_or(i64::MAX));
    let always = [
        count("gen_ai.usage.input_tokens", usage.input_tokens),
        count("gen_ai.usage.output_tokens", usage.output_tokens),
    ];
    let sometimes = [
        ("gen_ai.usage.cache_read.input_tokens", usage.cached_input_tokens),
        ("gen_ai.usage.cache_write.input_tokens", usage.cache_write_tokens),
        ("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens),
    ];
    let sometimes = sometimes.into_iter().filter(|(_, tokens)| *tokens > 0);
    always.into_iter().chain(sometimes.map(move |(key, tokens)| count(key, tokens)))
}
