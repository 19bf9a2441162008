//! Abbreviated ids: the first or last characters, where only one id has them.

use agentloop_client::{
    Client, Error,
    v1::{ErrorReason, ListPendingRequest, ListRunsRequest, ListSessionsRequest},
};

use crate::exit::Failure;

/// A shorter text is no abbreviation: it would fit by chance.
const CHARS_MIN: usize = 4;
/// Characters of a generated id, and of the shortest part of one that is not taken for a name.
const GENERATED_ID_CHARS: usize = 36;
const GENERATED_ID_PART_MIN: usize = 8;
const PAGE_SIZE: u32 = 500;
/// Bound on the pages that are read. Older ids must be given whole.
const PAGES_MAX: usize = 8;
/// Bound on the ids that an ambiguous text is answered with.
const NAMED_MAX: usize = 5;

/// The kind of thing that an id names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Run,
    Session,
    Question,
}

/// Calls the server with an id. If there is nothing of that id, and it abbreviates one, calls it with that one.
///
/// # Errors
/// When the call fails, or several ids are abbreviated so.
pub(crate) async fn called<T, F: Future<Output = Result<T, Error>>>(
    client: &Client,
    kind: Kind,
    given: &str,
    call: impl Fn(String) -> F,
) -> Result<T, Failure> {
    match call(given.to_owned()).await {
        Err(error) if error.code() == Some(tonic::Code::NotFound) => match find(client, kind, given).await? {
            Some(id) => Ok(call(id).await?),
            None if error.reason() == Some(kind.unknown()) => Err(Failure::Other(absent(kind, given))),
            None => Err(error.into()),
        },
        answer => Ok(answer?),
    }
}

/// The id of a session that exists. The list of a mistyped one would be empty, and look like an answer.
///
/// # Errors
/// When there is no such session, or several are abbreviated so.
pub(crate) async fn session(client: &Client, given: &str) -> Result<String, Failure> {
    let read = |id: String| async { client.get_session(id).await };
    match called(client, Kind::Session, given, read).await {
        Ok(session) => Ok(session.session_id),
        Err(Failure::Client(error)) if error.code() == Some(tonic::Code::NotFound) => {
            Err(Failure::Other(absent(Kind::Session, given)))
        }
        Err(failure) => Err(failure),
    }
}

/// The id of the session that `run` and `chat` go on with. They create one that does not exist, so only a part of a generated id is
/// an abbreviation here. People do not name sessions like that.
///
/// # Errors
/// When several ids are abbreviated so.
pub(crate) async fn session_to_continue(client: &Client, given: String) -> Result<String, Failure> {
    if !is_part_of_generated_id(&given) {
        return Ok(given);
    }
    match client.get_session(given.clone()).await {
        Err(error) if error.code() == Some(tonic::Code::NotFound) => {
            let found = find(client, Kind::Session, &given).await?;
            Ok(found.filter(|id| id.len() == GENERATED_ID_CHARS).unwrap_or(given))
        }
        // There is one, or the start of the run tells what is wrong.
        _ => Ok(given),
    }
}

fn is_part_of_generated_id(text: &str) -> bool {
    (GENERATED_ID_PART_MIN..GENERATED_ID_CHARS).contains(&text.len())
        && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f' | '-'))
}

/// The same for a filter, which may be absent.
pub(crate) async fn session_filter(
    client: &Client,
    given: Option<String>,
) -> Result<Option<String>, Failure> {
    match given {
        Some(given) => session(client, &given).await.map(Some),
        None => Ok(None),
    }
}

/// The id of a run that exists, if a filter names one.
///
/// # Errors
/// When there is no such run, or several are abbreviated so.
pub(crate) async fn run_filter(client: &Client, given: Option<String>) -> Result<Option<String>, Failure> {
    let Some(given) = given else { return Ok(None) };
    let read = |id: String| async { client.get_run(id).await };
    match called(client, Kind::Run, &given, read).await {
        Ok(run) => Ok(Some(run.run_id)),
        Err(Failure::Client(error)) if error.code() == Some(tonic::Code::NotFound) => {
            Err(Failure::Other(absent(Kind::Run, &given)))
        }
        Err(failure) => Err(failure),
    }
}

/// The whole id of an open question.
///
/// # Errors
/// When there is no such question, or several are abbreviated so.
pub(crate) async fn open_question(client: &Client, given: &str) -> Result<String, Failure> {
    let mut page_token = String::new();
    for _ in 0..PAGES_MAX {
        let (ids, next) = page(client, Kind::Question, page_token).await?;
        if ids.iter().any(|id| id == given) {
            return Ok(given.to_owned());
        }
        page_token = next;
        if page_token.is_empty() {
            break;
        }
    }
    let found = find(client, Kind::Question, given).await?;
    found.ok_or_else(|| Failure::Other(absent(Kind::Question, given)))
}

