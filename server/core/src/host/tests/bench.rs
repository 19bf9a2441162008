//! A fleet with one tenant for tests: inputs by short methods, outputs as short lines of text.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::host::frame::{
    CallCaller, CallInHand, CallOutcome, CallRef, CallRequest, CallResult, CancelCause, Disposition,
    HostFrame, InputAnswer, RejectReason, ServerFrame,
};
use crate::host::{
    CallUpdate, ConnectionId, Fleet, FleetInput, FleetOptions, FleetOutput, HostJoin, ServedTool,
};
use crate::id::{Attempt, CallId, HostId, RunId, SessionId, TenantId};
use crate::time::{Millis, Timestamp};
use crate::tool::{Digest, EffectClass, ToolTerms};

pub(super) struct Bench {
    pub(super) fleet: Fleet,
    pub(super) now: Timestamp,
}

pub(super) fn call(text: &str) -> CallId {
    CallId::parse(text).unwrap()
}

/// Reads `r/1.0#2` as the second attempt of a call. Without a number it is the first.
pub(super) fn call_ref(text: &str) -> CallRef {
    let (id, attempt) = text.split_once('#').unwrap_or((text, "1"));
    CallRef { call: call(id), attempt: Attempt(attempt.parse().unwrap()) }
}

pub(super) fn host(name: &str) -> HostId {
    HostId::parse(name).unwrap()
}

pub(super) fn lease(call: &CallRef) -> Digest {
    Digest::of(&[call.call.to_string().as_bytes(), &call.attempt.0.to_le_bytes()])
}

/// Reads `name`, `name@version`, or `name*2` for at most two calls at the same time.
pub(super) fn tool(text: &str) -> ServedTool {
    let (text, max) = text.split_once('*').map_or((text, None), |(t, max)| (t, Some(max.parse().unwrap())));
    let (name, version) = text.split_once('@').unwrap_or((text, "1"));
    let digest = Digest::of(&[name.as_bytes(), version.as_bytes()]);
    let terms = Arc::new(ToolTerms {
        effect: EffectClass::Unsafe,
        requires_approval: false,
        digest,
        output_schema: None,
    });
    ServedTool { name: name.to_owned(), terms, max_concurrency: max }
}

pub(super) fn request(text: &str, host_name: &str, tool: &str) -> Box<CallRequest> {
    let call = call_ref(text);
    Box::new(CallRequest {
        host: host(host_name),
        instance: None,
        lease: lease(&call),
        idempotency_key: "key".into(),
        tool: tool.into(),
        arguments: "{}".into(),
        deadline: Timestamp(1_000_000),
        time_left: Millis::secs(60),
        checkpoint: None,
        resume_state: None,
        answers: Vec::new(),
        runtime: None,
        traceparent: None,
        caller: CallCaller { name: None, tenant: TenantId::local(), groups: Arc::default() },
        session: SessionId::parse("s").unwrap(),
        call,
    })
}

pub(super) fn claim(text: &str, finished: bool, disposition: Disposition) -> (CallInHand, Disposition) {
    let call = call_ref(text);
    let lease = lease(&call).as_str().to_owned();
    (CallInHand { call, lease, finished }, disposition)
}

