//! Every situation and everything that can happen in it: taken, and where it leads, or refused, and how.

use agentloop_core::agent::{RetryPolicy, RunSpec};
use agentloop_core::error::{ModelErrorKind, Refusal};
use agentloop_core::id::{CallSlot, RunId};
use agentloop_core::message::FinishReason;
use agentloop_core::run::event::{Outcome, Ran};
use agentloop_core::run::human::Decision;
use agentloop_core::run::input::{AbortCause, CallOutcome, Input};
use agentloop_core::run::state::{CallState, Phase, State};
use agentloop_core::time::Millis;
use agentloop_core::tool::Digest;

use crate::support::*;

/// Settled in an earlier round, by its first try; a human approved it.
const K: CallSlot = CallSlot(1, 0);
/// The call that the situation is about.
const X: CallSlot = CallSlot(2, 0);
/// Settled in the same round, by its first try.
const Y: CallSlot = CallSlot(2, 1);
/// Never asked for.
const NEVER: CallSlot = CallSlot(9, 9);

const HOUR: Millis = Millis::secs(3_600);

/// Where a run can stand between two steps. A round is told by its one open call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Situation {
    New,
    ModelRunning,
    BackingOff,
    Paused,
    Completed,
    Failed,
    Aborted,
    AwaitingApproval,
    Ready,
    ReadyLater,
    Offered,
    Accepted,
    InDoubt,
}

/// The columns of the table, in order.
const COLUMNS: [(Situation, &str); 13] = [
    (Situation::New, "New"),
    (Situation::ModelRunning, "Mod"),
    (Situation::BackingOff, "Bck"),
    (Situation::Paused, "Pau"),
    (Situation::Completed, "Com"),
    (Situation::Failed, "Fai"),
    (Situation::Aborted, "Abo"),
    (Situation::AwaitingApproval, "Awa"),
    (Situation::Ready, "Rdy"),
    (Situation::ReadyLater, "Lat"),
    (Situation::Offered, "Off"),
    (Situation::Accepted, "Acc"),
    (Situation::InDoubt, "Dbt"),
];

/// Exhaustive, so that a new phase or call state has to find its column.
fn situation_of(state: &State) -> Option<Situation> {
    match &state.phase {
        Phase::New => Some(Situation::New),
        Phase::Preparing | Phase::Observed { .. } => None,
        Phase::ModelRunning(_) => Some(Situation::ModelRunning),
        Phase::BackingOff { .. } => Some(Situation::BackingOff),
        Phase::Paused { .. } => Some(Situation::Paused),
        Phase::Finished { outcome: Outcome::Completed } => Some(Situation::Completed),
        Phase::Finished { outcome: Outcome::Failed } => Some(Situation::Failed),
        Phase::Finished { outcome: Outcome::Aborted } => Some(Situation::Aborted),
        Phase::Tools(calls) => {
            let mut open = calls.iter().filter(|call| !call.is_settled());
            let situation = match open.next()?.state {
                CallState::Proposed | CallState::Settled => None,
                CallState::AwaitingApproval { .. } => Some(Situation::AwaitingApproval),
                CallState::Ready { not_before: None, .. } => Some(Situation::Ready),
                CallState::Ready { not_before: Some(_), .. } => Some(Situation::ReadyLater),
                CallState::Offered { .. } => Some(Situation::Offered),
                CallState::Accepted { .. } => Some(Situation::Accepted),
                CallState::InDoubt { .. } => Some(Situation::InDoubt),
            };
            situation.filter(|_| open.next().is_none())
        }
    }
}

/// The table: what happens, and what comes of it in each situation.
///
/// `Mod`, `Off`, …: taken, with events, and it leads there. `=`: taken, and nothing is to be recorded. `!ph` wrong
/// phase, `!mc` stale model call, `!uc` unknown call, `!du` duplicate result, `!st` stale attempt, `!rq` unknown
/// request, `!ar` already resolved, `!dg` digest mismatch, `!nd` not a decision.
macro_rules! table {
    ($($stimulus:ident $row:literal)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Stimulus { $($stimulus,)* }

        const ROWS: &[(Stimulus, &str)] = &[$((Stimulus::$stimulus, $row),)*];
    };
}

