//! `agentloop run`: starts a run and follows it to its end.

use std::{
    io::{self, IsTerminal, Read},
    time::Duration,
};

use agentloop_client::{Client, Error, EventStream, fresh_id, v1::RunInput};

use crate::{
    args::{Global, RunArgs, StartArgs},
    command::ids,
    environment,
    exit::{Exit, Failure},
    follow::FollowOptions,
    terminal::input_lines::InputLines,
    terminal::local_context::LocalContext,
    terminal::render::View,
    terminal::signals::{EndSignal, EndSignals},
};

/// The server's bound on a prompt.
const PROMPT_BYTES_MAX: u64 = 4 * 1024 * 1024;

pub(crate) async fn run(global: &Global, mut args: Box<RunArgs>) -> Result<Exit, Failure> {
    let client = global.client()?;
    let mut view = View::new(global.json());
    let person = is_interactive(global, &args).then(InputLines::of_stdin);
    let approve = args.yes.then_some("--yes says so");
    let local_context = LocalContext::of_process(!args.local_context.no_instructions, args.run_id.is_none())?;
    if let Some(given) = args.start.session.take() {
        args.start.session = Some(ids::session_to_continue(&client, given).await?);
    }
    let mut input = input(*args)?;
    local_context.add_to(&mut input);
    let run_id = input.run_id.clone().unwrap_or_default();

    let mut signals = EndSignals::listen();
    let opened = tokio::select! {
        opened = client.run_stream(input) => opened?,
        signal = signals.next() => return match signal {
            EndSignal::Interrupt => abort_unanswered(&client, &run_id, &mut view).await,
            EndSignal::Termination => {
                view.note("left before the server has answered; the run may have started")?;
                Ok(Exit::Interrupted)
            }
        },
    };
    print_run_id(&mut view, &opened, &local_context, global)?;
    let follow = FollowOptions {
        client,
        view,
        approve,
        person,
        wait: false,
        abort: true,
        decided_by: user(),
        signals,
        server_option: global.server_option(),
        says_next: !global.json(),
    };
    follow.until_end(opened).await
}

/// True if a person can answer questions: both streams are a terminal, and the prompt does not use standard input.
fn is_interactive(global: &Global, args: &RunArgs) -> bool {
    !global.json() && args.prompt != "-" && io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn input(args: RunArgs) -> Result<RunInput, Failure> {
    let RunArgs { prompt, start, run_id, local_context: _, yes: _ } = args;
    let StartArgs { session, agent, model } = start;
    let prompt = if prompt == "-" { read_prompt()? } else { prompt };
    // With the id of a run that exists, the server joins that run.
    if prompt.is_empty() && run_id.is_none() {
        return Err(Failure::Usage("the prompt is empty; a run begins with one".to_owned()));
    }
    Ok(RunInput {
        prompt,
        auto_create_session: session.is_some().then_some(true),
        session_id: session,
        agent,
        model,
        run_id: Some(run_id.unwrap_or_else(fresh_id)),
        ..RunInput::default()
    })
}

fn read_prompt() -> Result<String, Failure> {
    let mut prompt = String::new();
    io::stdin().lock().take(PROMPT_BYTES_MAX + 1).read_to_string(&mut prompt)?;
    if prompt.len() as u64 > PROMPT_BYTES_MAX {
        return Err(Failure::Usage(format!("the prompt is larger than {PROMPT_BYTES_MAX} bytes")));
    }
    Ok(prompt)
}

/// Prints the run's id first, so that the run can be found again, and the instruction files.
fn print_run_id(
    view: &mut View,
    stream: &EventStream,
    local_context: &LocalContext,
    global: &Global,
) -> io::Result<()> {
    if global.json() {
        return Ok(());
    }
    let lines = std::iter::once(format!("run {}", stream.run_id())).chain(local_context.describe());
    lines.into_iter().try_for_each(|line| {
        let line = view.style().dim(&view.style().strip_unsafe(&line));
        view.note(&line)
    })
}

/// Handles a ctrl-C before the server has answered. The run may have started all the same.
async fn abort_unanswered(client: &Client, run_id: &str, view: &mut View) -> Result<Exit, Failure> {
    view.note("aborting the run")?;
    let aborting = client.abort_run(run_id, "ctrl-C");
    match tokio::time::timeout(Duration::from_secs(2), aborting).await {
        Ok(Err(error @ Error::Status(_))) if error.code() == Some(tonic::Code::NotFound) => {}
        Ok(Err(error)) => return Err(error.into()),
        Ok(Ok(_)) | Err(_) => {}
    }
    Ok(Exit::Aborted)
}

/// The name of the person at the terminal, from the environment.
pub(crate) fn user() -> String {
    environment::variable("USER").unwrap_or_else(|| "cli".to_owned())
}
