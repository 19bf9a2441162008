//! One run's events, as spans by the conventions for generative AI.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{CallSlot, RequestId, RunId, SessionId};
use agentloop_core::message::{SharedMessage, Usage};
use agentloop_core::run::event::{Event, Outcome, Record, Totals};
use agentloop_core::run::human::Question;
use agentloop_core::run::status::RunError;
use agentloop_core::time::Timestamp;
use agentloop_core::trace::{RunTrace, SpanOf};
use opentelemetry::trace::SpanKind;
use opentelemetry::{Array, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::SpanData;
use serde_json::json;

use super::span::Span;
use super::{Otlp, content};
use crate::telemetry::models::split;

/// Of a tool's name that a model made up.
const NAME_CHARS_MAX: usize = 64;

/// Makes one run's spans. What it has to know of earlier events it keeps.
pub struct RunSpans {
    otlp: Otlp,
    run: RunId,
    session: SessionId,
    begun: Option<Begun>,
    model_call: Option<(u32, u32, Timestamp)>,
    /// Calls that were taken up and not settled.
    calls: BTreeMap<CallSlot, Call>,
    questions: BTreeMap<RequestId, Question>,
    compaction: Option<(u32, Timestamp, String)>,
    /// What it was asked, where that is sent.
    asked: Vec<SharedMessage>,
    ended: Vec<SpanData>,
}

/// What the first event says.
struct Begun {
    at: Timestamp,
    spec: Arc<RunSpec>,
    trace: RunTrace,
}

struct Call {
    /// As the model spelt it, cut to [`NAME_CHARS_MAX`].
    tool: String,
    /// Whether there is such a tool: the name of one that there is not is no name for a span.
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
            begun: None,
            model_call: None,
            calls: BTreeMap::new(),
            questions: BTreeMap::new(),
            compaction: None,
            asked: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// An event of before, which was shown when it happened.
    pub fn recall(&mut self, record: &Record) {
        self.take_in(record, true);
        self.ended.clear();
    }

    /// An event that happens now.
    pub fn show(&mut self, record: &Record) {
        self.take_in(record, false);
        for span in self.ended.drain(..) {
            self.otlp.send(span);
        }
    }

    fn take_in(&mut self, record: &Record, past: bool) {
        let at = record.at;
        match &record.event {
            Event::Started { spec, traceparent, .. } => {
                let trace = RunTrace::new(self.run.clone(), at, *traceparent);
                self.begun = Some(Begun { at, spec: spec.clone(), trace });
            }
            Event::InputAdded { message, .. } | Event::InputHeld { message, .. }
                if self.otlp.captures_content() =>
            {
                self.asked.push(message.clone());
            }
            Event::ModelCallStarted { model_call, attempt, .. } => {
                self.cut_off(at, "interrupted");
                self.model_call = Some((*model_call, *attempt, at));
            }
            Event::ModelCallFailed { error, retry_at, .. } => {
                self.model_failed(at, error, retry_at.is_some(), past);
            }
            Event::AssistantMessage { .. } => self.model_answered(record, past),
            Event::CallProposed { slot, tool, arguments, .. } => {
                self.proposed(*slot, tool, arguments.as_deref(), at);
            }
            Event::CallOffered { slot, .. } => {
                if let Some(call) = self.calls.get_mut(slot) {
                    call.offered.get_or_insert(at);
                }
            }
            Event::CallSettled { slot, attempt, message, .. } => {
                self.settled(*slot, *attempt, message, at, past);
            }
            Event::HumanRequested { question } => {
                self.questions.insert(question.request.clone(), question.clone());
            }
            Event::HumanResolved { request, answer, .. } => {
                self.answered(request, answer.decision.name(), at)
            }
            Event::CompactionStarted { number, strategy, .. } => {
                // A model call that turned out to be too large was not made.
                self.model_call = None;
                self.compaction = Some((*number, at, strategy.clone()));
            }
            Event::Compacted { usage, .. } => self.compacted(at, None, usage, past),
            Event::CompactionFailed { error, .. } => {
                self.compacted(at, Some(error.code.as_str()), &Usage::default(), past);
            }
            Event::Finished { outcome, error, totals } => {
                self.finished(at, *outcome, error.as_ref(), totals, past);
            }
            _ => {}
        }
    }

    fn span<'a>(&self, of: SpanOf<'a>, name: String, began: Timestamp, ended: Timestamp) -> Span<'a> {
        let attributes = vec![
            KeyValue::new("gen_ai.conversation.id", self.session.to_string()),
            KeyValue::new("agentloop.run.id", self.run.to_string()),
        ];
        Span { of, name, kind: SpanKind::Internal, began, ended, attributes, error: None }
    }

    fn end(&mut self, span: Span<'_>) {
        if let Some(begun) = &self.begun {
            self.ended.push(span.data(&begun.trace, self.otlp.scope()));
        }
    }

    /// The model call that is under way, which is over.
    fn model_span(&mut self, at: Timestamp) -> Option<Span<'static>> {
        let (call, attempt, began) = self.model_call.take()?;
        let spec = self.begun.as_ref()?.spec.clone();
        let (provider, model) = split(&spec.model);
        let span = self.span(SpanOf::Model { call, attempt }, format!("chat {model}"), began, at);
        let span = Span { kind: SpanKind::Client, ..span }
            .says("gen_ai.operation.name", "chat")
            .says("gen_ai.provider.name", provider.to_owned())
            .says("gen_ai.request.model", model.to_owned())
            .says("gen_ai.request.stream", true)
            .says("agentloop.attempt", i64::from(attempt));
        Some(span)
    }

    fn cut_off(&mut self, at: Timestamp, why: &'static str) {
        if let Some(span) = self.model_span(at) {
            self.end(Span { error: Some(why), ..span });
        }
    }

    fn model_failed(&mut self, at: Timestamp, error: &RunError, is_tried_again: bool, past: bool) {
        let Some(span) = self.model_span(at) else { return };
        let code = error.code.as_str();
        if !past {
            let took = at.since(span.began);
            self.otlp.instruments().model_failed(&self.model_labels(), took, code, is_tried_again);
        }
        let status =
            error.http_status.map(|status| KeyValue::new("http.response.status_code", i64::from(status)));
        let mut span = Span { error: Some(code), ..span };
        span.attributes.extend(status);
        self.end(span);
    }

    fn model_answered(&mut self, record: &Record, past: bool) {
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
        if !past {
            self.otlp.instruments().model_answered(&self.model_labels(), *duration, *first_token, usage);
        }
        let Some(span) = self.model_span(record.at) else { return };
        let reasons = vec![StringValue::from(content::finish_reason(finish).to_owned())];
        let mut span = span
            .says("gen_ai.response.finish_reasons", Value::Array(Array::String(reasons)))
            .says("gen_ai.response.time_to_first_chunk", first_token.duration().as_secs_f64());
        span.attributes.extend(tokens(usage));
        if self.otlp.captures_content() {
            let said = json!([content::message(message, Some(finish))]);
            span = span.says("gen_ai.output.messages", said.to_string());
        }
        self.end(span);
    }

    /// As labels of metrics, which are bounded.
    fn model_labels(&self) -> [KeyValue; 3] {
        let reference = self.begun.as_ref().map_or("", |begun| begun.spec.model.as_str());
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

    fn settled(&mut self, slot: CallSlot, attempt: u32, message: &SharedMessage, at: Timestamp, past: bool) {
        let Some(call) = self.calls.remove(&slot) else { return };
        let Some(result) = message.tool_result() else { return };
        let began = call.offered.unwrap_or(call.proposed);
        let error = result.status.is_error().then(|| result.status.as_str());
        if !past && call.offered.is_some() {
            self.otlp.instruments().tool_settled(&call.tool, at.since(began), error);
        }
        let name = match call.is_known {
            true => format!("execute_tool {}", call.tool),
            false => "execute_tool".to_owned(),
        };
        let span = self
            .span(SpanOf::Call(slot), name, began, at)
            .says("gen_ai.operation.name", "execute_tool")
            .says("gen_ai.tool.name", call.tool)
            .says("gen_ai.tool.type", "function")
            .says("gen_ai.tool.call.id", call.provider_id)
            .says("agentloop.tool.outcome", result.status.as_str())
            .says("agentloop.attempt", i64::from(attempt));
        let mut span = Span { error, ..span };
        if self.otlp.captures_content() {
            span = span
                .says("gen_ai.tool.call.arguments", call.arguments)
                .says("gen_ai.tool.call.result", result.output.clone());
        }
        self.end(span);
    }

    fn answered(&mut self, request: &RequestId, decision: &'static str, at: Timestamp) {
        let Some(question) = self.questions.remove(request) else { return };
        let span = self
            .span(SpanOf::Question(request.as_str()), "await_human".to_owned(), question.asked_at, at)
            .says("agentloop.human.decision", decision);
        let tool = Some(question.tool).filter(|tool| !tool.is_empty());
        let span = match tool {
            Some(tool) => span.says("gen_ai.tool.name", tool),
            None => span,
        };
        self.end(span);
    }

    fn compacted(&mut self, at: Timestamp, error: Option<&'static str>, usage: &Usage, past: bool) {
        let Some((number, began, strategy)) = self.compaction.take() else { return };
        if !past {
            self.otlp.instruments().compacted(&strategy);
        }
        let span = self.span(SpanOf::Compaction(number), "compact".to_owned(), began, at);
        let mut span = Span { error, ..span }.says("agentloop.compaction.strategy", strategy);
        span.attributes.extend(tokens(usage));
        self.end(span);
    }

    fn finished(
        &mut self,
        at: Timestamp,
        outcome: Outcome,
        error: Option<&RunError>,
        totals: &Totals,
        past: bool,
    ) {
        let code = match outcome {
            Outcome::Completed => None,
            Outcome::Failed | Outcome::Aborted => Some(error.map_or("unknown", |error| error.code.as_str())),
        };
        self.cut_off(at, code.unwrap_or("interrupted"));
        let Some(begun) = &self.begun else { return };
        let (agent, began) = (begun.spec.agent.clone(), begun.at);
        let (provider, model) = split(&begun.spec.model);
        if !past {
            self.otlp.instruments().run_finished(&agent, totals.duration, code);
        }
        let span = self
            .span(SpanOf::Run, format!("invoke_agent {agent}"), began, at)
            .says("gen_ai.operation.name", "invoke_agent")
            .says("gen_ai.agent.name", agent)
            .says("gen_ai.provider.name", provider.to_owned())
            .says("gen_ai.request.model", model.to_owned())
            .says("agentloop.run.iterations", i64::from(totals.iterations))
            .says("agentloop.run.tool_calls", i64::from(totals.tool_calls));
        let mut span = Span { error: code, ..span };
        span.attributes.extend(tokens(&totals.usage));
        if self.otlp.captures_content() {
            let asked: Vec<_> = self.asked.iter().map(|message| content::message(message, None)).collect();
            span = span.says("gen_ai.input.messages", json!(asked).to_string());
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
