//! A model server that answers whatever it likes. The run that asked it ends with an error that says so, and without
//! the key; runs that ask it honestly are answered beside.

use std::path::Path;

use agentloop_client::v1::{RetryPolicy, RunErrorCode, RunInput, RunStatus};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::{Siege, scaled};
use crate::support::memory::MIB;
use crate::support::model::{Call, Model};
use crate::support::server::{Setting, input};
use crate::support::soon;

const KEY: &str = "sk-never-to-be-seen";
const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// A hostile answer: its first bytes, and the bytes that are repeated after them.
struct Answer {
    begin: String,
    again: Vec<u8>,
    /// The expected error of the run.
    code: RunErrorCode,
}

fn answer(begin: impl Into<String>, again: impl Into<Vec<u8>>, code: RunErrorCode) -> Answer {
    Answer { begin: begin.into(), again: again.into(), code }
}

fn event(delta: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n")
}

fn attacks(elsewhere: &str) -> Vec<(&'static str, Answer)> {
    use RunErrorCode::{ModelBadRequest, ModelConnection, ModelMalformed, ModelTooLarge, ModelUnavailable};
    let kib = "x".repeat(1024);
    let call = |at: usize| {
        format!("{{\"index\":{at},\"id\":\"c{at}\",\"function\":{{\"name\":\"t\",\"arguments\":\"{{}}\"}}}}")
    };
    let calls: Vec<String> = (0..1_000).map(call).collect();
    let thousand = event(&format!("{{\"tool_calls\":[{}]}}", calls.join(",")));
    let argument = "x".repeat(64 * 1024);
    let arguments = |text: &str| {
        event(&format!(
            "{{\"tool_calls\":[{{\"index\":0,\"id\":\"c\",\"function\":{{\"name\":\"t\",\"arguments\":\"{text}\"}}}}]}}"
        ))
    };
    let cells = format!("data: [{}]\n\n", "[0],".repeat(900_000));
    let gzip =
        format!("{}content-encoding: gzip\r\n\r\n", EVENTS.trim_end_matches("\r\n").to_owned() + "\r\n");
    let moved = format!(
        "HTTP/1.1 307 Moved\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    let broken = format!("HTTP/1.1 500 Broken\r\ncontent-type: text/plain\r\n\r\nI was sent Bearer {KEY}: ");
    vec![
        ("events-without-end", answer(EVENTS, event(&format!("{{\"content\":\"{kib}\"}}")), ModelTooLarge)),
        ("comments-without-end", answer(EVENTS, ": \n".repeat(100), ModelTooLarge)),
        ("a-line-without-end", answer(format!("{EVENTS}data: "), vec![b'x'; 16 * 1024], ModelTooLarge)),
        ("data-without-end", answer(EVENTS, "data: 1\n".repeat(1_000), ModelTooLarge)),
        ("arguments-without-end", answer(EVENTS, arguments(&argument), ModelTooLarge)),
        ("a-thousand-calls", answer(format!("{EVENTS}{thousand}"), "", ModelTooLarge)),
        ("a-million-cells", answer(format!("{EVENTS}{cells}"), "", ModelMalformed)),
        ("deep-json", answer(format!("{EVENTS}data: {}\n\n", "[".repeat(3 * MIB)), "", ModelMalformed)),
        (
            "another-content-type",
            answer("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n", kib.clone(), ModelMalformed),
        ),
        ("compressed", answer(gzip, vec![0x1f; 64 * 1024], ModelMalformed)),
        ("a-redirect", answer(moved, "", ModelBadRequest)),
        ("an-error-without-end", answer(broken, kib.clone(), ModelUnavailable)),
        ("headers-without-end", answer("HTTP/1.1 200 OK\r\n", format!("x: {kib}\r\n"), ModelConnection)),
        ("a-header-without-end", answer("HTTP/1.1 200 OK\r\nx: ", kib, ModelConnection)),
        ("half-a-head", answer("HTTP/1.1 200 OK\r\ncontent-t", "", ModelConnection)),
        ("no-http", answer("\0\u{1}\u{2}hello", "", ModelConnection)),
    ]
}

/// Gives its answer and, until the server hangs up, what follows.
async fn give(mut connection: TcpStream, answer: Answer) {
    if connection.write_all(answer.begin.as_bytes()).await.is_err() {
        return;
    }
    while !answer.again.is_empty() && connection.write_all(&answer.again).await.is_ok() {}
    let _gone = connection.shutdown().await;
}

async fn hostile_model(elsewhere: String) -> Setting {
    let model = Model::start().await;
    let setting = Setting { tls: super::is_encrypted(), ..model.setting() };
    model.answers_by(move |call: Call| {
        let attack =
            attacks(&elsewhere).into_iter().find(|(name, _)| call.mentions(&format!("attack {name}.")));
        async move {
            match attack {
                // Others are answered meanwhile.
                Some((_, answer)) => drop(tokio::spawn(give(call.into_connection(), answer))),
                None => call.say("fine").await,
            }
        }
    });
    setting
}

fn with_key(setting: Setting, folder: &Path) -> Setting {
    let file = folder.join("key");
    std::fs::write(&file, KEY).expect("written");
    let provider = format!("{}api_key_file = {file:?}\n", setting.provider);
    let agent = "timeouts = { connect = \"5s\", first_token = \"15s\", idle = \"15s\", total = \"60s\" }";
    Setting { provider, agent, ..setting }
}

async fn check(siege: &Siege, name: &'static str, code: RunErrorCode, round: usize) {
    let once = RetryPolicy { max_retries: Some(0), ..RetryPolicy::default() };
    let id = format!("{name}-{round}");
    let asked = RunInput { retry_policy: Some(once), ..input(&id, &id, &format!("attack {name}.")) };
    let result = soon(name, siege.server.client().run(asked)).await.expect("the call itself is good");
    assert_eq!(result.status(), RunStatus::Failed, "{name}");
    let error = result.last_error.expect("it says why");
    // On a busy machine the time may be over before the bytes are too many.
    let late = name.ends_with("without-end") && error.code() == RunErrorCode::ModelTimeout;
    assert!(late || error.code() == code, "{name}: {:?}: {}", error.code(), error.message);
    assert!(!error.message.contains(KEY), "{name}: {}", error.message);
    assert!(
        !error.message.is_empty() && error.message.len() <= 4_096,
        "{name}: {} bytes",
        error.message.len()
    );
}

#[tokio::test]
async fn any_hostile_answer_of_a_model_ends_the_run_with_a_reason() {
    // Several at a time, each of which may hold an event of 4 MiB and what its JSON becomes in memory.
    const GROWTH_MAX: usize = 512 * MIB;
    let folder = tempfile::tempdir().expect("a folder");
    let stranger = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
    let elsewhere = format!("http://{}/v1", stranger.local_addr().expect("it is bound"));
    let setting = with_key(hostile_model(elsewhere.clone()).await, folder.path());
    let siege = Siege::begin(&setting).await;
    for round in 0..scaled(1) {
        let attacks: Vec<_> =
            attacks(&elsewhere).into_iter().map(|(name, answer)| (name, answer.code)).collect();
        let checks = attacks.into_iter().map(|(name, code)| check(&siege, name, code, round));
        let beside = format!("beside-{round}");
        let (_, ()) = tokio::join!(futures_util::future::join_all(checks), siege.serves(&beside));
    }
    let visited = tokio::time::timeout(std::time::Duration::ZERO, stranger.accept()).await;
    assert!(visited.is_err(), "the key went where a redirect pointed");
    let mut server = siege.end("answers of a model", GROWTH_MAX).await;
    let (_, said) = server.terminate().await;
    assert!(!said.contains(KEY), "the log holds the key");
}
