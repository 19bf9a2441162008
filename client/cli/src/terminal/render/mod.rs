//! A run's events as a person sees them: the answer on one stream, everything about it on another.

mod speech;
pub(crate) mod status;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use agentloop_client::v1::{RunEvent, run_event::Event};

use self::{speech::Speech, status::Status};
use crate::{terminal::json, terminal::style::Style};

/// Where events go.
pub(crate) enum View {
    /// To a person.
    Text(Box<Screen>),
    /// To a program, one JSON object a line.
    Json,
}

impl View {
    pub(crate) fn new(json: bool) -> View {
        if json { View::Json } else { View::Text(Box::new(Screen::of_process())) }
    }

    /// To a person who reads everything on standard output.
    pub(crate) fn in_one() -> View {
        let stream = || Stream { style: Style::of(&io::stdout()), to: Box::new(io::stdout()) };
        View::Text(Box::new(Screen::new(stream(), stream())))
    }

    /// Shows an event.
    pub(crate) fn event(&mut self, event: &RunEvent) -> io::Result<()> {
        match self {
            View::Text(screen) => screen.event(event),
            View::Json => writeln!(io::stdout().lock(), "{}", json::line("RunEvent", event)),
        }
    }

    /// Asks for a line; the cursor stays behind the question.
    pub(crate) fn prompt(&mut self, text: &str) -> io::Result<()> {
        match self {
            View::Text(screen) => screen.prompt(text),
            View::Json => Ok(()),
        }
    }

    /// A line was entered, which has moved the cursor to the next one.
    pub(crate) fn entered(&mut self) {
        if let View::Text(screen) = self {
            screen.open = Open::Neither;
        }
    }

    /// How lines about the run are set apart.
    pub(crate) fn style(&self) -> Style {
        match self {
            View::Text(screen) => screen.about.style,
            View::Json => Style::of(&io::stderr()),
        }
    }

    /// Says something that is not the run's own. Always on standard error.
    pub(crate) fn note(&mut self, text: &str) -> io::Result<()> {
        match self {
            View::Text(screen) => screen.note(text),
            View::Json => writeln!(io::stderr().lock(), "{text}"),
        }
    }
}

/// One of the two streams, and how it is written to.
pub(crate) struct Stream {
    to: Box<dyn Write + Send>,
    style: Style,
}

/// The two streams as one screen, since they usually end up on one: a line begun on either is ended before the other
/// is written to.
pub(crate) struct Screen {
    answer: Stream,
    about: Stream,
    open: Open,
    speech: Speech,
    status: Status,
}

/// Which stream has a line that is not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Neither,
    Answer,
    About,
}

impl Screen {
    fn of_process() -> Screen {
        let answer = Stream { style: Style::of(&io::stdout()), to: Box::new(io::stdout()) };
        let about = Stream { style: Style::of(&io::stderr()), to: Box::new(io::stderr()) };
        Screen::new(answer, about)
    }

    fn new(answer: Stream, about: Stream) -> Screen {
        let (speech, status) = (Speech::default(), Status::default());
        Screen { answer, about, open: Open::Neither, speech, status }
    }

    fn event(&mut self, event: &RunEvent) -> io::Result<()> {
        let Some(event) = &event.event else { return Ok(()) };
        match event {
            Event::ModelDelta(delta) => {
                let said = self.speech.delta(delta);
                self.say(&said)
            }
            Event::PartialMessage(partial) => {
                let said = self.speech.partial(partial);
                self.say(&said)
            }
            Event::AssistantMessage(message) => {
                self.status.learn(message);
                let said = self.speech.finished(message);
                self.say(&said)?;
                self.end_line()
            }
            Event::ModelCallFailed(failed) => {
                let void = self.speech.failed();
                let line = self.status.model_call_failed(self.about.style, failed, void);
                self.note(&line)
            }
            other => match self.status.line(self.about.style, other) {
                Some(line) => self.note(&line),
                None => Ok(()),
            },
        }
    }

    fn say(&mut self, said: &speech::Said) -> io::Result<()> {
        if said.replaces {
            let again = self.about.style.yellow("✗ the text above is void; this is what holds:");
            self.note(&again)?;
        }
        if !said.reasoning.is_empty() {
            self.turn_to(Open::About)?;
            let Stream { to, style } = &mut self.about;
            write!(to, "{}", style.dim(&style.harmless(&said.reasoning)))?;
            to.flush()?;
        }
        if !said.text.is_empty() {
            self.turn_to(Open::Answer)?;
            let Stream { to, style } = &mut self.answer;
            write!(to, "{}", style.harmless(&said.text))?;
            to.flush()?;
        }
        Ok(())
    }

    /// A line about the run.
    pub(crate) fn note(&mut self, line: &str) -> io::Result<()> {
        self.end_line()?;
        writeln!(self.about.to, "{line}")
    }

    fn prompt(&mut self, text: &str) -> io::Result<()> {
        self.turn_to(Open::About)?;
        write!(self.about.to, "{text}")?;
        self.about.to.flush()
    }

    fn turn_to(&mut self, stream: Open) -> io::Result<()> {
        if self.open != stream {
            self.end_line()?;
            self.open = stream;
        }
        Ok(())
    }

    fn end_line(&mut self) -> io::Result<()> {
        match self.open {
            Open::Neither => {}
            Open::Answer => writeln!(self.answer.to)?,
            Open::About => writeln!(self.about.to)?,
        }
        self.open = Open::Neither;
        Ok(())
    }
}
