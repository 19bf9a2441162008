//! `agentloop approve`: lists the questions that wait for a human, or answers one.

use agentloop_client::{
    Client, Error,
    v1::{
        AnswerInPlace, Approve, ApproveWithEdits, Deny, DenyAndStop, HumanRequest, ListPendingRequest,
        RememberScope, Selection, SubmitApprovalRequest, SubmitInputRequest, decision::Decision as Kind,
        submit_input_request::Input,
    },
};

use crate::{
    args::{ApproveArgs, DecisionArgs, Global, Remember},
    command::ids::{self, Kind as IdKind},
    exit::{Exit, Failure},
    terminal::answer::decision,
    terminal::commands,
    terminal::format,
    terminal::json,
    terminal::print,
    terminal::render::status::{OptionNames, answered as describe, question},
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
            list(global, &client, session, run).await
        }
    }
}

async fn list(
    global: &Global,
    client: &Client,
    session: Option<String>,
    run: Option<String>,
) -> Result<Exit, Failure> {
    let filter = ListPendingRequest {
        session_id: session.unwrap_or_default(),
        run_id: run.unwrap_or_default(),
        page_size: PAGE_SIZE,
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
        print::line("nothing waits for a human")?;
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
    decided: DecisionArgs,
    remember: RememberScope,
    decided_by: String,
) -> Result<Exit, Failure> {
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
        let answer = describe(&settled.answer.unwrap_or_default(), &settled.options);
        let line = format!("{} {}: {answer}", settled.tool, settled.request_id);
        print::line(&Style::of(&std::io::stdout()).strip_unsafe(line.trim_start()))?;
    }
    Ok(Exit::Completed)
}

fn scope(remember: Remember) -> RememberScope {
    match remember {
        Remember::Run => RememberScope::Run,
        Remember::Session => RememberScope::Session,
        Remember::Always => RememberScope::Rule,
    }
}

/// The answer to a question of kind PROMPT or SELECT; `None` for a decision on a tool call.
fn input(given: &DecisionArgs) -> Option<Input> {
    if let Some(text) = &given.text {
        return Some(Input::Text(text.clone()));
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
