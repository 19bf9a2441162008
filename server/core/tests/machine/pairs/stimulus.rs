//! The things that can happen, and the outcome that the table gives for each.

use agentloop_core::id::{Attempt, RunId};
use agentloop_core::limits::WAITING_MESSAGES_MAX;
use agentloop_core::message::FinishReason;
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::event::Ran;
use agentloop_core::run::human::Decision;
use agentloop_core::run::input::{AbortCause, CallFinished, CallOutcome, Input, Prepared};
use agentloop_core::run::plan::Instruction;
use agentloop_core::time::Millis;
use agentloop_core::tool::Digest;

use super::situation::{K, NEVER, X, Y};
use crate::support::*;

const HOUR: Millis = Millis::secs(3_600);

/// The table: what happens, and what comes of it in each situation.
///
/// `Mod`, `Off`, …: taken, with events, and it leads there. `=`: taken, and nothing is to be recorded. Refusals of the phase and
/// of calls: `!ph` wrong phase, `!mc` stale model call, `!uc` unknown call, `!du` duplicate result, `!st` stale attempt. Refusals
/// of answers: `!rq` unknown request, `!ar` already resolved, `!dg` digest mismatch, `!nd` not a decision, `!ba` not an answer to
/// this question. Others: `!id` id used before, `!hd` too much held, `!ns` not stepped, `!pl` stale decision of a planner.
macro_rules! table {
    ($($stimulus:ident $row:literal)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Stimulus { $($stimulus,)* }

        pub(super) const ROWS: &[(Stimulus, &str)] = &[$((Stimulus::$stimulus, $row),)*];
    };
}

