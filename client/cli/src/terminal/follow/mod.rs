//! Following a run to its end: showing it, answering its questions, and ctrl-C.

use std::{collections::BTreeSet, time::Duration};

use agentloop_client::{
    Backoff, Client, Error, EventStream,
    v1::{
        AbortResponse, Approve, HumanRequest, HumanRequestKind, RunEvent, RunStatus, SubmitApprovalRequest,
        SubmitInputRequest, decision::Decision as Kind, run_event::Event, submit_input_request::Input,
    },
};
use tokio::task::JoinHandle;

use crate::{
    exit::{Exit, Failure},
    terminal::answer::{Questions, Reply, decision},
    terminal::interrupt::Interrupts,
    terminal::lines::Lines,
    terminal::render::{View, status::question},
};

/// A server may be away for some minutes: the run goes on where it was, and so does whoever follows it.
const PATIENT: Backoff =
    Backoff { max_retries: 60, initial: Duration::from_millis(200), max: Duration::from_secs(5) };

/// How a run is followed.
pub(crate) struct Follow {
    pub(crate) client: Client,
    pub(crate) view: View,
    /// Tool calls are approved without asking, for this reason. Those in doubt are not.
    pub(crate) approve: Option<&'static str>,
    /// A person who can be asked.
    pub(crate) person: Option<Lines>,
    /// Wait for whoever else may answer, in place of leaving.
    pub(crate) wait: bool,
    /// What ctrl-C does: abort the run, or only leave.
    pub(crate) abort: bool,
    /// Who answers questions.
    pub(crate) decided_by: String,
    pub(crate) interrupts: Interrupts,
}

impl Follow {
    /// Follows to the end, or to where nobody here can help.
    pub(crate) async fn until_end(self, stream: EventStream) -> Result<Exit, Failure> {
        let following = Following {
            stream: stream.with_backoff(PATIENT),
            follow: self,
            questions: Questions::default(),
            unanswered: BTreeSet::new(),
            interrupted: false,
            aborting: None,
        };
        following.go().await
    }
}

/// A run that is being followed.
struct Following {
    follow: Follow,
    stream: EventStream,
    questions: Questions,
    /// Questions that nobody here answers.
    unanswered: BTreeSet<String>,
    /// Ctrl-C was pressed once.
    interrupted: bool,
    aborting: Option<Aborting>,
}

type Aborting = JoinHandle<Result<AbortResponse, Error>>;

impl Following {
    async fn go(mut self) -> Result<Exit, Failure> {
        loop {
            let asking = self.questions.first().is_some();
            let exit = tokio::select! {
                event = self.stream.next() => match event {
                    Some(event) => self.event(&event?).await?,
                    None => return Err(Failure::Other("the run ended without saying how".into())),
                },
                line = entered(&mut self.follow.person), if asking => self.line(line).await?,
                answer = aborted(&mut self.aborting) => self.aborted(&answer)?,
                () = self.follow.interrupts.next() => self.interrupted()?,
            };
            if let Some(exit) = exit {
                return Ok(exit);
            }
        }
    }

    async fn event(&mut self, event: &RunEvent) -> Result<Option<Exit>, Failure> {
        self.follow.view.event(event)?;
        match &event.event {
            Some(Event::HumanRequested(requested)) => {
                self.requested(requested.request.clone().unwrap_or_default()).await?;
            }
            Some(Event::HumanResolved(resolved)) => self.settled(&resolved.request_id)?,
            Some(Event::RunPaused(_)) if !self.follow.wait => return self.paused(event).map(Some),
            Some(Event::RunFinished(finished)) => return Ok(Some(Exit::of(finished.status()))),
            _ => {}
        }
        let stuck = event.status() == RunStatus::AwaitingHuman && !self.unanswered.is_empty();
        if stuck && !self.follow.wait { self.stuck().map(Some) } else { Ok(None) }
    }

    async fn requested(&mut self, request: HumanRequest) -> Result<(), Failure> {
        if let Some(reason) = self.follow.approve
            && request.kind() == HumanRequestKind::Approve
        {
            self.follow.view.note(&format!("  approving it: {reason}"))?;
            return self.submit(&request, Kind::Approve(Approve {})).await;
        }
        if self.follow.person.is_none() {
            self.unanswered.insert(request.request_id);
            return Ok(());
        }
        if let Some(choices) = self.questions.add(request) {
            self.follow.view.prompt(choices)?;
        }
        Ok(())
    }

    fn settled(&mut self, request_id: &str) -> Result<(), Failure> {
        self.unanswered.remove(request_id);
        if let Some(choices) = self.questions.settle(request_id) {
            self.ask_again(choices)?;
        }
        Ok(())
    }

