//! `agentloop chat`.
//!
//! [`app`] is a state machine that takes [`event::Event`]s and answers with [`event::Command`]s; [`view`] draws its
//! state; [`driver`] waits for keys and the server, and [`calls`] does what the state machine wants.

mod app;
mod calls;
mod card;
mod driver;
mod editor;
mod event;
mod terminal;
mod transcript;
mod view;

use std::io::{self, IsTerminal as _};

use agentloop_client::{
    fresh_id,
    v1::{ListSessionsRequest, RunInput},
};

use self::app::{App, Options};
use crate::{
    args::{ChatArgs, Global},
    command::run::user,
    exit::{Exit, Failure},
    terminal::surroundings::Surroundings,
};

pub(crate) async fn chat(global: &Global, args: ChatArgs) -> Result<Exit, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::Usage("chat needs a terminal; for scripts there is `agentloop run`".into()));
    }
    let client = global.client()?;
    // A server that is not there, or a token that it refuses, is said before the screen is taken.
    client.list_sessions(ListSessionsRequest { page_size: 1, ..ListSessionsRequest::default() }).await?;
    let with_date = true;
    let surroundings = Surroundings::of_process(!args.surroundings.no_instructions, with_date)?;
    let mut input = RunInput { agent: args.agent, model: args.model, ..RunInput::default() };
    surroundings.tell(&mut input);
    let notes = surroundings.in_words();
    let options = Options { input, notes, who: user(), new_id: fresh_id };
    let (app, first) = App::new(options, args.session);
    let (app, exit) = Box::pin(driver::drive(app, first, client)).await?;
    farewell(&app);
    Ok(exit)
}

/// How to come back.
fn farewell(app: &App) {
    if let Some(live) = &app.live {
        eprintln!("the run goes on: agentloop watch {}", live.run_id);
    }
    if let Some(id) = &app.session.id {
        eprintln!("to go on with this session: agentloop chat --session {id}");
    }
}