table! {
    //                   New Que Mod Bck Pau Com Fai Abo Awa Inp Rdy Lat Off Acc Dbt Cmp Ask
    StartThisRun        "Mod !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph"
    StartOtherRun       "!ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph"
    ImportThisRun       "Com !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph"
    Prepared            "!ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph"

    Enter               "!ph Mod !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph"
    SayMore             "!ph !ph Mod Bck Pau !ph !ph !ph Awa Inp Rdy Lat Off Acc Dbt Cmp Ask Sus"
    SayMoreAgain        "!ph !ph =   =   =   =   =   =   =   =   =   =   =   =   =   =   =   =  "
    SayOtherByTheSameId "!ph !ph !id !id !id !id !id !id !id !id !id !id !id !id !id !id !id !id"
    SayTooMuch          "!ph !ph !hd !hd !hd !ph !ph !ph !hd !hd !hd !hd !hd !hd !hd !hd !hd !hd"

    ModelSays           "!mc !mc Com !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelAsks           "!mc !mc Rdy !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelAsksLeave      "!mc !mc Awa !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelAsksAHuman     "!mc !mc Inp !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelWritesTodos    "!mc !mc Mod !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelAsksNonsense   "!mc !mc Mod !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelDeclines       "!mc !mc Fai !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    OtherTrySays        "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    OtherCallSays       "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelFailsPassing   "!mc !mc Bck !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelFailsOverflow  "!mc !mc Cmp !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ModelFailsFatal     "!mc !mc Fai !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    OtherTryFails       "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    OtherCallFails      "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    ContextTooLarge     "!mc !mc Cmp !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    OtherTryTooLarge    "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    Compacts            "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc Mod !mc !mc"
    OtherCompacts       "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"
    CompactionFails     "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc Cmp !mc !mc"
    OtherCompactFails   "!mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc !mc"

    GrantX              "!uc !uc !uc !uc !uc !uc !uc !st !st !st Off !st !st !st !st !uc !st !st"
    GrantY              "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    GrantK              "!uc !uc !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st"
    GrantNever          "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    DenyX               "!uc !uc !uc !uc !uc !uc !uc !st !st !st Mod Mod !st !st !st !uc !st !st"
    DenyY               "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    DenyK               "!uc !uc !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st"
    DenyNever           "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"

    AcceptX             "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st Acc =   !st !uc =   !st"
    AcceptXOtherTry     "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    AcceptY             "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    AcceptK             "!uc !uc !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st"
    AcceptNever         "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    SaveX               "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st Off Acc !st !uc Ask !st"
    SaveXOtherTry       "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    SaveY               "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    SaveK               "!uc !uc !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st"
    SaveNever           "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    NeedX               "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st Ask Ask =   !uc =   !st"
    NeedXOtherTry       "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    NeedY               "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    NeedK               "!uc !uc !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st"
    NeedNever           "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    LeaveX              "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st Sus Sus =   !uc =   !st"
    ResumableX          "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st Off Acc !st !uc Ask !st"
    ResumableXOtherTry  "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    ResumableY          "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    ResumableK          "!uc !uc !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st"
    ResumableNever      "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"

    FinishX             "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st Mod Mod Mod Mod !uc Mod Mod"
    RejectX             "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st Mod Mod Mod Mod !uc Mod !st"
    FailX               "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st Mod Mod Mod Mod !uc Mod !st"
    FailXMayHaveRun     "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st Mod Mod Mod Mod !uc Mod !st"
    FailXAgain          "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st =   Rdy Rdy Rdy !uc Rdy !st"
    FailXAgainLater     "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st =   Lat Lat Lat !uc Lat !st"
    FinishXOtherLease   "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    FinishXNoTry        "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    FinishXOtherTry     "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    FinishYAgain        "!uc !uc !uc !uc !uc !uc !uc !du !du !du !du !du !du !du !du !uc !du !du"
    FinishYOtherwise    "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    FinishYOtherTry     "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    FinishKAgain        "!uc !uc !du !du !du !du !du !du !du !du !du !du !du !du !du !du !du !du"
    FinishKOtherTry     "!uc !uc !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st"
    FinishNever         "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    LoseXNotRun         "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st Lat Lat !st !uc Lat !st"
    LoseXMaybeRun       "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st Dbt Dbt !st !uc Dbt !st"
    LoseXRun            "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st Dbt Dbt !st !uc Dbt !st"
    LoseXOtherTry       "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    LoseY               "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    LoseK               "!uc !uc !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st"
    LoseNever           "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    StopX               "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st Dbt Dbt !st !uc Dbt !st"
    StopXOverdue        "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st Dbt Dbt !st !uc Dbt !st"
    StopXNotBegun       "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st Lat Lat Lat !uc Lat !st"
    StopXNeverBegun     "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st Mod Mod Mod !uc Lat !st"
    StopXOtherLease     "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    StopXNoTry          "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"
    StopXOtherTry       "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    StopY               "!uc !uc !uc !uc !uc !uc !uc !st !st !st !st !st !st !st !st !uc !st !st"
    StopK               "!uc !uc !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st !st"
    StopNever           "!uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc !uc"

    ApproveX            "!rq !rq !rq !rq !rq !rq !rq !rq Rdy !ba !rq !rq !rq !rq Rdy !rq !ba !ba"
    ApproveXEdited      "!rq !rq !rq !rq !rq !rq !rq !rq Rdy !ba !rq !rq !rq !rq Rdy !rq !ba !ba"
    RefuseX             "!rq !rq !rq !rq !rq !rq !rq !rq Mod !ba !rq !rq !rq !rq Mod !rq !ba !ba"
    RefuseXAndStop      "!rq !rq !rq !rq !rq !rq !rq !rq Abo !ba !rq !rq !rq !rq Abo !rq !ba !ba"
    AnswerX             "!rq !rq !rq !rq !rq !rq !rq !rq Mod !ba !rq !rq !rq !rq Mod !rq !ba !ba"
    TextX               "!rq !rq !rq !rq !rq !rq !rq !rq !ba Mod !rq !rq !rq !rq !ba !rq Acc Rdy"
    SelectX             "!rq !rq !rq !rq !rq !rq !rq !rq !ba !ba !rq !rq !rq !rq !ba !rq !ba !ba"
    FillX               "!rq !rq !rq !rq !rq !rq !rq !rq !ba !ba !rq !rq !rq !rq !ba !rq !ba !ba"
    VisitX              "!rq !rq !rq !rq !rq !rq !rq !rq !ba !ba !rq !rq !rq !rq !ba !rq !ba !ba"
    DeclineX            "!rq !rq !rq !rq !rq !rq !rq !rq !ba Mod !rq !rq !rq !rq !ba !rq Acc Rdy"
    ExpireX             "!nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd"
    WithdrawX           "!nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd !nd"
    ApproveXAsShown     "!rq !rq !rq !rq !rq !rq !rq !rq Rdy !ba !rq !rq !rq !rq Rdy !rq !ba !ba"
    ApproveXOtherDigest "!rq !rq !rq !rq !rq !rq !rq !rq !dg !ba !rq !rq !rq !rq !dg !rq !ba !ba"
    ApproveKAgain       "!rq !rq =   =   =   =   =   =   =   =   =   =   =   =   =   =   =   =  "
    RefuseK             "!rq !rq !ar !ar !ar !ar !ar !ar !ar !ar !ar !ar !ar !ar !ar !ar !ar !ar"
    ApproveKOtherDigest "!rq !rq !dg !dg !dg !dg !dg !dg !dg !dg !dg !dg !dg !dg !dg !dg !dg !dg"
    ApproveNever        "!rq !rq !rq !rq !rq !rq !rq !rq !rq !rq !rq !rq !rq !rq !rq !rq !rq !rq"

    AbortByCaller       "!ph Abo Abo Abo Abo !ph !ph !ph Abo Abo Abo Abo Abo Abo Abo Abo Abo Abo"
    AbortByDisconnect   "!ph Abo Abo Abo Abo !ph !ph !ph Abo Abo Abo Abo Abo Abo Abo Abo Abo Abo"
    AbortByFault        "!ph Fai Fai Fai Fai !ph !ph !ph Fai Fai Fai Fai Fai Fai Fai Fai Fai Fai"
    AbortForMemory      "!ph Fai Fai Fai Fai !ph !ph !ph Fai Fai Fai Fai Fai Fai Fai Fai Fai Fai"
    Resume              "!ph !ph !ph !ph Mod !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph !ph"
    ResumeOnceMore      "!ph !ph =   =   =   =   =   =   =   =   =   =   =   =   =   =   =   =  "
    StepOn              "!ph !ns !ns !ns !ns !ph !ph !ph !ns !ns !ns !ns !ns !ns !ns !ns !ns !ns"
    StepByApproval      "!ph !ns !ns !ns !ns !ph !ph !ph !ns !ns !ns !ns !ns !ns !ns !ns !ns !ns"
    PlannerDecides      "!pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl"
    PlannerFails        "!pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl !pl"
    DeadlineTooEarly    "!ph =   =   =   =   !ph !ph !ph =   =   =   =   =   =   =   =   =   =  "
    DeadlineLongPast    "!ph =   =   Mod =   !ph !ph !ph Mod Mod =   =   Dbt Dbt Mod =   Acc Rdy"
    Recovered           "!ph =   Mod =   =   =   =   =   =   =   =   =   =   =   =   Cmp =   =  "
}

