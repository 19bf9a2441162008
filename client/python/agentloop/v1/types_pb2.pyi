import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_SYSTEM: _ClassVar[Role]
    ROLE_USER: _ClassVar[Role]
    ROLE_ASSISTANT: _ClassVar[Role]
    ROLE_TOOL: _ClassVar[Role]

class ToolStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_STATUS_UNSPECIFIED: _ClassVar[ToolStatus]
    TOOL_STATUS_SUCCEEDED: _ClassVar[ToolStatus]
    TOOL_STATUS_FAILED: _ClassVar[ToolStatus]
    TOOL_STATUS_REJECTED: _ClassVar[ToolStatus]
    TOOL_STATUS_DENIED: _ClassVar[ToolStatus]
    TOOL_STATUS_ANSWERED: _ClassVar[ToolStatus]
    TOOL_STATUS_ABORTED: _ClassVar[ToolStatus]
    TOOL_STATUS_TIMED_OUT: _ClassVar[ToolStatus]
    TOOL_STATUS_UNAVAILABLE: _ClassVar[ToolStatus]
    TOOL_STATUS_OUTCOME_UNKNOWN: _ClassVar[ToolStatus]

class ToolCallState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_CALL_STATE_UNSPECIFIED: _ClassVar[ToolCallState]
    TOOL_CALL_STATE_READY: _ClassVar[ToolCallState]
    TOOL_CALL_STATE_AWAITING_APPROVAL: _ClassVar[ToolCallState]
    TOOL_CALL_STATE_OFFERED: _ClassVar[ToolCallState]
    TOOL_CALL_STATE_ACCEPTED: _ClassVar[ToolCallState]
    TOOL_CALL_STATE_IN_DOUBT: _ClassVar[ToolCallState]
    TOOL_CALL_STATE_SETTLED: _ClassVar[ToolCallState]
    TOOL_CALL_STATE_AWAITING_INPUT: _ClassVar[ToolCallState]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_TOOL_CALLS: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_CONTENT_FILTER: _ClassVar[FinishReason]
    FINISH_REASON_REFUSAL: _ClassVar[FinishReason]
    FINISH_REASON_OTHER: _ClassVar[FinishReason]
    FINISH_REASON_CUT_OFF: _ClassVar[FinishReason]

class RunStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATUS_UNSPECIFIED: _ClassVar[RunStatus]
    RUN_STATUS_QUEUED: _ClassVar[RunStatus]
    RUN_STATUS_PREPARING: _ClassVar[RunStatus]
    RUN_STATUS_MODEL_RUNNING: _ClassVar[RunStatus]
    RUN_STATUS_TOOL_RUNNING: _ClassVar[RunStatus]
    RUN_STATUS_AWAITING_HUMAN: _ClassVar[RunStatus]
    RUN_STATUS_BACKING_OFF: _ClassVar[RunStatus]
    RUN_STATUS_COMPACTING: _ClassVar[RunStatus]
    RUN_STATUS_PAUSED: _ClassVar[RunStatus]
    RUN_STATUS_COMPLETED: _ClassVar[RunStatus]
    RUN_STATUS_FAILED: _ClassVar[RunStatus]
    RUN_STATUS_ABORTED: _ClassVar[RunStatus]

class LoopPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOOP_PHASE_UNSPECIFIED: _ClassVar[LoopPhase]
    LOOP_PHASE_INIT: _ClassVar[LoopPhase]
    LOOP_PHASE_PLANNING: _ClassVar[LoopPhase]
    LOOP_PHASE_EXECUTING: _ClassVar[LoopPhase]
    LOOP_PHASE_OBSERVING: _ClassVar[LoopPhase]
    LOOP_PHASE_COMPACTING: _ClassVar[LoopPhase]
    LOOP_PHASE_COMPLETED: _ClassVar[LoopPhase]
    LOOP_PHASE_FAILED: _ClassVar[LoopPhase]

class ProcessState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROCESS_STATE_UNSPECIFIED: _ClassVar[ProcessState]
    PROCESS_STATE_IDLE: _ClassVar[ProcessState]
    PROCESS_STATE_CALLING: _ClassVar[ProcessState]
    PROCESS_STATE_STREAMING: _ClassVar[ProcessState]
    PROCESS_STATE_TOOL_EXECUTING: _ClassVar[ProcessState]
    PROCESS_STATE_RETRYING: _ClassVar[ProcessState]
    PROCESS_STATE_SUCCESS: _ClassVar[ProcessState]
    PROCESS_STATE_ERROR: _ClassVar[ProcessState]

class RunErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_ERROR_CODE_UNSPECIFIED: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_MODEL_CONNECTION: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_MODEL_TIMEOUT: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_MODEL_RATE_LIMITED: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_MODEL_UNAVAILABLE: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_MODEL_MALFORMED: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_CONTEXT_OVERFLOW: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_MODEL_BAD_REQUEST: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_MODEL_UNAUTHORIZED: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_MODEL_TOO_LARGE: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_MODEL_REFUSED: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_CONTENT_FILTERED: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_LIMIT_ITERATIONS: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_LIMIT_TOOL_ROUNDS: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_LIMIT_TOOL_CALLS: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_LIMIT_DURATION: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_LIMIT_TOKENS: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_LIMIT_COST: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_LIMIT_CONSECUTIVE_FAILURES: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_LIMIT_REPEATED_CALLS: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_ABORTED_BY_CALLER: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_ABORTED_BY_DISCONNECT: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_ABORTED_BY_DENIAL: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_INTERNAL: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_EXTENSION_FAILED: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_LIMIT_MEMORY: _ClassVar[RunErrorCode]
    RUN_ERROR_CODE_MODEL_NOT_CONFIGURED: _ClassVar[RunErrorCode]

class PolicyAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POLICY_ACTION_UNSPECIFIED: _ClassVar[PolicyAction]
    POLICY_ACTION_ALLOW: _ClassVar[PolicyAction]
    POLICY_ACTION_ASK: _ClassVar[PolicyAction]
    POLICY_ACTION_DENY: _ClassVar[PolicyAction]

class ToolChoiceMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_CHOICE_MODE_UNSPECIFIED: _ClassVar[ToolChoiceMode]
    TOOL_CHOICE_MODE_AUTO: _ClassVar[ToolChoiceMode]
    TOOL_CHOICE_MODE_NONE: _ClassVar[ToolChoiceMode]
    TOOL_CHOICE_MODE_REQUIRED: _ClassVar[ToolChoiceMode]

