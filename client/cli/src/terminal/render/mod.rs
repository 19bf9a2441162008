//! Events of a run as text: the model's response on one stream, everything else on another.

mod model_text;
pub(crate) mod status;
#[cfg(test)]
mod tests;

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use agentloop_client::v1::{RunEvent, run_event::Event};

use self::{model_text::ModelText, status::StatusLines};
use crate::{terminal::format, terminal::json, terminal::style::Style};

/// The output of events.
pub(crate) enum View {
    /// Text for a person.
    Text(Box<Screen>),
    /// One JSON object per line, for a program.
    Json(Box<JsonLines>),
}

/// The output for a program: events on one stream, lines for people on the other.
pub(crate) struct JsonLines {
    events: Output,
    about: Output,
}

impl View {
    pub(crate) fn new(json: bool) -> View {
        if json {
            let (events, about) = (Output::new(io::stdout()), Output::new(io::stderr()));
            return View::Json(Box::new(JsonLines { events, about }));
        }
        View::Text(Box::new(Screen::of_process()))
    }

    /// Text with everything on standard output.
    pub(crate) fn in_one() -> View {
        let stream = || Stream { style: Style::of(&io::stdout()), to: Output::new(io::stdout()) };
        View::Text(Box::new(Screen::new(stream(), stream(), AnswerPace::of(&io::stdout()))))
    }

    /// Writes an event.
    pub(crate) fn event(&mut self, event: &RunEvent) -> io::Result<()> {
        match self {
            View::Text(screen) => screen.event(event),
            View::Json(lines) => writeln!(lines.events, "{}", json::line("RunEvent", event)),
        }
    }

    /// Writes a prompt; the cursor stays behind it.
    pub(crate) fn prompt(&mut self, text: &str) -> io::Result<()> {
        match self {
            View::Text(screen) => screen.prompt(text),
            View::Json(_) => Ok(()),
        }
    }

    /// Writes the time to the next attempt of the model call on a line that the next output takes the place of. Only a
    /// terminal shows it.
    pub(crate) fn countdown(&mut self, left: Duration) -> io::Result<()> {
        match self {
            View::Text(screen) => screen.countdown(left),
            View::Json(_) => Ok(()),
        }
    }

    /// Ends an unfinished line, so that an error of the command begins its own.
    pub(crate) fn end_line(&mut self) -> io::Result<()> {
        match self {
            View::Text(screen) => screen.end_line(),
            View::Json(_) => Ok(()),
        }
    }

    /// True if a prompt is the last thing that was written. Always for a program, which is not prompted.
    pub(crate) fn shows_prompt(&self) -> bool {
        match self {
            View::Text(screen) => screen.open == OpenLine::Prompt,
            View::Json(_) => true,
        }
    }

    /// Notes that a line was entered, which has moved the cursor to the next line.
    pub(crate) fn entered(&mut self) {
        if let View::Text(screen) = self {
            screen.open = OpenLine::Neither;
        }
    }

    /// The style of lines about the run.
    pub(crate) fn style(&self) -> Style {
        match self {
            View::Text(screen) => screen.about.style,
            View::Json(_) => Style::of(&io::stderr()),
        }
    }

    /// Writes a line about the run, always on standard error.
    pub(crate) fn note(&mut self, text: &str) -> io::Result<()> {
        match self {
            View::Text(screen) => screen.note(text),
            View::Json(lines) => writeln!(lines.about, "{text}"),
        }
    }

    /// The reason why something could not be written. Nothing more is written there.
    pub(crate) fn lost(&self) -> Option<&io::Error> {
        let [one, other] = match self {
            View::Text(screen) => [&screen.answer.to, &screen.about.to],
            View::Json(lines) => [&lines.events, &lines.about],
        };
        one.lost.as_ref().or(other.lost.as_ref())
    }
}

/// An output that takes everything after its first error, and drops it: the run may still need its questions answered.
pub(crate) struct Output {
    to: Box<dyn Write + Send>,
    lost: Option<io::Error>,
}

impl Output {
    fn new(to: impl Write + Send + 'static) -> Output {
        Output { to: Box::new(to), lost: None }
    }

    fn lose(&mut self, error: io::Error) -> io::Result<()> {
        if error.kind() == io::ErrorKind::Interrupted {
            return Err(error);
        }
        self.lost = Some(error);
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.lost.is_some() {
            return Ok(bytes.len());
        }
        let written = self.to.write(bytes);
        written.or_else(|error| self.lose(error).map(|()| bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.lost.is_some() {
            return Ok(());
        }
        let flushed = self.to.flush();
        flushed.or_else(|error| self.lose(error))
    }
}

/// One of the two output streams, with its style.
pub(crate) struct Stream {
    to: Output,
    style: Style,
}

/// The moment at which the text of the model is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerPace {
    /// As it comes. A person sees that void text is void.
    AsItComes,
    /// When a message is complete, so that a program reads nothing that is void.
    WhenComplete,
}

impl AnswerPace {
    fn of(stream: &impl IsTerminal) -> AnswerPace {
        if stream.is_terminal() { AnswerPace::AsItComes } else { AnswerPace::WhenComplete }
    }
}

/// The two streams, which usually share a terminal. An unfinished line on one is ended before the other is written to.
pub(crate) struct Screen {
    answer: Stream,
    about: Stream,
    pace: AnswerPace,
    open: OpenLine,
    model_text: ModelText,
    status: StatusLines,
}

/// The stream with an unfinished line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenLine {
    Neither,
    Answer,
    About,
    /// A prompt, on the stream about the run.
    Prompt,
    /// The countdown to the next try, which is removed before anything else is written.
    Countdown,
}

