//! `agentloop approve` against a server process.

use crate::{process::ended, pty::Pty, screens::shows, served::Server};

#[tokio::test]
async fn a_decision_is_remembered_for_the_session() {
    let server = Server::start().await;
    let _host = server.host().await;
    let url = server.url();
    let run = async |run_id: &str| {
        ended(&url, &["run", "send a mail", "--session", "post", "--run-id", run_id]).await
    };
    assert_eq!(run("r-1").await.0, 4);
    let (_, listed, _) = ended(&url, &["approve", "--run", "r-1", "--json"]).await;
    let (_, rest) = listed.split_once(r#""requestId":""#).expect("one waits");
    let request = rest.split_once('"').expect("a JSON string ends").0;
    let (code, decided, stderr) =
        ended(&url, &["approve", request, "--remember", "session", "--as", "ada"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(
        decided.contains("approved by ada, and remembered: allow send_email where the whole is"),
        "{decided}"
    );
    assert_eq!(ended(&url, &["watch", "r-1"]).await.0, 0);

    assert_eq!(run("r-2").await.0, 0, "the same call again");
    let (_, rules, _) = ended(&url, &["policy", "rules", "--session", "post"]).await;
    assert_eq!(rules.lines().count(), 2, "{rules}");
}

#[tokio::test]
async fn arguments_that_the_server_finds_wrong_are_wrong_usage() {
    let server = Server::start().await;
    let (code, _, stderr) = ended(&server.url(), &["policy", "check", "send_email", "no JSON"]).await;
    assert_eq!((code, stderr.lines().count()), (2, 1), "{stderr}");
}

#[tokio::test]
async fn the_list_has_the_ids_that_an_answer_takes() {
    let server = Server::start().await;
    let (code, _, hint) = ended(&server.url(), &["run", "which days", "--run-id", "r-1"]).await;
    assert_eq!(code, 4, "{hint}");
    let command = hint.lines().find(|line| line.contains("--choose")).expect("a command").trim();
    let (code, listed, stderr) = ended(&server.url(), &["approve"]).await;
    assert_eq!(code, 0, "{stderr}");
    let options: Vec<&str> = listed.lines().filter(|line| line.starts_with("  --choose")).collect();
    assert_eq!(options, ["  --choose 1  Monday", "  --choose 2  Tuesday", "  --choose 3  Friday"]);
    assert!(listed.contains(command), "{command} in {listed}");

    let args: Vec<&str> = command.split(' ').skip(1).chain(["--choose", "3"]).collect();
    let (code, _, stderr) = ended(&server.url(), &args).await;
    assert_eq!(code, 0, "{stderr}");
    let (code, answer, _) = ended(&server.url(), &["watch", "r-1"]).await;
    assert!(code == 0 && answer.contains("Monday") && answer.contains("Friday"), "{answer}");
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_told_the_options_and_the_command() {
    let server = Server::start().await;
    let url = server.url();
    let (code, _, stderr) = ended(&url, &["run", "which days", "--run-id", "r-1"]).await;
    assert_eq!(code, 4, "{stderr}");
    let question = "r-1:1.0:0.1";
    for (args, fault) in [
        (&["approve", question][..], "the question asks for a choice of its options"),
        (&["approve", question, "--text", "Monday"], "the question asks for a choice of its options"),
        (&["approve", question, "--choose", "Sunday"], "there is no option \"Sunday\""),
    ] {
        let (code, _, stderr) = ended(&url, args).await;
        assert_eq!(code, 2, "{stderr}");
        let told: Vec<&str> = stderr.lines().collect();
        assert_eq!(told.first(), Some(&format!("agentloop: {fault}").as_str()), "{stderr}");
        assert!(told.contains(&"  --choose 1  Monday"), "{stderr}");
        assert!(told.contains(&"  several --choose may be given"), "{stderr}");
        let command = format!("  to answer it: agentloop approve {question} --choose 1");
        assert!(told.last().is_some_and(|line| line.starts_with(&command)), "{stderr}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_explained_on_the_screen() {
    let server = Server::start().await;
    let _host = server.host().await;
    let url = server.url();
    for (run_id, prompt) in [("r-days", "which days"), ("r-mail", "send a mail")] {
        let (code, _, stderr) = ended(&url, &["run", prompt, "--run-id", run_id]).await;
        assert_eq!(code, 4, "{stderr}");
    }
    for (name, args) in [
        ("approve-wrong-kind", &["r-days:1.0:0.1", "--text", "Monday"][..]),
        ("approve-unknown-choice", &["r-days:1.0:0.1", "--choose", "Sunday"]),
        ("approve-no-question", &["r-mail:1.0:0", "--text", "yes"]),
    ] {
        let args = [&["approve"], args, &["--server", url.as_str()]].concat();
        let mut approve = Pty::start_sized(&args, &server.file(""), &[], (24, 80));
        shows(&mut approve, name, &[(&url, "<url>")]).await;
        assert_eq!(approve.ends().await.0, 2, "{name}");
    }
}

#[tokio::test]
async fn an_option_is_chosen_by_its_label_too() {
    let server = Server::start().await;
    let url = server.url();
    let (code, _, stderr) = ended(&url, &["run", "which days", "--run-id", "r-1"]).await;
    assert_eq!(code, 4, "{stderr}");
    let args = ["approve", "r-1:1.0:0.1", "--choose", "monday", "--choose", "3"];
    let (code, told, stderr) = ended(&url, &args).await;
    assert!(code == 0 && told.contains("chosen: Monday, Friday"), "{told}{stderr}");
}
