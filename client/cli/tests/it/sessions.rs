//! `agentloop sessions`, `fork` and `runs` against a server process.

use agentloop_client_testing::timeout::soon;

use crate::{
    process::{agentloop, ended},
    served::Server,
};

/// Runs the command, which must succeed, and returns its output.
async fn told(server: &Server, args: &[&str]) -> String {
    let (code, stdout, stderr) = ended(&server.url(), args).await;
    assert_eq!(code, 0, "{args:?}: {stderr}");
    stdout
}

#[tokio::test]
async fn a_fork_goes_its_own_way() {
    let server = Server::start().await;
    for prompt in ["one", "two"] {
        told(&server, &["run", prompt, "--session", "trip"]).await;
    }
    assert_eq!(told(&server, &["fork", "trip", "--at", "2", "--id", "other"]).await, "other\n");
    told(&server, &["run", "three", "--session", "other"]).await;

    let trip = told(&server, &["sessions", "trip"]).await;
    let other = told(&server, &["sessions", "other"]).await;
    assert!(trip.contains("two") && !trip.contains("three"), "{trip}");
    assert!(other.contains("one") && other.contains("three") && !other.contains("two"), "{other}");
    assert_eq!(ended(&server.url(), &["fork", "nowhere"]).await.0, 1);
}

#[tokio::test]
async fn runs_are_listed_by_where_they_stand() {
    let server = Server::start().await;
    told(&server, &["run", "one", "--run-id", "r-1"]).await;
    let listed = async |status| told(&server, &["runs", "--status", status]).await;
    assert!(listed("completed").await.contains("r-1"));
    assert!(!listed("queued").await.contains("r-1"));
    assert_eq!(ended(&server.url(), &["runs", "--status", "nonsense"]).await.0, 2);
    let found = told(&server, &["runs", "--text", "ONE", "--agent", "default"]).await;
    assert!(found.contains("r-1") && found.contains("PROMPT"), "{found}");
    assert!(!told(&server, &["runs", "--label", "team=blue"]).await.contains("r-1"));
    assert_eq!(ended(&server.url(), &["runs", "--label", "team"]).await.0, 2);
}

/// As with `agentloop runs --watch | head -1`.
#[tokio::test]
async fn a_watched_list_that_nobody_reads_is_left() {
    let server = Server::start().await;
    told(&server, &["run", "one", "--run-id", "r-1"]).await;
    for (args, code) in
        [(&["runs", "--watch"][..], 130), (&["runs", "--watch", "--json"], 130), (&["runs"], 0)]
    {
        let mut child = agentloop(&server.url(), args).spawn().expect("the command was built");
        drop(child.stdout.take());
        let output = soon(child.wait_with_output()).await.expect("it ran");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*err), (Some(code), ""), "{args:?}");
    }
}

#[tokio::test]
async fn a_session_that_is_none_is_an_error() {
    let server = Server::start().await;
    for command in
        [&["runs"][..], &["approve"], &["policy", "rules"], &["policy", "check", "t"], &["search", "w"]]
    {
        for (session, code, told) in [("nowhere", 1, "nowhere"), ("no id", 2, "session_id")] {
            let args = [command, &["--session", session]].concat();
            let (ended_with, stdout, stderr) = ended(&server.url(), &args).await;
            assert_eq!((ended_with, stdout.as_str()), (code, ""), "{args:?}: {stderr}");
            assert!(stderr.lines().count() == 1 && stderr.contains(told), "{args:?}: {stderr}");
        }
    }
    let (code, _, stderr) = ended(&server.url(), &["run", "hello", "--session", "no id"]).await;
    assert_eq!((code, stderr.lines().count()), (2, 1), "{stderr}");
}