/// Moves the cursor to the start of its line, and removes the line.
const REMOVE_LINE: &str = "\r\x1b[K";

impl Screen {
    fn of_process() -> Screen {
        let answer = Stream { style: Style::of(&io::stdout()), to: Output::new(io::stdout()) };
        let about = Stream { style: Style::of(&io::stderr()), to: Output::new(io::stderr()) };
        Screen::new(answer, about, AnswerPace::of(&io::stdout()))
    }

    fn new(answer: Stream, about: Stream, pace: AnswerPace) -> Screen {
        let (model_text, status) = (ModelText::default(), StatusLines::default());
        Screen { answer, about, pace, open: OpenLine::Neither, model_text, status }
    }

    fn event(&mut self, event: &RunEvent) -> io::Result<()> {
        let at = event.at.as_ref();
        let Some(event) = &event.event else { return Ok(()) };
        // The call begins again by an event that has no line of its own.
        if self.open == OpenLine::Countdown {
            self.end_line()?;
        }
        match event {
            Event::ModelDelta(delta) => {
                let update = self.model_text.delta(delta);
                self.write_update(update)
            }
            Event::PartialMessage(partial) => {
                let update = self.model_text.partial(partial);
                self.write_update(update)
            }
            Event::AssistantMessage(message) => {
                self.status.remember_calls(message);
                let update = self.model_text.finished(message);
                self.write_update(update)?;
                if self.pace == AnswerPace::WhenComplete {
                    self.write_answer(&format::text(&message.message.clone().unwrap_or_default()))?;
                }
                self.end_line()
            }
            Event::ModelCallFailed(failed) => {
                let void = self.model_text.failed() && self.pace == AnswerPace::AsItComes;
                let line = self.status.model_call_failed(self.about.style, failed, at, void);
                self.note(&line)
            }
            other => match self.status.line(self.about.style, other) {
                Some(line) => self.note(&line),
                None => Ok(()),
            },
        }
    }

    fn write_update(&mut self, mut update: model_text::TextUpdate) -> io::Result<()> {
        if self.pace == AnswerPace::WhenComplete {
            (update.replaces, update.text) = (false, String::new());
        }
        if update.replaces {
            let again = self.about.style.yellow("✗ the text above is void; this is what holds:");
            self.note(&again)?;
        }
        if !update.reasoning.is_empty() {
            self.switch_to(OpenLine::About)?;
            let Stream { to, style } = &mut self.about;
            write!(to, "{}", style.dim(&style.strip_unsafe(&update.reasoning)))?;
            to.flush()?;
        }
        self.write_answer(&update.text)
    }

    fn write_answer(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.switch_to(OpenLine::Answer)?;
        let Stream { to, style } = &mut self.answer;
        write!(to, "{}", style.strip_unsafe(text))?;
        to.flush()
    }

    /// Writes a line about the run.
    pub(crate) fn note(&mut self, line: &str) -> io::Result<()> {
        self.end_line()?;
        writeln!(self.about.to, "{line}")
    }

    fn prompt(&mut self, text: &str) -> io::Result<()> {
        self.switch_to(OpenLine::Prompt)?;
        write!(self.about.to, "{text}")?;
        self.about.to.flush()
    }

    fn countdown(&mut self, left: Duration) -> io::Result<()> {
        // A prompt, or text that still comes, keeps its line.
        let is_free = matches!(self.open, OpenLine::Neither | OpenLine::Countdown);
        let Stream { to, style } = &mut self.about;
        if !is_free || !style.is_terminal() {
            return Ok(());
        }
        write!(to, "{REMOVE_LINE}{}", style.dim(&format!("  {}", format::next_try(left))))?;
        self.open = OpenLine::Countdown;
        to.flush()
    }

    fn switch_to(&mut self, stream: OpenLine) -> io::Result<()> {
        if self.open != stream {
            self.end_line()?;
            self.open = stream;
        }
        Ok(())
    }

    fn end_line(&mut self) -> io::Result<()> {
        match self.open {
            OpenLine::Neither => {}
            OpenLine::Answer => writeln!(self.answer.to)?,
            OpenLine::About | OpenLine::Prompt => writeln!(self.about.to)?,
            OpenLine::Countdown => {
                write!(self.about.to, "{REMOVE_LINE}")?;
                self.about.to.flush()?;
            }
        }
        self.open = OpenLine::Neither;
        Ok(())
    }
}
