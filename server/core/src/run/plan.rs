//! What to do next. The planner is asked whenever the run stands still for no outside reason.

use crate::message::FinishReason;

/// What the planner is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Situation<'a> {
    /// The caller's messages are in; nothing has been done yet.
    Prompted,
    /// The model has spoken.
    Answered {
        /// Why it stopped.
        finish: &'a FinishReason,
        /// How many tools it wants run.
        calls: usize,
    },
    /// Every tool call of the round has its result.
    ToolsSettled,
}

/// What the planner decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// Ask the model.
    CallModel,
    /// Run the tools that it asked for, asking a human first where one must decide.
    CallTools,
    /// The run is over, with the model's last message.
    Finish,
}

/// The ReAct loop: reason, act, observe, until the model asks for nothing more.
#[must_use]
pub fn react(situation: &Situation<'_>) -> Instruction {
    match situation {
        Situation::Prompted | Situation::ToolsSettled => Instruction::CallModel,
        // An answer that the context cut short goes on in a smaller one.
        Situation::Answered { calls: 0, finish: FinishReason::ContextWindow } => Instruction::CallModel,
        Situation::Answered { calls: 0, .. } => Instruction::Finish,
        Situation::Answered { .. } => Instruction::CallTools,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_goes_on_until_nothing_is_asked_for() {
        assert_eq!(react(&Situation::Prompted), Instruction::CallModel);
        assert_eq!(react(&Situation::ToolsSettled), Instruction::CallModel);
        let answered = |calls| Situation::Answered { finish: &FinishReason::Stop, calls };
        assert_eq!(react(&answered(2)), Instruction::CallTools);
        assert_eq!(react(&answered(0)), Instruction::Finish);
        let cut = Situation::Answered { calls: 0, finish: &FinishReason::ContextWindow };
        assert_eq!(react(&cut), Instruction::CallModel);
    }
}
