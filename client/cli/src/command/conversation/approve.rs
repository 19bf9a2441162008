//! `agentloop approve`: lists the questions that wait for a human, or answers one.

use agentloop_client::{
    Client, Error,
    v1::{
        AnswerInPlace, Approve, ApproveWithEdits, Declined, Deny, DenyAndStop, HumanRequest,
        HumanRequestKind, ListPendingRequest, PendingFilter, RememberScope, SelectOption, Selection,
        SubmitApprovalRequest, SubmitInputRequest, UrlOutcome, decision::Decision as Kind,
        submit_input_request::Input,
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
    terminal::render::status::{AskedQuestion, OptionNames, answered as describe, approvers, question},
    terminal::style::Style,
};

const PAGE_SIZE: u32 = 100;

/// An answer as it is given, to a question of any kind.
#[derive(Debug, PartialEq)]
enum Answer {
    /// A decision on a tool call.
    Decision(Kind),
    /// A text, a choice, a form or a visit, or a refusal to answer.
    Input(Input),
}

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
    let mut waiting = pending(client, filter).await?;
    // The server has those of one moment in the order of their ids as texts.
    waiting.sort_by_cached_key(|request| (since(request), in_order(&request.request_id)));
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

fn since(request: &HumanRequest) -> (i64, i32) {
    request.created_at.as_ref().map_or((0, 0), |at| (at.seconds, at.nanos))
}

/// A key that orders ids by their numbers: `r:1.2:0` comes before `r:1.10:0`.
fn in_order(id: &str) -> Vec<(u64, String)> {
    let parts = id.split_inclusive(|c: char| !c.is_ascii_digit());
    let numbered = parts.map(|part| {
        let text = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = part[..part.len() - text.len()].parse().unwrap_or_default();
        (number, text.to_owned())
    });
    numbered.collect()
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
    let given = match input(&decided) {
        Some(input) => Answer::Input(input),
        None => Answer::Decision(kind(decided)),
    };
    let mut sent = send(client, &request_id, &given, remember, &decided_by).await;
    if sent.as_ref().is_err_and(is_invalid)
        && let Some(request) = open_request(client, &request_id).await
    {
        if let Some(meant) = with_option_ids(&given, &request) {
            sent = send(client, &request.request_id, &meant, remember, &decided_by).await;
        }
        sent = sent.map_err(|failure| explained(failure, &given, &request, &global.server_option()));
    }
    let settled = sent?;
    if global.json() {
        print::line(&json::line("HumanRequest", &settled))?;
    } else {
        let style = Style::of(&std::io::stdout());
        let answer = match &settled.answer {
            Some(answer) => describe(answer, &AskedQuestion::of(&settled)),
            None => format!("approved, and still open: {}", approvers(style, &settled).unwrap_or_default()),
        };
        let line = format!("{} {}: {answer}", settled.tool, settled.request_id);
        print::line(&style.strip_unsafe(line.trim_start()))?;
    }
    Ok(Exit::Completed)
}

/// Sends an answer to the question with this id, which may be abbreviated.
async fn send(
    client: &Client,
    request_id: &str,
    given: &Answer,
    remember: RememberScope,
    decided_by: &str,
) -> Result<HumanRequest, Failure> {
    match given {
        Answer::Input(input) => {
            let submit = |request_id: String| async {
                let (input, answered_by) = (Some(input.clone()), decided_by.to_owned());
                client.submit_input(SubmitInputRequest { request_id, input, answered_by }).await
            };
            ids::called(client, IdKind::Question, request_id, submit).await
        }
        Answer::Decision(kind) => {
            let submit = |request_id: String| async {
                let answer = SubmitApprovalRequest {
                    request_id,
                    decision: Some(decision(kind.clone())),
                    remember: remember.into(),
                    decided_by: decided_by.to_owned(),
                    ..SubmitApprovalRequest::default()
                };
                client.submit_approval(answer).await
            };
            ids::called(client, IdKind::Question, request_id, submit).await
        }
    }
}

/// True if the server refused the answer because it does not fit its question, or is otherwise invalid.
fn is_invalid(failure: &Failure) -> bool {
    matches!(failure, Failure::Client(error) if error.code() == Some(tonic::Code::InvalidArgument))
}

/// The open question with this id, which may be abbreviated. `None` if it cannot be found.
async fn open_request(client: &Client, given: &str) -> Option<HumanRequest> {
    let request_id = ids::open_question(client, given).await.ok()?;
    let all = ListPendingRequest { page_size: PAGE_SIZE, ..ListPendingRequest::default() };
    let waiting = pending(client, all).await.ok()?;
    waiting.into_iter().find(|request| request.request_id == request_id)
}

/// The same choice with ids in place of labels. `None` if it has no labels, or a text that names no single option.
fn with_option_ids(given: &Answer, request: &HumanRequest) -> Option<Answer> {
    let Answer::Input(Input::Selection(chosen)) = given else { return None };
    let ids = chosen.option_ids.iter().map(|name| option_id(&request.options, name).ok());
    let option_ids = ids.collect::<Option<Vec<String>>>()?;
    (option_ids != chosen.option_ids).then_some(Answer::Input(Input::Selection(Selection { option_ids })))
}

/// The id of the option with this id, or else of the only one with this label, in upper or lower case.
///
/// # Errors
/// The fault, for people, if no option or several have this name.
fn option_id(options: &[SelectOption], name: &str) -> Result<String, String> {
    if options.iter().any(|option| option.id == name) {
        return Ok(name.to_owned());
    }
    let label = name.trim().to_lowercase();
    let mut labelled = options.iter().filter(|option| option.label.trim().to_lowercase() == label);
    match (labelled.next(), labelled.next()) {
        (Some(option), None) => Ok(option.id.clone()),
        (Some(_), Some(_)) => Err(format!("several options are called {name:?}: choose one by its id")),
        (None, _) => Err(format!("there is no option {name:?}")),
    }
}

/// The failure in plain words, with the question and the command that answers it. It stays the server's if the answer fits
/// the question as far as is known here.
fn explained(failure: Failure, given: &Answer, request: &HumanRequest, server_option: &str) -> Failure {
    if !is_invalid(&failure) {
        return failure;
    }
    let Some(fault) = fault(given, request) else { return failure };
    let style = Style::of(&std::io::stderr());
    let asked = question(style, request, OptionNames::Ids);
    let command = format!("{}{server_option}", commands::answer(request));
    Failure::Usage(format!("{fault}\n{asked}\n  to answer it: {}", style.strip_unsafe(&command)))
}

/// The reason why an answer does not fit its question. `None` if it does.
fn fault(given: &Answer, request: &HumanRequest) -> Option<String> {
    let wanted = match (request.kind(), given) {
        (HumanRequestKind::Select, Answer::Input(Input::Selection(chosen))) => {
            let mut names = chosen.option_ids.iter();
            let unknown = names.find_map(|name| option_id(&request.options, name).err());
            let too_many = !request.multiple && chosen.option_ids.len() > 1;
            return unknown.or_else(|| too_many.then(|| "the question takes only one option".to_owned()));
        }
        (HumanRequestKind::Approve | HumanRequestKind::InDoubt, Answer::Decision(_))
        | (HumanRequestKind::Prompt, Answer::Input(Input::Text(_)))
        | (HumanRequestKind::Form, Answer::Input(Input::FormJson(_)))
        | (HumanRequestKind::Url, Answer::Input(Input::Url(_)))
        | (HumanRequestKind::Unspecified, _) => return None,
        (HumanRequestKind::Approve, _) => "a decision on a tool call",
        (HumanRequestKind::InDoubt, _) => "a decision on a tool call whose outcome is unknown",
        (_, Answer::Input(Input::Declined(_))) => return None,
        (HumanRequestKind::Prompt, _) => "a text",
        (HumanRequestKind::Select, _) => "a choice of its options",
        (HumanRequestKind::Form, _) => "a form",
        (HumanRequestKind::Url, _) => "a visit to a link",
    };
    Some(format!("the question asks for {wanted}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn days(multiple: bool) -> HumanRequest {
        let option = |id: &str, label: &str| SelectOption { id: id.into(), label: label.into() };
        HumanRequest {
            request_id: "q".into(),
            kind: HumanRequestKind::Select.into(),
            question: "Which day?".into(),
            options: vec![
                option("1", "Monday"),
                option("2", "2nd"),
                option("3", "Noon"),
                option("4", "noon"),
            ],
            multiple,
            ..HumanRequest::default()
        }
    }

    fn choice(names: &[&str]) -> Answer {
        let option_ids = names.iter().map(|&name| name.to_owned()).collect();
        Answer::Input(Input::Selection(Selection { option_ids }))
    }

    #[test]
    fn ids_are_ordered_by_their_numbers() {
        let mut ids = ["r:1.10:0", "r:1.2:0", "r:1.1:10", "r:1.1:9", "r:1.1:0", "r:10.0:0", "q:2.0:0"];
        ids.sort_by_cached_key(|id| in_order(id));
        assert_eq!(ids, ["q:2.0:0", "r:1.1:0", "r:1.1:9", "r:1.1:10", "r:1.2:0", "r:1.10:0", "r:10.0:0"]);
    }

    #[test]
    fn a_label_that_one_option_has_stands_for_its_id() {
        let days = days(true);
        assert_eq!(with_option_ids(&choice(&["monday", "2"]), &days), Some(choice(&["1", "2"])));
        for names in [&["1"][..], &["noon"], &["Monday", "Sunday"]] {
            assert_eq!(with_option_ids(&choice(names), &days), None, "{names:?}");
        }
    }

    #[test]
    fn the_fault_of_an_answer_is_told_in_plain_words() {
        let approve = || Answer::Decision(Kind::Approve(Approve {}));
        let text = || Answer::Input(Input::Text("t".into()));
        let declined = || Answer::Input(Input::Declined(Declined::default()));
        let of = |kind: HumanRequestKind| HumanRequest { kind: kind.into(), ..days(false) };
        for (given, request, told) in [
            (approve(), days(false), Some("the question asks for a choice of its options")),
            (text(), days(true), Some("the question asks for a choice of its options")),
            (choice(&["Sunday"]), days(false), Some("there is no option \"Sunday\"")),
            (
                choice(&["NOON"]),
                days(false),
                Some("several options are called \"NOON\": choose one by its id"),
            ),
            (choice(&["1", "2"]), days(false), Some("the question takes only one option")),
            (choice(&["1", "2"]), days(true), None),
            (declined(), days(false), None),
            (approve(), of(HumanRequestKind::Prompt), Some("the question asks for a text")),
            (approve(), of(HumanRequestKind::Form), Some("the question asks for a form")),
            (approve(), of(HumanRequestKind::Url), Some("the question asks for a visit to a link")),
            (text(), of(HumanRequestKind::Approve), Some("the question asks for a decision on a tool call")),
            (
                declined(),
                of(HumanRequestKind::Approve),
                Some("the question asks for a decision on a tool call"),
            ),
            (approve(), of(HumanRequestKind::Approve), None),
        ] {
            assert_eq!(fault(&given, &request).as_deref(), told, "{given:?}");
        }
    }
}