#[tokio::test]
async fn a_run_says_how_to_go_on() {
    let server = Server::start().await;
    let (code, _, stderr) = ended(&server.url(), &["run", "hello there"]).await;
    assert_eq!(code, 0, "{stderr}");
    let next = stderr.lines().find(|line| line.contains("agentloop run --session")).expect("a command");
    let words: Vec<&str> = next.split_whitespace().skip(1).map(|word| word.trim_matches('\'')).collect();
    assert!(words.ends_with(&["--server", &server.url(), "PROMPT"]), "{words:?}");
    // Its own option says where the server is.
    let (code, stdout, stderr) = ended("http://127.0.0.1:1", &words).await;
    assert_eq!((code, stdout.as_str()), (0, "You said: PROMPT\n"), "{stderr}");
    assert!(told(&server, &["sessions", words[2]]).await.contains("hello there"));
}

#[tokio::test]
async fn a_run_that_waits_says_which_session_it_is_in() {
    let server = Server::start().await;
    let (code, _, stderr) = ended(&server.url(), &["run", "which days"]).await;
    assert_eq!(code, 4, "{stderr}");
    let next = stderr.lines().find(|line| line.contains("agentloop run --session")).expect("a command");
    let session = next.split_whitespace().nth(3).expect("an id");
    assert!(stderr.contains(&format!(", session {session}; after its end, to go on:")), "{stderr}");
    assert!(told(&server, &["approve", "--session", session]).await.contains("Which days?"));
}