pub(super) fn joining(connection: u64, name: &str, credit: u64, tools: &[&str]) -> HostJoin {
    HostJoin {
        connection: ConnectionId(connection),
        host: host(name),
        instance: None,
        connection_no: 0,
        sdk: "test".into(),
        labels: BTreeMap::new(),
        tools: tools.iter().map(|text| tool(text)).collect(),
        credit,
        max_frame_bytes: 4096,
        runtimes: Vec::new(),
        claims: Vec::new(),
    }
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(FleetOptions::default())
    }

    pub(super) fn with(options: FleetOptions) -> Self {
        Self { fleet: Fleet::new(options), now: Timestamp(1_000) }
    }

    pub(super) fn input(&mut self, input: FleetInput) -> Vec<String> {
        let out = self.fleet.handle(&TenantId::local(), input, self.now);
        self.check();
        out.iter().map(show).collect()
    }

    /// Lets time pass. Every timer goes off when it is due.
    pub(super) fn pass(&mut self, length: Millis) -> Vec<String> {
        let end = self.now.after(length);
        let mut lines = Vec::new();
        while let Some(due) = self.fleet.deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            lines.extend(self.fleet.handle_time(self.now).iter().map(show));
            self.check();
        }
        self.now = end;
        lines
    }

    pub(super) fn check(&self) {
        if let Some(pool) = self.fleet.pool(&TenantId::local()) {
            pool.check();
        }
    }

    /// Asserts that the fleet holds no host, call or timer any more.
    pub(super) fn assert_empty(&self) {
        assert_eq!(self.fleet.hosts(&TenantId::local()), []);
        for tool in self.fleet.tools(&TenantId::local()) {
            assert_eq!((tool.calls, tool.queued), (0, 0), "{tool:?}");
        }
        assert_eq!(self.fleet.deadline(), None);
    }

    pub(super) fn join(&mut self, connection: u64, name: &str, credit: u64, tools: &[&str]) -> Vec<String> {
        self.input(FleetInput::Join(Box::new(joining(connection, name, credit, tools))))
    }

    pub(super) fn rejoin(
        &mut self,
        connection: u64,
        name: &str,
        tools: &[&str],
        claims: Vec<(CallInHand, Disposition)>,
    ) -> Vec<String> {
        self.input(FleetInput::Join(Box::new(HostJoin { claims, ..joining(connection, name, 8, tools) })))
    }

    pub(super) fn disconnect(&mut self, connection: u64) -> Vec<String> {
        self.input(FleetInput::Disconnected { connection: ConnectionId(connection) })
    }

    pub(super) fn link_lost(&mut self, host: &str) -> Vec<String> {
        self.input(FleetInput::LinkLost { host: HostId::parse(host).unwrap() })
    }

    pub(super) fn seek(&mut self, text: &str, tool: &str) -> Vec<String> {
        self.input(FleetInput::Seek { call: call(text), tool: tool.into(), on: None })
    }

    /// Seeks room for a call that only this host may get.
    pub(super) fn seek_on(&mut self, text: &str, tool: &str, name: &str) -> Vec<String> {
        self.input(FleetInput::Seek { call: call(text), tool: tool.into(), on: Some(host(name)) })
    }

    pub(super) fn offer(&mut self, text: &str, host: &str, tool: &str) -> Vec<String> {
        self.input(FleetInput::Offer { request: request(text, host, tool), unfit: None })
    }

    pub(super) fn reclaim(&mut self, text: &str, host: &str, tool: &str) -> Vec<String> {
        self.input(FleetInput::Reclaim(request(text, host, tool)))
    }

    pub(super) fn cancel_for(&mut self, text: &str, cause: CancelCause) -> Vec<String> {
        self.input(FleetInput::Cancel { call: call_ref(text), cause, reason: "why".into() })
    }

    pub(super) fn cancel(&mut self, text: &str) -> Vec<String> {
        self.cancel_for(text, CancelCause::Settled)
    }

    pub(super) fn stop_seeking(&mut self, text: &str) -> Vec<String> {
        self.input(FleetInput::StopSeeking { call: call_ref(text).call })
    }

    pub(super) fn release(&mut self, run: &str) -> Vec<String> {
        self.input(FleetInput::Release { run: RunId::parse(run).unwrap() })
    }

    pub(super) fn frame(&mut self, connection: u64, frame: HostFrame) -> Vec<String> {
        self.input(FleetInput::Frame { connection: ConnectionId(connection), frame })
    }

    pub(super) fn credit(&mut self, connection: u64, total: u64) -> Vec<String> {
        self.frame(connection, HostFrame::Credit { total })
    }

    pub(super) fn accept(&mut self, connection: u64, text: &str) -> Vec<String> {
        self.frame(connection, HostFrame::Accepted(call_ref(text)))
    }

    pub(super) fn reject(&mut self, connection: u64, text: &str, reason: RejectReason) -> Vec<String> {
        self.frame(connection, HostFrame::Rejected { call: call_ref(text), reason, message: "no".into() })
    }

    pub(super) fn heartbeat(&mut self, connection: u64, calls: &[&str]) -> Vec<String> {
        let calls = calls.iter().map(|text| call_ref(text)).collect();
        self.frame(connection, HostFrame::Heartbeat { calls, status: String::new() })
    }

    pub(super) fn answer(&mut self, connection: u64, text: &str) -> Vec<String> {
        let call = call_ref(text);
        let lease = lease(&call).as_str().to_owned();
        self.answer_with(connection, text, &lease)
    }

    pub(super) fn answer_with(&mut self, connection: u64, text: &str, lease: &str) -> Vec<String> {
        let outcome = CallOutcome::Succeeded {
            output: "42".into(),
            images: Vec::new(),
            attachments: Default::default(),
        };
        let result = CallResult { call: call_ref(text), lease: lease.to_owned(), outcome };
        self.frame(connection, HostFrame::Result(Box::new(result)))
    }

    /// Replies to the question `q` of a call.
    pub(super) fn reply(&mut self, text: &str, answer: InputAnswer) -> Vec<String> {
        self.input(FleetInput::AnswerInput { call: call_ref(text), input: "q".into(), answer })
    }

    /// The run recorded a state of a call.
    pub(super) fn recorded(&mut self, text: &str, resume_no: u64) -> Vec<String> {
        self.input(FleetInput::AckResumeState { call: call_ref(text), resume_no })
    }

    /// The run takes a call from its host, because it waits for a person.
    pub(super) fn release_call(&mut self, text: &str) -> Vec<String> {
        self.input(FleetInput::ReleaseCall { call: call_ref(text) })
    }

    pub(super) fn handled(&mut self, text: &str) -> Vec<String> {
        self.input(FleetInput::ResultHandled { call: call_ref(text) })
    }

    pub(super) fn not_recorded(&mut self, text: &str) -> Vec<String> {
        self.input(FleetInput::ResultNotRecorded { call: call_ref(text) })
    }

    /// Brings a call to the point where this host works on it.
    pub(super) fn running(&mut self, connection: u64, host: &str, text: &str, tool: &str) {
        let id = text.split('#').next().unwrap();
        assert_eq!(self.seek(id, tool), [format!("{id}: granted {host}")]);
        self.offer(text, host, tool);
        self.accept(connection, text);
    }

    pub(super) fn ignored(&self, name: &str) -> u64 {
        let hosts = self.fleet.hosts(&TenantId::local());
        hosts.iter().find(|view| view.host.as_str() == name).unwrap().ignored_frames
    }
}

