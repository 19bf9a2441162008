//! The loop of the chat: waits for keys, the server and the clock, gives events to the state machine, and draws.

use std::{
    io,
    time::{Duration, Instant},
};

use agentloop_client::Client;
use crossterm::event::{Event as TerminalEvent, EventStream};
use futures_util::{Stream, StreamExt as _};
use tokio::{sync::mpsc, time::MissedTickBehavior};

use super::{
    app::App,
    event::{Command, Event},
    screen::Screen,
    server_rpcs::ServerRpcs,
    view,
};
use crate::{
    exit::{Exit, Failure},
    terminal::signals::EndSignals,
};

const TICK: Duration = Duration::from_millis(250);
/// Bound on events that wait to be handled. When it is reached, the reading of the run waits, not the run itself.
const EVENTS_MAX: usize = 1024;
/// Bound on events that are handled before the screen is drawn again.
const BATCH: usize = 256;

/// Runs the chat until it quits.
pub(super) async fn drive(mut app: App, first: Vec<Command>, client: Client) -> Result<(App, Exit), Failure> {
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let mut rpcs = ServerRpcs::new(client, app.options.who.clone(), sender);
    let mut signals = EndSignals::listen();
    let mut screen = Screen::take()?;
    let mut terminal_events = EventStream::new();
    let start = Instant::now();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    resized(&mut app, &screen)?;
    first.into_iter().for_each(|command| rpcs.perform(command));

    loop {
        screen.terminal.draw(|frame| view::draw(&app, frame.area(), frame.buffer_mut()))?;
        let event = tokio::select! {
            event = next_terminal_event(&mut terminal_events) => event?,
            Some(event) = events.recv() => Some(event),
            _ = ticks.tick() => Some(Event::Tick(start.elapsed())),
            _ = signals.next() => Some(Event::Terminated),
            done = rpcs.finished() => { done?; None }
        };
        let mut next = event;
        for _ in 0..BATCH {
            let Some(event) = next else { break };
            for command in app.handle(event) {
                if let Command::Quit(exit) = command {
                    return Ok((app, exit));
                }
                rpcs.perform(command);
            }
            next = events.try_recv().ok();
        }
    }
}

fn resized(app: &mut App, screen: &Screen) -> io::Result<()> {
    let size = screen.terminal.size()?;
    app.handle(Event::Resize(size.width, size.height));
    Ok(())
}

/// The next event of the terminal; `None` for one that is ignored.
async fn next_terminal_event(
    terminal_events: &mut (impl Stream<Item = io::Result<TerminalEvent>> + Unpin),
) -> io::Result<Option<Event>> {
    let event = match terminal_events.next().await {
        Some(event) => event?,
        // The terminal is gone.
        None => return Ok(Some(Event::Terminated)),
    };
    Ok(match event {
        TerminalEvent::Key(key) => Some(Event::Key(key)),
        TerminalEvent::Paste(text) => Some(Event::Paste(text)),
        TerminalEvent::Resize(width, height) => Some(Event::Resize(width, height)),
        TerminalEvent::FocusGained | TerminalEvent::FocusLost | TerminalEvent::Mouse(_) => None,
    })
}
