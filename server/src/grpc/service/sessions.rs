//! The service `Sessions`: create, read, change, list, import, export, search, fork and delete sessions.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use agentloop_core::id::{EntryNo, Seq, SessionId, TenantId};
use agentloop_core::limits::{LABELS_MAX, PAGE_BYTES_MAX, SHORT_TEXT_BYTES_MAX};
use agentloop_proto::v1 as wire;
use agentloop_proto::v1::sessions_server::Sessions;
use futures_util::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use crate::audit;
use crate::engine::error::EngineError;
use crate::engine::{DeleteIf, Engine};
use crate::grpc::caller::Caller;
use crate::grpc::convert::event::PlanningEvents;
use crate::grpc::convert::id::required;
use crate::grpc::convert::query::filter;
use crate::grpc::convert::run_input::import::import_request;
use crate::grpc::convert::run_input::input::labels;
use crate::grpc::convert::{session, short, todo};
use crate::grpc::edge::page::{List, fit_page, page_size};
use crate::grpc::repetition::RepeatedRpc;
use crate::grpc::service::agent_loop::shown_run;
use crate::grpc::service::blobs;
use crate::grpc::service::call_titles::call_titles;
use crate::grpc::service::export::{ExportStream, export};
use crate::grpc::service::ownership::{Right, check_session};
use crate::grpc::status::Violations;
use crate::ids::Ids;
use crate::store::{
    ListedEntries, NewFork, NewSession, PROJECT_LABEL, PageRequest, SearchFilter, SessionFilter, SessionRow,
    SessionUpdate, StretchMax, USER_LABEL,
};

/// Hits of a search if the request names no number.
const HITS_DEFAULT: u32 = 20;
/// Largest number of hits that a request may allow.
const HITS_MAX: u32 = 100;

/// Labels that a session of a user may be created with, beside those of its user and project.
const MORE_LABELS_MAX: usize = LABELS_MAX - 2;

/// Sessions of a user that are looked at together.
const OF_USER_PER_PAGE: u32 = 100;

/// Damaged entries that a session names, at most.
const DAMAGED_MAX: usize = 100;

/// The cause in the audit log where a session is to be deleted that its tenant does not have. The caller reads that it is gone.
const NO_SESSION: &str = "no such session";

/// Bytes after which a page of entries is ended. Half of the limit leaves room for a large last entry.
const ENTRIES_BYTES_MAX: usize = PAGE_BYTES_MAX / 2;

type ItemStream = Pin<Box<dyn Stream<Item = Result<wire::SubscribeSessionResponse, Status>> + Send>>;

/// Serves `agentloop.v1.Sessions` for one engine.
#[derive(Clone)]
pub struct SessionsService {
    engine: Engine,
    ids: Arc<dyn Ids>,
}

impl SessionsService {
    /// `ids` makes ids for sessions whose creator gives none.
    pub fn new(engine: Engine, ids: Arc<dyn Ids>) -> Self {
        Self { engine, ids }
    }

    /// The session that [`Sessions::get_or_create_session`] finds, if there is one.
    async fn find_of_user(
        &self,
        tenant: &TenantId,
        by: Option<&str>,
        labels: &BTreeMap<String, String>,
    ) -> Result<Option<SessionRow>, EngineError> {
        let (user, project) = (labels.get(USER_LABEL), labels.get(PROJECT_LABEL));
        let of_user = user.map(|user| (USER_LABEL.to_owned(), user.clone())).into_iter().collect();
        let created_by = by.map(str::to_owned);
        let filter = SessionFilter { labels: of_user, created_by, ..SessionFilter::default() };
        let mut page = PageRequest { size: OF_USER_PER_PAGE, after: None };
        loop {
            let found = self.engine.store().sessions(tenant, filter.clone(), page.clone()).await?;
            if let Some(row) = found.rows.into_iter().find(|row| row.labels.get(PROJECT_LABEL) == project) {
                return Ok(Some(row));
            }
            match found.next {
                Some(next) => page.after = Some(next),
                None => return Ok(None),
            }
        }
    }
}

