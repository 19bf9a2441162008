//! An append in its stored form: its events as rows, and what they mean for the tables beside the journal.

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::{EntryNo, Epoch, RequestId, RunId, RunKey, Seq, SessionId, SessionKey};
use agentloop_core::message::{Message, Part, Role};
use agentloop_core::run::event::{EntryContent, Event};
use agentloop_core::run::human::{Answer, RememberScope};
use agentloop_core::time::Timestamp;

use crate::store::support::codec::{self, EncodedEvent, EncodedSpec};
use crate::store::{Append, CreateRun, JobKind, RuleRow, RunSummary};

/// An append, ready to be checked and written.
#[derive(Debug)]
pub(in crate::store) struct EncodedAppend {
    pub(in crate::store) run: RunKey,
    pub(in crate::store) session: SessionKey,
    pub(in crate::store) epoch: Epoch,
    /// The event that the first one follows; 0 for a new run.
    pub(in crate::store) after: Seq,
    pub(in crate::store) last: Seq,
    /// Time of the first event.
    pub(in crate::store) began_at: Timestamp,
    /// Time of the last event.
    pub(in crate::store) ended_at: Timestamp,
    pub(in crate::store) events: Vec<EncodedEvent>,
    /// The spec that the first event of a new run is stored without.
    pub(in crate::store) spec: Option<EncodedSpec>,
    /// Entries that the run adds to its session, in order.
    pub(in crate::store) entries: Vec<NewEntry>,
    pub(in crate::store) asked: Vec<NewQuestion>,
    pub(in crate::store) answered: Vec<ClosedQuestion>,
    /// Rules that outlive the run.
    pub(in crate::store) remembered: Vec<RuleRow>,
    pub(in crate::store) steers: Vec<NewSteer>,
    /// True when the last event ends the run.
    pub(in crate::store) finished: bool,
    pub(in crate::store) summary: RunSummary,
    pub(in crate::store) create: Option<CreateRun>,
    pub(in crate::store) enter: Option<EntryNo>,
    pub(in crate::store) jobs: Vec<JobKind>,
    pub(in crate::store) todos: Vec<NewTodos>,
    /// Blobs that its entries name, with the entry.
    pub(in crate::store) blobs: Vec<(EntryNo, BlobDigest)>,
}

/// An entry that an append adds to its session.
#[derive(Debug)]
pub(in crate::store) struct NewEntry {
    pub(in crate::store) entry: EntryNo,
    /// The event that holds its content, which may be older than the append.
    pub(in crate::store) seq: Seq,
    /// True for a message that the search index gets a document of.
    pub(in crate::store) is_searched: bool,
}

/// A question that a run asks a human.
#[derive(Debug)]
pub(in crate::store) struct NewQuestion {
    /// Its id without that of the run.
    pub(in crate::store) question: String,
    pub(in crate::store) asked_at: Timestamp,
    pub(in crate::store) seq: Seq,
}

/// A question that is answered, or needs no answer any more.
#[derive(Debug)]
pub(in crate::store) struct ClosedQuestion {
    /// Its id without that of the run.
    pub(in crate::store) question: String,
    pub(in crate::store) seq: Seq,
}

/// A to-do list that a run writes.
#[derive(Debug)]
pub(in crate::store) struct NewTodos {
    /// Entry of the call's result.
    pub(in crate::store) entry: EntryNo,
    /// The list as JSON.
    pub(in crate::store) items: String,
}

/// A request that hands its messages to the run instead of starting one.
#[derive(Debug)]
pub(in crate::store) struct NewSteer {
    /// The id of the request, which would have been that of a run.
    pub(in crate::store) request: RunId,
    /// The event that holds the messages.
    pub(in crate::store) seq: Seq,
}

