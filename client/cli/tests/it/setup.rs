//! `agentloop init` and `agentloop doctor`: from an empty folder to a server that answers.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _, path::Path, process::Stdio};

use agentloop_client_testing::timeout::soon;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
};

use crate::{process::Running, pty::Pty, screens::shows};

/// Variables of the environment that would decide for a test.
pub(crate) const VARIABLES: [&str; 8] = [
    "AGENTLOOP_CONFIG",
    "AGENTLOOP_STORE_PATH",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "LOCAL_API_KEY",
    "OPENAI_API_KEY",
    "XDG_DATA_HOME",
];

/// The command in this folder, which is also the user's home.
fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentloop"));
    command.args(args).current_dir(folder).env("HOME", folder).kill_on_drop(true);
    command.env("AGENTLOOP_SERVER_LISTEN", free_address()).env_remove("AGENTLOOP_SERVER");
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn free_address() -> String {
    let free = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
    free.local_addr().expect("a bound socket has an address").to_string()
}

/// Runs the command with this input. Returns exit code, standard output and standard error.
async fn ended(mut command: Command, input: &str) -> (i32, String, String) {
    let mut child = command.spawn().expect("the command was built");
    let mut stdin = child.stdin.take().expect("it is piped");
    // The command may end without reading all of it.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = soon(child.wait_with_output()).await.expect("it ran");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("no signal ended it"), text(output.stdout), text(output.stderr))
}

/// The checks of `agentloop doctor --json`: name, result and the whole line.
async fn checks(mut command: Command) -> (i32, Vec<(String, String, Value)>) {
    command.arg("--json");
    let (code, out, err) = ended(command, "").await;
    let checks = out.lines().map(|line| {
        let check: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("JSON: {line}\n{err}"));
        let text = |key: &str| check[key].as_str().expect("a text").to_owned();
        (text("check"), text("result"), check.clone())
    });
    (code, checks.collect())
}

#[track_caller]
fn find<'a>(checks: &'a [(String, String, Value)], name: &str) -> (&'a str, String) {
    let (_, result, line) = checks.iter().find(|(check, ..)| check == name).expect("the check is made");
    (result, line.to_string())
}

#[tokio::test]
async fn a_script_answers_and_the_server_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, out, err) = ended(command(folder.path(), &["init", "--provider", "script"]), "").await;
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("demo/scripted answers"), "{out}");
    assert!(out.contains("agentloop serve --config agentloop.toml"), "{out}");

    let doctor = ["doctor", "--config", "agentloop.toml"];
    let (code, before) = checks(command(folder.path(), &doctor)).await;
    assert_eq!(code, 0, "{before:?}");
    assert_eq!(find(&before, "models").0, "ok");
    assert_eq!(find(&before, "database").0, "ok");
    assert!(find(&before, "database").1.contains("will be created"), "{before:?}");
    assert!(find(&before, "server").1.contains("does not run"), "{before:?}");
    assert!(["disk", "clock"].iter().all(|name| find(&before, name).0 == "ok"), "{before:?}");

    // The same address for both, as a configuration would have it.
    let listen = free_address();
    let mut serve = command(folder.path(), &["serve", "--config", "agentloop.toml"]);
    serve.env("AGENTLOOP_SERVER_LISTEN", &listen).stdin(Stdio::null());
    let server = Running::start_and_wait_for(serve, "listens on").await;
    let mut doctor = command(folder.path(), &doctor);
    doctor.env("AGENTLOOP_SERVER_LISTEN", &listen);
    let (code, during) = checks(doctor).await;
    assert_eq!(code, 0, "{during:?}");
    assert!(find(&during, "server").1.contains("is ready"), "{during:?}");
    assert_eq!(find(&during, "hosts").0, "warning", "no tool host is connected");
    assert!(find(&during, "database").1.contains("agentloop/agentloop.db"), "{during:?}");
    server.signal("TERM").await;
    server.gone().await;
}