class ReasoningEffort(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASONING_EFFORT_UNSPECIFIED: _ClassVar[ReasoningEffort]
    REASONING_EFFORT_NONE: _ClassVar[ReasoningEffort]
    REASONING_EFFORT_LOW: _ClassVar[ReasoningEffort]
    REASONING_EFFORT_MEDIUM: _ClassVar[ReasoningEffort]
    REASONING_EFFORT_HIGH: _ClassVar[ReasoningEffort]

class EffectClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EFFECT_CLASS_UNSPECIFIED: _ClassVar[EffectClass]
    EFFECT_CLASS_READ_ONLY: _ClassVar[EffectClass]
    EFFECT_CLASS_IDEMPOTENT: _ClassVar[EffectClass]
    EFFECT_CLASS_KEYED: _ClassVar[EffectClass]
    EFFECT_CLASS_UNSAFE: _ClassVar[EffectClass]

class HumanRequestKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HUMAN_REQUEST_KIND_UNSPECIFIED: _ClassVar[HumanRequestKind]
    HUMAN_REQUEST_KIND_APPROVE: _ClassVar[HumanRequestKind]
    HUMAN_REQUEST_KIND_IN_DOUBT: _ClassVar[HumanRequestKind]
    HUMAN_REQUEST_KIND_PROMPT: _ClassVar[HumanRequestKind]
    HUMAN_REQUEST_KIND_SELECT: _ClassVar[HumanRequestKind]
    HUMAN_REQUEST_KIND_FORM: _ClassVar[HumanRequestKind]
    HUMAN_REQUEST_KIND_URL: _ClassVar[HumanRequestKind]

class UrlOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    URL_OUTCOME_UNSPECIFIED: _ClassVar[UrlOutcome]
    URL_OUTCOME_DONE: _ClassVar[UrlOutcome]
    URL_OUTCOME_NOT_DONE: _ClassVar[UrlOutcome]

class TodoStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TODO_STATUS_UNSPECIFIED: _ClassVar[TodoStatus]
    TODO_STATUS_PENDING: _ClassVar[TodoStatus]
    TODO_STATUS_IN_PROGRESS: _ClassVar[TodoStatus]
    TODO_STATUS_COMPLETED: _ClassVar[TodoStatus]
    TODO_STATUS_CANCELLED: _ClassVar[TodoStatus]

class TodoPriority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TODO_PRIORITY_UNSPECIFIED: _ClassVar[TodoPriority]
    TODO_PRIORITY_LOW: _ClassVar[TodoPriority]
    TODO_PRIORITY_MEDIUM: _ClassVar[TodoPriority]
    TODO_PRIORITY_HIGH: _ClassVar[TodoPriority]
ROLE_UNSPECIFIED: Role
ROLE_SYSTEM: Role
ROLE_USER: Role
ROLE_ASSISTANT: Role
ROLE_TOOL: Role
TOOL_STATUS_UNSPECIFIED: ToolStatus
TOOL_STATUS_SUCCEEDED: ToolStatus
TOOL_STATUS_FAILED: ToolStatus
TOOL_STATUS_REJECTED: ToolStatus
TOOL_STATUS_DENIED: ToolStatus
TOOL_STATUS_ANSWERED: ToolStatus
TOOL_STATUS_ABORTED: ToolStatus
TOOL_STATUS_TIMED_OUT: ToolStatus
TOOL_STATUS_UNAVAILABLE: ToolStatus
TOOL_STATUS_OUTCOME_UNKNOWN: ToolStatus
TOOL_CALL_STATE_UNSPECIFIED: ToolCallState
TOOL_CALL_STATE_READY: ToolCallState
TOOL_CALL_STATE_AWAITING_APPROVAL: ToolCallState
TOOL_CALL_STATE_OFFERED: ToolCallState
TOOL_CALL_STATE_ACCEPTED: ToolCallState
TOOL_CALL_STATE_IN_DOUBT: ToolCallState
TOOL_CALL_STATE_SETTLED: ToolCallState
TOOL_CALL_STATE_AWAITING_INPUT: ToolCallState
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_TOOL_CALLS: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_CONTENT_FILTER: FinishReason
FINISH_REASON_REFUSAL: FinishReason
FINISH_REASON_OTHER: FinishReason
FINISH_REASON_CUT_OFF: FinishReason
RUN_STATUS_UNSPECIFIED: RunStatus
RUN_STATUS_QUEUED: RunStatus
RUN_STATUS_PREPARING: RunStatus
RUN_STATUS_MODEL_RUNNING: RunStatus
RUN_STATUS_TOOL_RUNNING: RunStatus
RUN_STATUS_AWAITING_HUMAN: RunStatus
RUN_STATUS_BACKING_OFF: RunStatus
RUN_STATUS_COMPACTING: RunStatus
RUN_STATUS_PAUSED: RunStatus
RUN_STATUS_COMPLETED: RunStatus
RUN_STATUS_FAILED: RunStatus
RUN_STATUS_ABORTED: RunStatus
LOOP_PHASE_UNSPECIFIED: LoopPhase
LOOP_PHASE_INIT: LoopPhase
LOOP_PHASE_PLANNING: LoopPhase
LOOP_PHASE_EXECUTING: LoopPhase
LOOP_PHASE_OBSERVING: LoopPhase
LOOP_PHASE_COMPACTING: LoopPhase
LOOP_PHASE_COMPLETED: LoopPhase
LOOP_PHASE_FAILED: LoopPhase
PROCESS_STATE_UNSPECIFIED: ProcessState
PROCESS_STATE_IDLE: ProcessState
PROCESS_STATE_CALLING: ProcessState
PROCESS_STATE_STREAMING: ProcessState
PROCESS_STATE_TOOL_EXECUTING: ProcessState
PROCESS_STATE_RETRYING: ProcessState
PROCESS_STATE_SUCCESS: ProcessState
PROCESS_STATE_ERROR: ProcessState
RUN_ERROR_CODE_UNSPECIFIED: RunErrorCode
RUN_ERROR_CODE_MODEL_CONNECTION: RunErrorCode
RUN_ERROR_CODE_MODEL_TIMEOUT: RunErrorCode
RUN_ERROR_CODE_MODEL_RATE_LIMITED: RunErrorCode
RUN_ERROR_CODE_MODEL_UNAVAILABLE: RunErrorCode
RUN_ERROR_CODE_MODEL_MALFORMED: RunErrorCode
RUN_ERROR_CODE_CONTEXT_OVERFLOW: RunErrorCode
RUN_ERROR_CODE_MODEL_BAD_REQUEST: RunErrorCode
RUN_ERROR_CODE_MODEL_UNAUTHORIZED: RunErrorCode
RUN_ERROR_CODE_MODEL_TOO_LARGE: RunErrorCode
RUN_ERROR_CODE_MODEL_REFUSED: RunErrorCode
RUN_ERROR_CODE_CONTENT_FILTERED: RunErrorCode
RUN_ERROR_CODE_LIMIT_ITERATIONS: RunErrorCode
RUN_ERROR_CODE_LIMIT_TOOL_ROUNDS: RunErrorCode
RUN_ERROR_CODE_LIMIT_TOOL_CALLS: RunErrorCode
RUN_ERROR_CODE_LIMIT_DURATION: RunErrorCode
RUN_ERROR_CODE_LIMIT_TOKENS: RunErrorCode
RUN_ERROR_CODE_LIMIT_COST: RunErrorCode
RUN_ERROR_CODE_LIMIT_CONSECUTIVE_FAILURES: RunErrorCode
RUN_ERROR_CODE_LIMIT_REPEATED_CALLS: RunErrorCode
RUN_ERROR_CODE_ABORTED_BY_CALLER: RunErrorCode
RUN_ERROR_CODE_ABORTED_BY_DISCONNECT: RunErrorCode
RUN_ERROR_CODE_ABORTED_BY_DENIAL: RunErrorCode
RUN_ERROR_CODE_INTERNAL: RunErrorCode
RUN_ERROR_CODE_EXTENSION_FAILED: RunErrorCode
RUN_ERROR_CODE_LIMIT_MEMORY: RunErrorCode
RUN_ERROR_CODE_MODEL_NOT_CONFIGURED: RunErrorCode
POLICY_ACTION_UNSPECIFIED: PolicyAction
POLICY_ACTION_ALLOW: PolicyAction
POLICY_ACTION_ASK: PolicyAction
POLICY_ACTION_DENY: PolicyAction
TOOL_CHOICE_MODE_UNSPECIFIED: ToolChoiceMode
TOOL_CHOICE_MODE_AUTO: ToolChoiceMode
TOOL_CHOICE_MODE_NONE: ToolChoiceMode
TOOL_CHOICE_MODE_REQUIRED: ToolChoiceMode
REASONING_EFFORT_UNSPECIFIED: ReasoningEffort
REASONING_EFFORT_NONE: ReasoningEffort
REASONING_EFFORT_LOW: ReasoningEffort
REASONING_EFFORT_MEDIUM: ReasoningEffort
REASONING_EFFORT_HIGH: ReasoningEffort
EFFECT_CLASS_UNSPECIFIED: EffectClass
EFFECT_CLASS_READ_ONLY: EffectClass
EFFECT_CLASS_IDEMPOTENT: EffectClass
EFFECT_CLASS_KEYED: EffectClass
EFFECT_CLASS_UNSAFE: EffectClass
HUMAN_REQUEST_KIND_UNSPECIFIED: HumanRequestKind
HUMAN_REQUEST_KIND_APPROVE: HumanRequestKind
HUMAN_REQUEST_KIND_IN_DOUBT: HumanRequestKind
HUMAN_REQUEST_KIND_PROMPT: HumanRequestKind
HUMAN_REQUEST_KIND_SELECT: HumanRequestKind
HUMAN_REQUEST_KIND_FORM: HumanRequestKind
HUMAN_REQUEST_KIND_URL: HumanRequestKind
URL_OUTCOME_UNSPECIFIED: UrlOutcome
URL_OUTCOME_DONE: UrlOutcome
URL_OUTCOME_NOT_DONE: UrlOutcome
TODO_STATUS_UNSPECIFIED: TodoStatus
TODO_STATUS_PENDING: TodoStatus
TODO_STATUS_IN_PROGRESS: TodoStatus
TODO_STATUS_COMPLETED: TodoStatus
TODO_STATUS_CANCELLED: TodoStatus
TODO_PRIORITY_UNSPECIFIED: TodoPriority
TODO_PRIORITY_LOW: TodoPriority
TODO_PRIORITY_MEDIUM: TodoPriority
TODO_PRIORITY_HIGH: TodoPriority

class Message(_message.Message):
    __slots__ = ("role", "parts")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    role: Role
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    def __init__(self, role: _Optional[_Union[Role, str]] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("text", "reasoning", "image", "tool_call", "tool_result")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    TOOL_RESULT_FIELD_NUMBER: _ClassVar[int]
    text: str
    reasoning: Reasoning
    image: Image
    tool_call: ToolCall
    tool_result: ToolResult
    def __init__(self, text: _Optional[str] = ..., reasoning: _Optional[_Union[Reasoning, _Mapping]] = ..., image: _Optional[_Union[Image, _Mapping]] = ..., tool_call: _Optional[_Union[ToolCall, _Mapping]] = ..., tool_result: _Optional[_Union[ToolResult, _Mapping]] = ...) -> None: ...

class Reasoning(_message.Message):
    __slots__ = ("text", "redacted")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REDACTED_FIELD_NUMBER: _ClassVar[int]
    text: str
    redacted: bool
    def __init__(self, text: _Optional[str] = ..., redacted: _Optional[bool] = ...) -> None: ...

class Image(_message.Message):
    __slots__ = ("url", "data", "media_type")
    URL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    url: str
    data: bytes
    media_type: str
    def __init__(self, url: _Optional[str] = ..., data: _Optional[bytes] = ..., media_type: _Optional[str] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("call_id", "name", "arguments_json", "title")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    name: str
    arguments_json: str
    title: str
    def __init__(self, call_id: _Optional[str] = ..., name: _Optional[str] = ..., arguments_json: _Optional[str] = ..., title: _Optional[str] = ...) -> None: ...

class ToolResult(_message.Message):
    __slots__ = ("call_id", "name", "status", "output", "images", "structured_json", "files", "links")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    STRUCTURED_JSON_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    name: str
    status: ToolStatus
    output: str
    images: _containers.RepeatedCompositeFieldContainer[Image]
    structured_json: str
    files: _containers.RepeatedCompositeFieldContainer[FileContent]
    links: _containers.RepeatedCompositeFieldContainer[Link]
    def __init__(self, call_id: _Optional[str] = ..., name: _Optional[str] = ..., status: _Optional[_Union[ToolStatus, str]] = ..., output: _Optional[str] = ..., images: _Optional[_Iterable[_Union[Image, _Mapping]]] = ..., structured_json: _Optional[str] = ..., files: _Optional[_Iterable[_Union[FileContent, _Mapping]]] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ...) -> None: ...

class FileContent(_message.Message):
    __slots__ = ("name", "media_type", "size_bytes", "data", "blob_digest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    BLOB_DIGEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    media_type: str
    size_bytes: int
    data: bytes
    blob_digest: str
    def __init__(self, name: _Optional[str] = ..., media_type: _Optional[str] = ..., size_bytes: _Optional[int] = ..., data: _Optional[bytes] = ..., blob_digest: _Optional[str] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("url", "title")
    URL_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    url: str
    title: str
    def __init__(self, url: _Optional[str] = ..., title: _Optional[str] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens", "cost_micros")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_WRITE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_micros: int
    def __init__(self, input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., cached_input_tokens: _Optional[int] = ..., cache_write_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ..., cost_micros: _Optional[int] = ...) -> None: ...

class RunDurations(_message.Message):
    __slots__ = ("total", "model", "tools")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    total: _duration_pb2.Duration
    model: _duration_pb2.Duration
    tools: _duration_pb2.Duration
    def __init__(self, total: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., model: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., tools: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RunError(_message.Message):
    __slots__ = ("code", "message", "http_status")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    code: RunErrorCode
    message: str
    http_status: int
    def __init__(self, code: _Optional[_Union[RunErrorCode, str]] = ..., message: _Optional[str] = ..., http_status: _Optional[int] = ...) -> None: ...

class ToolPolicy(_message.Message):
    __slots__ = ("enabled", "allow_list", "max_parallel", "max_calls_per_run", "require_approval_by_default", "rules", "ask_human", "todos")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    ALLOW_LIST_FIELD_NUMBER: _ClassVar[int]
    MAX_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    MAX_CALLS_PER_RUN_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_APPROVAL_BY_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    ASK_HUMAN_FIELD_NUMBER: _ClassVar[int]
    TODOS_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    allow_list: ToolNames
    max_parallel: int
    max_calls_per_run: int
    require_approval_by_default: bool
    rules: PolicyRules
    ask_human: bool
    todos: bool
    def __init__(self, enabled: _Optional[bool] = ..., allow_list: _Optional[_Union[ToolNames, _Mapping]] = ..., max_parallel: _Optional[int] = ..., max_calls_per_run: _Optional[int] = ..., require_approval_by_default: _Optional[bool] = ..., rules: _Optional[_Union[PolicyRules, _Mapping]] = ..., ask_human: _Optional[bool] = ..., todos: _Optional[bool] = ...) -> None: ...

class PolicyRules(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[PolicyRule]
    def __init__(self, rules: _Optional[_Iterable[_Union[PolicyRule, _Mapping]]] = ...) -> None: ...

class PolicyRule(_message.Message):
    __slots__ = ("name", "action", "tool", "arguments", "approvers", "forbid_requester", "quorum")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    APPROVERS_FIELD_NUMBER: _ClassVar[int]
    FORBID_REQUESTER_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FIELD_NUMBER: _ClassVar[int]
    name: str
    action: PolicyAction
    tool: str
    arguments: _containers.RepeatedCompositeFieldContainer[ArgumentPattern]
    approvers: _containers.RepeatedScalarFieldContainer[str]
    forbid_requester: bool
    quorum: int
    def __init__(self, name: _Optional[str] = ..., action: _Optional[_Union[PolicyAction, str]] = ..., tool: _Optional[str] = ..., arguments: _Optional[_Iterable[_Union[ArgumentPattern, _Mapping]]] = ..., approvers: _Optional[_Iterable[str]] = ..., forbid_requester: _Optional[bool] = ..., quorum: _Optional[int] = ...) -> None: ...

class ArgumentPattern(_message.Message):
    __slots__ = ("pointer", "pattern")
    POINTER_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    pointer: str
    pattern: str
    def __init__(self, pointer: _Optional[str] = ..., pattern: _Optional[str] = ...) -> None: ...

class ContextPolicy(_message.Message):
    __slots__ = ("max_messages", "max_tokens", "strategy", "keep_recent", "summary_model")
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    KEEP_RECENT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_MODEL_FIELD_NUMBER: _ClassVar[int]
    max_messages: int
    max_tokens: int
    strategy: str
    keep_recent: int
    summary_model: str
    def __init__(self, max_messages: _Optional[int] = ..., max_tokens: _Optional[int] = ..., strategy: _Optional[str] = ..., keep_recent: _Optional[int] = ..., summary_model: _Optional[str] = ...) -> None: ...

class InstructionFile(_message.Message):
    __slots__ = ("path", "content")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    path: str
    content: str
    def __init__(self, path: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class Names(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class Instruction(_message.Message):
    __slots__ = ("call_model", "call_tools", "request_human_approve", "request_human_prompt", "request_human_select", "compact", "finish", "request_human_form", "request_human_url")
    CALL_MODEL_FIELD_NUMBER: _ClassVar[int]
    CALL_TOOLS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_HUMAN_APPROVE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_HUMAN_PROMPT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_HUMAN_SELECT_FIELD_NUMBER: _ClassVar[int]
    COMPACT_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    REQUEST_HUMAN_FORM_FIELD_NUMBER: _ClassVar[int]
    REQUEST_HUMAN_URL_FIELD_NUMBER: _ClassVar[int]
    call_model: CallModelInstruction
    call_tools: CallToolsInstruction
    request_human_approve: RequestApprovalInstruction
    request_human_prompt: RequestPromptInstruction
    request_human_select: RequestSelectInstruction
    compact: CompactInstruction
    finish: FinishInstruction
    request_human_form: RequestFormInstruction
    request_human_url: RequestUrlInstruction
    def __init__(self, call_model: _Optional[_Union[CallModelInstruction, _Mapping]] = ..., call_tools: _Optional[_Union[CallToolsInstruction, _Mapping]] = ..., request_human_approve: _Optional[_Union[RequestApprovalInstruction, _Mapping]] = ..., request_human_prompt: _Optional[_Union[RequestPromptInstruction, _Mapping]] = ..., request_human_select: _Optional[_Union[RequestSelectInstruction, _Mapping]] = ..., compact: _Optional[_Union[CompactInstruction, _Mapping]] = ..., finish: _Optional[_Union[FinishInstruction, _Mapping]] = ..., request_human_form: _Optional[_Union[RequestFormInstruction, _Mapping]] = ..., request_human_url: _Optional[_Union[RequestUrlInstruction, _Mapping]] = ...) -> None: ...

class CallModelInstruction(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CallToolsInstruction(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RequestApprovalInstruction(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RequestPromptInstruction(_message.Message):
    __slots__ = ("question", "metadata_json")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    question: str
    metadata_json: str
    def __init__(self, question: _Optional[str] = ..., metadata_json: _Optional[str] = ...) -> None: ...

class RequestSelectInstruction(_message.Message):
    __slots__ = ("question", "options", "multiple", "metadata_json")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    question: str
    options: _containers.RepeatedCompositeFieldContainer[SelectOption]
    multiple: bool
    metadata_json: str
    def __init__(self, question: _Optional[str] = ..., options: _Optional[_Iterable[_Union[SelectOption, _Mapping]]] = ..., multiple: _Optional[bool] = ..., metadata_json: _Optional[str] = ...) -> None: ...

class RequestFormInstruction(_message.Message):
    __slots__ = ("question", "form_schema_json", "metadata_json")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    FORM_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    question: str
    form_schema_json: str
    metadata_json: str
    def __init__(self, question: _Optional[str] = ..., form_schema_json: _Optional[str] = ..., metadata_json: _Optional[str] = ...) -> None: ...

class RequestUrlInstruction(_message.Message):
    __slots__ = ("question", "url", "metadata_json")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    question: str
    url: str
    metadata_json: str
    def __init__(self, question: _Optional[str] = ..., url: _Optional[str] = ..., metadata_json: _Optional[str] = ...) -> None: ...

class CompactInstruction(_message.Message):
    __slots__ = ("strategy",)
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    strategy: str
    def __init__(self, strategy: _Optional[str] = ...) -> None: ...

class FinishInstruction(_message.Message):
    __slots__ = ("failure",)
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    failure: str
    def __init__(self, failure: _Optional[str] = ...) -> None: ...

class ToolNames(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class LoopLimits(_message.Message):
    __slots__ = ("max_iterations", "max_tool_rounds", "max_run_duration", "max_tokens", "max_cost_micros", "max_consecutive_failures", "max_repeated_calls")
    MAX_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOOL_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    MAX_RUN_DURATION_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONSECUTIVE_FAILURES_FIELD_NUMBER: _ClassVar[int]
    MAX_REPEATED_CALLS_FIELD_NUMBER: _ClassVar[int]
    max_iterations: int
    max_tool_rounds: int
    max_run_duration: _duration_pb2.Duration
    max_tokens: int
    max_cost_micros: int
    max_consecutive_failures: int
    max_repeated_calls: int
    def __init__(self, max_iterations: _Optional[int] = ..., max_tool_rounds: _Optional[int] = ..., max_run_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_tokens: _Optional[int] = ..., max_cost_micros: _Optional[int] = ..., max_consecutive_failures: _Optional[int] = ..., max_repeated_calls: _Optional[int] = ...) -> None: ...

class RetryPolicy(_message.Message):
    __slots__ = ("max_retries", "initial_backoff", "max_backoff", "pause_when_exhausted")
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    INITIAL_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    MAX_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    PAUSE_WHEN_EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    max_retries: int
    initial_backoff: _duration_pb2.Duration
    max_backoff: _duration_pb2.Duration
    pause_when_exhausted: bool
    def __init__(self, max_retries: _Optional[int] = ..., initial_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., pause_when_exhausted: _Optional[bool] = ...) -> None: ...

class ModelOptions(_message.Message):
    __slots__ = ("temperature", "top_p", "max_output_tokens", "stop", "tool_choice", "reasoning_effort", "response_schema", "provider_options_json")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    REASONING_EFFORT_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_OPTIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    max_output_tokens: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    tool_choice: ToolChoice
    reasoning_effort: ReasoningEffort
    response_schema: ResponseSchema
    provider_options_json: str
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., max_output_tokens: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., tool_choice: _Optional[_Union[ToolChoice, _Mapping]] = ..., reasoning_effort: _Optional[_Union[ReasoningEffort, str]] = ..., response_schema: _Optional[_Union[ResponseSchema, _Mapping]] = ..., provider_options_json: _Optional[str] = ...) -> None: ...

class ToolChoice(_message.Message):
    __slots__ = ("mode", "name")
    MODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    mode: ToolChoiceMode
    name: str
    def __init__(self, mode: _Optional[_Union[ToolChoiceMode, str]] = ..., name: _Optional[str] = ...) -> None: ...

class ResponseSchema(_message.Message):
    __slots__ = ("name", "schema_json", "strict")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    name: str
    schema_json: str
    strict: bool
    def __init__(self, name: _Optional[str] = ..., schema_json: _Optional[str] = ..., strict: _Optional[bool] = ...) -> None: ...

class ToolDeclaration(_message.Message):
    __slots__ = ("name", "description", "input_schema_json", "effect", "requires_approval", "requires_runtime", "timeout", "max_concurrency", "streams_output", "title", "deadline_is_outcome", "output_schema_json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_APPROVAL_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_RUNTIME_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    STREAMS_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_IS_OUTCOME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    input_schema_json: str
    effect: EffectClass
    requires_approval: bool
    requires_runtime: bool
    timeout: _duration_pb2.Duration
    max_concurrency: int
    streams_output: bool
    title: str
    deadline_is_outcome: bool
    output_schema_json: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., input_schema_json: _Optional[str] = ..., effect: _Optional[_Union[EffectClass, str]] = ..., requires_approval: _Optional[bool] = ..., requires_runtime: _Optional[bool] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_concurrency: _Optional[int] = ..., streams_output: _Optional[bool] = ..., title: _Optional[str] = ..., deadline_is_outcome: _Optional[bool] = ..., output_schema_json: _Optional[str] = ...) -> None: ...

class HumanRequest(_message.Message):
    __slots__ = ("request_id", "kind", "run_id", "session_id", "call_id", "tool", "arguments_json", "digest", "question", "options", "multiple", "created_at", "expires_at", "answer", "suggested_rule", "input_id", "form_schema_json", "url", "allow_empty", "metadata_json", "terms_digest", "approvers", "quorum", "partial_approvals", "forbid_requester")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_RULE_FIELD_NUMBER: _ClassVar[int]
    INPUT_ID_FIELD_NUMBER: _ClassVar[int]
    FORM_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EMPTY_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    TERMS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    APPROVERS_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_APPROVALS_FIELD_NUMBER: _ClassVar[int]
    FORBID_REQUESTER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    kind: HumanRequestKind
    run_id: str
    session_id: str
    call_id: str
    tool: str
    arguments_json: str
    digest: str
    question: str
    options: _containers.RepeatedCompositeFieldContainer[SelectOption]
    multiple: bool
    created_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    answer: HumanAnswer
    suggested_rule: PolicyRule
    input_id: str
    form_schema_json: str
    url: str
    allow_empty: bool
    metadata_json: str
    terms_digest: str
    approvers: _containers.RepeatedScalarFieldContainer[str]
    quorum: int
    partial_approvals: _containers.RepeatedCompositeFieldContainer[PartialApproval]
    forbid_requester: bool
    def __init__(self, request_id: _Optional[str] = ..., kind: _Optional[_Union[HumanRequestKind, str]] = ..., run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., call_id: _Optional[str] = ..., tool: _Optional[str] = ..., arguments_json: _Optional[str] = ..., digest: _Optional[str] = ..., question: _Optional[str] = ..., options: _Optional[_Iterable[_Union[SelectOption, _Mapping]]] = ..., multiple: _Optional[bool] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., answer: _Optional[_Union[HumanAnswer, _Mapping]] = ..., suggested_rule: _Optional[_Union[PolicyRule, _Mapping]] = ..., input_id: _Optional[str] = ..., form_schema_json: _Optional[str] = ..., url: _Optional[str] = ..., allow_empty: _Optional[bool] = ..., metadata_json: _Optional[str] = ..., terms_digest: _Optional[str] = ..., approvers: _Optional[_Iterable[str]] = ..., quorum: _Optional[int] = ..., partial_approvals: _Optional[_Iterable[_Union[PartialApproval, _Mapping]]] = ..., forbid_requester: _Optional[bool] = ...) -> None: ...

class PartialApproval(_message.Message):
    __slots__ = ("decided_by", "decided_at")
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    DECIDED_AT_FIELD_NUMBER: _ClassVar[int]
    decided_by: str
    decided_at: _timestamp_pb2.Timestamp
    def __init__(self, decided_by: _Optional[str] = ..., decided_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SelectOption(_message.Message):
    __slots__ = ("id", "label")
    ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    id: str
    label: str
    def __init__(self, id: _Optional[str] = ..., label: _Optional[str] = ...) -> None: ...

class HumanAnswer(_message.Message):
    __slots__ = ("decision", "decided_by", "decided_at", "input", "remembered_rule", "applied_rule")
    DECISION_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    DECIDED_AT_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    REMEMBERED_RULE_FIELD_NUMBER: _ClassVar[int]
    APPLIED_RULE_FIELD_NUMBER: _ClassVar[int]
    decision: Decision
    decided_by: str
    decided_at: _timestamp_pb2.Timestamp
    input: HumanInput
    remembered_rule: PolicyRule
    applied_rule: PolicyRule
    def __init__(self, decision: _Optional[_Union[Decision, _Mapping]] = ..., decided_by: _Optional[str] = ..., decided_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., input: _Optional[_Union[HumanInput, _Mapping]] = ..., remembered_rule: _Optional[_Union[PolicyRule, _Mapping]] = ..., applied_rule: _Optional[_Union[PolicyRule, _Mapping]] = ...) -> None: ...

class HumanInput(_message.Message):
    __slots__ = ("text", "selection", "form_json", "url", "declined")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    FORM_JSON_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    DECLINED_FIELD_NUMBER: _ClassVar[int]
    text: str
    selection: Selection
    form_json: str
    url: UrlOutcome
    declined: Declined
    def __init__(self, text: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., form_json: _Optional[str] = ..., url: _Optional[_Union[UrlOutcome, str]] = ..., declined: _Optional[_Union[Declined, _Mapping]] = ...) -> None: ...

class Declined(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class Selection(_message.Message):
    __slots__ = ("option_ids",)
    OPTION_IDS_FIELD_NUMBER: _ClassVar[int]
    option_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, option_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("approve", "approve_with_edits", "deny", "deny_and_stop", "answer_in_place", "expired", "withdrawn")
    APPROVE_FIELD_NUMBER: _ClassVar[int]
    APPROVE_WITH_EDITS_FIELD_NUMBER: _ClassVar[int]
    DENY_FIELD_NUMBER: _ClassVar[int]
    DENY_AND_STOP_FIELD_NUMBER: _ClassVar[int]
    ANSWER_IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    approve: Approve
    approve_with_edits: ApproveWithEdits
    deny: Deny
    deny_and_stop: DenyAndStop
    answer_in_place: AnswerInPlace
    expired: Expired
    withdrawn: Withdrawn
    def __init__(self, approve: _Optional[_Union[Approve, _Mapping]] = ..., approve_with_edits: _Optional[_Union[ApproveWithEdits, _Mapping]] = ..., deny: _Optional[_Union[Deny, _Mapping]] = ..., deny_and_stop: _Optional[_Union[DenyAndStop, _Mapping]] = ..., answer_in_place: _Optional[_Union[AnswerInPlace, _Mapping]] = ..., expired: _Optional[_Union[Expired, _Mapping]] = ..., withdrawn: _Optional[_Union[Withdrawn, _Mapping]] = ...) -> None: ...

class Approve(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ApproveWithEdits(_message.Message):
    __slots__ = ("arguments_json",)
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    arguments_json: str
    def __init__(self, arguments_json: _Optional[str] = ...) -> None: ...

class Deny(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class DenyAndStop(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class AnswerInPlace(_message.Message):
    __slots__ = ("output",)
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    output: str
    def __init__(self, output: _Optional[str] = ...) -> None: ...

class Expired(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Withdrawn(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Caller(_message.Message):
    __slots__ = ("name", "tenant", "groups")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    name: str
    tenant: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., tenant: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class TodoItem(_message.Message):
    __slots__ = ("id", "content", "status", "priority")
    ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    id: str
    content: str
    status: TodoStatus
    priority: TodoPriority
    def __init__(self, id: _Optional[str] = ..., content: _Optional[str] = ..., status: _Optional[_Union[TodoStatus, str]] = ..., priority: _Optional[_Union[TodoPriority, str]] = ...) -> None: ...
