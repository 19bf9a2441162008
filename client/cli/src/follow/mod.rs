//! Follows a run to its end: shows its events, answers its questions, and handles ctrl-C.

mod countdown;

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, SystemTime},
};

use agentloop_client::{
    Backoff, Client, Error, EventStream, StreamUpdate,
    v1::{
        AbortResponse, Approve, HumanRequest, HumanRequestKind, RunEvent, RunStatus, SubmitApprovalRequest,
        SubmitInputRequest, decision::Decision as Kind, run_event::Event, submit_input_request::Input,
    },
};
use tokio::task::JoinHandle;

use self::countdown::Countdown;
use crate::{
    exit::{Exit, Failure, in_one_line},
    terminal::answer::{ParsedLine, Questions, decision},
    terminal::commands::{self, quoted},
    terminal::input_lines::InputLines,
    terminal::render::{
        View,
        status::{OptionNames, question},
    },
    terminal::signals::{EndSignal, EndSignals},
};

/// The stream survives an absence of the server of some minutes.
const LONG_BACKOFF: Backoff =
    Backoff { max_retries: 60, initial: Duration::from_millis(200), max: Duration::from_secs(5) };

/// Words before the command that goes on with a session whose run waits: until that one ends, it takes no other.
const AFTER_ITS_END: &str = "after its end, to go on";

/// Options for following a run.
pub(crate) struct FollowOptions {
    pub(crate) client: Client,
    pub(crate) view: View,
    /// If set, tool calls are approved without asking, for this reason. Calls in doubt are not.
    pub(crate) approve: Option<&'static str>,
    /// Input of a person who can answer questions.
    pub(crate) person: Option<InputLines>,
    /// True to go on while another caller may answer; false to stop when a question has no answer here.
    pub(crate) wait: bool,
    /// True if ctrl-C aborts the run; false if it only ends the command.
    pub(crate) abort: bool,
    /// Name of the person who answers questions.
    pub(crate) decided_by: String,
    pub(crate) signals: EndSignals,
    /// Options that printed commands need to reach the same server, with a space before them.
    pub(crate) server_option: String,
    /// True to print, when the run has ended or waits, its session and the command that goes on with it.
    pub(crate) says_next: bool,
}

impl FollowOptions {
    /// Follows the run to its end, or until it waits for a person who is not here.
    pub(crate) async fn until_end(self, stream: EventStream) -> Result<Exit, Failure> {
        let mut follower = RunFollower {
            stream: stream.with_backoff(LONG_BACKOFF),
            follow: self,
            session_id: String::new(),
            questions: Questions::default(),
            unanswered: BTreeMap::new(),
            interrupted: false,
            aborting: None,
            countdown: Countdown::default(),
        };
        let exit = follower.run().await;
        follower.follow.view.end_line()?;
        match follower.follow.view.lost() {
            // The answer is not where it was to go, whatever became of the run.
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => match exit {
                Err(_) | Ok(Exit::Interrupted) => exit,
                Ok(_) => Err(Failure::Output(error.to_string())),
            },
            _ => exit,
        }
    }
}

/// The state of following one run.
struct RunFollower {
    follow: FollowOptions,
    stream: EventStream,
    /// Id of the run's session, as its events say; empty before the first.
    session_id: String,
    questions: Questions,
    /// Open questions that cannot be answered here, by id.
    unanswered: BTreeMap<String, HumanRequest>,
    /// True after the first ctrl-C.
    interrupted: bool,
    aborting: Option<Aborting>,
    /// The time to the next attempt of the model call.
    countdown: Countdown,
}

type Aborting = JoinHandle<Result<AbortResponse, Error>>;