#[tokio::test]
async fn an_existing_configuration_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("agentloop.toml");
    fs::write(&file, "# mine").expect("written");
    let (code, _, err) = ended(command(folder.path(), &["init", "--provider", "script"]), "").await;
    assert_eq!(code, 2);
    assert!(err.contains("agentloop.toml exists"), "{err}");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "# mine");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else was made");
}

#[tokio::test]
async fn a_model_that_cannot_be_reached_is_told_with_advice() {
    let folder = tempfile::tempdir().expect("a folder");
    let answers = "4\nhttp://127.0.0.1:1/v1\n\nqwen3\n";
    let (code, out, err) = ended(command(folder.path(), &["init"]), answers).await;
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("wrote agentloop.toml"), "{out}");
    assert!(out.contains("local/qwen3 did not answer: model_connection"), "{out}");
    assert!(out.contains("→ check the network"), "{out}");
    let (_, next) =
        out.split_once("agentloop.toml is written, and its model does not work yet").expect("it is said");
    let serve = next.split_once("after that:").expect("what does not work yet comes last").1;
    assert!(serve.contains("agentloop serve --config agentloop.toml"), "{out}");

    let (code, checks) = checks(command(folder.path(), &["doctor", "--config", "agentloop.toml"])).await;
    assert_eq!(code, 1);
    assert_eq!(find(&checks, "models").0, "failed");

    let (code, _, err) = ended(command(folder.path(), &["init", "--config", "other.toml"]), "1\n").await;
    assert_eq!(code, 2);
    assert!(err.contains("the input ended"), "{err}");
    assert!(!folder.path().join("other.toml").exists());
}

#[tokio::test]
async fn a_model_that_cannot_be_reached_is_told_on_the_screen() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path().to_str().expect("text");
    let address = free_address();
    let mut variables = VARIABLES.map(|name| (name, "")).to_vec();
    variables.extend([("HOME", here), ("AGENTLOOP_SERVER_LISTEN", &*address), ("NO_COLOR", "1")]);
    // The words of the refusal are those of the operating system.
    let words =
        [(here, "<folder>"), (&*address, "<address>"), ("disk", "<rest>"), ("model_connection:", "<rest>")];
    let away = ["--provider", "compatible", "--base-url", "http://127.0.0.1:1/v1", "--model", "qwen3"];
    for (name, args) in [
        ("init-unreachable", [&["init", "--config", "agentloop.toml"], &away[..]].concat()),
        ("doctor-unreachable", vec!["doctor", "--config", "agentloop.toml"]),
    ] {
        let mut command = Pty::start_sized(&args, folder.path(), &variables, (24, 80));
        shows(&mut command, name, &words).await;
        assert_eq!(command.ends().await.0, 1, "{name}");
    }
}

#[tokio::test]
async fn a_key_that_is_missing_and_a_file_that_is_there_are_told_with_what_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let init = ["init", "--provider", "openai", "--model", "m"];
    let (code, out, err) = ended(command(folder.path(), &init), "").await;
    assert_eq!(code, 0, "{err}");
    let (_, next) =
        out.split_once("agentloop.toml is written, and its model is not tried yet").expect("it is said");
    let (first, after) = next.split_once("after that:").expect("what does not work yet comes last");
    assert!(first.contains("export OPENAI_API_KEY=") && first.contains("agentloop doctor"), "{out}");
    assert!(after.contains("agentloop serve") && after.contains("agentloop run"), "{out}");

    let (code, out, err) = ended(command(folder.path(), &init), "").await;
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("agentloop.toml exists") && err.contains("nothing is written"), "{err}");
}

#[tokio::test]
async fn a_database_of_others_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut doctor = command(folder.path(), &["doctor", "--no-call"]);
    doctor.env("AGENTLOOP_STORE_URL", "postgres://u@127.0.0.1:1/x");
    let (code, found) = checks(doctor).await;
    assert_eq!((code, find(&found, "database").0), (1, "failed"), "{found:?}");
    assert!(find(&found, "database").1.contains("cannot reach PostgreSQL at 127.0.0.1:1"), "{found:?}");
}

