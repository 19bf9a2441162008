//! Bounds on what comes from outside that the contract or several modules share. A bound of one module stands in it. The unit is at
//! the end of each name.
//!
//! No configuration can lift these bounds. Configurable limits stay below them.

/// Size of an id that comes from outside.
pub const ID_BYTES_MAX: usize = 128;
/// Size of a tool's name: the bound of the OpenAI and Anthropic APIs.
pub const TOOL_NAME_BYTES_MAX: usize = 64;
/// Size of a tool's description.
pub const TOOL_DESCRIPTION_BYTES_MAX: usize = 16 * 1024;
/// Number of withdrawn tools that a run's first event names. A rule that denies every tool withdraws all of them.
pub const WITHDRAWN_TOOLS_MAX: usize = 64;
/// Size of the template for the titles of a tool's calls.
pub const TOOL_TITLE_BYTES_MAX: usize = 256;
/// Length of a tool call's title, in characters.
pub const TOOL_TITLE_CHARS_MAX: usize = 200;
/// Size of a tool's JSON schema.
pub const TOOL_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Number of tools that one host may declare.
pub const TOOLS_PER_HOST_MAX: usize = 512;
/// Number of calls that one host may have, and of further calls that its credit may allow.
pub const CALLS_PER_HOST_MAX: usize = 10_000;
/// Size of one piece of a running call's output.
pub const OUTPUT_CHUNK_BYTES_MAX: usize = 64 * 1024;
/// Number of tools of one tenant, including those that no host serves at the moment.
pub const TOOLS_PER_TENANT_MAX: usize = 4_096;
/// Number of tool names of one tenant whose terms are known, whether or not the tool is.
pub const TOOL_TERMS_PER_TENANT_MAX: usize = 65_536;
/// Nesting depth of any JSON from outside.
pub const JSON_DEPTH_MAX: usize = 64;
/// Size of the arguments of one tool call.
pub const TOOL_ARGUMENTS_BYTES_MAX: usize = 1024 * 1024;
/// Size of the part of a tool result that the model reads. The store has the whole result.
pub const TOOL_RESULT_SHOWN_BYTES_MAX: usize = 256 * 1024;
/// Size of one tool result.
pub const TOOL_RESULT_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Number of files of one tool result.
pub const FILES_PER_RESULT_MAX: usize = 64;
/// Number of links of one tool result.
pub const LINKS_PER_RESULT_MAX: usize = 64;
/// Size of one chunk of a blob that is uploaded.
pub const BLOB_CHUNK_BYTES_MAX: usize = 1024 * 1024;
/// Number of uploads and reads of blobs under way at one time.
pub const BLOB_TRANSFERS_MAX: usize = 256;
/// Size of the name and of the media type of a file.
pub const FILE_TEXT_BYTES_MAX: usize = 256;
/// Size of an answer that a person gives in place of a tool. It is sent to clients together with the call's arguments.
pub const ANSWER_IN_PLACE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Size of the quote of edited arguments that is added to a tool result.
pub const QUOTED_ARGUMENTS_BYTES_MAX: usize = 4 * 1024;
/// Number of tool calls in one assistant message.
pub const CALLS_PER_MESSAGE_MAX: usize = 128;
/// Number of tries of one tool call. Attempts that a host rejected as busy, or that ended with an answered question, do not count.
pub const TOOL_ATTEMPTS_MAX: u32 = 8;
/// Wait that a host may request before the next attempt of a failed call.
pub const TOOL_RETRY_DELAY_SECS_MAX: u64 = 60 * 60;
/// Time that a cancelled tool has to stop. A call that must not run twice waits that long for its host's result after
/// its deadline.
pub const CANCEL_GRACE_SECS: u64 = 5;
/// Number of parts of one message.
pub const PARTS_PER_MESSAGE_MAX: usize = 1_024;
/// Number of policy rules from one source: an agent's configuration, a request, or remembered decisions.
pub const POLICY_RULES_MAX: usize = 256;
/// Size of a policy rule's name.
pub const POLICY_NAME_BYTES_MAX: usize = 256;
/// Number of argument patterns in one policy rule.
pub const POLICY_ARGUMENTS_MAX: usize = 16;
/// Size of one pattern of a policy rule.
pub const POLICY_PATTERN_BYTES_MAX: usize = 4 * 1024;
/// Characters between two stars of a pattern, if one of them is `?`: such a piece is looked for everywhere in a text.
pub const POLICY_WILD_PIECE_MAX: usize = 64;
/// Size of all argument patterns of a policy rule together, pointers included.
pub const POLICY_RULE_BYTES_MAX: usize = 8 * 1024;
/// Size of the JSON Pointer of one argument pattern.
pub const POLICY_POINTER_BYTES_MAX: usize = 1024;
/// Most entries in the approvers of a rule.
pub const APPROVERS_MAX: usize = 16;
/// Longest entry in the approvers of a rule, in bytes.
pub const APPROVER_BYTES_MAX: usize = 264;
/// Longest name of a caller, and of a group that it belongs to, in bytes.
pub const CALLER_NAME_BYTES_MAX: usize = 256;
/// Most groups of one caller. The first event of each of its runs keeps them, and each call's request to a host has them.
pub const CALLER_GROUPS_MAX: usize = 64;
/// Most people who must approve one call.
pub const QUORUM_MAX: u32 = 16;
/// Number of options of one question.
pub const OPTIONS_MAX: usize = 64;
/// Size of one option's label.
pub const OPTION_BYTES_MAX: usize = 1024;
/// Size of the answer to a question that asks for text.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Size of the JSON schema of a form.
pub const FORM_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Number of fields of a form.
pub const FORM_FIELDS_MAX: usize = 64;
/// Number of values that a field of a form may choose from.
pub const FORM_CHOICES_MAX: usize = 256;
/// Size of a link that people are asked to visit, and of a link in a result.
pub const LINK_BYTES_MAX: usize = 8 * 1024;
/// Size of what an asker adds to a question for user interfaces.
pub const QUESTION_METADATA_BYTES_MAX: usize = 16 * 1024;
/// Size of one state that a call leaves for its next attempt to go on from.
pub const RESUME_STATE_BYTES_MAX: usize = 64 * 1024;
/// Number of such states that one attempt of a call may report beside its questions: each is a durable write.
pub const RESUME_STATES_PER_ATTEMPT_MAX: u32 = 256;
/// Number of questions that one attempt of a call may ask.
pub const INPUTS_PER_CALL_MAX: usize = 16;
/// Size of the answers to the questions of one call, of all its attempts together: the next attempt gets them in one frame.
pub const INPUT_ANSWERS_PER_CALL_BYTES_MAX: usize = 1024 * 1024;
/// Number of question frames of one attempt of a call on one connection, repeated ones included.
pub const INPUT_FRAMES_PER_CALL_MAX: u32 = 64;
/// Number of items of a to-do list.
pub const TODOS_MAX: usize = 100;
/// Characters of the text of one item of a to-do list.
pub const TODO_CHARS_MAX: usize = 1024;
/// Characters of the id of one item of a to-do list.
pub const TODO_ID_CHARS_MAX: usize = 64;
/// Number of messages that one request may bring.
pub const INPUT_MESSAGES_MAX: usize = 256;
/// Number of messages that one import may bring.
pub const IMPORTED_MESSAGES_MAX: usize = 1_024;
/// Number of messages that may wait for a run's next model call at the same time.
pub const WAITING_MESSAGES_MAX: usize = 512;
/// Number of runs that may wait for one session at the same time.
pub const QUEUED_RUNS_PER_SESSION_MAX: usize = 64;
/// Size of one assistant message, with reasoning and tool arguments.
pub const MODEL_MESSAGE_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Size of the state that a provider may attach to one part of a message. It also counts against
/// [`MODEL_MESSAGE_BYTES_MAX`].
pub const PROVIDER_STATE_BYTES_MAX: usize = 1024 * 1024;
/// Size of one message that a caller brings.
pub const INPUT_MESSAGE_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Size of one page of a list. A page has fewer rows than requested if they would be larger.
pub const PAGE_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Size of one gRPC message, in either direction: gRPC's own default.
pub const GRPC_MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A request to import may have this many times the size of another message: a call and its result come in one request.
pub const IMPORT_TIMES_LARGER: usize = 2;
/// Size of a short text from outside: a reason, a comment, a title.
pub const SHORT_TEXT_BYTES_MAX: usize = 4 * 1024;
/// Number of labels of a run or session.
pub const LABELS_MAX: usize = 64;
/// Size of one checkpoint of a call.
pub const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;
/// Number of open runtimes that a host may name.
pub const RUNTIMES_PER_HOST_MAX: usize = 1_024;
/// Number of extensions of one kind of one tenant, including those that no host offers at the moment.
pub const EXTENSIONS_PER_TENANT_MAX: usize = 256;
/// Size of the text that a hook may add after the system prompt.
pub const PROMPT_ADDITION_BYTES_MAX: usize = 64 * 1024;
/// Size of the query that a context source gets.
pub const CONTEXT_QUERY_BYTES_MAX: usize = 64 * 1024;
/// Number of texts in one response of a context source.
pub const CONTEXT_ITEMS_MAX: usize = 64;
/// Size of one response of a context source.
pub const CONTEXT_BYTES_MAX: usize = 64 * 1024;
/// Size of the responses of all context sources of a run together.
pub const CONTEXT_TOTAL_BYTES_MAX: usize = 256 * 1024;
/// Size of the messages that a planner gets, or a context source that remembers finished runs.
pub const EXTENSION_MESSAGES_BYTES_MAX: usize = 1024 * 1024;

