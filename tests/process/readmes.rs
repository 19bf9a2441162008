//! The READMEs of the repository and of the other languages, followed to the letter in a fresh folder.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::process::Command;

use crate::support::child::Process;
use crate::support::host::example_of;
use crate::support::model::Model;
use crate::support::server::Server;
use crate::support::{built, top};

/// A language, and where its README says that its host is to be saved and how it is run.
struct Language {
    name: &'static str,
    fence: &'static str,
    file: &'static str,
    run: &'static str,
}

const PYTHON: Language = Language {
    name: "python",
    fence: "```python\n",
    file: "weather_host.py",
    run: ".venv/bin/python weather_host.py",
};
const TYPESCRIPT: Language = Language {
    name: "typescript",
    fence: "```ts\n",
    file: "src/weather_host.ts",
    run: "node dist/weather_host.js",
};
const GO: Language =
    Language { name: "go", fence: "```go\n", file: "cmd/weather-host/main.go", run: "bin/weather-host" };

/// A copy of a language's folder, with what its set-up has installed, and its README for this server.
struct Fresh {
    _place: tempfile::TempDir,
    folder: PathBuf,
    readme: String,
}

async fn fresh(language: &Language, server: &Server) -> Option<Fresh> {
    let original = example_of(language.name)?;
    let place = tempfile::tempdir().expect("a folder");
    let copied = Command::new("cp").arg("-a").arg(&original).arg(place.path()).status().await;
    assert!(copied.expect("there is a cp").success());
    let folder = place.path().join(language.name);
    let readme = std::fs::read_to_string(folder.join("README.md")).expect("there is one");
    assert!(readme.contains("127.0.0.1:50051"));
    let readme = readme.replace("127.0.0.1:50051", &server.address());
    Some(Fresh { _place: place, folder, readme })
}

impl Fresh {
    /// A line of the README as a process in the folder.
    fn start(&self, line: &str) -> Process {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("exec {line}")]).current_dir(&self.folder);
        Process::start(line, command)
    }

    /// Runs a line of the README to its end, however long a compiler takes.
    async fn done(&self, line: &str) {
        let done = Command::new("bash").args(["-c", line]).current_dir(&self.folder).output().await;
        let done = done.expect("there is a bash");
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// The three commands at its beginning: a host, extensions and a caller.
async fn the_first_commands_work(language: &Language) {
    let mut model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let Some(fresh) = fresh(language, &server).await else { return };
    let block = fresh.readme.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next());
    let lines: Vec<&str> = block.expect("commands").lines().collect();
    let [host, extensions, caller] = lines[..] else { panic!("three commands: {lines:?}") };
    fresh.done("./run-host --setup-only").await;
    let mut host = fresh.start(host);
    host.line_with("ready").await;
    let mut extensions = fresh.start(extensions);
    extensions.line_with("ready").await;
    let caller = fresh.start(caller);
    let call = model.call().await;
    call.use_tool("get_weather", json!({ "city": "Beijing" })).await;
    model.call().await.say("It is clear in Beijing.").await;
    let (code, said) = caller.ended().await;
    assert_eq!(code, 0, "{said}");
    assert!(said.lines().any(|line| line == "answer: It is clear in Beijing."), "{said}");
}

/// The host that a reader writes from it.
async fn its_host_serves(language: &Language) {
    let mut model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let Some(fresh) = fresh(language, &server).await else { return };
    let Language { fence, file, run, .. } = language;
    for said in [format!("`{file}`"), "`./setup`".to_owned(), format!("`{run}`")] {
        assert!(fresh.readme.contains(&said), "the README does not say {said}");
    }
    let mut blocks = fresh.readme.split(fence).skip(1).filter_map(|rest| rest.split("```").next());
    let code = blocks.find(|block| block.contains("get_weather")).expect("a host");
    write(&fresh.folder.join(file), code);
    fresh.done("./setup").await;
    let mut host = fresh.start(run);
    host.line_with("ready").await;
    let client = server.client();
    let run = tokio::spawn(async move {
        let input =
            agentloop_client::v1::RunInput { prompt: "How is Oslo?".to_owned(), ..Default::default() };
        client.run(input).await.expect("a result")
    });
    model.call().await.use_tool("get_weather", json!({ "city": "Oslo" })).await;
    let answer = model.call().await;
    answer.say("Clear.").await;
    assert_eq!(run.await.expect("no panic").status(), agentloop_client::v1::RunStatus::Completed);
}

fn write(file: &Path, text: &str) {
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    std::fs::write(file, text).expect("written");
}

/// A folder for the first steps of the repository's README, and the address in place of the usual one.
struct FirstSteps {
    folder: tempfile::TempDir,
    address: String,
}

impl FirstSteps {
    /// A line of the README in a terminal of its own.
    fn start(&self, line: &str) -> Process {
        let commands = built("agentloop").parent().expect("a folder").display().to_string();
        let mut command = Command::new("bash");
        command.args(["-c", &format!("exec {line}")]).current_dir(self.folder.path()).env_clear();
        command.env("PATH", format!("{commands}:/usr/local/bin:/usr/bin:/bin"));
        command.env("HOME", self.folder.path()).env("AGENTLOOP_SERVER_LISTEN", &self.address);
        command.env("AGENTLOOP_SERVER", format!("http://{}", self.address));
        Process::start(line, command)
    }
}

#[tokio::test]
async fn of_the_repository() {
    let readme = std::fs::read_to_string(top().join("README.md")).expect("there is one");
    let section = readme.split("\n## First steps\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let section = section.expect("the first steps");
    let last_block = |fence: &str| section.split(fence).last().and_then(|rest| rest.split("```").next());
    let (config, script) =
        (last_block("```toml\n").expect("a configuration"), "client/cli/src/demo-model.toml");
    assert!(config.contains(script));
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port is free");
    let steps = FirstSteps { folder: tempfile::tempdir().expect("a folder"), address: free.to_string() };
    write(&steps.folder.path().join("agentloop.toml"), config);
    let replies = std::fs::read_to_string(top().join(script)).expect("there is one");
    write(&steps.folder.path().join(script), &replies);

    let lines: Vec<&str> = last_block("```sh\n").expect("commands").lines().collect();
    let [serve, host, run] = lines[..] else { panic!("three commands: {lines:?}") };
    let mut server = steps.start(serve);
    server.line_with("listens on http://").await;
    let mut host = steps.start(host);
    host.line_with("connected").await;
    // Nobody is at this terminal, so the command tells how to answer its question.
    let mut run = steps.start(run);
    let approve = run.line_with("agentloop approve ").await;
    let watch = run.line_with("agentloop watch ").await;
    assert_eq!(run.ended().await.0, 4);
    assert_eq!(steps.start(approve.trim()).ended().await.0, 0);
    let (code, said) = steps.start(watch.trim()).ended().await;
    assert!(code == 0 && said.contains("the mail was sent to team@example.com"), "{said}");
    let outbox =
        std::fs::read_to_string(steps.folder.path().join("outbox.jsonl")).expect("a mail was written");
    assert!(outbox.contains("team@example.com"), "{outbox}");
}

#[tokio::test]
async fn of_python() {
    the_first_commands_work(&PYTHON).await;
    its_host_serves(&PYTHON).await;
}

#[tokio::test]
async fn of_typescript() {
    the_first_commands_work(&TYPESCRIPT).await;
    its_host_serves(&TYPESCRIPT).await;
}

#[tokio::test]
async fn of_go() {
    the_first_commands_work(&GO).await;
    its_host_serves(&GO).await;
}
