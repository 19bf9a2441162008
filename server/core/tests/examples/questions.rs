//! Questions to people, decisions and answers.

use agentloop_core::id::{Attempt, CallId, RunId};
use agentloop_core::policy::{Approvers, PolicyRule, RuleOrigin};
use agentloop_core::run::event::Event;
use agentloop_core::run::human::{
    Answer, Decision, Question, QuestionContent, QuestionKind, RememberScope, Remembered, SelectOption,
};
use agentloop_core::run::plan::Instruction;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;

use super::{SLOT, no_weather, request};

pub(super) fn decisions() -> Vec<(&'static str, Event)> {
    let plain = |instruction| Event::Planned {
        instruction,
        planner: "careful".to_owned(),
        step: None,
        approved: None,
        named: None,
    };
    let prompt = |metadata| Instruction::RequestPrompt { question: "When?".to_owned(), metadata };
    let select = |metadata| Instruction::RequestSelect {
        question: "Which city?".to_owned(),
        options: vec![SelectOption { id: "rome".to_owned(), label: "Rome, Italy".to_owned() }],
        multiple: true,
        metadata,
    };
    let form =
        |metadata| Instruction::RequestForm { question: "Who?".to_owned(), form: FORM.to_owned(), metadata };
    let visit = |metadata| Instruction::RequestUrl {
        question: "Pay?".to_owned(),
        url: "https://pay.example".to_owned(),
        metadata,
    };
    let facts = || Some(r#"{"page":3}"#.to_owned());
    let question = CallId { run: RunId::parse("run-1").expect("a good id"), slot: SLOT }.request(Attempt(0));
    let step = |approved, named| Event::Planned {
        instruction: Instruction::CallTools,
        planner: String::new(),
        step: Some("step-2".to_owned()),
        approved,
        named,
    };
    vec![
        ("planned", plain(Instruction::CallModel)),
        ("planned.step", step(Some(question.clone()), None)),
        ("planned.step.named", step(None, Some(question))),
        ("planned.approve", plain(Instruction::RequestApproval)),
        ("planned.prompt", plain(prompt(None))),
        ("planned.prompt.metadata", plain(prompt(facts()))),
        ("planned.select", plain(select(None))),
        ("planned.select.metadata", plain(select(facts()))),
        ("planned.form", plain(form(None))),
        ("planned.form.metadata", plain(form(facts()))),
        ("planned.url", plain(visit(None))),
        ("planned.url.metadata", plain(visit(facts()))),
        ("planned.compact", plain(Instruction::Compact { strategy: "extract".to_owned() })),
        ("planned.finish", plain(Instruction::Finish { failure: None })),
        ("planned.failure", plain(Instruction::Finish { failure: Some("no way on".to_owned()) })),
    ]
}

pub(super) fn questions() -> Vec<(&'static str, Event)> {
    let question = |kind, expires_at| Event::HumanRequested {
        resume_state: None,
        question: Question {
            request: request(),
            kind,
            slot: Some(SLOT),
            tool: "weather".to_owned(),
            content: None,
            arguments: r#"{"city": "Köln"}"#.to_owned(),
            digest: Digest::of(&[b"weather", b"{}"]),
            why: String::new(),
            terms: None,
            asked_at: Timestamp(1_790_000_003_000),
            expires_at,
            approvers: Approvers::default(),
        },
    };
    vec![
        ("human_requested", question(QuestionKind::Approve, Some(Timestamp(1_790_000_600_000)))),
        ("human_requested.in_doubt", question(QuestionKind::InDoubt, None)),
        ("human_requested.in_doubt_why", doubted()),
        ("human_requested.again", asked_again()),
        ("human_requested.approvers", asked_of_two()),
        ("human_requested.prompt", prompted()),
        ("human_requested.select", selected()),
        ("human_requested.resume", suspended()),
        ("human_requested.form", form_asked()),
        ("human_requested.url", visit_asked()),
        ("human_requested.allow_empty", maybe_empty()),
    ]
}

fn doubted() -> Event {
    Event::HumanRequested {
        resume_state: None,
        question: Question {
            request: request(),
            kind: QuestionKind::InDoubt,
            slot: Some(SLOT),
            tool: "weather".to_owned(),
            terms: None,
            content: None,
            arguments: "{}".to_owned(),
            digest: Digest::of(&[b"weather", b"{}"]),
            why: "no answer within 30 s".to_owned(),
            asked_at: Timestamp(1_790_000_003_000),
            expires_at: None,
            approvers: Approvers::default(),
        },
    }
}

/// For two of a group, and not for the one who started the run.
fn asked_of_two() -> Event {
    let Event::HumanRequested { question, .. } = asked_again() else { unreachable!("a question") };
    let approvers = Approvers {
        any_of: vec!["group:sre".to_owned(), "ada".to_owned()],
        forbid_requester: true,
        quorum: 2,
    };
    Event::HumanRequested { question: Question { approvers, ..question }, resume_state: None }
}

fn first_of_two() -> Event {
    Event::HumanApproved {
        request: request(),
        slot: Some(SLOT),
        by: "ada".to_owned(),
        approvals: 1,
        quorum: 2,
    }
}

/// About a call whose host declares stricter terms than the call was approved under.
fn asked_again() -> Event {
    let run = RunId::parse("r-1").expect("an id");
    Event::HumanRequested {
        resume_state: None,
        question: Question {
            request: CallId { run, slot: SLOT }.request_again(Attempt(1), 2),
            kind: QuestionKind::Approve,
            slot: Some(SLOT),
            tool: "weather".to_owned(),
            arguments: "{}".to_owned(),
            digest: Digest::of(&[b"weather", b"{}"]),
            terms: Some(Digest::of(&[b"terms"])),
            content: None,
            why: String::new(),
            asked_at: Timestamp(1_790_000_003_000),
            expires_at: None,
            approvers: Approvers::default(),
        },
    }
}

/// A question that the planner asks.
fn prompted() -> Event {
    let run = RunId::parse("r-1").expect("an id");
    let ask = QuestionContent { text: "Which city?".to_owned(), ..QuestionContent::default() };
    Event::HumanRequested {
        resume_state: None,
        question: Question::planned(&run, 3, ask, Timestamp(1_790_000_003_000), None),
    }
}

const FORM: &str = r#"{"type":"object","properties":{"name":{"type":"string"}}}"#;

/// Any question with a content of its own, by the planner.
fn planned_question(content: QuestionContent) -> Event {
    let run = RunId::parse("r-1").expect("an id");
    Event::HumanRequested {
        resume_state: None,
        question: Question::planned(&run, 3, content, Timestamp(1_790_000_003_000), None),
    }
}

fn form_asked() -> Event {
    let metadata = Some(r#"{"icon":"id"}"#.to_owned());
    let (text, form) = ("Who?".to_owned(), Some(FORM.to_owned()));
    planned_question(QuestionContent { text, form, metadata, ..QuestionContent::default() })
}

fn visit_asked() -> Event {
    let (text, url) = ("Pay?".to_owned(), Some("https://pay.example".to_owned()));
    planned_question(QuestionContent { text, url, ..QuestionContent::default() })
}

fn maybe_empty() -> Event {
    let text = "Anything else?".to_owned();
    planned_question(QuestionContent { text, allow_empty: true, ..QuestionContent::default() })
}

/// By a call that a host has.
fn selected() -> Event {
    let option = |id: &str, label: &str| SelectOption { id: id.to_owned(), label: label.to_owned() };
    let ask = QuestionContent {
        text: "Which unit?".to_owned(),
        options: vec![option("c", "Celsius"), option("f", "Fahrenheit")],
        multiple: true,
        input: Some("unit".to_owned()),
        ..QuestionContent::default()
    };
    let call = CallId { run: RunId::parse("r-1").expect("an id"), slot: SLOT };
    Event::HumanRequested {
        resume_state: None,
        question: Question {
            request: call.input(Attempt(1), 2),
            kind: ask.kind(),
            slot: Some(SLOT),
            tool: "weather".to_owned(),
            arguments: String::new(),
            digest: ask.digest(),
            terms: None,
            content: Some(Box::new(ask)),
            why: String::new(),
            asked_at: Timestamp(1_790_000_003_000),
            expires_at: Some(Timestamp(1_790_000_600_000)),
            approvers: Approvers::default(),
        },
    }
}

/// By a call that gives its host up until the answer.
fn suspended() -> Event {
    let Event::HumanRequested { question, .. } = selected() else { unreachable!("a question") };
    Event::HumanRequested { question, resume_state: Some(vec![0x00, 0xff]) }
}

pub(super) fn answers() -> Vec<(&'static str, Event)> {
    let resolved = |decision, by: &str| Event::HumanResolved {
        request: request(),
        slot: Some(SLOT),
        answer: Answer::new(decision, by.to_owned(), Timestamp(1_790_000_005_000)),
    };
    let message = || "not on a Sunday".to_owned();
    vec![
        ("human_approved", first_of_two()),
        ("human_resolved", resolved(Decision::Approve, "ada@example.org")),
        (
            "human_resolved.edits",
            resolved(Decision::ApproveWithEdits { arguments: r#"{"city":"Bonn"}"#.to_owned() }, "ada"),
        ),
        ("human_resolved.deny", resolved(Decision::Deny { message: message() }, "ada")),
        ("human_resolved.stop", resolved(Decision::DenyAndStop { message: message() }, "ada")),
        ("human_resolved.answer", resolved(Decision::AnswerInPlace { output: "22".to_owned() }, "ada")),
        ("human_resolved.selected", resolved(Decision::Selected { options: vec!["c".to_owned()] }, "ada")),
        (
            "human_resolved.filled",
            resolved(Decision::Filled { fields: r#"{"name":"Ada"}"#.to_owned() }, "ada"),
        ),
        ("human_resolved.visited", resolved(Decision::Visited { done: true }, "ada")),
        ("human_resolved.declined", resolved(Decision::Declined { message: message() }, "ada")),
        ("human_resolved.text", planned_answer()),
        ("human_resolved.remembered", remembered()),
        ("human_resolved.followed", followed()),
        ("human_resolved.made_under", remembered_by_approver()),
        ("human_resolved.expired", resolved(Decision::Expired, "")),
        ("human_resolved.withdrawn", resolved(Decision::Withdrawn, "")),
    ]
}

fn denied(answer: Answer) -> Event {
    Event::HumanResolved { request: request(), slot: Some(SLOT), answer }
}

fn remembered() -> Event {
    let rule = no_weather(RuleOrigin::Session);
    let decision = Decision::Deny { message: "not on a Sunday".to_owned() };
    let answer = Answer::new(decision, "ada".to_owned(), Timestamp(1_790_000_005_000));
    let remembered = Some(Box::new(Remembered { scope: RememberScope::Session, rule }));
    denied(Answer { remembered, ..answer })
}

/// By somebody whom a rule names.
fn remembered_by_approver() -> Event {
    let Event::HumanResolved { answer, .. } = remembered() else { unreachable!("an answer") };
    let rule =
        PolicyRule { made_under: Some(Digest::of(&[b"approvers"])), ..no_weather(RuleOrigin::Session) };
    let remembered = Some(Box::new(Remembered { scope: RememberScope::Session, rule }));
    denied(Answer { remembered, ..answer })
}

fn followed() -> Event {
    let decision = Decision::Deny { message: "not on a Sunday".to_owned() };
    let answer = Answer::new(decision, "ada".to_owned(), Timestamp(1_790_000_005_000));
    denied(Answer { followed: Some(Box::new(no_weather(RuleOrigin::Run))), ..answer })
}

/// To what the planner asked.
fn planned_answer() -> Event {
    let decision = Decision::Text { text: "Köln".to_owned() };
    Event::HumanResolved {
        request: RunId::parse("r-1").expect("an id").planned_question(3),
        slot: None,
        answer: Answer::new(decision, "ada".to_owned(), Timestamp(1_790_000_005_000)),
    }
}
