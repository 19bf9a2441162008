//! Conversion of the planner's instructions.

use agentloop_core::run::plan::{Instruction, SelectOption};
use agentloop_proto::v1 as wire;
use wire::instruction::Instruction as Wire;

/// Converts an instruction for callers and planners.
#[must_use]
pub fn to_wire(instruction: &Instruction) -> wire::Instruction {
    let wire = match instruction {
        Instruction::CallModel => Wire::CallModel(wire::CallModelInstruction {}),
        Instruction::CallTools => Wire::CallTools(wire::CallToolsInstruction {}),
        Instruction::RequestApproval => Wire::RequestHumanApprove(wire::RequestApprovalInstruction {}),
        Instruction::RequestPrompt { question } => {
            Wire::RequestHumanPrompt(wire::RequestPromptInstruction { question: question.clone() })
        }
        Instruction::RequestSelect { question, options, multiple } => {
            let option = |option: &SelectOption| wire::SelectOption {
                id: option.id.clone(),
                label: option.label.clone(),
            };
            Wire::RequestHumanSelect(wire::RequestSelectInstruction {
                question: question.clone(),
                options: options.iter().map(option).collect(),
                multiple: *multiple,
            })
        }
        Instruction::RequestForm { question, form } => Wire::RequestHumanForm(wire::RequestFormInstruction {
            question: question.clone(),
            form_schema_json: form.clone(),
        }),
        Instruction::RequestUrl { question, url } => Wire::RequestHumanUrl(wire::RequestUrlInstruction {
            question: question.clone(),
            url: url.clone(),
        }),
        Instruction::Compact { strategy } => {
            Wire::Compact(wire::CompactInstruction { strategy: strategy.clone() })
        }
        Instruction::Finish { failure } => {
            Wire::Finish(wire::FinishInstruction { failure: failure.clone().unwrap_or_default() })
        }
    };
    wire::Instruction { instruction: Some(wire) }
}

/// Parses an instruction that a remote planner returned.
///
/// # Errors
/// The fault, for the log and the event of the failed planner.
pub fn from_wire(instruction: wire::Instruction) -> Result<Instruction, String> {
    let instruction = match instruction.instruction.ok_or("an instruction says what to do")? {
        Wire::CallModel(_) => Instruction::CallModel,
        Wire::CallTools(_) => Instruction::CallTools,
        Wire::RequestHumanApprove(_) => Instruction::RequestApproval,
        Wire::RequestHumanPrompt(prompt) => Instruction::RequestPrompt { question: prompt.question },
        Wire::RequestHumanSelect(select) => Instruction::RequestSelect {
            question: select.question,
            options: select
                .options
                .into_iter()
                .map(|option| SelectOption { id: option.id, label: option.label })
                .collect(),
            multiple: select.multiple,
        },
        Wire::RequestHumanForm(form) => {
            Instruction::RequestForm { question: form.question, form: form.form_schema_json }
        }
        Wire::RequestHumanUrl(visit) => Instruction::RequestUrl { question: visit.question, url: visit.url },
        Wire::Compact(compact) => Instruction::Compact { strategy: compact.strategy },
        Wire::Finish(finish) => {
            Instruction::Finish { failure: Some(finish.failure).filter(|failure| !failure.is_empty()) }
        }
    };
    instruction.check().map(|()| instruction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_survives_the_round_trip() {
        let option = SelectOption { id: "rome".to_owned(), label: "Rome".to_owned() };
        for instruction in [
            Instruction::CallModel,
            Instruction::CallTools,
            Instruction::RequestApproval,
            Instruction::RequestPrompt { question: "When?".to_owned() },
            Instruction::RequestSelect {
                question: "Where?".to_owned(),
                options: vec![option],
                multiple: true,
            },
            Instruction::RequestForm {
                question: "Who?".to_owned(),
                form: r#"{"type":"object","properties":{"name":{"type":"string"}}}"#.to_owned(),
            },
            Instruction::RequestUrl { question: "Pay".to_owned(), url: "https://example.org".to_owned() },
            Instruction::Compact { strategy: "extract".to_owned() },
            Instruction::Finish { failure: None },
            Instruction::Finish { failure: Some("no way on".to_owned()) },
        ] {
            assert_eq!(from_wire(to_wire(&instruction)), Ok(instruction));
        }
    }

    #[test]
    fn nonsense_is_named() {
        assert!(from_wire(wire::Instruction::default()).is_err());
        let nothing = Wire::RequestHumanPrompt(wire::RequestPromptInstruction::default());
        assert!(from_wire(wire::Instruction { instruction: Some(nothing) }).is_err());
    }
}
