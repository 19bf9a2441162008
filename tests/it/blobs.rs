//! Blobs: contents that are too large for a message.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use agentloop_client::v1 as wire;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_server::clock::TestClock;
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::errors::{assert_invalid, assert_refused, metadata};
use agentloop_tests::events::results;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::Model;
use agentloop_tests::postgres::has_no_file;
use agentloop_tests::raw_host::{RawHost, declared, result_of};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use agentloop_tests::stored::Stored;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tonic::{Code, Status};
use wire::connect_request::Frame;
use wire::file_content::Source;
use wire::get_blob_response::Part as Got;
use wire::put_blob_request::Part;
use wire::{EffectClass, RunStatus, ToolStatus};

const HOUR: u64 = 60 * 60 * 1_000;

/// Bytes that are the same for the same number, and that no other number has.
fn bytes(seed: u8, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 251) as u8 ^ (at % 253) as u8 ^ seed).collect()
}

fn digest(bytes: &[u8]) -> String {
    let digits: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

fn header(digest: &str, size_bytes: u64) -> Part {
    let media_type = "application/pdf".to_owned();
    Part::Header(wire::BlobHeader { digest: digest.to_owned(), size_bytes, media_type })
}

async fn send(server: &TestServer, parts: Vec<Part>) -> Result<wire::PutBlobResponse, Status> {
    let parts = parts.into_iter().map(|part| wire::PutBlobRequest { part: Some(part) });
    let upload = tokio_stream::iter(parts.collect::<Vec<_>>());
    Ok(soon(server.blobs().put_blob(upload)).await?.into_inner())
}

/// Stores bytes, in chunks, and returns their digest.
async fn put(server: &TestServer, bytes: &[u8]) -> String {
    let chunks = bytes.chunks(1024 * 1024).map(|chunk| Part::Chunk(chunk.to_vec()));
    let stored = send(server, [header("", 0)].into_iter().chain(chunks).collect()).await.expect("stored");
    stored.header.expect("a header").digest
}

async fn get(server: &TestServer, digest: &str, offset: u64) -> Result<(wire::BlobHeader, Vec<u8>), Status> {
    let request = wire::GetBlobRequest { digest: digest.to_owned(), offset };
    let mut chunks = soon(server.blobs().get_blob(request)).await?.into_inner();
    let (mut found, mut all) = (None, Vec::new());
    while let Some(response) = soon(chunks.message()).await? {
        match response.part.expect("a part") {
            Got::Header(header) => assert!(found.replace(header).is_none() && all.is_empty()),
            Got::Chunk(chunk) => all.extend(chunk),
        }
    }
    Ok((found.expect("a header"), all))
}

/// The folder of the server's blobs.
fn folder_of(server: &TestServer) -> PathBuf {
    let mut folder = server.stored().file().clone().into_os_string();
    folder.push("-blobs");
    folder.into()
}

/// The file of a blob.
fn file_of(server: &TestServer, digest: &str) -> PathBuf {
    let digits = digest.strip_prefix("sha256:").expect("a digest");
    folder_of(server).join(&digits[..2]).join(&digits[2..])
}

/// Number of files that uploads are being written to.
fn uploads(server: &TestServer) -> usize {
    fs::read_dir(folder_of(server).join("tmp")).map_or(0, Iterator::count)
}

/// A result with a file that is a blob.
fn with_blob(call: &wire::CallRequest, digest: &str, size_bytes: u64) -> wire::CallResult {
    let source = Some(Source::BlobDigest(digest.to_owned()));
    let (name, media_type) = ("report.pdf".to_owned(), "application/pdf".to_owned());
    let file = wire::FileContent { name, media_type, size_bytes, source };
    wire::CallResult { files: vec![file], ..result_of(call, "done") }
}

/// A run in a session whose one tool call answers with a blob.
async fn run_with_blob(server: &TestServer, model: &Model, session: &str, run: &str, digest: &str) {
    let mut host = RawHost::welcomed(server, "h1", vec![declared("report", EffectClass::ReadOnly)]).await;
    model.asks("report", json!({})).says("done");
    let events = server.stream(in_session(session, run, "go")).await;
    let call = host.take_call().await;
    host.send(Frame::CallResult(with_blob(&call, digest, 0)));
    let events = events.rest().await;
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
    assert_eq!(results(&events)[0].status(), ToolStatus::Succeeded);
}

async fn with_clock(model: &Model, more: &str) -> (TestServer, TestClock) {
    let clock = TestClock::at(Timestamp(1_800_000_000_000));
    let given = clock.clone();
    let server =
        TestServer::built(model, more, move |builder| builder.clock(std::sync::Arc::new(given.clone())))
            .await;
    (server, clock)
}

async fn sweep(server: &TestServer) -> u64 {
    soon(server.engine().sweep_blobs()).await.expect("a sweep")
}

#[tokio::test]
async fn what_is_stored_is_read_also_after_a_restart() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let large = bytes(1, 3 * 1024 * 1024 + 17);
    let name = digest(&large);
    let chunks = large.chunks(700_001).map(|chunk| Part::Chunk(chunk.to_vec()));
    let parts: Vec<Part> = [header(&name, large.len() as u64)].into_iter().chain(chunks).collect();
    let stored = send(&server, parts.clone()).await.expect("stored");
    let wanted = wire::BlobHeader {
        digest: name.clone(),
        size_bytes: large.len() as u64,
        media_type: "application/pdf".to_owned(),
    };
    assert_eq!((stored.header, stored.existed), (Some(wanted.clone()), false));
    assert!(send(&server, parts).await.expect("stored again").existed);
    assert_eq!(get(&server, &name, 0).await.expect("read"), (wanted.clone(), large.clone()));
    server.restart().await;
    for offset in [0, 1, 262_144, 262_145, large.len() - 1, large.len()] {
        let (found, rest) = get(&server, &name, offset as u64).await.expect("read");
        assert!(found == wanted && rest == large[offset..], "from {offset}");
    }
    let beyond = get(&server, &name, large.len() as u64 + 1).await;
    assert_refused(beyond, Code::OutOfRange, "INVALID_FIELD");
}