impl RunFollower {
    async fn run(&mut self) -> Result<Exit, Failure> {
        loop {
            let asking = self.questions.first().is_some();
            let exit = tokio::select! {
                update = self.stream.next_update() => match update.transpose()? {
                    Some(StreamUpdate::Event(event)) => self.handle_event(&event).await?,
                    Some(StreamUpdate::Lost) => self.tell_connection("the connection was lost; reconnecting …")?,
                    Some(StreamUpdate::Resumed) => self.tell_connection("connected again")?,
                    None => return Err(Failure::Other("the run ended without saying how".into())),
                },
                line = entered(&mut self.follow.person), if asking => self.handle_line(line).await?,
                answer = abort_answer(&mut self.aborting) => self.handle_abort_answer(&answer)?,
                signal = self.follow.signals.next() => self.handle_signal(signal)?,
                () = self.countdown.next_second() => {
                    self.show_countdown()?;
                    None
                }
            };
            if let Some(exit) = exit {
                return Ok(exit);
            }
            // Without a reader, a run whose questions are answered here goes on being answered.
            if self.follow.view.lost().is_some() && self.follow.approve.is_none() {
                return self.leave_unread();
            }
        }
    }

    /// Tells why nothing comes. A question that was being asked is asked again below it.
    fn tell_connection(&mut self, what: &str) -> Result<Option<Exit>, Failure> {
        self.follow.view.note(&format!("  {what}"))?;
        self.prompt_again()?;
        Ok(None)
    }

    async fn handle_event(&mut self, event: &RunEvent) -> Result<Option<Exit>, Failure> {
        self.follow.view.event(event)?;
        self.countdown.handle(event, SystemTime::now());
        self.show_countdown()?;
        if !event.session_id.is_empty() {
            self.session_id.clone_from(&event.session_id);
        }
        match &event.event {
            Some(Event::HumanRequested(requested)) => {
                self.handle_question(requested.request.clone().unwrap_or_default()).await?;
            }
            Some(Event::HumanResolved(resolved)) => self.question_resolved(&resolved.request_id)?,
            Some(Event::RunPaused(_)) if !self.follow.wait && self.is_newest(event).await => {
                return self.leave_paused(event).map(Some);
            }
            Some(Event::RunFinished(finished)) => {
                self.say_next("to go on")?;
                return Ok(Some(Exit::of(finished.status())));
            }
            _ => {}
        }
        // A line below the prompt, which may be another question: the last one on the screen is the one that is answered.
        if !self.follow.view.shows_prompt()
            && let Some(choices) = self.questions.choices()
        {
            self.ask_again(&choices)?;
        }
        let waits_for_others = event.status() == RunStatus::AwaitingHuman && !self.unanswered.is_empty();
        if waits_for_others && !self.follow.wait && self.is_newest(event).await {
            return self.leave_waiting().map(Some);
        }
        Ok(None)
    }

    fn show_countdown(&mut self) -> Result<(), Failure> {
        match self.countdown.left(SystemTime::now()) {
            Some(left) => Ok(self.follow.view.countdown(left)?),
            None => Ok(()),
        }
    }

    /// True if the run has not moved on since this event. An event of the past says nothing about where the run stands:
    /// its question may have been answered long ago. A server that cannot tell leaves it at what the event says.
    async fn is_newest(&self, event: &RunEvent) -> bool {
        let run = self.follow.client.get_run(self.stream.run_id()).await;
        run.map_or(true, |run| run.last_seq <= event.seq)
    }

    async fn handle_question(&mut self, request: HumanRequest) -> Result<(), Failure> {
        if let Some(reason) = self.follow.approve
            && request.kind() == HumanRequestKind::Approve
        {
            self.follow.view.note(&format!("  approving it: {reason}"))?;
            return self.submit(&request, Kind::Approve(Approve {})).await;
        }
        if self.follow.person.is_none() {
            self.unanswered.insert(request.request_id.clone(), request);
            return Ok(());
        }
        if let Some(choices) = self.questions.add(request) {
            self.follow.view.prompt(&choices)?;
        }
        Ok(())
    }