/// Length of the beginning of a message that lists show, in characters.
pub const PREVIEW_CHARS_MAX: usize = 200;
/// Length of the text that a list may be filtered by.
pub const FILTER_TEXT_BYTES_MAX: usize = 256;
/// Number of values of one field that a list may be filtered by.
pub const FILTER_VALUES_MAX: usize = 64;

/// Each of a run's limits on a number: iterations, rounds, failures, messages.
pub const RUN_COUNT_MAX: u32 = 1_000_000;
/// Longest duration of a run, and longest time that a question stays open, in milliseconds: a year.
pub const RUN_MILLIS_MAX: u64 = 365 * 24 * 60 * 60 * 1_000;
/// Longest bound of the first wait before a retry of a model call, in milliseconds: an hour.
pub const INITIAL_BACKOFF_MILLIS_MAX: u64 = 60 * 60 * 1_000;
/// Longest wait before a retry of a model call, in milliseconds: a day.
pub const BACKOFF_MILLIS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// Number of retries of a model call.
pub const MODEL_RETRIES_MAX: u32 = 1_000;
/// Number of texts at which a request lets the model stop.
pub const STOP_TEXTS_MAX: usize = 8;
/// Highest sampling temperature of a request. A provider may take less.
pub const TEMPERATURE_MAX: f64 = 2.0;
/// Number of tokens that a request may allow a model for one response.
pub const OUTPUT_TOKENS_MAX: u32 = 10_000_000;
/// Number of messages at the end that a compaction may be told to keep.
pub const KEEP_RECENT_MAX: u32 = 10_000;