#[tokio::test]
async fn a_blob_may_be_empty() {
    let server = TestServer::start(&Model::start().await).await;
    let name = put(&server, &[]).await;
    assert_eq!(name, digest(&[]));
    assert_eq!(get(&server, &name, 0).await.expect("read").1, Vec::<u8>::new());
}

#[tokio::test]
async fn an_upload_that_is_not_as_announced_is_refused_and_leaves_nothing() {
    let server = TestServer::start(&Model::start().await).await;
    let chunk = || Part::Chunk(b"abc".to_vec());
    let other = digest(b"other");
    for (parts, field) in [
        (vec![], "header"),
        (vec![chunk()], "header"),
        (vec![header("", 0), header("", 0)], "header"),
        (vec![header("sha256:abc", 0), chunk()], "header.digest"),
        (vec![header(&digest(b"abc").to_uppercase(), 0), chunk()], "header.digest"),
        (vec![header(&other, 0), chunk()], "header.digest"),
        (vec![header("", 4), chunk()], "header.size_bytes"),
        (vec![header("", 2), chunk()], "header.size_bytes"),
        (vec![header("", 0), Part::Chunk(vec![0; 1024 * 1024 + 1])], "chunk"),
    ] {
        assert_invalid(send(&server, parts).await, &[field]);
    }
    let media_type = "a".repeat(257);
    let long = Part::Header(wire::BlobHeader { media_type, ..Default::default() });
    assert_invalid(send(&server, vec![long]).await, &["header.media_type"]);
    assert_invalid(get(&server, "abc", 0).await, &["digest"]);
    let status = assert_refused(get(&server, &digest(b"abc"), 0).await, Code::NotFound, "BLOB_NOT_FOUND");
    assert_eq!(metadata(&status, "digest"), digest(b"abc"));
    if let Stored::File(_) = server.stored() {
        assert!(!file_of(&server, &other).exists() && !file_of(&server, &digest(b"abc")).exists());
        assert_eq!(uploads(&server), 0);
    }
}