#[tonic::async_trait]
impl Sessions for SessionsService {
    async fn create_session(
        &self,
        request: Request<wire::CreateSessionRequest>,
    ) -> Result<Response<wire::CreateSessionResponse>, Status> {
        let caller = Caller::of(&request);
        let message = request.into_inner();
        let mut bad = Violations::default();
        let session = match message.session_id {
            None => Some(self.ids.session()),
            Some(id) => bad.take("session_id", SessionId::parse(id)),
        };
        let title = bad.take("title", short(message.title)).unwrap_or_default();
        let labels = labels("labels", message.labels, &mut bad);
        bad.check()?;
        let session = session.expect("no violation, so there is an id");
        let store = self.engine.store();
        let now = self.engine.now();
        let _quota = self.engine.reserve_session(caller.tenant(), caller.name(), &session).await?;
        let new = NewSession {
            tenant: caller.tenant().clone(),
            session,
            title,
            labels,
            created_at: now,
            created_by: caller.name().map(str::to_owned),
        };
        let row = store.create_session(new).await?;
        Ok(Response::new(wire::CreateSessionResponse { session: Some(session::session(&row)) }))
    }

    async fn get_session(
        &self,
        request: Request<wire::GetSessionRequest>,
    ) -> Result<Response<wire::GetSessionResponse>, Status> {
        let caller = Caller::of(&request);
        let tenant = caller.tenant();
        let session = required("session_id", request.into_inner().session_id, SessionId::parse)?;
        check_session(&self.engine, &caller, &session, Right::Read).await?;
        let row = self.engine.store().session(tenant, &session).await?;
        let row = row.ok_or(EngineError::SessionNotFound)?;
        let damaged = self.engine.store().damaged_entries(tenant, &session, DAMAGED_MAX).await?;
        let todos = self.engine.store().todos(tenant, &session).await?;
        let session = wire::Session {
            todos: todos.iter().map(todo::todo).collect(),
            damaged_entry_nos: damaged.into_iter().map(|entry| entry.0).collect(),
            ..session::session(&row)
        };
        Ok(Response::new(wire::GetSessionResponse { session: Some(session) }))
    }

    async fn update_session(
        &self,
        request: Request<wire::UpdateSessionRequest>,
    ) -> Result<Response<wire::UpdateSessionResponse>, Status> {
        let caller = Caller::of(&request);
        let message = request.into_inner();
        audit::about("session_id", &message.session_id);
        let mut bad = Violations::default();
        let session = bad.take("session_id", SessionId::parse(message.session_id.clone()));
        let update = session_update(message, &mut bad);
        bad.check()?;
        let session = session.expect("no violation, so there is an id");
        check_session(&self.engine, &caller, &session, Right::Change).await?;
        let row = self.engine.store().update_session(caller.tenant(), &session, update).await?;
        self.engine.session_changed(caller.tenant(), &session);
        Ok(Response::new(wire::UpdateSessionResponse { session: Some(session::session(&row)) }))
    }

    async fn get_or_create_session(
        &self,
        request: Request<wire::GetOrCreateSessionRequest>,
    ) -> Result<Response<wire::GetOrCreateSessionResponse>, Status> {
        let caller = Caller::of(&request);
        let message = request.into_inner();
        let mut bad = Violations::default();
        let title = bad.take("title", short(message.title)).unwrap_or_default();
        let labels = labels_of_user(message.user, message.project, message.labels, &mut bad);
        bad.check()?;
        let (store, new, now) =
            (self.engine.store(), self.engine.new_session_id(caller.tenant()), self.engine.now());
        let (tenant, by) = (caller.tenant(), caller.name());
        let reserved = match self.engine.reserve_session(tenant, by, &new).await {
            Err(EngineError::QuotaExceeded(exceeded)) => Err(exceeded),
            reserved => Ok(reserved?),
        };
        let row = match reserved {
            Ok(_quota) => {
                let new = NewSession {
                    tenant: tenant.clone(),
                    session: new.clone(),
                    title,
                    labels,
                    created_at: now,
                    created_by: by.map(str::to_owned),
                };
                store.get_or_create_session(new).await?
            }
            // One that is there may still be found.
            Err(exceeded) => match self.find_of_user(tenant, by, &labels).await? {
                Some(row) => row,
                None => return Err(EngineError::from(exceeded).into()),
            },
        };
        let created = row.session == new;
        let session = Some(session::session(&row));
        Ok(Response::new(wire::GetOrCreateSessionResponse { session, created }))
    }