#[tokio::test]
async fn a_log_in_json_has_json_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut serve = command(folder.path(), &["serve"]);
    let mut child = serve.env("AGENTLOOP_LOG_FORMAT", "json").spawn().expect("the command was built");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let mut told = Vec::new();
    while !told.last().is_some_and(|told: &String| told.starts_with("agentloop listens on http://127.0.0.1:"))
    {
        let line = soon(lines.next_line()).await.expect("readable").expect("it goes on");
        let entry: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("JSON: {line}"));
        told.push(entry["message"].as_str().unwrap_or_default().to_owned());
    }
    assert!(told.iter().any(|told| told.starts_with("the database is /")), "{told:?}");
}

#[tokio::test]
async fn a_file_that_protects_is_named_with_its_key() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("empty.pem"), "").expect("written");
    for (key, file, told) in [
        ("TLS_CERTIFICATE", "no.pem", "tls.certificate: cannot read no.pem: "),
        ("TLS_CERTIFICATE", "empty.pem", "tls.certificate: empty.pem: there is no certificate in it"),
        ("AUTH_TOKENS", "no.toml", "auth.tokens: cannot use the token file no.toml: "),
    ] {
        let mut serve = command(folder.path(), &["serve"]);
        serve.env(format!("AGENTLOOP_{key}"), file);
        if key == "TLS_CERTIFICATE" {
            serve.env("AGENTLOOP_TLS_KEY", "empty.pem");
        }
        let (code, _, err) = ended(serve, "").await;
        assert_eq!(code, 1, "{err}");
        let last = err.lines().last().unwrap_or_default();
        assert!(last.starts_with(&format!("agentloop: {told}")), "{err}");
        assert_eq!(last.matches("there is no").count(), told.matches("there is no").count(), "{err}");
    }
}

#[tokio::test]
async fn a_recording_is_not_made_in_another_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, notes) = (folder.path().join("agentloop.toml"), folder.path().join("notes.json"));
    fs::write(&notes, "{\"mine\":1}").expect("written");
    let provider = "[providers.a]\nkind = 'openai'\nbase_url = 'http://127.0.0.1:1'\nrecord = 'notes.json'\n";
    fs::write(&config, provider).expect("written");
    let (code, _, err) = ended(command(folder.path(), &["serve", "--config", "agentloop.toml"]), "").await;
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("provider \"a\": record: recording notes.json: "), "{err}");
    assert_eq!(fs::read_to_string(&notes).expect("it is there"), "{\"mine\":1}");
}

#[tokio::test]
async fn each_fault_has_its_advice() {
    let folder = tempfile::tempdir().expect("a folder");
    let doctor = |args: &[&str]| command(folder.path(), &[&["doctor"], args].concat());

    let (code, found) = checks(doctor(&[])).await;
    assert_eq!((code, find(&found, "models").0), (1, "failed"), "{found:?}");
    assert!(find(&found, "models").1.contains("agentloop init"), "{found:?}");

    fs::write(folder.path().join("bad.toml"), "[server]\nlissten = 1\n").expect("written");
    let (code, found) = checks(doctor(&["--config", "bad.toml"])).await;
    assert_eq!((code, found.len()), (1, 1), "{found:?}");
    assert!(find(&found, "configuration").1.contains("lissten"), "{found:?}");

    // Something else has the port, and the database is in the way of itself.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut taken = doctor(&["--no-call"]);
    taken.env("AGENTLOOP_SERVER_LISTEN", other.local_addr().expect("bound").to_string());
    taken.env("AGENTLOOP_STORE_PATH", folder.path());
    let (code, found) = checks(taken).await;
    assert_eq!((code, find(&found, "server").0), (1, "failed"), "{found:?}");
    assert!(find(&found, "database").1.contains("is no file"), "{found:?}");
    assert_eq!(find(&found, "models").0, "warning");

    let open = folder.path().join("open.db");
    fs::write(&open, "").expect("written");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).expect("mine");
    let mut readable = doctor(&["--no-call"]);
    readable.env("AGENTLOOP_STORE_PATH", &open);
    let (_, found) = checks(readable).await;
    assert!(find(&found, "database").1.contains("chmod"), "{found:?}");
}