    fn ask_again(&mut self, choices: &str) -> Result<(), Failure> {
        if let Some(first) = self.questions.first() {
            let line = question(self.follow.view.style(), first);
            self.follow.view.note(&line)?;
        }
        self.follow.view.prompt(choices)?;
        Ok(())
    }

    async fn line(&mut self, line: Option<String>) -> Result<Option<Exit>, Failure> {
        self.follow.view.entered();
        let Some(line) = line else {
            // Standard input was closed: the person is gone.
            self.follow.person = None;
            return if self.follow.wait { Ok(None) } else { self.stuck().map(Some) };
        };
        match self.questions.read(&line) {
            Some(Reply::Decided(request, kind)) => self.submit(&request, kind).await?,
            Some(Reply::Given(request, input)) => self.submit_input(&request, input).await?,
            Some(Reply::Ask(text)) => self.follow.view.prompt(text)?,
            None => {}
        }
        Ok(None)
    }

    /// Answers a question about a tool call.
    async fn submit(&mut self, request: &HumanRequest, kind: Kind) -> Result<(), Failure> {
        let answer = SubmitApprovalRequest {
            request_id: request.request_id.clone(),
            decision: Some(decision(kind)),
            digest: request.digest.clone(),
            decided_by: self.follow.decided_by.clone(),
            ..SubmitApprovalRequest::default()
        };
        let taken = self.follow.client.submit_approval(answer).await;
        self.submitted(request, taken)
    }

    async fn submit_input(&mut self, request: &HumanRequest, input: Input) -> Result<(), Failure> {
        let answer = SubmitInputRequest {
            request_id: request.request_id.clone(),
            input: Some(input),
            answered_by: self.follow.decided_by.clone(),
        };
        let taken = self.follow.client.submit_input(answer).await;
        self.submitted(request, taken)
    }

    /// An answer that is refused is no end: the arguments may be wrong, or somebody was faster.
    fn submitted(
        &mut self,
        request: &HumanRequest,
        taken: Result<HumanRequest, Error>,
    ) -> Result<(), Failure> {
        match taken {
            Ok(_) => self.settled(&request.request_id),
            Err(error) if error.is_unreachable() => Err(error.into()),
            Err(error) => {
                self.follow.view.note(&format!("  not taken: {error}"))?;
                match self.questions.ask() {
                    Some(choices) => self.ask_again(choices),
                    None => Ok(()),
                }
            }
        }
    }

    fn stuck(&mut self) -> Result<Exit, Failure> {
        let run = self.stream.run_id();
        let after = self.stream.last_seq();
        let help = format!(
            "the run waits for a human; to answer, and to go on watching:\n  \
             agentloop approve\n  \
             agentloop watch {run} --after {after}"
        );
        self.follow.view.note(&help)?;
        Ok(Exit::Awaiting)
    }

    fn paused(&mut self, event: &RunEvent) -> Result<Exit, Failure> {
        let run = self.stream.run_id();
        let help = format!(
            "the run waits for an operator; to let it go on, and to go on watching:\n  \
             agentloop resume {run}\n  \
             agentloop watch {run} --after {}",
            event.seq
        );
        self.follow.view.note(&help)?;
        Ok(Exit::Awaiting)
    }

    fn interrupted(&mut self) -> Result<Option<Exit>, Failure> {
        let run_id = self.stream.run_id().to_owned();
        if !self.follow.abort {
            let after = self.stream.last_seq();
            self.follow
                .view
                .note(&format!("left; the run goes on: agentloop watch {run_id} --after {after}"))?;
            return Ok(Some(Exit::Interrupted));
        }
        if self.interrupted {
            self.follow.view.note("leaving at once")?;
            return Ok(Some(Exit::Interrupted));
        }
        self.interrupted = true;
        self.follow.view.note("aborting the run (ctrl-C again: leave at once)")?;
        let client = self.follow.client.clone();
        self.aborting = Some(tokio::spawn(async move { client.abort_run(run_id, "ctrl-C").await }));
        Ok(None)
    }

    /// The server has taken the abort; the run's last event says the rest.
    fn aborted(&mut self, answer: &Result<AbortResponse, Error>) -> Result<Option<Exit>, Failure> {
        if let Err(error) = answer {
            self.follow.view.note(&format!("the abort was not taken: {error}"))?;
            self.interrupted = false;
        }
        Ok(None)
    }
}

async fn entered(person: &mut Option<Lines>) -> Option<String> {
    match person {
        Some(lines) => lines.next().await,
        None => std::future::pending().await,
    }
}

/// The answer to the abort that is under way.
async fn aborted(aborting: &mut Option<Aborting>) -> Result<AbortResponse, Error> {
    let Some(task) = aborting else { return std::future::pending().await };
    let answer = task.await;
    *aborting = None;
    answer.unwrap_or_else(|error| Err(Error::Unreachable(error.to_string())))
}

#[cfg(test)]
mod tests;
