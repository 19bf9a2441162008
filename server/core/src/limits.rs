//! Every bound on what comes from outside, with its unit last in the name.
//!
//! These are the ceilings that no configuration can lift; the configurable limits stay below them.

/// A client-given id.
pub const ID_BYTES_MAX: usize = 128;
/// A tool's name; what both large providers accept.
pub const TOOL_NAME_BYTES_MAX: usize = 64;
/// A tool's description.
pub const TOOL_DESCRIPTION_BYTES_MAX: usize = 16 * 1024;
/// The template of what a tool's calls are called.
pub const TOOL_TITLE_BYTES_MAX: usize = 256;
/// What a tool call is called, in characters.
pub const TOOL_TITLE_CHARS_MAX: usize = 200;
/// A tool's JSON schema.
pub const TOOL_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Tools that one host may declare.
pub const TOOLS_PER_HOST_MAX: usize = 512;
/// Calls that one host may have, and room that it may give beyond what it was sent.
pub const CALLS_PER_HOST_MAX: usize = 10_000;
/// One piece of a running call's output.
pub const OUTPUT_CHUNK_BYTES_MAX: usize = 64 * 1024;
/// Tools that one tenant's hosts may declare in all, remembered ones included.
pub const TOOLS_PER_TENANT_MAX: usize = 4_096;
/// Nesting of any JSON from outside.
pub const JSON_DEPTH_MAX: usize = 64;
/// The arguments of one tool call.
pub const TOOL_ARGUMENTS_BYTES_MAX: usize = 1024 * 1024;
/// What of one tool result reaches the model; the rest stays in the store.
pub const TOOL_RESULT_SHOWN_BYTES_MAX: usize = 256 * 1024;
/// One tool result, whole.
pub const TOOL_RESULT_BYTES_MAX: usize = 3 * 1024 * 1024;
/// A human's answer in a tool's place: it is shown beside the arguments of the call.
pub const ANSWER_IN_PLACE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// What a tool result quotes of arguments that were changed, beside what the tool said.
pub const QUOTED_ARGUMENTS_BYTES_MAX: usize = 4 * 1024;
/// Tool calls in one assistant message.
pub const CALLS_PER_MESSAGE_MAX: usize = 128;
/// Tries of one tool call, whatever their failures.
pub const TOOL_ATTEMPTS_MAX: u32 = 8;
/// The wait that a host may ask for before a failed call's next try.
pub const TOOL_RETRY_DELAY_SECS_MAX: u64 = 60 * 60;
/// Parts of one message.
pub const PARTS_PER_MESSAGE_MAX: usize = 1_024;
/// Rules about tool calls from one place: an agent's configuration, a request, a run's remembered decisions.
pub const POLICY_RULES_MAX: usize = 256;
/// A rule's name.
pub const POLICY_NAME_BYTES_MAX: usize = 256;
/// Patterns of arguments in one rule.
pub const POLICY_ARGUMENTS_MAX: usize = 16;
/// One pattern of a rule.
pub const POLICY_PATTERN_BYTES_MAX: usize = 4 * 1024;
/// All patterns of a rule together, and where they look.
pub const POLICY_RULE_BYTES_MAX: usize = 8 * 1024;
/// Where a rule's pattern looks.
pub const POLICY_POINTER_BYTES_MAX: usize = 1024;
/// Choices of one question.
pub const OPTIONS_MAX: usize = 64;
/// One choice, as people read it.
pub const OPTION_BYTES_MAX: usize = 1024;
/// What a human answers to a question that asks for text.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Questions that one try of a call may ask in all.
pub const INPUTS_PER_CALL_MAX: usize = 16;
/// Questions that a host may send about one try of a call on one connection, repeated ones included.
pub const INPUT_FRAMES_PER_CALL_MAX: u32 = 64;
/// Messages that one run may bring.
pub const INPUT_MESSAGES_MAX: usize = 256;
/// Messages that may wait at a time to enter a run's session.
pub const HELD_MESSAGES_MAX: usize = 512;
/// Runs that may wait at a time for one session.
pub const QUEUED_RUNS_PER_SESSION_MAX: usize = 64;
/// The text of one assistant message, reasoning and tool arguments included.
pub const MODEL_MESSAGE_BYTES_MAX: usize = 3 * 1024 * 1024;
/// State that a provider may attach to one part of an answer. A message's states count against
/// [`MODEL_MESSAGE_BYTES_MAX`] too.
pub const PROVIDER_STATE_BYTES_MAX: usize = 1024 * 1024;
/// One message that a caller brings.
pub const INPUT_MESSAGE_BYTES_MAX: usize = 3 * 1024 * 1024;
/// One answer to a call that lists something: it has fewer rows than asked for where those would be larger.
pub const PAGE_BYTES_MAX: usize = 3 * 1024 * 1024;
/// One gRPC message, in either direction.
pub const GRPC_MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A short text from outside: a reason, a comment, a title.
pub const SHORT_TEXT_BYTES_MAX: usize = 4 * 1024;
/// Labels of a run or session.
pub const LABELS_MAX: usize = 64;
/// The checkpoint that a host attaches to a call's progress.
pub const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;
/// Runtimes that a host may say it has open.
pub const RUNTIMES_PER_HOST_MAX: usize = 1_024;
/// Extensions of one kind that one tenant's hosts may offer in all, remembered ones included.
pub const EXTENSIONS_PER_TENANT_MAX: usize = 256;
/// What a hook may put after the system prompt.
pub const PROMPT_ADDITION_BYTES_MAX: usize = 64 * 1024;
/// The question that a context source is asked.
pub const CONTEXT_QUERY_BYTES_MAX: usize = 64 * 1024;
/// Texts of one context source in one answer.
pub const CONTEXT_ITEMS_MAX: usize = 64;
/// What one context source may give.
pub const CONTEXT_BYTES_MAX: usize = 64 * 1024;
/// What all context sources of a run may give together.
pub const CONTEXT_TOTAL_BYTES_MAX: usize = 256 * 1024;
/// Messages that a planner, or a source that remembers, is shown.
pub const EXTENSION_MESSAGES_BYTES_MAX: usize = 1024 * 1024;

const _: () = assert!(
    MODEL_MESSAGE_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX
        && INPUT_MESSAGE_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX
        && PAGE_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX,
    "whatever is in a journal can be shown to a client with gRPC's usual bound"
);
const _: () = assert!(
    HELD_MESSAGES_MAX >= INPUT_MESSAGES_MAX,
    "what one request brings can be held by a run that holds nothing"
);
const _: () = assert!(
    TOOL_RESULT_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX && TOOL_ARGUMENTS_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX,
    "a call and its result each fit into one frame"
);
const _: () = assert!(
    ANSWER_IN_PLACE_BYTES_MAX + TOOL_ARGUMENTS_BYTES_MAX + POLICY_RULE_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX
        && TOOL_RESULT_BYTES_MAX + QUOTED_ARGUMENTS_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX,
    "a question is shown with its answer, and a result with what it quotes"
);
const _: () = assert!(
    TOOL_RESULT_SHOWN_BYTES_MAX < TOOL_RESULT_BYTES_MAX,
    "cutting a result is what makes the larger bound affordable"
);
const _: () = assert!(
    POLICY_RULES_MAX * (POLICY_RULE_BYTES_MAX + POLICY_PATTERN_BYTES_MAX + POLICY_NAME_BYTES_MAX)
        < GRPC_MESSAGE_BYTES_MAX,
    "a list of all remembered rules fits into one message"
);