table! {
    //                   New Mod Bck Pau Com Fai Abo Awa Rdy Lat Off Acc Dbt
    StartThisRun        "Mod !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph"
    StartOtherRun       "!ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph"

    ModelSays           "!mc Com !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelAsks           "!mc Rdy !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelAsksLeave      "!mc Awa !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelAsksNonsense   "!mc Mod !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelDeclines       "!mc Fai !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    OtherTrySays        "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    OtherCallSays       "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelFailsPassing   "!mc Bck !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelFailsOverflow  "!mc Fai !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelFailsFatal     "!mc Fai !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    OtherTryFails       "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    OtherCallFails      "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"

    GrantX              "!uc !uc !uc !uc !uc !uc !st !st Off !st !st !st !st"
    GrantY              "!uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st"
    GrantK              "!uc !st !st !st !st !st !st !st !st !st !st !st !st"
    GrantNever          "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    DenyX               "!uc !uc !uc !uc !uc !uc !st !st Mod Mod !st !st !st"
    DenyY               "!uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st"
    DenyK               "!uc !st !st !st !st !st !st !st !st !st !st !st !st"
    DenyNever           "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"

    AcceptX             "!uc !uc !uc !uc !uc !uc !st !st !st !st Acc =   !st"
    AcceptXOtherTry     "!uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st"
    AcceptY             "!uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st"
    AcceptK             "!uc !st !st !st !st !st !st !st !st !st !st !st !st"
    AcceptNever         "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    SaveX               "!uc !uc !uc !uc !uc !uc !st !st !st !st Off Acc !st"
    SaveXOtherTry       "!uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st"
    SaveY               "!uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st"
    SaveK               "!uc !st !st !st !st !st !st !st !st !st !st !st !st"
    SaveNever           "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"

    FinishX             "!uc !uc !uc !uc !uc !uc !st !st !st Mod Mod Mod Mod"
    RejectX             "!uc !uc !uc !uc !uc !uc !st !st !st Mod Mod Mod Mod"
    FailX               "!uc !uc !uc !uc !uc !uc !st !st !st Mod Mod Mod Mod"
    FailXMayHaveRun     "!uc !uc !uc !uc !uc !uc !st !st !st Mod Mod Mod Mod"
    FailXAgain          "!uc !uc !uc !uc !uc !uc !st !st !st =   Rdy Rdy Rdy"
    FailXAgainLater     "!uc !uc !uc !uc !uc !uc !st !st !st =   Lat Lat Lat"
    FinishXOtherLease   "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    FinishXNoTry        "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    FinishXOtherTry     "!uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st"
    FinishYAgain        "!uc !uc !uc !uc !uc !uc !du !du !du !du !du !du !du"
    FinishYOtherTry     "!uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st"
    FinishKAgain        "!uc !du !du !du !du !du !du !du !du !du !du !du !du"
    FinishKOtherTry     "!uc !st !st !st !st !st !st !st !st !st !st !st !st"
    FinishNever         "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    LoseXNotRun         "!uc !uc !uc !uc !uc !uc !st !st !st !st Lat Lat !st"
    LoseXMaybeRun       "!uc !uc !uc !uc !uc !uc !st !st !st !st Dbt Dbt !st"
    LoseXRun            "!uc !uc !uc !uc !uc !uc !st !st !st !st Dbt Dbt !st"
    LoseXOtherTry       "!uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st"
    LoseY               "!uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st"
    LoseK               "!uc !st !st !st !st !st !st !st !st !st !st !st !st"
    LoseNever           "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"

    ApproveX            "!rq !rq !rq !rq !rq !rq !rq Rdy !rq !rq !rq !rq Rdy"
    ApproveXEdited      "!rq !rq !rq !rq !rq !rq !rq Rdy !rq !rq !rq !rq Rdy"
    RefuseX             "!rq !rq !rq !rq !rq !rq !rq Mod !rq !rq !rq !rq Mod"
    RefuseXAndStop      "!rq !rq !rq !rq !rq !rq !rq Abo !rq !rq !rq !rq Abo"
    AnswerX             "!rq !rq !rq !rq !rq !rq !rq Mod !rq !rq !rq !rq Mod"
    ExpireX             "!nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd"
    WithdrawX           "!nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd"
    ApproveXAsShown     "!rq !rq !rq !rq !rq !rq !rq Rdy !rq !rq !rq !rq Rdy"
    ApproveXOtherDigest "!rq !rq !rq !rq !rq !rq !rq !dg !rq !rq !rq !rq !dg"
    ApproveKAgain       "!rq =   =   =   =   =   =   =   =   =   =   =   =  "
    RefuseK             "!rq !ar !ar !ar !ar !ar !ar !ar !ar !ar !ar !ar !ar"
    ApproveKOtherDigest "!rq !dg !dg !dg !dg !dg !dg !dg !dg !dg !dg !dg !dg"
    ApproveNever        "!rq !rq !rq !rq !rq !rq !rq !rq !rq !rq !rq !rq !rq"

    AbortByCaller       "!ph Abo Abo Abo !ph !ph !ph Abo Abo Abo Abo Abo Abo"
    AbortByDisconnect   "!ph Abo Abo Abo !ph !ph !ph Abo Abo Abo Abo Abo Abo"
    AbortByFault        "!ph Fai Fai Fai !ph !ph !ph Fai Fai Fai Fai Fai Fai"
    Resume              "!ph !ph !ph Mod !ph !ph !ph !ph !ph !ph !ph !ph !ph"
    ResumeOnceMore      "!ph =   =   =   =   =   =   =   =   =   =   =   =  "
    DeadlineTooEarly    "!ph =   =   =   !ph !ph !ph =   =   =   =   =   =  "
    DeadlineLongPast    "!ph =   Mod =   !ph !ph !ph Mod =   =   Mod Mod Mod"
    Recovered           "!ph Mod =   =   =   =   =   =   =   =   =   =   =  "
}