const _: () = assert!(
    MODEL_MESSAGE_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX
        && INPUT_MESSAGE_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX
        && PAGE_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX,
    "everything in a journal fits into one gRPC message of the default size"
);
const _: () = assert!(
    MODEL_MESSAGE_BYTES_MAX + TOOL_RESULT_BYTES_MAX + QUOTED_ARGUMENTS_BYTES_MAX + SHORT_TEXT_BYTES_MAX
        < IMPORT_TIMES_LARGER * GRPC_MESSAGE_BYTES_MAX,
    "a call and its result can be imported together"
);
const _: () = assert!(
    WAITING_MESSAGES_MAX >= INPUT_MESSAGES_MAX,
    "the messages of one request can wait for a run that has none waiting"
);
const _: () = assert!(
    TOOL_RESULT_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX && TOOL_ARGUMENTS_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX,
    "a call and its result each fit into one frame"
);
const _: () = assert!(
    INPUT_ANSWERS_PER_CALL_BYTES_MAX
        + TOOL_ARGUMENTS_BYTES_MAX
        + CHECKPOINT_BYTES_MAX
        + RESUME_STATE_BYTES_MAX
        + CALLER_GROUPS_MAX * CALLER_NAME_BYTES_MAX
        < GRPC_MESSAGE_BYTES_MAX,
    "a call fits with the answers that it got into one frame"
);
const _: () = assert!(
    ANSWER_IN_PLACE_BYTES_MAX + TOOL_ARGUMENTS_BYTES_MAX + POLICY_RULE_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX
        && TOOL_RESULT_BYTES_MAX + QUOTED_ARGUMENTS_BYTES_MAX < GRPC_MESSAGE_BYTES_MAX,
    "a question fits with its answer, and a result with its quote"
);
const _: () = assert!(
    TOOL_RESULT_SHOWN_BYTES_MAX < TOOL_RESULT_BYTES_MAX,
    "the model reads less of a result than the store keeps"
);
const _: () = assert!(
    POLICY_RULES_MAX * (POLICY_RULE_BYTES_MAX + POLICY_PATTERN_BYTES_MAX + POLICY_NAME_BYTES_MAX)
        < GRPC_MESSAGE_BYTES_MAX,
    "a list of all remembered rules fits into one message"
);

/// Rows of usage that one response may have.
pub const USAGE_ROWS_MAX: usize = 10_000;

/// Bytes of a host's text about its state. The server cuts off the rest.
pub const HOST_STATUS_BYTES_MAX: usize = 1_024;