#[tokio::test]
async fn bounds_are_refused_clearly() {
    let bounds = "[blobs]\nmax_bytes = 1000\ntotal_bytes = 1500\n";
    let server = TestServer::with(&Model::start().await, bounds).await;
    let exhausted = |result: Result<wire::PutBlobResponse, Status>, quota: &str| {
        let status = assert_refused(result, Code::ResourceExhausted, "QUOTA_EXCEEDED");
        assert_eq!(metadata(&status, "quota"), quota);
    };
    exhausted(send(&server, vec![header("", 1001)]).await, "blobs.max_bytes");
    let chunk = |seed: u8, size: usize| Part::Chunk(bytes(seed, size));
    exhausted(send(&server, vec![header("", 0), chunk(1, 800), chunk(1, 201)]).await, "blobs.max_bytes");
    let first = put(&server, &bytes(1, 1000)).await;
    exhausted(send(&server, vec![header("", 0), chunk(2, 501)]).await, "blobs.total_bytes");
    let second = put(&server, &bytes(2, 500)).await;
    // A stored blob is confirmed with its digest and without it, in one upload and in several at a time.
    for (name, seed, size) in [(&first, 1, 1000), (&second, 2, 500)] {
        for header in [header(name, size), header("", 0)] {
            let stored = send(&server, vec![header, chunk(seed, size as usize)]).await;
            assert!(stored.expect("confirmed").existed);
        }
    }
    let again = || send(&server, vec![header("", 0), chunk(2, 500)]);
    let (one, other) = tokio::join!(again(), again());
    assert!(one.expect("confirmed").existed && other.expect("confirmed").existed);
    let untyped = Part::Header(wire::BlobHeader::default());
    let stored = send(&server, vec![untyped, chunk(1, 1000)]).await.expect("confirmed");
    assert_eq!(stored.header.expect("a header").media_type, "application/pdf");
    assert_eq!(get(&server, &first, 0).await.expect("read").1, bytes(1, 1000));
    let info = soon(server.server_service().get_server_info(wire::GetServerInfoRequest {})).await;
    let info = info.expect("info").into_inner();
    assert_eq!(info.limits.expect("limits").blob_bytes_max, 1000);
    assert!(info.features.contains(&"blobs".to_owned()));
}

#[tokio::test]
async fn an_upload_and_a_read_that_stand_still_are_ended() {
    let server = TestServer::with(&Model::start().await, "[blobs]\nidle_timeout = \"500ms\"\n").await;
    let large = bytes(3, 32 * 1024 * 1024);
    let name = put(&server, &large).await;
    let request = wire::GetBlobRequest { digest: name, offset: 0 };
    let mut slow = soon(server.blobs().get_blob(request)).await.expect("it begins").into_inner();
    soon(slow.message()).await.expect("the header");
    // Each of them is ended after 500 ms, in which the reader takes nothing. The first ones pass while its window fills.
    for _ in 0..5 {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        sender.send(wire::PutBlobRequest { part: Some(header("", 0)) }).await.expect("sent");
        let upload = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let idle = soon(server.blobs().put_blob(upload)).await;
        assert_refused(idle, Code::ResourceExhausted, "SUBSCRIBER_TOO_SLOW");
    }
    let end = loop {
        match soon(slow.message()).await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert_refused(end, Code::ResourceExhausted, "SUBSCRIBER_TOO_SLOW");
}

#[tokio::test]
async fn a_result_names_a_blob_and_the_model_reads_its_name() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let large = bytes(4, 5 * 1024 * 1024);
    let name = put(&server, &large).await;
    run_with_blob(&server, &model, "s1", "r1", &name).await;
    let told = model.last_request().to_string();
    let line = format!("- file report.pdf (application/pdf, {} bytes, {name})", large.len());
    assert!(told.contains(&line), "{told}");
    server.restart().await;
    let events = server.subscribe("r1", 0).await.rest().await;
    let [file] = &results(&events)[0].files[..] else { panic!("one file") };
    assert_eq!(file.source, Some(Source::BlobDigest(name.clone())));
    assert_eq!(file.size_bytes, large.len() as u64, "the server fills it in");
    assert_eq!(get(&server, &name, 0).await.expect("read").1, large);
}

#[tokio::test]
async fn a_result_that_names_an_unknown_blob_fails_its_call() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let stored = put(&server, b"abc").await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("report", EffectClass::Unsafe)]).await;
    let unknown = digest(b"never stored");
    for (run, name, size, told) in
        [("r1", &unknown, 0, unknown.as_str()), ("r2", &stored, 4, "says that it has 4 bytes")]
    {
        model.asks("report", json!({})).says("done");
        let events = server.stream(named(run, "go")).await;
        let call = host.take_call().await;
        let result = with_blob(&call, name, size);
        host.send(Frame::CallResult(result.clone()));
        let events = events.rest().await;
        let [failed] = &results(&events)[..] else { panic!("one result") };
        assert_eq!(failed.status(), ToolStatus::Failed);
        assert!(failed.output.contains(told), "{}", failed.output);
        // The same result again is the one that was recorded.
        let outcome = Some(wire::complete_call_request::Outcome::Result(result));
        let again = soon(server.tool_host().complete_call(wire::CompleteCallRequest { outcome })).await;
        assert_eq!(again.expect("known").into_inner().verdict(), wire::ResultVerdict::Duplicate);
    }
    model.asks("report", json!({})).says("done");
    let _events = server.stream(named("r3", "go")).await;
    let call = host.take_call().await;
    let outcome = Some(wire::complete_call_request::Outcome::Result(with_blob(&call, "sha256:1", 0)));
    let request = wire::CompleteCallRequest { outcome };
    assert_invalid(soon(server.tool_host().complete_call(request)).await, &["call_result.files.blob_digest"]);
}

