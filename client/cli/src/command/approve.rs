//! `agentloop approve`: lists the questions that wait for a human, or answers one.

use agentloop_client::{
    Client, Error,
    v1::{
        AnswerInPlace, Approve, ApproveWithEdits, Declined, Deny, DenyAndStop, HumanRequest,
        HumanRequestKind, ListPendingRequest, PendingFilter, RememberScope, Selection, SubmitApprovalRequest,
        SubmitInputRequest, UrlOutcome, decision::Decision as Kind, submit_input_request::Input,
    },
};

use crate::{
    args::{ApproveArgs, DecisionArgs, Global, Remember},
    command::ids::{self, Kind as IdKind},
    exit::{Exit, Failure},
    terminal::answer::decision,
    terminal::commands,
    terminal::form::FormEntry,
    terminal::format,
    terminal::input_lines::InputLines,
    terminal::json,
    terminal::print,
    terminal::render::status::{OptionNames, answered as describe, approvers, question},
    terminal::style::Style,
};

const PAGE_SIZE: u32 = 100;

pub(crate) async fn approve(global: &Global, args: ApproveArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    match args.request {
        Some(request_id) => {
            let remember = args.remember.map_or(RememberScope::Unspecified, scope);
            answer(global, &client, request_id, args.decision, remember, args.decided_by).await
        }
        None => {
            let session = ids::session_filter(&client, args.session).await?;
            let run = ids::run_filter(&client, args.run).await?;
            list(global, &client, session, run, args.all).await
        }
    }
}

async fn list(
    global: &Global,
    client: &Client,
    session: Option<String>,
    run: Option<String>,
    all: bool,
) -> Result<Exit, Failure> {
    let filter = ListPendingRequest {
        session_id: session.unwrap_or_default(),
        run_id: run.unwrap_or_default(),
        page_size: PAGE_SIZE,
        filter: (!all).then(|| PendingFilter { mine: true, ..PendingFilter::default() }),
        ..ListPendingRequest::default()
    };
    let waiting = pending(client, filter).await?;
    let (style, option) = (Style::of(&std::io::stdout()), global.server_option());
    for request in &waiting {
        if global.json() {
            print::line(&json::line("HumanRequest", request))?;
        } else {
            let since = format::time(request.created_at.as_ref());
            print::line(&question(style, request, OptionNames::Ids))?;
            print::line(&style.dim(&format!("  run {}, asked {since}", request.run_id)))?;
            print::line(
                &style.dim(&style.strip_unsafe(&format!("  {}{option}", commands::answer(request)))),
            )?;
        }
    }
    if waiting.is_empty() && !global.json() {
        let others = if all { "" } else { ", or only for others (--all lists those)" };
        print::line(&format!("nothing waits for a human{others}"))?;
    }
    Ok(Exit::Completed)
}

async fn pending(client: &Client, mut filter: ListPendingRequest) -> Result<Vec<HumanRequest>, Error> {
    let mut waiting = Vec::new();
    loop {
        let page = client.list_pending(filter.clone()).await?;
        waiting.extend(page.requests);
        if page.next_page_token.is_empty() {
            return Ok(waiting);
        }
        filter.page_token = page.next_page_token;
    }
}

async fn answer(
    global: &Global,
    client: &Client,
    request_id: String,
    mut decided: DecisionArgs,
    remember: RememberScope,
    decided_by: String,
) -> Result<Exit, Failure> {
    if decided.form.as_ref().is_some_and(String::is_empty) {
        let request_id = ids::open_question(client, &request_id).await?;
        decided.form = Some(fill_in(client, &request_id).await?);
    }
    let settled = match input(&decided) {
        Some(input) => {
            let submit = |request_id: String| async {
                let (input, answered_by) = (Some(input.clone()), decided_by.clone());
                client.submit_input(SubmitInputRequest { request_id, input, answered_by }).await
            };
            ids::called(client, IdKind::Question, &request_id, submit).await?
        }
        None => {
            let decided = decision(kind(decided));
            let submit = |request_id: String| async {
                let answer = SubmitApprovalRequest {
                    request_id,
                    decision: Some(decided.clone()),
                    remember: remember.into(),
                    decided_by: decided_by.clone(),
                    ..SubmitApprovalRequest::default()
                };
                client.submit_approval(answer).await
            };
            ids::called(client, IdKind::Question, &request_id, submit).await?
        }
    };
    if global.json() {
        print::line(&json::line("HumanRequest", &settled))?;
    } else {
        let style = Style::of(&std::io::stdout());
        let answer = match &settled.answer {
            Some(answer) => describe(answer, &settled.options),
            None => format!("approved, and still open: {}", approvers(style, &settled).unwrap_or_default()),
        };
        let line = format!("{} {}: {answer}", settled.tool, settled.request_id);
        print::line(&style.strip_unsafe(line.trim_start()))?;
    }
    Ok(Exit::Completed)
}

/// Asks for the fields of a form, one line of standard input each.
async fn fill_in(client: &Client, request_id: &str) -> Result<String, Failure> {
    let waiting = pending(client, ListPendingRequest { page_size: PAGE_SIZE, ..Default::default() }).await?;
    let asked = waiting
        .iter()
        .find(|request| request.kind() == HumanRequestKind::Form && request.request_id == request_id);
    let asked = asked.ok_or_else(|| Failure::Other(format!("no form waits under the id {request_id}")))?;
    let style = Style::of(&std::io::stderr());
    eprintln!("{}", question(style, asked, OptionNames::Ids));
    let (mut form, mut lines) = (FormEntry::of(&asked.form_schema_json), InputLines::of_stdin());
    loop {
        eprint!("  {}: ", form.prompt());
        let Some(line) = lines.next().await else {
            return Err(Failure::Other("the form is not whole: standard input ended".into()));
        };
        match form.enter(&line) {
            Ok(Some(form_json)) => return Ok(form_json),
            Ok(None) => {}
            Err(why) => eprintln!("  {}", style.strip_unsafe(&why)),
        }
    }
}

fn scope(remember: Remember) -> RememberScope {
    match remember {
        Remember::Run => RememberScope::Run,
        Remember::Session => RememberScope::Session,
        Remember::Always => RememberScope::Rule,
    }
}

/// The answer to a question that is not about a tool call; `None` for a decision on one.
fn input(given: &DecisionArgs) -> Option<Input> {
    if let Some(text) = &given.text {
        return Some(Input::Text(text.clone()));
    }
    if let Some(form_json) = &given.form {
        return Some(Input::FormJson(form_json.clone()));
    }
    if let Some(message) = &given.decline {
        return Some(Input::Declined(Declined { message: message.clone() }));
    }
    if given.done || given.not_done {
        let outcome = if given.done { UrlOutcome::Done } else { UrlOutcome::NotDone };
        return Some(Input::Url(outcome.into()));
    }
    let option_ids = given.choose.clone();
    (!option_ids.is_empty()).then_some(Input::Selection(Selection { option_ids }))
}

fn kind(decided: DecisionArgs) -> Kind {
    match decided {
        DecisionArgs { deny: Some(message), .. } => Kind::Deny(Deny { message }),
        DecisionArgs { stop: Some(message), .. } => Kind::DenyAndStop(DenyAndStop { message }),
        DecisionArgs { edit: Some(arguments_json), .. } => {
            Kind::ApproveWithEdits(ApproveWithEdits { arguments_json })
        }
        DecisionArgs { answer: Some(output), .. } => Kind::AnswerInPlace(AnswerInPlace { output }),
        DecisionArgs { .. } => Kind::Approve(Approve {}),
    }
}
