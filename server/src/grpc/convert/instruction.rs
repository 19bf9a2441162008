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
        Instruction::RequestPrompt { question, metadata } => {
            Wire::RequestHumanPrompt(wire::RequestPromptInstruction {
                question: question.clone(),
                metadata_json: metadata.clone().unwrap_or_default(),
            })
        }
        Instruction::RequestSelect { question, options, multiple, metadata } => {
            let option = |option: &SelectOption| wire::SelectOption {
                id: option.id.clone(),
                label: option.label.clone(),
            };
            Wire::RequestHumanSelect(wire::RequestSelectInstruction {
                question: question.clone(),
                options: options.iter().map(option).collect(),
                multiple: *multiple,
                metadata_json: metadata.clone().unwrap_or_default(),
            })
        }
        Instruction::RequestForm { question, form, metadata } => {
            Wire::RequestHumanForm(wire::RequestFormInstruction {
                question: question.clone(),
                form_schema_json: form.clone(),
                metadata_json: metadata.clone().unwrap_or_default(),
            })
        }
        Instruction::RequestUrl { question, url, metadata } => {
            Wire::RequestHumanUrl(wire::RequestUrlInstruction {
                question: question.clone(),
                url: url.clone(),
                metadata_json: metadata.clone().unwrap_or_default(),
            })
        }
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
        Wire::RequestHumanPrompt(prompt) => {
            Instruction::RequestPrompt { question: prompt.question, metadata: given(prompt.metadata_json) }
        }
        Wire::RequestHumanSelect(select) => Instruction::RequestSelect {
            question: select.question,
            options: select
                .options
                .into_iter()
                .map(|option| SelectOption { id: option.id, label: option.label })
                .collect(),
            multiple: select.multiple,
            metadata: given(select.metadata_json),
        },
        Wire::RequestHumanForm(form) => Instruction::RequestForm {
            question: form.question,
            form: form.form_schema_json,
            metadata: given(form.metadata_json),
        },
        Wire::RequestHumanUrl(visit) => Instruction::RequestUrl {
            question: visit.question,
            url: visit.url,
            metadata: given(visit.metadata_json),
        },
        Wire::Compact(compact) => Instruction::Compact { strategy: compact.strategy },
        Wire::Finish(finish) => Instruction::Finish { failure: given(finish.failure) },
    };
    instruction.check().map(|()| instruction)
}

/// A text that may be left out.
fn given(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
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
            Instruction::RequestPrompt { question: "When?".to_owned(), metadata: None },
            Instruction::RequestPrompt {
                question: "When?".to_owned(),
                metadata: Some(r#"{"page":3}"#.to_owned()),
            },
            Instruction::RequestSelect {
                question: "Where?".to_owned(),
                options: vec![option],
                multiple: true,
                metadata: None,
            },
            Instruction::RequestForm {
                question: "Who?".to_owned(),
                form: r#"{"type":"object","properties":{"name":{"type":"string"}}}"#.to_owned(),
                metadata: None,
            },
            Instruction::RequestUrl {
                question: "Pay".to_owned(),
                url: "https://example.org".to_owned(),
                metadata: Some("{}".to_owned()),
            },
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