#[tokio::test]
async fn what_no_session_refers_to_is_deleted_after_an_hour_and_nothing_else() {
    let model = Model::start().await;
    let (mut server, clock) = with_clock(&model, "").await;
    let [used, unused, again] = [bytes(5, 1000), bytes(6, 1000), bytes(7, 1000)];
    let used = put(&server, &used).await;
    put(&server, &unused).await;
    put(&server, &again).await;
    run_with_blob(&server, &model, "s1", "r1", &used).await;
    clock.advance(Millis(HOUR - 1_000));
    put(&server, &again).await;
    assert_eq!(sweep(&server).await, 0);
    clock.advance(Millis(2_000));
    assert_eq!(sweep(&server).await, 1);
    assert_refused(get(&server, &digest(&unused), 0).await, Code::NotFound, "BLOB_NOT_FOUND");
    if let Stored::File(_) = server.stored() {
        assert!(!file_of(&server, &digest(&unused)).exists());
    }
    get(&server, &digest(&again), 0).await.expect("stored again within the hour");
    clock.advance(Millis(2 * HOUR));
    assert_eq!(sweep(&server).await, 1, "what was stored again");
    server.restart().await;
    assert_eq!(sweep(&server).await, 0);
    get(&server, &used, 0).await.expect("a session refers to it");
}

