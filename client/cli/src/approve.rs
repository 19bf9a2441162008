//! `agentloop approve`.

use agentloop_client::{
    Client, Error,
    v1::{
        AnswerInPlace, Approve, ApproveWithEdits, Deny, DenyAndStop, HumanRequest, ListPendingRequest,
        SubmitApprovalRequest, decision::Decision as Kind,
    },
};

use crate::{
    answer::decision,
    args::{ApproveArgs, DecisionArgs, Global},
    exit::{Exit, Failure},
    json, names, print,
    render::status::{decision as in_words, question},
    style::Style,
};

const PAGE_SIZE: u32 = 100;

pub(crate) async fn approve(global: &Global, args: ApproveArgs) -> Result<Exit, Failure> {
    let client = global.client()?;
    match args.request {
        Some(request_id) => answer(global, &client, request_id, args.decision, args.decided_by).await,
        None => list(global, &client, args.session, args.run).await,
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
        page_token: String::new(),
    };
    let waiting = pending(client, filter).await?;
    let style = Style::of(&std::io::stdout());
    for request in &waiting {
        if global.json() {
            print::line(&json::line("HumanRequest", request))?;
        } else {
            let since = names::time(request.created_at.as_ref());
            print::line(&question(style, request))?;
            print::line(&style.dim(&format!("  run {}, asked {since}", request.run_id)))?;
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
    decided_by: String,
) -> Result<Exit, Failure> {
    let answer = SubmitApprovalRequest {
        request_id,
        decision: Some(decision(kind(decided))),
        decided_by,
        ..SubmitApprovalRequest::default()
    };
    let settled = client.submit_approval(answer).await?;
    if global.json() {
        print::line(&json::line("HumanRequest", &settled))?;
    } else {
        let answer = settled.answer.and_then(|answer| answer.decision).unwrap_or_default();
        print::line(&format!("{} {}: {}", settled.tool, settled.request_id, in_words(&answer)))?;
    }
    Ok(Exit::Completed)
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