impl Stimulus {
    /// What happens, in the terms of this run.
    fn input(self, script: &Script) -> Input {
        let (number, attempt) = script.model_call();
        let says = |number, attempt| model_says(number, attempt, "it is sunny");
        let asks = |tool| model_asks(number, attempt, &[tool], FinishReason::ToolCalls);
        let fails = |kind| Input::ModelFailed { model_call: number, attempt, failure: failure(kind) };
        let x_try = script.state().call(X).map_or(1, |call| call.attempt.max(1));
        let answers = |outcome| script.finished(X, x_try, outcome);
        let decides = |decision| script.decision(X, decision);
        let shown = |slot, digest| match script.decision(slot, Decision::Approve) {
            Input::Decided { request, decision, by, .. } => {
                Input::Decided { request, decision, by, digest: Some(digest) }
            }
            other => other,
        };
        match self {
            Self::StartThisRun => start(spec()),
            Self::StartOtherRun => match start(spec()) {
                Input::Start(mut start) => {
                    start.run = RunId::parse("run-2").expect("a good id");
                    Input::Start(start)
                }
                other => other,
            },
            Self::ModelSays => says(number, attempt),
            Self::ModelAsks => asks(tool("weather")),
            Self::ModelAsksLeave => asks(tool("weather").approval()),
            Self::ModelAsksNonsense => asks(bad_tool("wether")),
            Self::ModelDeclines => model_asks(number, attempt, &[tool("weather")], FinishReason::Refusal),
            Self::OtherTrySays => says(number, attempt + 1),
            Self::OtherCallSays => says(number + 1, attempt),
            Self::ModelFailsPassing => fails(ModelErrorKind::RateLimited),
            Self::ModelFailsOverflow => fails(ModelErrorKind::ContextOverflow),
            Self::ModelFailsFatal => fails(ModelErrorKind::Unauthorised),
            Self::OtherTryFails => Input::ModelFailed {
                model_call: number,
                attempt: attempt + 1,
                failure: failure(ModelErrorKind::Timeout),
            },
            Self::OtherCallFails => Input::ModelFailed {
                model_call: number + 1,
                attempt,
                failure: failure(ModelErrorKind::Timeout),
            },
            Self::GrantX => granted(X),
            Self::GrantY => granted(Y),
            Self::GrantK => granted(K),
            Self::GrantNever => granted(NEVER),
            Self::DenyX => denied(X),
            Self::DenyY => denied(Y),
            Self::DenyK => denied(K),
            Self::DenyNever => denied(NEVER),
            Self::AcceptX => accepted(X, x_try),
            Self::AcceptXOtherTry => accepted(X, x_try + 1),
            Self::AcceptY => accepted(Y, 1),
            Self::AcceptK => accepted(K, 1),
            Self::AcceptNever => accepted(NEVER, 1),
            Self::SaveX => checkpoint(X, x_try, b"half"),
            Self::SaveXOtherTry => checkpoint(X, x_try + 1, b"half"),
            Self::SaveY => checkpoint(Y, 1, b"half"),
            Self::SaveK => checkpoint(K, 1, b"half"),
            Self::SaveNever => checkpoint(NEVER, 1, b"half"),
            Self::FinishX => answers(ok("sunny")),
            Self::RejectX => answers(turned_down()),
            Self::FailX => answers(lasting(Ran::Yes)),
            Self::FailXMayHaveRun => answers(passing(Ran::Maybe, Millis(0))),
            Self::FailXAgain => answers(passing(Ran::No, Millis(0))),
            Self::FailXAgainLater => answers(passing(Ran::No, Millis::secs(9))),
            Self::FinishXOtherLease => Input::CallFinished {
                slot: X,
                attempt: x_try,
                lease: script.state().lease(Y, x_try),
                host: host(),
                outcome: ok("forged"),
            },
            Self::FinishXNoTry => script.finished(X, 0, ok("early")),
            Self::FinishXOtherTry => script.finished(X, x_try + 1, ok("sunny")),
            Self::FinishYAgain => script.finished(Y, 1, ok("sunny")),
            Self::FinishYOtherTry => script.finished(Y, 2, ok("sunny")),
            Self::FinishKAgain => script.finished(K, 1, ok("sunny")),
            Self::FinishKOtherTry => script.finished(K, 2, ok("sunny")),
            Self::FinishNever => script.finished(NEVER, 1, ok("sunny")),
            Self::LoseXNotRun => lost(X, x_try, Ran::No),
            Self::LoseXMaybeRun => lost(X, x_try, Ran::Maybe),
            Self::LoseXRun => lost(X, x_try, Ran::Yes),
            Self::LoseXOtherTry => lost(X, x_try + 1, Ran::No),
            Self::LoseY => lost(Y, 1, Ran::No),
            Self::LoseK => lost(K, 1, Ran::No),
            Self::LoseNever => lost(NEVER, 1, Ran::No),
            Self::ApproveX => decides(Decision::Approve),
            Self::ApproveXEdited => decides(edits(r#"{"city":"Ulm"}"#)),
            Self::RefuseX => decides(deny()),
            Self::RefuseXAndStop => decides(deny_and_stop()),
            Self::AnswerX => decides(answer()),
            Self::ExpireX => decides(Decision::Expired),
            Self::WithdrawX => decides(Decision::Withdrawn),
            Self::ApproveXAsShown => shown(X, Digest::of(&[b"weather", b"{}"])),
            Self::ApproveXOtherDigest => shown(X, Digest::of(&[b"weather", b"{ }"])),
            Self::ApproveKAgain => script.decision(K, Decision::Approve),
            Self::RefuseK => script.decision(K, deny()),
            Self::ApproveKOtherDigest => shown(K, Digest::of(&[b"weather", b"{ }"])),
            Self::ApproveNever => script.decision(NEVER, Decision::Approve),
            Self::AbortByCaller => abort(AbortCause::Caller),
            Self::AbortByDisconnect => abort(AbortCause::Disconnect),
            Self::AbortByFault => abort(AbortCause::Fault),
            Self::Resume => resume("new"),
            Self::ResumeOnceMore => resume("old"),
            Self::DeadlineTooEarly | Self::DeadlineLongPast => Input::DeadlinePassed,
            Self::Recovered => Input::Recovered,
        }
    }

    /// How much later it happens.
    fn wait(self) -> Millis {
        if self == Self::DeadlineLongPast { HOUR } else { Millis(0) }
    }
}

/// The rows that an input belongs to. Exhaustive, so that a new input, outcome or decision has to find its row.
fn rows_of(input: &Input) -> &'static [Stimulus] {
    use Stimulus::*;
    match input {
        Input::Start(_) => &[StartThisRun, StartOtherRun],
        Input::ModelFinished(_) => &[
            ModelSays,
            ModelAsks,
            ModelAsksLeave,
            ModelAsksNonsense,
            ModelDeclines,
            OtherTrySays,
            OtherCallSays,
        ],
        Input::ModelFailed { .. } => {
            &[ModelFailsPassing, ModelFailsOverflow, ModelFailsFatal, OtherTryFails, OtherCallFails]
        }
        Input::SlotGranted { .. } => &[GrantX, GrantY, GrantK, GrantNever],
        Input::SlotDenied { .. } => &[DenyX, DenyY, DenyK, DenyNever],
        Input::CallAccepted { .. } => &[AcceptX, AcceptXOtherTry, AcceptY, AcceptK, AcceptNever],
        Input::CallCheckpoint { .. } => &[SaveX, SaveXOtherTry, SaveY, SaveK, SaveNever],
        Input::CallFinished { outcome, .. } => match outcome {
            CallOutcome::Succeeded { .. } => &[
                FinishX,
                FinishXOtherLease,
                FinishXNoTry,
                FinishXOtherTry,
                FinishYAgain,
                FinishYOtherTry,
                FinishKAgain,
                FinishKOtherTry,
                FinishNever,
            ],
            CallOutcome::Failed { .. } => &[FailX, FailXMayHaveRun, FailXAgain, FailXAgainLater],
            CallOutcome::Rejected { .. } => &[RejectX],
        },
        Input::CallLost { ran, .. } => match ran {
            Ran::No => &[LoseXNotRun, LoseXOtherTry, LoseY, LoseK, LoseNever],
            Ran::Maybe => &[LoseXMaybeRun],
            Ran::Yes => &[LoseXRun],
        },
        Input::Decided { decision, .. } => match decision {
            Decision::Approve => &[
                ApproveX,
                ApproveXAsShown,
                ApproveXOtherDigest,
                ApproveKAgain,
                ApproveKOtherDigest,
                ApproveNever,
            ],
            Decision::ApproveWithEdits { .. } => &[ApproveXEdited],
            Decision::Deny { .. } => &[RefuseX, RefuseK],
            Decision::DenyAndStop { .. } => &[RefuseXAndStop],
            Decision::AnswerInPlace { .. } => &[AnswerX],
            Decision::Expired => &[ExpireX],
            Decision::Withdrawn => &[WithdrawX],
        },
        Input::Abort { cause, .. } => match cause {
            AbortCause::Caller => &[AbortByCaller],
            AbortCause::Disconnect => &[AbortByDisconnect],
            AbortCause::Fault => &[AbortByFault],
        },
        Input::Resume { .. } => &[Resume, ResumeOnceMore],
        Input::DeadlinePassed => &[DeadlineTooEarly, DeadlineLongPast],
        Input::Recovered => &[Recovered],
    }
}

/// Exhaustive, so that a new refusal has to find its code.
fn code(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::WrongPhase(_) => "!ph",
        Refusal::StaleModelCall => "!mc",
        Refusal::UnknownCall => "!uc",
        Refusal::DuplicateResult => "!du",
        Refusal::StaleAttempt => "!st",
        Refusal::UnknownRequest => "!rq",
        Refusal::AlreadyResolved(_) => "!ar",
        Refusal::DigestMismatch => "!dg",
        Refusal::NotADecision => "!nd",
    }
}