    async fn list_sessions(
        &self,
        request: Request<wire::ListSessionsRequest>,
    ) -> Result<Response<wire::ListSessionsResponse>, Status> {
        let caller = Caller::of(&request);
        let mut message = request.into_inner();
        let (list, page) = List::begin(caller.tenant(), &mut message)?;
        let list = &list;
        let filter = filter::sessions(message.filter.unwrap_or_default())?;
        let created_by = filter::only_of(caller.reads_only_of(), filter.created_by)?;
        let filter = &SessionFilter { created_by, ..filter };
        let (store, tenant) = (self.engine.store(), caller.tenant());
        fit_page(page, |page| async move {
            let page = store.sessions(tenant, filter.clone(), page).await?;
            Ok(wire::ListSessionsResponse {
                sessions: page.rows.iter().map(session::session).collect(),
                next_page_token: list.token(page.next),
            })
        })
        .await
    }

    async fn list_entries(
        &self,
        request: Request<wire::ListEntriesRequest>,
    ) -> Result<Response<wire::ListEntriesResponse>, Status> {
        let caller = Caller::of(&request);
        let message = request.into_inner();
        let session = required("session_id", message.session_id, SessionId::parse)?;
        let page = PageRequest { size: page_size(message.page_size)?, after: None };
        check_session(&self.engine, &caller, &session, Right::Read).await?;
        let (store, tenant) = (self.engine.store(), caller.tenant());
        store.session(tenant, &session).await?.ok_or(EngineError::SessionNotFound)?;
        let after = EntryNo(message.after_entry_no);
        let session = &session;
        fit_page(page, |page| async move {
            let max = StretchMax { records: page.size, bytes: ENTRIES_BYTES_MAX };
            let ListedEntries { rows, more } = store.listed_entries(tenant, session, after, max).await?;
            let titles = call_titles(store, tenant, session, &rows).await?;
            let entry = |row| session::listed(row, &titles, self.engine.masks());
            Ok(wire::ListEntriesResponse { entries: rows.iter().map(entry).collect(), more })
        })
        .await
    }

    async fn import_entries(
        &self,
        request: Request<wire::ImportEntriesRequest>,
    ) -> Result<Response<wire::ImportEntriesResponse>, Status> {
        let caller = Caller::of(&request);
        let tenant = caller.tenant();
        let mut request = import_request(tenant.clone(), caller.author(), request.into_inner())?;
        let session = request.session.clone();
        let refused = |_: &Status| {
            session.iter().for_each(|session| audit::about("session_id", session.as_str()));
        };
        blobs::claim_imported(&self.engine, &caller, &mut request.messages).await.inspect_err(refused)?;
        let started =
            Box::pin(self.engine.start(request)).await.map_err(Status::from).inspect_err(refused)?;
        let store = self.engine.store();
        let view = self.engine.view(tenant, &started.run).await?;
        let session = store.session(tenant, &started.session).await?.ok_or(EngineError::SessionNotFound)?;
        // Its first event is that it exists, its last one that it has ended. All others are entries.
        let first = store.records(tenant, &started.run, Seq(1), 1).await?;
        let entry = first.first().and_then(|record| record.event.entry());
        let (EntryNo(first), _) = entry.ok_or(EngineError::RunNotFound)?;
        Ok(Response::new(wire::ImportEntriesResponse {
            run: Some(shown_run(&self.engine, &view)),
            session: Some(session::session(&session)),
            first_entry_no: first,
            last_entry_no: first + view.row.last_seq.0.saturating_sub(3),
        }))
    }

    type ExportSessionStream = ExportStream;

    async fn export_session(
        &self,
        request: Request<wire::ExportSessionRequest>,
    ) -> Result<Response<ExportStream>, Status> {
        let caller = Caller::of(&request);
        let session = required("session_id", request.into_inner().session_id, SessionId::parse)?;
        check_session(&self.engine, &caller, &session, Right::Read).await?;
        let row = self.engine.store().session(caller.tenant(), &session).await?;
        let row = row.ok_or(EngineError::SessionNotFound)?;
        Ok(Response::new(export(self.engine.clone(), caller.tenant().clone(), &row)))
    }