impl Stimulus {
    /// The input, in the terms of this run.
    pub(super) fn input(self, script: &Script) -> Input {
        let (number, attempt) = script.model_call();
        let says = |number, attempt| model_says(number, attempt, "it is sunny");
        let asks = |tool| model_asks(number, attempt, &[tool], FinishReason::ToolCalls);
        let fails = |kind| Input::ModelFailed {
            model_call: number,
            attempt: Attempt(attempt),
            failure: failure(kind),
        };
        let x_try = script.state().call(X).map_or(1, |call| call.attempt.0.max(1));
        let answers = |outcome| script.finished(X, x_try, outcome);
        let decides = |decision| script.decision(X, decision);
        let shown = |slot, digest| match script.decision(slot, Decision::Approve) {
            Input::Decided { request, decision, by, remember, .. } => {
                Input::Decided { request, decision, by, digest: Some(digest), remember }
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
            Self::ImportThisRun => match start(spec()) {
                Input::Start(start) => Input::Import(start),
                other => other,
            },
            Self::Enter => enter(script),
            Self::SayMore => steer("more", "and in Ulm?"),
            Self::SayMoreAgain => steer("said", "and tomorrow?"),
            Self::SayOtherByTheSameId => steer("said", "and yesterday?"),
            Self::SayTooMuch => match steer("more", "and in Ulm?") {
                Input::Steer { steer, messages } => {
                    let messages = messages.iter().cycle().take(WAITING_MESSAGES_MAX + 1).cloned().collect();
                    Input::Steer { steer, messages }
                }
                other => other,
            },
            Self::Prepared => prepared(Prepared::default()),
            Self::ModelSays => says(number, attempt),
            Self::ModelAsks => asks(tool("weather")),
            Self::ModelAsksLeave => asks(tool("weather").approval()),
            Self::ModelAsksAHuman => asks(question("which?")),
            Self::ModelWritesTodos => asks(todos(&["pack"])),
            Self::ModelAsksNonsense => asks(bad_tool("wether")),
            Self::ModelDeclines => model_asks(number, attempt, &[tool("weather")], FinishReason::Refusal),
            Self::OtherTrySays => says(number, attempt + 1),
            Self::OtherCallSays => says(number + 1, attempt),
            Self::ModelFailsPassing => fails(ModelErrorKind::RateLimited),
            Self::ModelFailsOverflow => fails(ModelErrorKind::ContextOverflow),
            Self::ModelFailsFatal => fails(ModelErrorKind::Unauthorised),
            Self::OtherTryFails => Input::ModelFailed {
                model_call: number,
                attempt: Attempt(attempt + 1),
                failure: failure(ModelErrorKind::Timeout),
            },
            Self::OtherCallFails => Input::ModelFailed {
                model_call: number + 1,
                attempt: Attempt(attempt),
                failure: failure(ModelErrorKind::Timeout),
            },
            Self::ContextTooLarge => too_large(number, attempt),
            Self::OtherTryTooLarge => too_large(number, attempt + 1),
            Self::Compacts => compacted(script.state().compactions()),
            Self::OtherCompacts => compacted(script.state().compactions() + 1),
            Self::CompactionFails => compaction_failed(script.state().compactions()),
            Self::OtherCompactFails => compaction_failed(script.state().compactions() + 1),
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
            Self::NeedX => needs(X, x_try, "q"),
            Self::NeedXOtherTry => needs(X, x_try + 1, "q"),
            Self::NeedY => needs(Y, 1, "q"),
            Self::NeedK => needs(K, 1, "q"),
            Self::NeedNever => needs(NEVER, 1, "q"),
            Self::LeaveX => leaves(X, x_try, "q", b"half"),
            Self::ResumableX => resumable(X, x_try, 1, b"half"),
            Self::ResumableXOtherTry => resumable(X, x_try + 1, 1, b"half"),
            Self::ResumableY => resumable(Y, 1, 1, b"half"),
            Self::ResumableK => resumable(K, 1, 1, b"half"),
            Self::ResumableNever => resumable(NEVER, 1, 1, b"half"),
            Self::FinishX => answers(ok("sunny")),
            Self::RejectX => answers(turned_down()),
            Self::FailX => answers(lasting(Ran::Yes)),
            Self::FailXMayHaveRun => answers(passing(Ran::Maybe, Millis(0))),
            Self::FailXAgain => answers(passing(Ran::No, Millis(0))),
            Self::FailXAgainLater => answers(passing(Ran::No, Millis::secs(9))),
            Self::FinishXOtherLease => Input::CallFinished(Box::new(CallFinished {
                slot: X,
                attempt: Attempt(x_try),
                lease: script.state().lease(Y, Attempt(x_try)),
                host: host(),
                outcome: ok("forged"),
                sent: None,
                applied: Vec::new(),
            })),
            Self::FinishXNoTry => script.finished(X, 0, ok("early")),
            Self::FinishXOtherTry => script.finished(X, x_try + 1, ok("sunny")),
            Self::FinishYAgain => script.finished(Y, 1, ok("cloudy")),
            Self::FinishYOtherwise => script.finished(Y, 1, ok("sunny")),
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
            Self::StopX | Self::StopXOverdue => script.stopped(X, x_try, true),
            Self::StopXNotBegun | Self::StopXNeverBegun => script.stopped(X, x_try, false),
            Self::StopXOtherLease => {
                let lease = script.state().lease(Y, Attempt(x_try));
                Input::CallStopped { slot: X, attempt: Attempt(x_try), lease, begun: false }
            }
            Self::StopXNoTry => script.stopped(X, 0, false),
            Self::StopXOtherTry => script.stopped(X, x_try + 1, false),
            Self::StopY => script.stopped(Y, 1, false),
            Self::StopK => script.stopped(K, 1, false),
            Self::StopNever => script.stopped(NEVER, 1, false),
            Self::ApproveX => decides(Decision::Approve),
            Self::ApproveXEdited => decides(edits(r#"{"city":"Ulm"}"#)),
            Self::RefuseX => decides(deny()),
            Self::RefuseXAndStop => decides(deny_and_stop()),
            Self::AnswerX => decides(answer()),
            Self::TextX => decides(Decision::Text { text: "Ulm".to_owned() }),
            Self::SelectX => decides(Decision::Selected { options: vec!["ulm".to_owned()] }),
            Self::FillX => decides(Decision::Filled { fields: "{}".to_owned() }),
            Self::VisitX => decides(Decision::Visited { done: true }),
            Self::DeclineX => decides(Decision::Declined { message: String::new() }),
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
            Self::AbortForMemory => abort(AbortCause::Memory),
            Self::Resume => resume("new"),
            Self::ResumeOnceMore => resume("old"),
            Self::StepOn => step_on("new"),
            Self::StepByApproval => step_by("new", script.state().call_id(X).request(Attempt(0))),
            Self::PlannerDecides => planned(1, Instruction::CallModel),
            Self::PlannerFails => planner_fails(1),
            Self::DeadlineTooEarly | Self::DeadlineLongPast => Input::DeadlinePassed,
            Self::Recovered => Input::Recovered,
        }
    }

    /// The time until it happens.
    pub(super) fn wait(self) -> Millis {
        match self {
            Self::DeadlineLongPast | Self::StopXOverdue | Self::StopXNeverBegun => HOUR,
            _ => Millis(0),
        }
    }
}

/// The rows that an input belongs to. Exhaustive, so that a new input, outcome or decision has to find its row.
pub(super) fn rows_of(input: &Input) -> &'static [Stimulus] {
    use Stimulus::*;
    match input {
        Input::Start(_) => &[StartThisRun, StartOtherRun],
        Input::Import(_) => &[ImportThisRun],
        Input::Enter { .. } => &[Enter],
        Input::Steer { .. } => &[SayMore, SayMoreAgain, SayOtherByTheSameId, SayTooMuch],
        Input::Prepared(_) => &[Prepared],
        Input::ModelFinished(_) => &[
            ModelSays,
            ModelAsks,
            ModelAsksLeave,
            ModelAsksAHuman,
            ModelWritesTodos,
            ModelAsksNonsense,
            ModelDeclines,
            OtherTrySays,
            OtherCallSays,
        ],
        Input::ModelFailed { .. } => {
            &[ModelFailsPassing, ModelFailsOverflow, ModelFailsFatal, OtherTryFails, OtherCallFails]
        }
        Input::ContextTooLarge { .. } => &[ContextTooLarge, OtherTryTooLarge],
        Input::Compacted(_) => &[Compacts, OtherCompacts],
        Input::CompactionFailed { .. } => &[CompactionFails, OtherCompactFails],
        Input::HostGranted { .. } => &[GrantX, GrantY, GrantK, GrantNever],
        Input::HostDenied { .. } => &[DenyX, DenyY, DenyK, DenyNever],
        Input::CallAccepted { .. } => &[AcceptX, AcceptXOtherTry, AcceptY, AcceptK, AcceptNever],
        Input::CallCheckpoint { .. } => &[SaveX, SaveXOtherTry, SaveY, SaveK, SaveNever],
        Input::CallResumable { .. } => {
            &[ResumableX, ResumableXOtherTry, ResumableY, ResumableK, ResumableNever]
        }
        Input::InputNeeded { resume_state: Some(_), .. } => &[LeaveX],
        Input::InputNeeded { .. } => &[NeedX, NeedXOtherTry, NeedY, NeedK, NeedNever],
        Input::CallFinished(finished) => match &finished.outcome {
            CallOutcome::Succeeded { .. } => &[
                FinishX,
                FinishXOtherLease,
                FinishXNoTry,
                FinishXOtherTry,
                FinishYAgain,
                FinishYOtherwise,
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
        Input::CallStopped { begun: true, .. } => &[StopX, StopXOverdue],
        Input::CallStopped { begun: false, .. } => &[
            StopXNotBegun,
            StopXNeverBegun,
            StopXOtherLease,
            StopXNoTry,
            StopXOtherTry,
            StopY,
            StopK,
            StopNever,
        ],
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
            Decision::Text { .. } => &[TextX],
            Decision::Selected { .. } => &[SelectX],
            Decision::Filled { .. } => &[FillX],
            Decision::Visited { .. } => &[VisitX],
            Decision::Declined { .. } => &[DeclineX],
            Decision::Expired => &[ExpireX],
            Decision::Withdrawn => &[WithdrawX],
        },
        Input::Abort { cause, .. } => match cause {
            AbortCause::Caller => &[AbortByCaller],
            AbortCause::Disconnect => &[AbortByDisconnect],
            AbortCause::Fault => &[AbortByFault],
            AbortCause::Memory => &[AbortForMemory],
        },
        Input::Resume { .. } => &[Resume, ResumeOnceMore],
        Input::Step { approve: None, .. } => &[StepOn],
        Input::Step { approve: Some(_), .. } => &[StepByApproval],
        Input::Planned { result: Ok(_), .. } => &[PlannerDecides],
        Input::Planned { result: Err(_), .. } => &[PlannerFails],
        Input::DeadlinePassed => &[DeadlineTooEarly, DeadlineLongPast],
        Input::Recovered => &[Recovered],
    }
}
