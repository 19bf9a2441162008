//! An example caller: it starts a run, shows its events, and approves its tool calls. Lost streams are reopened where they ended.
//!
//! ```text
//! cargo run -p agentloop-client --example caller -- --server 127.0.0.1:50051 "Mail it"
//! ```
//!
//! Certificates and a token come from the environment, as for the example host.
#![expect(clippy::disallowed_methods, reason = "an example reads its options itself")]
#![expect(clippy::print_stdout, reason = "this is what it is for")]

mod environment;

use std::io::Write as _;
use std::process::ExitCode;

use agentloop_client::v1::{
    Approve, Decision, ErrorReason, HumanRequest, HumanRequestKind, Message, RunFinished, RunInput,
    RunStatus, SubmitApprovalRequest, decision, model_delta::Delta, part::Content, run_event::Event,
};
use agentloop_client::{Client, Error, StreamUpdate};

use self::environment::Credentials;

fn client(server: &str) -> Result<Client, Error> {
    let Credentials { ca, identity, token } = environment::credentials(server)?;
    let mut client = Client::builder(server);
    if let Some(ca) = ca {
        client = client.tls_ca(ca);
    }
    if let Some((certificate, key)) = identity {
        client = client.tls_identity(certificate, key);
    }
    if let Some(token) = token {
        client = client.token(token);
    }
    client.build()
}

/// Follows one run from its prompt to its end. Returns the end and the text of the last answer.
async fn follow(client: &Client, input: RunInput) -> Result<(RunFinished, String), Error> {
    // The run's id is made here if the input has none, so a start whose answer is lost is the same run when it is repeated.
    let mut events = client.run_stream(input).await?;
    let (mut screen, mut answer) = (Screen::default(), String::new());
    while let Some(update) = events.next_update().await {
        let event = match update? {
            StreamUpdate::Event(event) => event,
            StreamUpdate::Lost => {
                screen.line(&format!("stream lost, reopening it after event {}", events.last_seq()));
                continue;
            }
            StreamUpdate::Resumed => continue,
        };
        let seq = event.seq;
        match event.event {
            Some(Event::ModelDelta(delta)) => {
                if let Some(Delta::Text(text)) = delta.delta {
                    screen.text(&text);
                }
            }
            // After a reconnect: the text so far of the answer that the model is giving.
            Some(Event::PartialMessage(partial)) => {
                screen.line("");
                screen.text(&partial.message.as_ref().map(text_of).unwrap_or_default());
            }
            Some(Event::AssistantMessage(message)) => {
                answer = message.message.as_ref().map(text_of).unwrap_or_default();
                screen.line(&format!("[{seq}] the model has answered"));
            }
            Some(Event::HumanRequested(requested)) => {
                if let Some(request) = requested.request {
                    screen.line(&format!("[{seq}] {} {}", request.tool, request.arguments_json));
                    screen.line(approve(client, request).await?);
                }
            }
            Some(Event::RunFinished(finished)) => return Ok((finished, answer)),
            // A client that does not know an event passes it over: later servers have more of them.
            _ => {}
        }
    }
    Err(Error::Incomplete("run_finished"))
}

/// Approves the call that a request is about. A question of another kind is left to a human.
async fn approve(client: &Client, request: HumanRequest) -> Result<&'static str, Error> {
    if request.kind() != HumanRequestKind::Approve {
        return Ok("left to a human");
    }
    let approval = SubmitApprovalRequest {
        request_id: request.request_id,
        decision: Some(Decision { decision: Some(decision::Decision::Approve(Approve::default())) }),
        // The server refuses an approval of other arguments than these.
        digest: request.digest,
        decided_by: "example caller".to_owned(),
        ..SubmitApprovalRequest::default()
    };
    match client.submit_approval(approval).await {
        Ok(_) => Ok("approved"),
        Err(Error::Status(status)) if status.reason == Some(ErrorReason::AlreadyResolved) => {
            Ok("somebody else answered first")
        }
        Err(error) => Err(error),
    }
}

/// Shows the model's text as it comes, and lines about events between.
#[derive(Default)]
struct Screen {
    is_in_line: bool,
}

impl Screen {
    fn text(&mut self, text: &str) {
        print!("{text}");
        // A terminal shows a line without an end only after this. A screen that cannot be written is not worth an end.
        drop(std::io::stdout().flush());
        self.is_in_line |= !text.is_empty();
    }

    fn line(&mut self, text: &str) {
        println!("{}{text}", if self.is_in_line { "\n" } else { "" });
        self.is_in_line = false;
    }
}

fn text_of(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match &part.content {
        Some(Content::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let mut words = std::env::args().skip(1);
    let mut prompt = Vec::new();
    while let Some(word) = words.next() {
        if word == "--server" { drop(words.next()) } else { prompt.push(word) }
    }
    if prompt.is_empty() {
        eprintln!("usage: caller [--server ADDRESS] PROMPT...");
        return Ok(ExitCode::from(2));
    }
    let input = RunInput { prompt: prompt.join(" "), ..RunInput::default() };
    let (finished, answer) = follow(&client(&environment::server())?, input).await?;
    println!("status: {}", finished.status().as_str_name().trim_start_matches("RUN_STATUS_").to_lowercase());
    if let Some(error) = &finished.error {
        println!("error: {} {}", error.code().as_str_name(), error.message);
    }
    println!("answer: {answer}");
    Ok(if finished.status() == RunStatus::Completed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