    async fn search_entries(
        &self,
        request: Request<wire::SearchEntriesRequest>,
    ) -> Result<Response<wire::SearchEntriesResponse>, Status> {
        let caller = Caller::of(&request);
        let message = request.into_inner();
        let mut bad = Violations::default();
        let query = bad.take("query", search_query(message.query)).unwrap_or_default();
        let filter = SearchFilter {
            session: session_if_any("session_id", message.session_id, &mut bad),
            not_session: session_if_any("except_session_id", message.except_session_id, &mut bad),
            created_by: caller.reads_only_of().map(str::to_owned),
        };
        if message.limit > HITS_MAX {
            bad.add("limit", format!("must be at most {HITS_MAX}"));
        }
        bad.check()?;
        let limit = if message.limit == 0 { HITS_DEFAULT } else { message.limit };
        if let Some(session) = &filter.session {
            match check_session(&self.engine, &caller, session, Right::Read).await {
                Err(status) if status.code() == tonic::Code::NotFound => {
                    audit::about("session_id", session.as_str());
                    return Ok(Response::new(wire::SearchEntriesResponse::default()));
                }
                checked => checked?,
            }
        }
        let hits = self.engine.store().search(caller.tenant(), &query, filter, limit).await?;
        Ok(Response::new(wire::SearchEntriesResponse { hits: hits.iter().map(session::hit).collect() }))
    }

    async fn fork_session(
        &self,
        request: Request<wire::ForkSessionRequest>,
    ) -> Result<Response<wire::ForkSessionResponse>, Status> {
        let caller = Caller::of(&request);
        let message = request.into_inner();
        let mut bad = Violations::default();
        let source = bad.take("session_id", SessionId::parse(message.session_id));
        let session = match message.new_session_id {
            None => Some(self.ids.session()),
            Some(id) => bad.take("new_session_id", SessionId::parse(id)),
        };
        bad.check()?;
        let (source, session) = source.zip(session).expect("no violation, so there are ids");
        let at = EntryNo(message.at_entry_no);
        if !self.has_forked(&caller, &source, &session).await? {
            let checked = check_session(&self.engine, &caller, &source, Right::Read).await;
            checked.inspect_err(about_source(&source))?;
        }
        let (store, now) = (self.engine.store(), self.engine.now());
        let _quota = self.engine.reserve_session(caller.tenant(), caller.name(), &session).await?;
        let new = NewFork {
            tenant: caller.tenant().clone(),
            source: source.clone(),
            at,
            session,
            created_at: now,
            created_by: caller.name().map(str::to_owned),
            // The source, and the fork that was found, may have changed since they were looked at.
            source_of: caller.reads_only_of().map(str::to_owned),
        };
        let row = store.fork(new).await.inspect_err(about_source(&source))?;
        Ok(Response::new(wire::ForkSessionResponse { session: Some(session::session(&row)) }))
    }

    type SubscribeSessionStream = ItemStream;

    async fn subscribe_session(
        &self,
        request: Request<wire::SubscribeSessionRequest>,
    ) -> Result<Response<Self::SubscribeSessionStream>, Status> {
        let caller = Caller::of(&request);
        let wire::SubscribeSessionRequest { session_id, resume_token, durable_only } = request.into_inner();
        let session = required("session_id", session_id, SessionId::parse)?;
        check_session(&self.engine, &caller, &session, Right::Read).await?;
        let masks = self.engine.masks().clone();
        let updates = self.engine.follow_session(caller.tenant(), &session, &resume_token).await?;
        let mut planning = (!durable_only).then(PlanningEvents::default);
        let items = updates.flat_map(move |update| {
            let items = match update {
                Ok(update) => {
                    session::items(&session, update, planning.as_mut(), &masks).map(|item| item.map(Ok))
                }
                Err(error) => [None, Some(Err(Status::from(error)))],
            };
            futures_util::stream::iter(items.into_iter().flatten())
        });
        Ok(Response::new(Box::pin(items)))
    }