fn show_ref(call: &CallRef) -> String {
    format!("{}#{}", call.call, call.attempt)
}

fn verdicts(tools: &[Option<String>]) -> String {
    let words: Vec<_> = tools.iter().map(|tool| tool.as_ref().map_or("ok", |_| "refused")).collect();
    words.join(",")
}

pub(super) fn show(output: &FleetOutput) -> String {
    match output {
        FleetOutput::Joined { connection, tools, calls } => {
            let calls: Vec<_> =
                calls.iter().map(|(call, verdict)| format!(" {} {verdict:?}", show_ref(call))).collect();
            format!("{connection} joined [{}]{}", verdicts(tools), calls.concat())
        }
        FleetOutput::ToolsReplaced { connection, tools } => {
            format!("{connection} tools [{}]", verdicts(tools))
        }
        FleetOutput::Send { connection, frame } => format!("{connection} <- {}", show_frame(frame)),
        FleetOutput::Close { connection, reason } => format!("{connection} closed {reason:?}"),
        FleetOutput::Update { call, update, .. } => format!("{call}: {}", show_update(update)),
        FleetOutput::Result { connection, host, result, .. } => {
            let from = connection.map_or_else(|| "nobody".to_owned(), |connection| connection.to_string());
            let what = match &result.outcome {
                CallOutcome::Succeeded { .. } => "succeeded",
                CallOutcome::Failed { .. } => "failed",
                CallOutcome::Rejected { .. } => "rejected",
            };
            format!("answer {} {what} by {host} for {from}", show_ref(&result.call))
        }
        FleetOutput::Served { tool, .. } => format!("served {tool}"),
        FleetOutput::Unserved { tool, .. } => format!("unserved {tool}"),
    }
}

fn show_frame(frame: &ServerFrame) -> String {
    match frame {
        ServerFrame::CallRequest(request) => format!("call {}", show_ref(&request.call)),
        ServerFrame::Cancel { call, .. } => format!("cancel {}", show_ref(call)),
        ServerFrame::OpenRuntime { runtime, .. } => format!("open {}", runtime.id),
        ServerFrame::CloseRuntime { runtime } => format!("close {runtime}"),
        ServerFrame::LeaseLost(call) => format!("lease lost {}", show_ref(call)),
        ServerFrame::InputResponse { input, answer, .. } => format!("input {input} {answer:?}"),
        ServerFrame::ResumeStateAck { call, resume_no } => format!("state {resume_no} of {}", show_ref(call)),
        ServerFrame::Ping { nonce } => format!("ping {nonce}"),
        ServerFrame::GoAway { .. } => "go away".to_owned(),
        ServerFrame::ProtocolError { .. } => "protocol error".to_owned(),
        ServerFrame::Welcome(_) | ServerFrame::ToolsUpdated(_) | ServerFrame::ResultAck { .. } => {
            panic!("the fleet does not send this: {frame:?}")
        }
    }
}

fn show_update(update: &CallUpdate) -> String {
    match update {
        CallUpdate::Granted { host, instance, .. } => {
            let process = instance.as_ref().map(|instance| format!(" at {instance}")).unwrap_or_default();
            format!("granted {host}{process}")
        }
        CallUpdate::Denied { message } => {
            let why = ["connected", "too many", "serves"].into_iter().find(|word| message.contains(word));
            format!("denied {}", why.unwrap_or(message))
        }
        CallUpdate::Accepted { attempt, host } => format!("accepted #{attempt} {host}"),
        CallUpdate::Checkpoint { attempt, checkpoint } => {
            format!("checkpoint #{attempt} {}", checkpoint.len())
        }
        CallUpdate::Resumable { attempt, resume_no, state } => {
            format!("resumable #{attempt} {resume_no} {}", state.len())
        }
        CallUpdate::InputNeeded { attempt, question, .. } => {
            format!(
                "input needed #{attempt} {} {}",
                question.input.as_deref().unwrap_or_default(),
                question.text
            )
        }
        CallUpdate::Stopped { attempt, begun, .. } => format!("stopped #{attempt} begun {begun}"),
        CallUpdate::Lost { attempt, ran, busy, .. } => {
            format!("lost #{attempt} ran {ran:?}{}", if *busy { " busy" } else { "" })
        }
        CallUpdate::Progress { attempt, message, .. } => format!("progress #{attempt} {message}"),
        CallUpdate::Output { attempt, chunk_seq, .. } => format!("output #{attempt} {chunk_seq}"),
    }
}