    fn question_resolved(&mut self, request_id: &str) -> Result<(), Failure> {
        self.unanswered.remove(request_id);
        if let Some(choices) = self.questions.remove(request_id) {
            self.ask_again(&choices)?;
        }
        Ok(())
    }

    /// Prompts for an answer to the first question, and shows that question too where several wait.
    fn prompt_again(&mut self) -> Result<(), Failure> {
        match self.questions.choices() {
            Some(choices) if self.questions.waiting().count() > 1 => self.ask_again(&choices),
            Some(choices) => Ok(self.follow.view.prompt(&choices)?),
            None => Ok(()),
        }
    }

    fn ask_again(&mut self, choices: &str) -> Result<(), Failure> {
        if let Some(first) = self.questions.first() {
            let line = question(self.follow.view.style(), first, OptionNames::Numbers);
            self.follow.view.note(&line)?;
        }
        self.follow.view.prompt(choices)?;
        Ok(())
    }

    async fn handle_line(&mut self, line: Option<String>) -> Result<Option<Exit>, Failure> {
        self.follow.view.entered();
        let Some(line) = line else {
            // Standard input was closed: nobody can answer.
            self.follow.person = None;
            return if self.follow.wait { Ok(None) } else { self.leave_waiting().map(Some) };
        };
        match self.questions.parse(&line) {
            Some(ParsedLine::Decision(request, kind)) => self.submit(&request, kind).await?,
            Some(ParsedLine::Input(request, input)) => self.submit_input(&request, input).await?,
            Some(ParsedLine::Ask(text)) => self.follow.view.prompt(&text)?,
            Some(ParsedLine::Unclear(why)) => {
                self.follow.view.note(&format!("  {}", self.follow.view.style().strip_unsafe(&why)))?;
                self.prompt_again()?;
            }
            None => {}
        }
        Ok(None)
    }

    /// Sends a decision on a tool call.
    async fn submit(&mut self, request: &HumanRequest, kind: Kind) -> Result<(), Failure> {
        let answer = SubmitApprovalRequest {
            request_id: request.request_id.clone(),
            decision: Some(decision(kind)),
            digest: request.digest.clone(),
            decided_by: self.follow.decided_by.clone(),
            ..SubmitApprovalRequest::default()
        };
        let result = self.follow.client.submit_approval(answer).await;
        self.submitted(request, result)
    }

    async fn submit_input(&mut self, request: &HumanRequest, input: Input) -> Result<(), Failure> {
        let answer = SubmitInputRequest {
            request_id: request.request_id.clone(),
            input: Some(input),
            answered_by: self.follow.decided_by.clone(),
        };
        let result = self.follow.client.submit_input(answer).await;
        self.submitted(request, result)
    }

    /// Handles the result of an answer. A refused one is asked again: its arguments may be invalid, or somebody was faster.
    fn submitted(
        &mut self,
        request: &HumanRequest,
        result: Result<HumanRequest, Error>,
    ) -> Result<(), Failure> {
        match result {
            Ok(_) => self.question_resolved(&request.request_id),
            Err(error) if error.is_unreachable() => Err(error.into()),
            Err(error) => {
                self.follow.view.note(&format!("  the server refused it: {}", in_one_line(&error)))?;
                match self.questions.choices() {
                    Some(choices) => self.ask_again(&choices),
                    None => Ok(()),
                }
            }
        }
    }

    /// Prints the ids of the run and its session, and the command that goes on. `when` comes before the command.
    fn say_next(&mut self, when: &str) -> Result<(), Failure> {
        if !self.follow.says_next || self.session_id.is_empty() {
            return Ok(());
        }
        let style = self.follow.view.style();
        let (session, option) = (quoted(&self.session_id), &self.follow.server_option);
        let lines = format!(
            "  run {}, session {}; {when}:\n  agentloop run --session {session}{option} 'PROMPT'",
            self.stream.run_id(),
            self.session_id
        );
        Ok(self.follow.view.note(&style.dim(&style.strip_unsafe(&lines)))?)
    }