#[tokio::test]
async fn the_audit_log_of_the_server_is_left_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, out, err) = ended(command(folder.path(), &["init", "--provider", "script"]), "").await;
    assert_eq!(code, 0, "{out}{err}");
    let doctor = async |key: &str, value: &str| {
        let mut doctor = command(folder.path(), &["doctor", "--config", "agentloop.toml"]);
        doctor.env("AGENTLOOP_AUDIT_ENABLED", "true").env(format!("AGENTLOOP_AUDIT_{key}"), value);
        checks(doctor).await
    };
    let lines = folder.path().join("audit.jsonl");
    fs::write(&lines, "{\"no\":7}\n").expect("written");
    let (code, found) = doctor("PATH", "audit.jsonl").await;
    assert_eq!((code, find(&found, "models").0, find(&found, "audit").0), (0, "ok", "ok"), "{found:?}");
    assert_eq!(fs::read_to_string(&lines).expect("it is there"), "{\"no\":7}\n");
    assert!(
        !folder.path().join("audit.jsonl.last").exists(),
        "nothing is noted of rows that were not written"
    );

    // Each line of the output is a check.
    let (code, found) = doctor("STDOUT", "true").await;
    assert_eq!((code, find(&found, "models").0), (0, "ok"), "{found:?}");

    let (code, found) = doctor("PATH", "none/audit.jsonl").await;
    assert_eq!((code, find(&found, "audit").0, find(&found, "models").0), (1, "failed", "ok"), "{found:?}");
    assert!(find(&found, "audit").1.contains("audit.path: cannot write "), "{found:?}");
}