#[tokio::test]
async fn a_blob_whose_upload_takes_long_is_kept_from_its_end_on() {
    if has_no_file() {
        return;
    }
    let model = Model::start().await;
    let (server, clock) = with_clock(&model, "").await;
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let mut blobs = server.blobs();
    let upload =
        tokio::spawn(
            async move { blobs.put_blob(tokio_stream::wrappers::ReceiverStream::new(receiver)).await },
        );
    sender.send(wire::PutBlobRequest { part: Some(header("", 0)) }).await.expect("sent");
    soon(async {
        while uploads(&server) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    clock.advance(Millis(2 * HOUR));
    drop(sender);
    let stored = soon(upload).await.expect("a task").expect("stored").into_inner();
    assert_eq!(sweep(&server).await, 0);
    let name = stored.header.expect("a header").digest;
    get(&server, &name, 0).await.expect("the host has yet to name it");
}

#[tokio::test]
async fn a_fork_shares_what_it_refers_to_and_the_last_session_takes_it_along() {
    let model = Model::start().await;
    let (server, clock) = with_clock(&model, "").await;
    let name = put(&server, b"shared").await;
    run_with_blob(&server, &model, "s1", "r1", &name).await;
    for (new, at_entry_no) in [("before", 1), ("after", 0)] {
        let (session_id, new_session_id) = ("s1".to_owned(), Some(new.to_owned()));
        let fork = wire::ForkSessionRequest { session_id, at_entry_no, new_session_id };
        soon(server.sessions().fork_session(fork)).await.expect("a fork");
    }
    let delete = async |session: &str| {
        let request = wire::DeleteSessionRequest { session_id: session.to_owned() };
        soon(server.sessions().delete_session(request)).await.expect("deleted");
    };
    clock.advance(Millis(2 * HOUR));
    delete("s1").await;
    assert_eq!(sweep(&server).await, 0);
    get(&server, &name, 0).await.expect("the fork has it");
    delete("after").await;
    assert_eq!(sweep(&server).await, 1, "the fork before the result does not refer to it");
    assert_refused(get(&server, &name, 0).await, Code::NotFound, "BLOB_NOT_FOUND");
    assert_eq!(put(&server, b"shared").await, name);
}

#[tokio::test]
async fn a_damaged_file_is_told_and_mended_by_storing_it_again() {
    if has_no_file() {
        return;
    }
    let server = TestServer::start(&Model::start().await).await;
    let good = bytes(8, 600_000);
    let name = put(&server, &good).await;
    let file = file_of(&server, &name);
    let mut bad = good.clone();
    bad[300_000] ^= 1;
    for (what, content) in [("changed", Some(&bad[..])), ("cut", Some(&good[..1000])), ("gone", None)] {
        match content {
            Some(content) => fs::write(&file, content).expect("written"),
            None => fs::remove_file(&file).expect("deleted"),
        }
        for offset in [0, 599_999] {
            let read = get(&server, &name, offset).await;
            let status = assert_refused(read, Code::DataLoss, "BLOB_NOT_FOUND");
            assert_eq!(metadata(&status, "digest"), name, "{what}");
        }
        put(&server, &good).await;
        assert_eq!(get(&server, &name, 0).await.expect(what).1, good);
    }
}

#[tokio::test]
async fn tenants_and_callers_see_their_own() {
    let model = Model::start().await;
    let files = SecurityFiles::new();
    let token = |name: &str, tenant: &str, role: &str| files.token(name, tenant, &[role]);
    let tokens = [
        files.token("ann", "a", &["caller", "approver"]),
        token("bob", "a", "caller"),
        token("host", "a", "host"),
        token("eve", "a", "viewer"),
        token("op", "b", "operator"),
    ];
    let server = TestServer::with(&model, &files.auth()).await;
    let [ann, bob, host, viewer, other] = tokens.map(|token| server.as_caller(&token));
    let stored = soon(ann.put_blob(&b"of ann"[..], "text/plain")).await.expect("stored");
    let name = stored.header.expect("a header").digest;
    let read = async |client: &agentloop_client::Client| {
        let mut all = Vec::new();
        soon(client.copy_blob(name.clone(), &mut all)).await.map(|_| all)
    };
    for client in [&ann, &host, &viewer] {
        assert_eq!(read(client).await.expect("read"), b"of ann");
    }
    for client in [&bob, &other] {
        let error = read(client).await.expect_err("it is not shown");
        assert_eq!(error.code(), Some(Code::NotFound), "{error}");
    }
    // To name it in a conversation of one's own does not show it either.
    let file = wire::FileContent {
        name: "a".to_owned(),
        source: Some(Source::BlobDigest(name.clone())),
        ..Default::default()
    };
    let error = soon(bob.import_entries(conversation_with(file.clone()))).await.expect_err("refused");
    assert_eq!(error.code(), Some(Code::NotFound), "{error}");
    soon(ann.import_entries(conversation_with(file))).await.expect("imported");
    // Anyone who has the bytes may store them.
    let again = soon(bob.put_blob(&b"of ann"[..], "text/plain")).await.expect("stored");
    assert!(!again.existed, "what others have is not told");
    assert_eq!(read(&bob).await.expect("read"), b"of ann");
    // Nor does the type that they give change that of others.
    soon(bob.put_blob(&b"of ann"[..], "text/html")).await.expect("stored");
    let kept = soon(ann.copy_blob(name.clone(), &mut Vec::new())).await.expect("read");
    assert_eq!(kept.media_type, "text/plain");
}

/// A call with a result that has this file.
fn conversation_with(file: wire::FileContent) -> wire::ImportEntriesRequest {
    use wire::part::Content;
    let message = |role: wire::Role, content: Content| wire::Message {
        role: role.into(),
        parts: vec![wire::Part { content: Some(content) }],
    };
    let call = wire::ToolCall {
        call_id: "c".to_owned(),
        name: "report".to_owned(),
        arguments_json: "{}".to_owned(),
        title: String::new(),
    };
    let result = wire::ToolResult { call_id: "c".to_owned(), files: vec![file], ..Default::default() };
    wire::ImportEntriesRequest {
        auto_create_session: true,
        messages: vec![
            message(wire::Role::User, Content::Text("go".to_owned())),
            message(wire::Role::Assistant, Content::ToolCall(call)),
            message(wire::Role::Tool, Content::ToolResult(result)),
        ],
        ..Default::default()
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_folder_is_for_the_server_alone() {
    if has_no_file() {
        return;
    }
    use std::os::unix::fs::PermissionsExt as _;
    let mut server = TestServer::start(&Model::start().await).await;
    let name = put(&server, b"private").await;
    let file = file_of(&server, &name);
    let mode = |path: &std::path::Path| path.metadata().expect("it is there").permissions().mode() & 0o777;
    let folder = file.parent().and_then(std::path::Path::parent).expect("a folder");
    assert_eq!((mode(folder), mode(&file)), (0o700, 0o600));
    fs::write(folder.join("tmp").join("left"), b"of a process that was killed").expect("written");
    server.restart().await;
    assert!(!folder.join("tmp").join("left").exists());
    assert_eq!(
        soon(tokio::time::timeout(Duration::from_secs(30), get(&server, &name, 0)))
            .await
            .expect("in time")
            .expect("read")
            .1,
        b"private"
    );
}