    fn leave_waiting(&mut self) -> Result<Exit, Failure> {
        let run = self.stream.run_id();
        let after = self.stream.last_seq();
        let option = self.follow.server_option.clone();
        let answers = commands::answers(self.unanswered.values().chain(self.questions.waiting()), &option);
        let help = format!(
            "the run waits for a human; to answer, and to go on watching:{answers}\n  \
             agentloop watch {} --after {after}{option}",
            quoted(run)
        );
        let help = self.follow.view.style().strip_unsafe(&help).into_owned();
        self.follow.view.note(&help)?;
        self.say_next(AFTER_ITS_END)?;
        Ok(Exit::Awaiting)
    }

    fn leave_paused(&mut self, event: &RunEvent) -> Result<Exit, Failure> {
        let (run, option) = (self.stream.run_id(), self.follow.server_option.clone());
        let help = format!(
            "the run waits for an operator; to let it go on, and to go on watching:\n  \
             agentloop resume {run}{option}\n  \
             agentloop watch {run} --after {}{option}",
            event.seq
        );
        self.follow.view.note(&help)?;
        self.say_next(AFTER_ITS_END)?;
        Ok(Exit::Awaiting)
    }

    /// Leaves a run whose events can no longer be written.
    fn leave_unread(&mut self) -> Result<Exit, Failure> {
        if self.follow.abort {
            if let Some(error) = self.follow.view.lost() {
                let unread = format!("the output cannot be written: {error}");
                self.follow.view.note(&unread)?;
            }
            self.say_left()?;
        }
        Ok(Exit::Interrupted)
    }

    fn say_left(&mut self) -> Result<(), Failure> {
        let (run, option) = (quoted(self.stream.run_id()), &self.follow.server_option);
        let left = format!(
            "left; the run goes on: agentloop watch {run} --after {}{option}",
            self.stream.last_seq()
        );
        Ok(self.follow.view.note(&left)?)
    }

    fn handle_signal(&mut self, signal: EndSignal) -> Result<Option<Exit>, Failure> {
        match signal {
            EndSignal::Interrupt => self.handle_interrupt(),
            EndSignal::Termination => {
                self.say_left()?;
                Ok(Some(Exit::Interrupted))
            }
        }
    }

    fn handle_interrupt(&mut self) -> Result<Option<Exit>, Failure> {
        if !self.follow.abort {
            self.say_left()?;
            return Ok(Some(Exit::Interrupted));
        }
        if self.interrupted {
            self.follow.view.note("leaving at once")?;
            return Ok(Some(Exit::Interrupted));
        }
        self.interrupted = true;
        self.follow.view.note("aborting the run (ctrl-C again: leave at once)")?;
        let (client, run_id) = (self.follow.client.clone(), self.stream.run_id().to_owned());
        self.aborting = Some(tokio::spawn(async move { client.abort_run(run_id, "ctrl-C").await }));
        Ok(None)
    }

    /// Handles the server's answer to the abort. The run's last event follows.
    fn handle_abort_answer(
        &mut self,
        answer: &Result<AbortResponse, Error>,
    ) -> Result<Option<Exit>, Failure> {
        if let Err(error) = answer {
            self.follow.view.note(&format!("the server refused the abort: {error}"))?;
            self.interrupted = false;
        }
        Ok(None)
    }
}

async fn entered(person: &mut Option<InputLines>) -> Option<String> {
    match person {
        Some(lines) => lines.next().await,
        None => std::future::pending().await,
    }
}

/// Waits for the answer to an abort; for ever without one.
async fn abort_answer(aborting: &mut Option<Aborting>) -> Result<AbortResponse, Error> {
    let Some(task) = aborting else { return std::future::pending().await };
    let answer = task.await;
    *aborting = None;
    answer.unwrap_or_else(|error| Err(Error::Unreachable(error.to_string())))
}

#[cfg(test)]
mod tests;
