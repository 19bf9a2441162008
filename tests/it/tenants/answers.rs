//! Everything that a tenant can read, by every RPC that reads.

use std::collections::BTreeSet;
use std::fmt::Debug;

use agentloop_client::{Client, Error, v1 as wire};
use agentloop_tests::soon;
use wire::RunStatus;

use super::WORDS;
use super::compare::{plain, text_of};
use super::steps::{BLOBS, Party, RUNS, SESSIONS, digest};

/// The answers of a server to one tenant, in order. None may have the word of the other tenant.
pub(super) struct Answers {
    stranger: &'static str,
    /// The RPC, and its answer without what differs from server to server.
    pub(super) all: Vec<(&'static str, String)>,
    /// RPCs whose answers are not compared, since they are about the whole server.
    pub(super) about_the_server: BTreeSet<&'static str>,
}

impl Answers {
    pub(super) fn new(stranger: &'static str) -> Self {
        Self { stranger, all: Vec::new(), about_the_server: BTreeSet::new() }
    }

    /// The RPCs that were answered.
    pub(super) fn rpcs(&self) -> BTreeSet<String> {
        let compared = self.all.iter().map(|(rpc, _)| (*rpc).to_owned());
        compared.chain(self.about_the_server.iter().map(|rpc| (*rpc).to_owned())).collect()
    }

    /// Keeps an answer to be compared, and checks that it has no word of the other tenant.
    #[track_caller]
    pub(super) fn note<T: Debug>(&mut self, rpc: &'static str, answer: &Result<T, Error>) {
        self.note_text(rpc, &text_of(answer));
    }

    /// Notes an answer whose items may be in any order, since two of them may be of the same millisecond.
    #[track_caller]
    pub(super) fn note_list<T: Debug>(&mut self, rpc: &'static str, answer: Result<Vec<T>, Error>) {
        let Ok(items) = answer else { return self.note(rpc, &answer) };
        let mut texts: Vec<String> = items.into_iter().map(|item| text_of(&Ok(item))).collect();
        texts.iter().for_each(|text| self.check(rpc, text));
        texts.iter_mut().for_each(|text| *text = plain(text));
        texts.sort_unstable();
        self.all.push((rpc, texts.join("\n")));
    }

    #[track_caller]
    pub(super) fn note_text(&mut self, rpc: &'static str, text: &str) {
        self.check(rpc, text);
        self.all.push((rpc, plain(text)));
    }

    /// Notes an answer about the whole server, whose numbers count what all tenants do.
    #[track_caller]
    fn note_of_server<T: Debug>(&mut self, rpc: &'static str, answer: &Result<T, Error>) {
        self.check(rpc, &text_of(answer));
        self.about_the_server.insert(rpc);
    }

    #[track_caller]
    fn check(&self, rpc: &str, text: &str) {
        assert!(!text.contains(self.stranger), "{rpc} shows what another tenant has: {text}");
    }

    /// Reads everything, also by ids that the tenant does not have.
    pub(super) async fn read_everything(&mut self, party: &Party) {
        let c = &party.operator;
        self.read_lists(c).await;
        for run in RUNS {
            Box::pin(self.read_run(c, run)).await;
        }
        for session in SESSIONS {
            Box::pin(self.read_session(c, session)).await;
        }
        self.read_blobs(c).await;
        self.note("Server/GetServerInfo", &soon(c.server_info()).await);
        self.note("Server/ListAgents", &soon(c.list_agents()).await);
        self.note_of_server("Server/ListReplicas", &soon(c.list_replicas()).await);
        self.note_of_server("Server/VerifyAudit", &soon(c.verify_audit()).await);
    }

    async fn read_lists(&mut self, c: &Client) {
        self.note_list("AgentLoop/ListRuns", runs(c).await);
        let pending = soon(c.list_pending(wire::ListPendingRequest::default())).await;
        self.note_list("AgentLoop/ListPending", pending.map(|answer| answer.requests));
        self.note_list("AgentLoop/WatchRuns", watched(c).await);
        let sessions = wire::ListSessionsRequest { page_size: 100, ..Default::default() };
        let sessions = soon(c.list_sessions(sessions)).await;
        self.note_list("Sessions/ListSessions", sessions.map(|answer| answer.sessions));
        for word in WORDS.into_iter().chain(["remember", "noted"]) {
            let query =
                wire::SearchEntriesRequest { query: word.to_owned(), limit: 100, ..Default::default() };
            let hits = soon(c.search_entries(query)).await;
            let is_found = hits.as_ref().is_ok_and(|hits| !hits.is_empty());
            assert!(word != self.stranger || !is_found, "{hits:?}");
            // Hits of one score may be in any order. All others are in that of their scores, which are compared.
            let is_ordered = hits.as_ref().is_ok_and(|hits| hits.is_sorted_by(|a, b| a.score >= b.score));
            assert!(is_ordered, "the best first: {hits:?}");
            self.note_list("Sessions/SearchEntries", hits);
        }
        self.note_list("Tools/ListTools", soon(c.list_tools()).await);
        self.note_list("Tools/ListHosts", soon(c.list_hosts()).await);
        self.note_list("Tools/ListRules", soon(c.list_rules("")).await);
        let usage = |group_by: wire::UsageGroup, label_key: &str| wire::GetUsageRequest {
            group_by: vec![group_by.into()],
            label_key: label_key.to_owned(),
            // One bucket, also if the hour ends meanwhile.
            bucket: Some(prost_types::Duration { seconds: 366 * 86_400, nanos: 0 }),
            ..Default::default()
        };
        for usage in [usage(wire::UsageGroup::Label, "fruit"), usage(wire::UsageGroup::Agent, "")] {
            self.note("Server/GetUsage", &soon(c.get_usage(usage)).await);
        }
        let audited = wire::ListAuditRecordsRequest { page_size: 500, ..Default::default() };
        let audited = soon(c.list_audit_records(audited)).await;
        self.note_list("Server/ListAuditRecords", audited.map(|answer| answer.records));
    }