#[tokio::test]
async fn sessions_are_listed_with_what_they_are_about() {
    let server = Server::start().await;
    told(&server, &["run", "--session", "trip", "from Bergen\nto Oslo"]).await;
    let listed = told(&server, &["sessions"]).await;
    let rows: Vec<Vec<&str>> = listed
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(rows[0], ["SESSION", "AGE", "ENTRIES", "AGENT", "STATE", "TITLE OR FIRST PROMPT"]);
    assert_eq!(
        (rows[1][0], &rows[1][2..]),
        ("trip", &["2", "default", "completed", "from Bergen to Oslo"][..])
    );
    assert!(rows[1][1].ends_with('s'), "{listed}");
    let (_, json, _) = ended(&server.url(), &["sessions", "--json"]).await;
    assert!(json.starts_with(r#"{"sessionId":"trip""#), "{json}");
}

#[tokio::test]
async fn sessions_are_renamed_and_labelled() {
    let server = Server::start().await;
    told(&server, &["run", "--session", "trip", "hello"]).await;
    assert_eq!(told(&server, &["sessions", "rename", "trip", "To Bergen"]).await, "trip\nTo Bergen\n");
    let labelled = told(&server, &["sessions", "label", "trip", "user=ann", "team=a=b"]).await;
    assert_eq!(labelled, "trip\nTo Bergen\nteam=a=b user=ann\n");
    let labelled = told(&server, &["sessions", "label", "trip", "--remove", "team", "--json"]).await;
    assert!(labelled.contains(r#""labels":{"user":"ann"}"#), "{labelled}");
    assert!(told(&server, &["sessions"]).await.contains("To Bergen"));
    told(&server, &["run", "--session", "work", "the minutes"]).await;
    for (args, trip, work) in [
        (&["--label", "user=ann"][..], true, false),
        (&["--text", "MINUTES"], false, true),
        (&["--text", "bergen"], true, false),
        (&["--status", "completed", "--agent", "default"], true, true),
        (&["--status", "failed"], false, false),
    ] {
        let listed = told(&server, &[&["sessions"], args].concat()).await;
        let rows = |id: &str| listed.lines().any(|line| line.starts_with(id));
        assert_eq!((rows("trip"), rows("work")), (trip, work), "{args:?}: {listed}");
    }
    assert_eq!(ended(&server.url(), &["sessions", "label", "trip"]).await.0, 2, "nothing to do");
    assert_eq!(ended(&server.url(), &["sessions", "rename", "nowhere", "x"]).await.0, 1);
}

#[tokio::test]
async fn an_export_is_imported_again() {
    let server = Server::start().await;
    for prompt in ["to Bergen", "and \u{1b}[31mback\n\"quoted\""] {
        told(&server, &["run", "--session", "trip", prompt]).await;
    }
    told(&server, &["sessions", "label", "trip", "user=ann"]).await;
    told(&server, &["sessions", "rename", "trip", "Ferries"]).await;
    let exported = told(&server, &["sessions", "export", "trip"]).await;
    assert_eq!(exported.lines().count(), 1 + 2 + 4, "{exported}");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trip.jsonl");
    std::fs::write(&file, &exported).expect("written");
    let file = file.to_str().expect("a path in text");
    assert_eq!(told(&server, &["sessions", "import", file, "--id", "copy"]).await, "copy\n");
    assert_eq!(told(&server, &["sessions", "copy"]).await, told(&server, &["sessions", "trip"]).await);
    let copy = told(&server, &["sessions", "export", "copy"]).await;
    let messages = |lines: &str| {
        let entry =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["entry"].clone();
        let entries = lines.lines().map(entry).filter(|entry| !entry.is_null());
        entries.map(|entry| (entry["message"].clone(), entry["model"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(messages(&copy), messages(&exported));
    assert!(copy.starts_with(r#"{"session":{"sessionId":"copy","title":"Ferries""#), "{copy}");
    // The conversation goes on, and is not mixed with another.
    told(&server, &["run", "--session", "copy", "again"]).await;
    let (code, _, stderr) = ended(&server.url(), &["sessions", "import", file, "--id", "copy"]).await;
    assert_eq!((code, stderr.contains("exists and has entries")), (1, true), "{stderr}");
}

#[tokio::test]
async fn an_import_that_is_refused_leaves_only_what_was_there() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("bad.jsonl");
    let lines = [
        r#"{"session":{"title":"Bad"}}"#,
        r#"{"entry":{"message":{"role":"ROLE_ASSISTANT","parts":[{"toolCall":{"callId":"c","name":"t","argumentsJson":"{}"}}]}}}"#,
        r#"{"entry":{"message":{"role":"ROLE_TOOL","parts":[{"toolResult":{"callId":"c","structuredJson":"{"}}]}}}"#,
    ];
    std::fs::write(&file, lines.join("\n")).expect("written");
    let file = file.to_str().expect("a path in text");
    let import = ["sessions", "import", file, "--id", "bad"];
    let (code, _, stderr) = ended(&server.url(), &import).await;
    assert_eq!((code, stderr.contains("nothing is imported: ")), (1, true), "{stderr}");
    assert!(stderr.contains("structured_json"), "{stderr}");
    let (code, ..) = ended(&server.url(), &["sessions", "bad"]).await;
    assert_ne!(code, 0, "the session is gone");
    // A session that was there stays.
    let empty = directory.path().join("empty.jsonl");
    std::fs::write(&empty, lines[0]).expect("written");
    let empty = empty.to_str().expect("a path in text");
    told(&server, &["sessions", "import", empty, "--id", "bad"]).await;
    let (_, _, stderr) = ended(&server.url(), &import).await;
    assert!(stderr.contains("session bad has only the first 0 messages"), "{stderr}");
    told(&server, &["sessions", "bad"]).await;
}

#[tokio::test]
async fn messages_are_found_by_their_words() {
    let server = Server::start().await;
    told(&server, &["run", "--session", "trip", "the ferry to Bergen"]).await;
    told(&server, &["run", "--session", "work", "the minutes of the ferry meeting"]).await;
    let found = told(&server, &["search", "FERRIES"]).await;
    assert!(found.contains("trip 1, user, ") && found.contains("work 1, user, "), "{found}");
    let found = told(&server, &["search", "--session", "trip", "ferry", "meeting"]).await;
    assert!(found.contains("  the ferry to Bergen") && !found.contains("work"), "{found}");
    assert_eq!(told(&server, &["search", "nowhere"]).await, "no message has these words\n");
}

#[tokio::test]
async fn ids_are_abbreviated_where_only_one_fits() {
    let server = Server::start().await;
    for run in ["first-run-of-trip", "second-run-of-trip"] {
        told(&server, &["run", "hello", "--session", "trip-to-bergen", "--run-id", run]).await;
    }
    for args in [
        &["runs", "first"][..],
        &["runs", "second-run"],
        &["replay", "first-run"],
        &["watch", "seco"],
        &["sessions", "trip"],
        &["sessions", "bergen"],
        &["queue", "trip-"],
        &["runs", "--session", "to-bergen"],
        &["approve", "--run", "first"],
        &["policy", "check", "t", "--run", "first"],
        &["fork", "gen-is-none"],
    ] {
        let (code, _, stderr) = ended(&server.url(), args).await;
        assert_eq!(code, i32::from(args[0] == "fork"), "{args:?}: {stderr}");
    }
    let (code, _, stderr) = ended(&server.url(), &["runs", "run-of-trip"]).await;
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("abbreviates 2 ids: second-run-of-trip, first-run-of-trip"), "{stderr}");
    assert_eq!(ended(&server.url(), &["runs", "fir"]).await.0, 1, "too short to be meant");
    let (_, said, _) = ended(&server.url(), &["sessions", "trip-to", "--delete"]).await;
    assert_eq!(said, "there is no such session\n", "nothing is deleted by an abbreviation");
}

#[tokio::test]
async fn a_run_goes_on_with_an_abbreviated_session_that_nobody_named() {
    let server = Server::start().await;
    let session = "01a217a8-20ce-74e0-ae1d-75dabd951051";
    told(&server, &["run", "hello", "--session", session]).await;
    let count = || async { told(&server, &["sessions", "--json"]).await.lines().count() };
    for part in ["75dabd951051", "01a217a8-20ce", session] {
        told(&server, &["run", "more", "--session", part]).await;
        assert_eq!(count().await, 1, "{part}");
    }
    assert!(told(&server, &["sessions", session]).await.contains("  7 user: more"));
    // A name is a session of its own, also where a session begins with it. So is a part that fits none.
    for (name, sessions) in [("trip-to-bergen", 2), ("trip", 3), ("abcdef01", 4)] {
        told(&server, &["run", "hello", "--session", name]).await;
        assert_eq!(count().await, sessions, "{name}");
    }
    told(&server, &["run", "hello", "--session", "01a217a8-9999-74e0-ae1d-75dabd951051"]).await;
    let (code, _, stderr) = ended(&server.url(), &["run", "x", "--session", "75dabd951051"]).await;
    assert!(code == 2 && stderr.contains("75dabd951051 abbreviates 2 ids"), "{stderr}");
}

#[tokio::test]
async fn an_id_of_nothing_is_named_with_the_command_that_lists() {
    let server = Server::start().await;
    let run = "there is no run nowhere; `agentloop runs` lists them";
    let session = "there is no session nowhere; `agentloop sessions` lists them";
    let question = "no question waits under the id nowhere; `agentloop approve` lists them";
    for (args, told) in [
        (&["runs", "nowhere"][..], run),
        (&["replay", "nowhere"], run),
        (&["watch", "nowhere"], run),
        (&["resume", "nowhere"], run),
        (&["abort", "--run", "nowhere"], run),
        (&["approve", "--run", "nowhere"], run),
        (&["sessions", "nowhere"], session),
        (&["sessions", "rename", "nowhere", "Ferries"], session),
        (&["sessions", "export", "nowhere"], session),
        (&["fork", "nowhere"], session),
        (&["queue", "nowhere"], session),
        (&["abort", "--session", "nowhere"], session),
        (&["search", "--session", "nowhere", "ferry"], session),
        (&["approve", "nowhere"], question),
        (&["approve", "nowhere", "--text", "Oslo"], question),
    ] {
        let (code, _, stderr) = ended(&server.url(), args).await;
        assert_eq!((code, stderr.trim_end()), (1, format!("agentloop: {told}").as_str()), "{args:?}");
    }
}
