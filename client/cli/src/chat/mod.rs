//! `agentloop chat`: a conversation on the whole screen.
//!
//! [`app`] is a state machine: it handles [`event::Event`]s and returns [`event::Command`]s. [`view`] draws its state on
//! the areas that [`layout`] computes. [`driver`] waits for events, and [`server_rpcs`] performs the commands.

mod app;
mod backend;
mod card;
mod driver;
mod editor;
mod event;
mod layout;
mod pastes;
pub(crate) mod screen;
mod server_rpcs;
pub(crate) mod styles;
mod transcript;
mod view;

use std::{
    io::{self, IsTerminal as _},
    time::SystemTime,
};

use agentloop_client::{
    fresh_id,
    v1::{ListSessionsRequest, RunInput},
};

use self::{
    app::{App, ChatOptions},
    event::Command,
};
use crate::{
    args::{ChatArgs, Global},
    command::{conversation::run::user, ids},
    exit::{Exit, Failure},
    terminal::{commands::quoted, local_context::LocalContext},
};

pub(crate) async fn chat(global: &Global, args: ChatArgs) -> Result<Exit, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::Usage("chat needs a terminal; for scripts there is `agentloop run`".into()));
    }
    let client = global.client()?;
    // An absent server or a refused token is reported before the screen is taken.
    client.list_sessions(ListSessionsRequest { page_size: 1, ..ListSessionsRequest::default() }).await?;
    let session = match args.start.session {
        Some(given) => Some(ids::session_to_continue(&client, given).await?),
        None => None,
    };
    if let Some(session_id) = &session {
        // An id that no session can have. One that none has yet is a new session.
        match client.get_session(session_id).await {
            Err(error) if error.code() != Some(tonic::Code::NotFound) => return Err(error.into()),
            _ => {}
        }
    }
    let with_date = true;
    let local_context = LocalContext::of_process(!args.local_context.no_instructions, with_date)?;
    let mut input = RunInput { agent: args.start.agent, model: args.start.model, ..RunInput::default() };
    local_context.add_to(&mut input);
    let notes = local_context.describe();
    let options = ChatOptions { input, notes, who: user(), started: SystemTime::now(), new_id: fresh_id };
    let (app, mut first) = App::new(options, session);
    first.extend([Command::ListAgents, Command::ListProviders]);
    let (app, exit) = Box::pin(driver::drive(app, first, client)).await?;
    farewell(&app, &global.server_option());
    Ok(exit)
}

/// Prints the commands that continue the run and the session.
fn farewell(app: &App, option: &str) {
    if let Some(live) = &app.live {
        eprintln!("the run goes on: agentloop watch {}{option}", quoted(&live.run_id));
    }
    if let Some(id) = &app.session.id {
        eprintln!("to go on with this session: agentloop chat --session {}{option}", quoted(id));
    }
}