#[tokio::test]
async fn what_protects_the_server_is_checked_as_the_server_reads_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let in_folder = |args: &[&str]| command(folder.path(), args);
    let (code, out, err) = ended(in_folder(&["init", "--provider", "script"]), "").await;
    assert_eq!(code, 0, "{out}{err}");
    let file = folder.path().join("agentloop.toml");
    let mut text = fs::read_to_string(&file).expect("it was written");
    text.push_str("\n[tls]\ncertificate = 'certs/server.pem'\nkey = 'certs/server.key'\n[auth]\ntokens = 'tokens.toml'\n");
    fs::write(&file, text).expect("written");
    let doctor = ["doctor", "--config", "agentloop.toml", "--no-call"];
    let security = async || {
        let (code, found) = checks(in_folder(&doctor)).await;
        let (result, line) = find(&found, "security");
        (code, result.to_owned(), line)
    };
    let fails = async |words: &str| {
        let (code, result, line) = security().await;
        assert!((code, &*result) == (1, "failed") && line.contains(words), "{line}");
        let (code, _, refused) = ended(in_folder(&["serve", "--config", "agentloop.toml"]), "").await;
        assert!(code != 0 && refused.contains(words), "the server does not start either: {refused}");
    };
    fails("server.pem").await;
    let (code, out, err) = ended(in_folder(&["cert", "dev"]), "").await;
    assert_eq!((code, out.lines().count()), (0, 4), "{err}");
    fails("tokens.toml").await;
    let new = ["token", "new", "--file", "tokens.toml", "--name", "ada", "--role"];
    let limits = [&new[..], &["caller", "--host-tool", "git_*"]].concat();
    let (code, _, err) = ended(in_folder(&limits), "").await;
    assert!(code == 2 && err.contains("--role host"), "{err}");
    let (code, token, err) = ended(in_folder(&[&new[..], &["operator"]].concat()), "").await;
    assert_eq!(code, 0, "{err}");
    let (code, result, line) = security().await;
    assert!((code, &*result) == (0, "ok") && line.contains("tokens: 1"), "{line}");

    let tokens = folder.path().join("tokens.toml");
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o644)).expect("mine");
    fails("tokens.toml").await;
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).expect("mine");
    let (key, aside) = (folder.path().join("certs/server.key"), folder.path().join("certs/aside"));
    fs::rename(&key, &aside).expect("renamed");
    fs::copy(folder.path().join("certs/ca.key"), &key).expect("copied");
    fails("certificate and key").await;
    fs::rename(&aside, &key).expect("renamed");

    // It knows the server that runs, whose certificate is of the development root.
    let listen = free_address();
    let mut serve = in_folder(&["serve", "--config", "agentloop.toml"]);
    serve.env("AGENTLOOP_SERVER_LISTEN", &listen).stdin(Stdio::null());
    let server = Running::start_and_wait_for(serve, "listens on").await;
    let during = async |token: Option<&str>| {
        let mut doctor = in_folder(&doctor);
        doctor.env("AGENTLOOP_SERVER_LISTEN", &listen);
        if let Some(token) = token {
            doctor.env("AGENTLOOP_TOKEN", token);
        }
        checks(doctor).await
    };
    let (code, found) = during(None).await;
    assert_eq!((code, find(&found, "hosts").0), (1, "failed"), "{found:?}");
    assert!(find(&found, "server").1.contains("is ready"), "{found:?}");
    let (code, found) = during(Some(token.trim())).await;
    assert_eq!((code, find(&found, "hosts").0), (0, "warning"), "{found:?}");
    fs::rename(folder.path().join("certs/ca.pem"), folder.path().join("ca.pem")).expect("renamed");
    let (code, found) = during(None).await;
    assert_eq!((code, find(&found, "server").0), (1, "failed"), "{found:?}");
    assert!(find(&found, "server").1.contains("--tls-ca"), "{found:?}");
    server.signal("TERM").await;
    server.gone().await;
}

#[tokio::test]
async fn a_signal_ends_the_questions_and_gives_the_terminal_back() {
    for key in ["\x03", "sk-sec\x03", "\x1c"] {
        let folder = tempfile::tempdir().expect("a folder");
        let variables = VARIABLES.map(|name| (name, ""));
        let mut terminal = Pty::start_local(&["init", "--no-call"], folder.path(), &variables);
        terminal.sees("Number:").await;
        terminal.types("2\r");
        terminal.sees("API key").await;
        terminal.types(key);
        let (code, screen) = terminal.ends().await;
        assert_eq!(code, 130, "{key:?}: {screen}");
        assert!(!screen.contains("sk-sec"), "{screen}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}

#[tokio::test]
async fn a_key_is_typed_unseen_and_kept_private() {
    let folder = tempfile::tempdir().expect("a folder");
    let variables = VARIABLES.map(|name| (name, ""));
    let init = ["init", "--no-call"];
    let mut terminal = Pty::start_local(&init, folder.path(), &variables);
    terminal.sees("Number:").await;
    terminal.types("2\r");
    terminal.sees("API key").await;
    terminal.types("sk-secret\r");
    terminal.sees("Model [claude-sonnet-5-5]:").await;
    terminal.types("\r");
    let (code, screen) = terminal.ends().await;
    assert_eq!(code, 0, "{screen}");
    assert!(!screen.contains("sk-secret"), "{screen}");
    let key = folder.path().join("anthropic.key");
    assert_eq!(fs::read_to_string(&key).expect("it is there"), "sk-secret\n");
    assert_eq!(fs::metadata(&key).expect("it is there").permissions().mode() & 0o777, 0o600);
    let config = fs::read_to_string(folder.path().join("agentloop.toml")).expect("it is there");
    assert!(config.contains("api_key_file = \"anthropic.key\""), "{config}");
}