/// One retry, then a pause; questions stay open for ten minutes.
fn patient() -> RunSpec {
    RunSpec {
        retry: RetryPolicy {
            max_retries: 1,
            pause_when_exhausted: true,
            jitter: false,
            ..RetryPolicy::default()
        },
        approval_timeout: Some(Millis::secs(600)),
        in_doubt_timeout: Some(Millis::secs(600)),
        ..spec()
    }
}

/// A run with a past: it was paused and resumed, a human approved K, and K was run.
fn with_a_past() -> Script {
    let mut script = given(patient());
    script.model_fails(ModelErrorKind::Timeout);
    script.wakes();
    script.model_fails(ModelErrorKind::Timeout);
    script.resumes("old");
    script.asks([tool("weather").approval()]);
    script.decides(K, Decision::Approve);
    script.runs(K, "sunny");
    script
}

/// A second round, whose Y is settled.
fn in_round(x: Tool) -> Script {
    let mut script = with_a_past();
    script.asks([x, tool("forecast")]);
    script.runs(Y, "cloudy");
    script
}

fn in_situation(situation: Situation) -> Script {
    let x = tool("weather");
    let offered = || {
        let mut script = in_round(x.clone());
        script.grants(X);
        script
    };
    match situation {
        Situation::New => unstarted(),
        Situation::ModelRunning => with_a_past(),
        Situation::BackingOff => {
            let mut script = with_a_past();
            script.model_fails(ModelErrorKind::Timeout);
            script
        }
        Situation::Paused => {
            let mut script = in_situation(Situation::BackingOff);
            script.wakes();
            script.model_fails(ModelErrorKind::Timeout);
            script
        }
        Situation::Completed => {
            let mut script = with_a_past();
            script.says("it is sunny");
            script
        }
        Situation::Failed => {
            let mut script = with_a_past();
            script.model_fails(ModelErrorKind::BadRequest);
            script
        }
        Situation::Aborted => {
            let mut script = offered();
            script.aborts();
            script
        }
        Situation::AwaitingApproval => in_round(x.approval()),
        Situation::Ready => in_round(x),
        Situation::ReadyLater => {
            let mut script = offered();
            script.loses(X, Ran::No);
            script
        }
        Situation::Offered => offered(),
        Situation::Accepted => {
            let mut script = offered();
            script.accepts(X);
            script
        }
        Situation::InDoubt => {
            let mut script = offered();
            script.loses(X, Ran::Maybe);
            script
        }
    }
}

