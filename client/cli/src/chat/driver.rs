//! Everything that waits: keys, the server, the clock. What happens is handed to the state machine, and the screen
//! drawn anew.

use std::{
    io,
    time::{Duration, Instant},
};

use agentloop_client::Client;
use crossterm::event::{Event as Pressed, EventStream};
use futures_util::{Stream, StreamExt as _};
use tokio::{sync::mpsc, time::MissedTickBehavior};

use super::{
    app::App,
    calls::Calls,
    event::{Command, Event},
    terminal::Screen,
    view,
};
use crate::exit::{Exit, Failure};

const TICK: Duration = Duration::from_millis(250);
/// Events of the server that wait to be shown; a run that is faster is slowed on its way here, not on the server.
const EVENTS_MAX: usize = 1024;
/// Events that are taken up before the screen is drawn again.
const BATCH: usize = 256;

/// Runs the chat to its end.
pub(super) async fn drive(mut app: App, first: Vec<Command>, client: Client) -> Result<(App, Exit), Failure> {
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let mut calls = Calls::new(client, app.options.who.clone(), sender);
    let mut screen = Screen::take()?;
    let mut terminated = Termination::listen()?;
    let mut pressed = EventStream::new();
    let start = Instant::now();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    resized(&mut app, &screen)?;
    first.into_iter().for_each(|command| calls.perform(command));

    loop {
        screen.terminal.draw(|frame| view::draw(&app, frame.area(), frame.buffer_mut()))?;
        let event = tokio::select! {
            event = next_press(&mut pressed) => event?,
            Some(event) = events.recv() => Some(event),
            _ = ticks.tick() => Some(Event::Tick(start.elapsed())),
            () = terminated.next() => Some(Event::Terminated),
            done = calls.finished() => { done?; None }
        };
        let mut next = event;
        for _ in 0..BATCH {
            let Some(event) = next else { break };
            for command in app.handle(event) {
                if let Command::Leave(exit) = command {
                    return Ok((app, exit));
                }
                calls.perform(command);
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

/// The next key, paste or size of the terminal; `None` for what is of no interest.
async fn next_press(
    pressed: &mut (impl Stream<Item = io::Result<Pressed>> + Unpin),
) -> io::Result<Option<Event>> {
    let event = match pressed.next().await {
        Some(event) => event?,
        // The terminal is gone.
        None => return Ok(Some(Event::Terminated)),
    };
    Ok(match event {
        Pressed::Key(key) => Some(Event::Key(key)),
        Pressed::Paste(text) => Some(Event::Paste(text)),
        Pressed::Resize(width, height) => Some(Event::Resize(width, height)),
        Pressed::FocusGained | Pressed::FocusLost | Pressed::Mouse(_) => None,
    })
}

/// Signals that end a program whose terminal is to be given back first.
#[cfg(unix)]
struct Termination {
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Termination {
    fn listen() -> io::Result<Termination> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Termination {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Termination;

#[cfg(not(unix))]
impl Termination {
    fn listen() -> io::Result<Termination> {
        Ok(Termination)
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}