    async fn read_run(&mut self, c: &Client, id: &'static str) {
        let run = soon(c.get_run(id)).await;
        let (status, last_seq) =
            run.as_ref().map_or((RunStatus::Completed, 1), |run| (run.status(), run.last_seq));
        self.note("AgentLoop/GetRun", &run);
        self.note("AgentLoop/ReplayRun", &soon(c.replay_run(id)).await);
        let join = wire::RunInput { run_id: Some(id.to_owned()), ..Default::default() };
        // A call for a queued run waits until the run has begun and ended.
        if status != RunStatus::Queued {
            self.note("AgentLoop/Run", &soon(c.run(join.clone())).await);
        }
        let streamed = soon(c.run_stream(join)).await;
        self.note_list("AgentLoop/RunStream", events(streamed, last_seq).await);
        let subscribed = soon(c.subscribe(id, 0)).await;
        self.note_list("AgentLoop/Subscribe", events(subscribed, last_seq).await);
        let check = wire::CheckPolicyRequest {
            run_id: id.to_owned(),
            tool: "mail".to_owned(),
            arguments_json: r#"{"to":"x"}"#.to_owned(),
            candidate: Some(wire::PolicyRule {
                action: wire::PolicyAction::Allow.into(),
                tool: "mail".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        };
        self.note("Tools/CheckPolicy", &soon(c.check_policy(check)).await);
    }

    async fn read_session(&mut self, c: &Client, id: &'static str) {
        self.note("Sessions/GetSession", &soon(c.get_session(id)).await);
        let entries =
            wire::ListEntriesRequest { session_id: id.to_owned(), page_size: 500, ..Default::default() };
        self.note("Sessions/ListEntries", &soon(c.list_entries(entries)).await);
        self.note_list("Sessions/ExportSession", exported(c, id).await);
        self.note_list("Sessions/SubscribeSession", followed(c, id).await);
        self.note_list("Tools/ListRules", soon(c.list_rules(id)).await);
    }

    async fn read_blobs(&mut self, c: &Client) {
        for text in BLOBS {
            self.note("Blobs/GetBlob", &blob(c, &digest(text)).await);
        }
    }
}

/// Up to 500 runs of a tenant.
pub(super) async fn runs(c: &Client) -> Result<Vec<wire::Run>, Error> {
    let request = wire::ListRunsRequest { page_size: 500, ..Default::default() };
    soon(c.list_runs(request)).await.map(|answer| answer.runs)
}

/// The rows that a watcher begins with.
async fn watched(c: &Client) -> Result<Vec<wire::watch_runs_response::Change>, Error> {
    let mut watch = soon(c.watch_runs(wire::RunFilter::default())).await?;
    let mut changes = Vec::new();
    loop {
        match soon(watch.next()).await? {
            wire::watch_runs_response::Change::Synced(_) => return Ok(changes),
            change => changes.push(change),
        }
    }
}

/// The durable events up to this one.
async fn events(
    stream: Result<agentloop_client::EventStream, Error>,
    last_seq: u64,
) -> Result<Vec<wire::RunEvent>, Error> {
    let (mut stream, mut events) = (Box::pin(stream?), Vec::new());
    while stream.last_seq() < last_seq
        && let Some(event) = soon(stream.next()).await
    {
        let event = event?;
        if event.seq > 0 {
            events.push(event);
        }
    }
    Ok(events)
}

async fn exported(c: &Client, session: &str) -> Result<Vec<String>, Error> {
    let (mut lines, mut all) = (soon(c.export_session(session)).await?, Vec::new());
    while let Some(line) = soon(lines.next()).await? {
        all.push(line);
    }
    Ok(all)
}

/// The items of a session up to the one that says that there are no more.
async fn followed(c: &Client, session: &str) -> Result<Vec<wire::subscribe_session_response::Item>, Error> {
    let request = wire::SubscribeSessionRequest { session_id: session.to_owned(), ..Default::default() };
    let (mut stream, mut items) = (soon(c.subscribe_session(request)).await?, Vec::new());
    while let Some(item) = soon(stream.next()).await {
        let item = item?;
        let is_last = matches!(item, wire::subscribe_session_response::Item::Synced(_));
        items.push(item);
        if is_last {
            break;
        }
    }
    Ok(items)
}

async fn blob(c: &Client, digest: &str) -> Result<(wire::BlobHeader, String), Error> {
    let (mut reader, mut bytes) = (soon(c.get_blob(digest)).await?, Vec::new());
    while let Some(chunk) = soon(reader.next()).await? {
        bytes.extend(chunk);
    }
    Ok((reader.header().clone(), String::from_utf8_lossy(&bytes).into_owned()))
}