/// What comes of it, in the table's words.
fn outcome(given: &Script, stimulus: Stimulus) -> String {
    let mut script = given.clone();
    script.later(stimulus.wait());
    let input = stimulus.input(&script);
    let before = script.state().clone();
    match script.step(input) {
        Err(refusal) => code(&refusal).to_owned(),
        Ok(step) if step.records.is_empty() => {
            assert_eq!(*script.state(), before, "nothing recorded is nothing changed");
            "=".to_owned()
        }
        Ok(_) => {
            let after = situation_of(script.state()).expect("a place between two steps");
            COLUMNS.iter().find(|(column, _)| *column == after).expect("a column").1.to_owned()
        }
    }
}

#[test]
fn every_pair_is_taken_or_refused_as_the_table_says() {
    let mut wrong = Vec::new();
    for (at, (situation, name)) in COLUMNS.into_iter().enumerate() {
        let given = in_situation(situation);
        for (stimulus, row) in ROWS {
            let cells: Vec<&str> = row.split_whitespace().collect();
            assert_eq!(cells.len(), COLUMNS.len(), "{stimulus:?}");
            let got = outcome(&given, *stimulus);
            if got != cells[at] {
                wrong.push(format!("{stimulus:?} in {name}: {got}, not {}", cells[at]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_situations_are_what_they_are_called() {
    for (situation, name) in COLUMNS {
        assert_eq!(situation_of(in_situation(situation).state()), Some(situation), "{name}");
    }
}

#[test]
fn every_row_is_under_its_input() {
    let script = in_situation(Situation::InDoubt);
    let mut listed = 0;
    for (stimulus, _) in ROWS {
        let rows = rows_of(&stimulus.input(&script));
        assert!(rows.contains(stimulus), "{stimulus:?}");
        listed += usize::from(rows.first() == Some(stimulus)) * rows.len();
    }
    assert_eq!(listed, ROWS.len(), "each row is listed once");
}

#[test]
fn refusals_say_where_the_run_stands() {
    let mut script = in_situation(Situation::Paused);
    let refusal = script.refuses(start(spec()));
    assert_eq!(refusal, Refusal::WrongPhase(script.state().status()));
    assert_eq!(unstarted().refuses(abort(AbortCause::Caller)), Refusal::WrongPhase(None));
}