    async fn delete_session(
        &self,
        request: Request<wire::DeleteSessionRequest>,
    ) -> Result<Response<wire::DeleteSessionResponse>, Status> {
        let caller = Caller::of(&request);
        let condition = match request.extensions().get::<RepeatedRpc>() {
            None => Some(DeleteIf::Any),
            Some(first) => first.created_at.map(DeleteIf::CreatedAt),
        };
        let session = required("session_id", request.into_inner().session_id, SessionId::parse)?;
        let existed = match check_session(&self.engine, &caller, &session, Right::Change).await {
            Ok(()) => {
                // The first try meant no session: one that is there by now stays.
                let Some(condition) = condition else {
                    audit::denied(NO_SESSION);
                    return Ok(Response::new(wire::DeleteSessionResponse { existed: false }));
                };
                if self.engine.store().session(caller.tenant(), &session).await?.is_none() {
                    audit::denied(NO_SESSION);
                }
                self.engine.delete_session_if(caller.tenant(), &session, condition).await?
            }
            Err(error) if error.code() == tonic::Code::NotFound => {
                audit::denied(NO_SESSION);
                false
            }
            Err(error) => return Err(error),
        };
        Ok(Response::new(wire::DeleteSessionResponse { existed }))
    }
}

impl SessionsService {
    /// True if a caller that reads its own sessions alone has made this fork before. Then the same call is confirmed, even if the
    /// source is gone by now.
    async fn has_forked(
        &self,
        caller: &Caller,
        source: &SessionId,
        fork: &SessionId,
    ) -> Result<bool, Status> {
        let Some(name) = caller.reads_only_of() else { return Ok(false) };
        let row = self.engine.store().session(caller.tenant(), fork).await?;
        Ok(row.is_some_and(|row| {
            let is_fork = row.forked_from.as_ref().is_some_and(|(from, _)| from == source);
            is_fork && row.created_by.as_deref() == Some(name)
        }))
    }
}

/// Notes in the audit log which session could not be forked. The row of a fork that is made names the new one.
fn about_source<E>(source: &SessionId) -> impl FnOnce(&E) {
    move |_| audit::about("session_id", source.as_str())
}

/// Checks the changes of a session.
fn session_update(message: wire::UpdateSessionRequest, bad: &mut Violations) -> SessionUpdate {
    let title = message.title.and_then(|title| bad.take("title", short(title)));
    let (set_labels, remove_labels) = (labels("set_labels", message.set_labels, bad), message.remove_labels);
    if remove_labels.len() > LABELS_MAX {
        bad.add("remove_labels", format!("must be at most {LABELS_MAX}"));
    }
    if remove_labels.iter().any(|key| key.is_empty() || key.len() > SHORT_TEXT_BYTES_MAX) {
        bad.add("remove_labels", format!("each must be 1 to {SHORT_TEXT_BYTES_MAX} bytes"));
    }
    if let Some(key) = remove_labels.iter().find(|key| set_labels.contains_key(*key)) {
        bad.add("remove_labels", format!("must not name {key:?}, which set_labels sets"));
    }
    SessionUpdate { title, set_labels, remove_labels }
}

/// The labels of a session that belongs to a user and, unless that is empty, to a project.
fn labels_of_user(
    user: String,
    project: String,
    more: BTreeMap<String, String>,
    bad: &mut Violations,
) -> BTreeMap<String, String> {
    if user.is_empty() {
        bad.add("user", "must not be empty");
    }
    if more.len() > MORE_LABELS_MAX {
        bad.add("labels", format!("must be at most {MORE_LABELS_MAX}"));
    }
    if [USER_LABEL, PROJECT_LABEL].iter().any(|key| more.contains_key(*key)) {
        bad.add("labels", "must not have user or project, which have fields of their own");
    }
    let mut all = labels("labels", more, bad);
    let mut own = |field, key: &str, value: String| {
        let bytes_max = SHORT_TEXT_BYTES_MAX - key.len();
        if value.len() > bytes_max {
            bad.add(field, format!("must be at most {bytes_max} bytes"));
        }
        all.insert(key.to_owned(), value);
    };
    own("user", USER_LABEL, user);
    if !project.is_empty() {
        own("project", PROJECT_LABEL, project);
    }
    all
}

/// Checks the text of a search.
fn search_query(query: String) -> Result<String, String> {
    if query.trim().is_empty() { Err("must not be empty".to_owned()) } else { short(query) }
}

/// Parses a session's id that the request may leave empty.
fn session_if_any(field: &str, id: String, bad: &mut Violations) -> Option<SessionId> {
    if id.is_empty() { None } else { bad.take(field, SessionId::parse(id)) }
}