impl EncodedAppend {
    /// Encodes an append. The caller's task does this, so that the writer's time goes to writing.
    ///
    /// # Panics
    /// When there are no records, when they are not dense from `after`, or when one asks a question in another run's
    /// name: each is a bug of the caller.
    pub(in crate::store) fn new(append: Append) -> Self {
        let (first, last) = match append.records.as_slice() {
            [first, .., last] | [first @ last] => (first, last),
            [] => panic!("an append has at least one record"),
        };
        let mut encoded = Self {
            began_at: first.at,
            ended_at: last.at,
            last: last.seq,
            run: RunKey::new(append.tenant.clone(), append.run),
            session: SessionKey::new(append.tenant, append.session),
            epoch: append.epoch,
            after: append.after,
            events: Vec::with_capacity(append.records.len()),
            spec: None,
            entries: Vec::new(),
            asked: Vec::new(),
            answered: Vec::new(),
            remembered: Vec::new(),
            steers: Vec::new(),
            finished: false,
            summary: append.summary,
            create: append.create,
            enter: append.enter,
            jobs: append.jobs,
            todos: Vec::new(),
            blobs: Vec::new(),
        };
        let mut seq = append.after;
        for record in &append.records {
            seq = seq.next();
            assert_eq!(record.seq, seq, "records are dense");
            encoded.derive(seq, &record.event);
            let event = if encoded.create.is_some() && encoded.events.is_empty() {
                let (event, spec) = codec::encode_first(&encoded.run.run, record);
                encoded.spec = spec;
                event
            } else {
                codec::encode(&encoded.run.run, record)
            };
            encoded.events.push(event);
        }
        encoded
    }

    /// Bytes that it adds to the journal.
    pub(in crate::store) fn bytes(&self) -> usize {
        self.events.iter().map(|event| event.payload.len()).sum()
    }

    /// Adds the rows of other tables that follow from an event.
    fn derive(&mut self, seq: Seq, event: &Event) {
        let is_searched = is_searched(event);
        match event.entry() {
            Some((entry, EntryContent::Own)) => self.entries.push(NewEntry { entry, seq, is_searched }),
            Some((entry, EntryContent::Held(seq))) => self.entries.push(NewEntry { entry, seq, is_searched }),
            None => {}
        }
        if let Event::HumanRequested { question, .. } = event {
            let asked_at = question.asked_at;
            let question = question_of(&self.run.run, &question.request);
            self.asked.push(NewQuestion { question, asked_at, seq });
        }
        if let Event::HumanResolved { request, answer, .. } = event {
            let question = question_of(&self.run.run, request);
            self.answered.push(ClosedQuestion { question, seq });
            self.remembered.extend(rule_row(&self.session.session, request, answer));
        }
        if let Event::TodosUpdated { result, items, .. } = event {
            self.todos.push(NewTodos { entry: *result, items: codec::text(items) });
        }
        if let Event::CallSettled { entry, message, .. } | Event::Imported { entry, message, .. } = event {
            self.blobs.extend(blobs_of(message).map(|digest| (*entry, digest.clone())));
        }
        if let Event::MessageHeld { steer: Some(steer), .. } = event {
            self.steers.push(NewSteer { request: steer.id.clone(), seq });
        }
        self.finished |= matches!(event, Event::Finished { .. });
    }
}

/// True if the event adds an entry that searches find: a message with text, or one that was held, whose text is not
/// looked at here. Outputs of tools and messages of context sources are not found.
fn is_searched(event: &Event) -> bool {
    match event {
        Event::MessageAdded { message, .. }
        | Event::AssistantMessage { message, .. }
        | Event::Imported { message, .. } => {
            message.role != Role::Tool && message.parts.iter().any(|part| matches!(part, Part::Text { .. }))
        }
        other => matches!(other.entry(), Some((_, EntryContent::Held(_)))),
    }
}

/// The blobs that the results of a message name.
fn blobs_of(message: &Message) -> impl Iterator<Item = &BlobDigest> {
    let results = message.parts.iter().filter_map(|part| match part {
        Part::ToolResult(result) => Some(result),
        Part::Text { .. } | Part::Reasoning(_) | Part::Opaque(_) | Part::Image { .. } | Part::ToolCall(_) => {
            None
        }
    });
    results.flat_map(|result| result.attachments.blobs())
}

/// The id of a run's question without that of the run.
fn question_of(run: &RunId, request: &RequestId) -> String {
    let parts = request.parts().filter(|(of, _)| of == run);
    parts.expect("a run asks in its own name").1.to_owned()
}

/// The rule that an answer leaves to runs that start later. `None` if nothing outlives the run.
fn rule_row(session: &SessionId, request: &RequestId, answer: &Answer) -> Option<RuleRow> {
    let remembered = answer.remembered.as_deref()?;
    let session = match remembered.scope {
        RememberScope::Run => return None,
        RememberScope::Session => Some(session.clone()),
        RememberScope::Tenant => None,
    };
    Some(RuleRow {
        id: request.rule(answer.at),
        session,
        request: request.clone(),
        rule: remembered.rule.clone(),
        by: answer.by.clone(),
        at: answer.at,
    })
}