/// The id of a filter of a log, which may be absent. A log also has what is there no longer, so a text that abbreviates
/// nothing stays as it is.
///
/// # Errors
/// When several ids are abbreviated so.
pub(crate) async fn log_filter(
    client: &Client,
    kind: Kind,
    given: Option<String>,
) -> Result<Option<String>, Failure> {
    let Some(given) = given else { return Ok(None) };
    Ok(Some(find(client, kind, &given).await?.unwrap_or(given)))
}

/// The id that a text abbreviates; `None` if it is too short or fits none. A server that cannot list fits none.
async fn find(client: &Client, kind: Kind, given: &str) -> Result<Option<String>, Failure> {
    if given.chars().count() < CHARS_MIN {
        return Ok(None);
    }
    let mut fitting = Vec::new();
    let mut page_token = String::new();
    for _ in 0..PAGES_MAX {
        let Ok((ids, next)) = page(client, kind, page_token).await else { return Ok(None) };
        // A whole id is not ambiguous, though another may begin with it.
        if ids.iter().any(|id| id == given) {
            return Ok(Some(given.to_owned()));
        }
        fitting.extend(ids.into_iter().filter(|id| id.starts_with(given) || id.ends_with(given)));
        page_token = next;
        if page_token.is_empty() {
            break;
        }
    }
    match &fitting[..] {
        [] => Ok(None),
        [_] => Ok(fitting.pop()),
        several => Err(Failure::Usage(ambiguous(given, several))),
    }
}

/// A page of ids, and the token of the next.
async fn page(client: &Client, kind: Kind, page_token: String) -> Result<(Vec<String>, String), Error> {
    let page_size = PAGE_SIZE;
    match kind {
        Kind::Run => {
            let request = ListRunsRequest { page_size, page_token, ..ListRunsRequest::default() };
            let page = client.list_runs(request).await?;
            Ok((page.runs.into_iter().map(|run| run.run_id).collect(), page.next_page_token))
        }
        Kind::Session => {
            let page = client
                .list_sessions(ListSessionsRequest {
                    page_size,
                    page_token,
                    ..ListSessionsRequest::default()
                })
                .await?;
            let ids = page.sessions.into_iter().map(|session| session.session_id);
            Ok((ids.collect(), page.next_page_token))
        }
        Kind::Question => {
            let request = ListPendingRequest { page_size, page_token, ..ListPendingRequest::default() };
            let page = client.list_pending(request).await?;
            let ids = page.requests.into_iter().map(|request| request.request_id);
            Ok((ids.collect(), page.next_page_token))
        }
    }
}

impl Kind {
    /// The reason of a server that does not have it.
    fn unknown(self) -> ErrorReason {
        match self {
            Kind::Run => ErrorReason::RunNotFound,
            Kind::Session => ErrorReason::SessionNotFound,
            Kind::Question => ErrorReason::RequestNotFound,
        }
    }
}

/// The message for an id that names nothing, with the command that lists what there is.
fn absent(kind: Kind, given: &str) -> String {
    match kind {
        Kind::Run => format!("there is no run {given}; `agentloop runs` lists them"),
        Kind::Session => format!("there is no session {given}; `agentloop sessions` lists them"),
        Kind::Question => format!("no question waits under the id {given}; `agentloop approve` lists them"),
    }
}

fn ambiguous(given: &str, fitting: &[String]) -> String {
    let mut named = fitting[..fitting.len().min(NAMED_MAX)].join(", ");
    if fitting.len() > NAMED_MAX {
        named.push_str(", …");
    }
    format!("{given} abbreviates {} ids: {named}; give more of it", fitting.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_part_of_a_generated_id() {
        for part in ["01a217a8-20ce", "bd951051", "ae1d-75dabd951051"] {
            assert!(is_part_of_generated_id(part), "{part}");
        }
        for name in ["cafe", "trip-2026", "Bd951051", "01a217a8-20ce-74e0-ae1d-75dabd951051", ""] {
            assert!(!is_part_of_generated_id(name), "{name}");
        }
    }

    #[test]
    fn what_fits_several_names_some() {
        let ids: Vec<String> = (1..=7).map(|n| format!("trip-{n}")).collect();
        let told = ambiguous("trip", &ids);
        assert_eq!(
            told,
            "trip abbreviates 7 ids: trip-1, trip-2, trip-3, trip-4, trip-5, …; give more of it"
        );
    }
}
