import datetime

from agentloop.v1 import types_pb2 as _types_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ObserveDecision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBSERVE_DECISION_UNSPECIFIED: _ClassVar[ObserveDecision]
    OBSERVE_DECISION_CONTINUE: _ClassVar[ObserveDecision]
    OBSERVE_DECISION_COMPACT: _ClassVar[ObserveDecision]
    OBSERVE_DECISION_STOP: _ClassVar[ObserveDecision]

class AttemptEffect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_EFFECT_UNSPECIFIED: _ClassVar[AttemptEffect]
    ATTEMPT_EFFECT_NONE: _ClassVar[AttemptEffect]
    ATTEMPT_EFFECT_MAYBE: _ClassVar[AttemptEffect]
    ATTEMPT_EFFECT_DONE: _ClassVar[AttemptEffect]

class CompactionReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPACTION_REASON_UNSPECIFIED: _ClassVar[CompactionReason]
    COMPACTION_REASON_MESSAGES: _ClassVar[CompactionReason]
    COMPACTION_REASON_TOKENS: _ClassVar[CompactionReason]
    COMPACTION_REASON_OVERFLOW: _ClassVar[CompactionReason]
    COMPACTION_REASON_PLANNED: _ClassVar[CompactionReason]

class ExtensionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXTENSION_KIND_UNSPECIFIED: _ClassVar[ExtensionKind]
    EXTENSION_KIND_PLANNER: _ClassVar[ExtensionKind]
    EXTENSION_KIND_HOOK: _ClassVar[ExtensionKind]
    EXTENSION_KIND_CONTEXT_SOURCE: _ClassVar[ExtensionKind]

class OutputStream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTPUT_STREAM_UNSPECIFIED: _ClassVar[OutputStream]
    OUTPUT_STREAM_STDOUT: _ClassVar[OutputStream]
    OUTPUT_STREAM_STDERR: _ClassVar[OutputStream]
OBSERVE_DECISION_UNSPECIFIED: ObserveDecision
OBSERVE_DECISION_CONTINUE: ObserveDecision
OBSERVE_DECISION_COMPACT: ObserveDecision
OBSERVE_DECISION_STOP: ObserveDecision
ATTEMPT_EFFECT_UNSPECIFIED: AttemptEffect
ATTEMPT_EFFECT_NONE: AttemptEffect
ATTEMPT_EFFECT_MAYBE: AttemptEffect
ATTEMPT_EFFECT_DONE: AttemptEffect
COMPACTION_REASON_UNSPECIFIED: CompactionReason
COMPACTION_REASON_MESSAGES: CompactionReason
COMPACTION_REASON_TOKENS: CompactionReason
COMPACTION_REASON_OVERFLOW: CompactionReason
COMPACTION_REASON_PLANNED: CompactionReason
EXTENSION_KIND_UNSPECIFIED: ExtensionKind
EXTENSION_KIND_PLANNER: ExtensionKind
EXTENSION_KIND_HOOK: ExtensionKind
EXTENSION_KIND_CONTEXT_SOURCE: ExtensionKind
OUTPUT_STREAM_UNSPECIFIED: OutputStream
OUTPUT_STREAM_STDOUT: OutputStream
OUTPUT_STREAM_STDERR: OutputStream

class RunEvent(_message.Message):
    __slots__ = ("seq", "run_id", "session_id", "turn_id", "at", "status", "phase", "process", "run_started", "input_message", "model_call_started", "model_call_failed", "assistant_message", "tool_call_proposed", "tool_call_offered", "tool_call_accepted", "tool_call_attempt_failed", "tool_call_result", "human_requested", "human_resolved", "run_paused", "run_resumed", "context_compacted", "extension_applied", "run_finished", "tool_call_checkpoint", "instruction_planned", "input_entered", "session_entered", "context_added", "compaction_started", "compaction_failed", "todos_updated", "human_approved", "model_delta", "partial_message", "tool_call_progress", "tool_call_output")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    RUN_STARTED_FIELD_NUMBER: _ClassVar[int]
    INPUT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MODEL_CALL_STARTED_FIELD_NUMBER: _ClassVar[int]
    MODEL_CALL_FAILED_FIELD_NUMBER: _ClassVar[int]
    ASSISTANT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_PROPOSED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_OFFERED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ATTEMPT_FAILED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_RESULT_FIELD_NUMBER: _ClassVar[int]
    HUMAN_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    HUMAN_RESOLVED_FIELD_NUMBER: _ClassVar[int]
    RUN_PAUSED_FIELD_NUMBER: _ClassVar[int]
    RUN_RESUMED_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    EXTENSION_APPLIED_FIELD_NUMBER: _ClassVar[int]
    RUN_FINISHED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_PLANNED_FIELD_NUMBER: _ClassVar[int]
    INPUT_ENTERED_FIELD_NUMBER: _ClassVar[int]
    SESSION_ENTERED_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ADDED_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_STARTED_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_FAILED_FIELD_NUMBER: _ClassVar[int]
    TODOS_UPDATED_FIELD_NUMBER: _ClassVar[int]
    HUMAN_APPROVED_FIELD_NUMBER: _ClassVar[int]
    MODEL_DELTA_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    seq: int
    run_id: str
    session_id: str
    turn_id: str
    at: _timestamp_pb2.Timestamp
    status: _types_pb2.RunStatus
    phase: _types_pb2.LoopPhase
    process: _types_pb2.ProcessState
    run_started: RunStarted
    input_message: InputMessage
    model_call_started: ModelCallStarted
    model_call_failed: ModelCallFailed
    assistant_message: AssistantMessage
    tool_call_proposed: ToolCallProposed
    tool_call_offered: ToolCallOffered
    tool_call_accepted: ToolCallAccepted
    tool_call_attempt_failed: ToolCallAttemptFailed
    tool_call_result: ToolCallResult
    human_requested: HumanRequested
    human_resolved: HumanResolved
    run_paused: RunPaused
    run_resumed: RunResumed
    context_compacted: ContextCompacted
    extension_applied: ExtensionApplied
    run_finished: RunFinished
    tool_call_checkpoint: ToolCallCheckpoint
    instruction_planned: InstructionPlanned
    input_entered: InputEntered
    session_entered: SessionEntered
    context_added: ContextAdded
    compaction_started: CompactionStarted
    compaction_failed: CompactionFailed
    todos_updated: TodosUpdated
    human_approved: HumanApproved
    model_delta: ModelDelta
    partial_message: PartialMessage
    tool_call_progress: ToolCallProgress
    tool_call_output: ToolCallOutput
    def __init__(self, seq: _Optional[int] = ..., run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., status: _Optional[_Union[_types_pb2.RunStatus, str]] = ..., phase: _Optional[_Union[_types_pb2.LoopPhase, str]] = ..., process: _Optional[_Union[_types_pb2.ProcessState, str]] = ..., run_started: _Optional[_Union[RunStarted, _Mapping]] = ..., input_message: _Optional[_Union[InputMessage, _Mapping]] = ..., model_call_started: _Optional[_Union[ModelCallStarted, _Mapping]] = ..., model_call_failed: _Optional[_Union[ModelCallFailed, _Mapping]] = ..., assistant_message: _Optional[_Union[AssistantMessage, _Mapping]] = ..., tool_call_proposed: _Optional[_Union[ToolCallProposed, _Mapping]] = ..., tool_call_offered: _Optional[_Union[ToolCallOffered, _Mapping]] = ..., tool_call_accepted: _Optional[_Union[ToolCallAccepted, _Mapping]] = ..., tool_call_attempt_failed: _Optional[_Union[ToolCallAttemptFailed, _Mapping]] = ..., tool_call_result: _Optional[_Union[ToolCallResult, _Mapping]] = ..., human_requested: _Optional[_Union[HumanRequested, _Mapping]] = ..., human_resolved: _Optional[_Union[HumanResolved, _Mapping]] = ..., run_paused: _Optional[_Union[RunPaused, _Mapping]] = ..., run_resumed: _Optional[_Union[RunResumed, _Mapping]] = ..., context_compacted: _Optional[_Union[ContextCompacted, _Mapping]] = ..., extension_applied: _Optional[_Union[ExtensionApplied, _Mapping]] = ..., run_finished: _Optional[_Union[RunFinished, _Mapping]] = ..., tool_call_checkpoint: _Optional[_Union[ToolCallCheckpoint, _Mapping]] = ..., instruction_planned: _Optional[_Union[InstructionPlanned, _Mapping]] = ..., input_entered: _Optional[_Union[InputEntered, _Mapping]] = ..., session_entered: _Optional[_Union[SessionEntered, _Mapping]] = ..., context_added: _Optional[_Union[ContextAdded, _Mapping]] = ..., compaction_started: _Optional[_Union[CompactionStarted, _Mapping]] = ..., compaction_failed: _Optional[_Union[CompactionFailed, _Mapping]] = ..., todos_updated: _Optional[_Union[TodosUpdated, _Mapping]] = ..., human_approved: _Optional[_Union[HumanApproved, _Mapping]] = ..., model_delta: _Optional[_Union[ModelDelta, _Mapping]] = ..., partial_message: _Optional[_Union[PartialMessage, _Mapping]] = ..., tool_call_progress: _Optional[_Union[ToolCallProgress, _Mapping]] = ..., tool_call_output: _Optional[_Union[ToolCallOutput, _Mapping]] = ...) -> None: ...

class RunStarted(_message.Message):
    __slots__ = ("agent", "model", "max_iterations", "labels", "queued", "planner", "unknown_tools", "withdrawn_tools")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AGENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MAX_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    PLANNER_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_TOOLS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_TOOLS_FIELD_NUMBER: _ClassVar[int]
    agent: str
    model: str
    max_iterations: int
    labels: _containers.ScalarMap[str, str]
    queued: bool
    planner: str
    unknown_tools: _containers.RepeatedScalarFieldContainer[str]
    withdrawn_tools: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, agent: _Optional[str] = ..., model: _Optional[str] = ..., max_iterations: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., queued: _Optional[bool] = ..., planner: _Optional[str] = ..., unknown_tools: _Optional[_Iterable[str]] = ..., withdrawn_tools: _Optional[_Iterable[str]] = ...) -> None: ...

class InputMessage(_message.Message):
    __slots__ = ("entry_no", "message", "steer_id")
    ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STEER_ID_FIELD_NUMBER: _ClassVar[int]
    entry_no: int
    message: _types_pb2.Message
    steer_id: str
    def __init__(self, entry_no: _Optional[int] = ..., message: _Optional[_Union[_types_pb2.Message, _Mapping]] = ..., steer_id: _Optional[str] = ...) -> None: ...

class ModelCallStarted(_message.Message):
    __slots__ = ("model_call", "attempt", "last_entry_no")
    MODEL_CALL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    model_call: int
    attempt: int
    last_entry_no: int
    def __init__(self, model_call: _Optional[int] = ..., attempt: _Optional[int] = ..., last_entry_no: _Optional[int] = ...) -> None: ...

class ModelCallFailed(_message.Message):
    __slots__ = ("model_call", "attempt", "error", "retry_at")
    MODEL_CALL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETRY_AT_FIELD_NUMBER: _ClassVar[int]
    model_call: int
    attempt: int
    error: _types_pb2.RunError
    retry_at: _timestamp_pb2.Timestamp
    def __init__(self, model_call: _Optional[int] = ..., attempt: _Optional[int] = ..., error: _Optional[_Union[_types_pb2.RunError, _Mapping]] = ..., retry_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AssistantMessage(_message.Message):
    __slots__ = ("model_call", "attempt", "entry_no", "message", "finish_reason", "usage", "time_to_first_token", "duration", "decision", "tools_digest")
    MODEL_CALL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIME_TO_FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    TOOLS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    model_call: int
    attempt: int
    entry_no: int
    message: _types_pb2.Message
    finish_reason: _types_pb2.FinishReason
    usage: _types_pb2.Usage
    time_to_first_token: _duration_pb2.Duration
    duration: _duration_pb2.Duration
    decision: ObserveDecision
    tools_digest: str
    def __init__(self, model_call: _Optional[int] = ..., attempt: _Optional[int] = ..., entry_no: _Optional[int] = ..., message: _Optional[_Union[_types_pb2.Message, _Mapping]] = ..., finish_reason: _Optional[_Union[_types_pb2.FinishReason, str]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., time_to_first_token: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., decision: _Optional[_Union[ObserveDecision, str]] = ..., tools_digest: _Optional[str] = ...) -> None: ...

class ToolCallProposed(_message.Message):
    __slots__ = ("call_id", "tool", "effect", "requires_approval", "title")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_APPROVAL_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    tool: str
    effect: _types_pb2.EffectClass
    requires_approval: bool
    title: str
    def __init__(self, call_id: _Optional[str] = ..., tool: _Optional[str] = ..., effect: _Optional[_Union[_types_pb2.EffectClass, str]] = ..., requires_approval: _Optional[bool] = ..., title: _Optional[str] = ...) -> None: ...

class ToolCallOffered(_message.Message):
    __slots__ = ("call_id", "tool", "attempt", "host_id", "effect", "instance_id")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    tool: str
    attempt: int
    host_id: str
    effect: _types_pb2.EffectClass
    instance_id: str
    def __init__(self, call_id: _Optional[str] = ..., tool: _Optional[str] = ..., attempt: _Optional[int] = ..., host_id: _Optional[str] = ..., effect: _Optional[_Union[_types_pb2.EffectClass, str]] = ..., instance_id: _Optional[str] = ...) -> None: ...

class ToolCallAccepted(_message.Message):
    __slots__ = ("call_id", "attempt", "host_id")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    host_id: str
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., host_id: _Optional[str] = ...) -> None: ...

class ToolCallAttemptFailed(_message.Message):
    __slots__ = ("call_id", "attempt", "message", "effect", "state", "retry_at")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    message: str
    effect: AttemptEffect
    state: _types_pb2.ToolCallState
    retry_at: _timestamp_pb2.Timestamp
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., message: _Optional[str] = ..., effect: _Optional[_Union[AttemptEffect, str]] = ..., state: _Optional[_Union[_types_pb2.ToolCallState, str]] = ..., retry_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ToolCallCheckpoint(_message.Message):
    __slots__ = ("call_id", "attempt", "checkpoint")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    checkpoint: bytes
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., checkpoint: _Optional[bytes] = ...) -> None: ...

class ToolCallResult(_message.Message):
    __slots__ = ("entry_no", "attempt", "host_id", "result", "duration", "truncated")
    ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    entry_no: int
    attempt: int
    host_id: str
    result: _types_pb2.ToolResult
    duration: _duration_pb2.Duration
    truncated: bool
    def __init__(self, entry_no: _Optional[int] = ..., attempt: _Optional[int] = ..., host_id: _Optional[str] = ..., result: _Optional[_Union[_types_pb2.ToolResult, _Mapping]] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class HumanRequested(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: _types_pb2.HumanRequest
    def __init__(self, request: _Optional[_Union[_types_pb2.HumanRequest, _Mapping]] = ...) -> None: ...

class HumanApproved(_message.Message):
    __slots__ = ("request_id", "call_id", "approval", "approvals", "quorum")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    APPROVALS_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    call_id: str
    approval: _types_pb2.PartialApproval
    approvals: int
    quorum: int
    def __init__(self, request_id: _Optional[str] = ..., call_id: _Optional[str] = ..., approval: _Optional[_Union[_types_pb2.PartialApproval, _Mapping]] = ..., approvals: _Optional[int] = ..., quorum: _Optional[int] = ...) -> None: ...

class HumanResolved(_message.Message):
    __slots__ = ("request_id", "call_id", "answer")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    call_id: str
    answer: _types_pb2.HumanAnswer
    def __init__(self, request_id: _Optional[str] = ..., call_id: _Optional[str] = ..., answer: _Optional[_Union[_types_pb2.HumanAnswer, _Mapping]] = ...) -> None: ...

class RunPaused(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _types_pb2.RunError
    def __init__(self, error: _Optional[_Union[_types_pb2.RunError, _Mapping]] = ...) -> None: ...

class RunResumed(_message.Message):
    __slots__ = ("resumed_by",)
    RESUMED_BY_FIELD_NUMBER: _ClassVar[int]
    resumed_by: str
    def __init__(self, resumed_by: _Optional[str] = ...) -> None: ...

class InputEntered(_message.Message):
    __slots__ = ("input_seq", "entry_no")
    INPUT_SEQ_FIELD_NUMBER: _ClassVar[int]
    ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    input_seq: int
    entry_no: int
    def __init__(self, input_seq: _Optional[int] = ..., entry_no: _Optional[int] = ...) -> None: ...

class SessionEntered(_message.Message):
    __slots__ = ("last_entry_no", "withdrawn_tools")
    LAST_ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_TOOLS_FIELD_NUMBER: _ClassVar[int]
    last_entry_no: int
    withdrawn_tools: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, last_entry_no: _Optional[int] = ..., withdrawn_tools: _Optional[_Iterable[str]] = ...) -> None: ...

class InstructionPlanned(_message.Message):
    __slots__ = ("instruction", "planner", "step_request_id")
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    PLANNER_FIELD_NUMBER: _ClassVar[int]
    STEP_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    instruction: _types_pb2.Instruction
    planner: str
    step_request_id: str
    def __init__(self, instruction: _Optional[_Union[_types_pb2.Instruction, _Mapping]] = ..., planner: _Optional[str] = ..., step_request_id: _Optional[str] = ...) -> None: ...

class ContextAdded(_message.Message):
    __slots__ = ("source", "entry_no", "message")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    source: str
    entry_no: int
    message: _types_pb2.Message
    def __init__(self, source: _Optional[str] = ..., entry_no: _Optional[int] = ..., message: _Optional[_Union[_types_pb2.Message, _Mapping]] = ...) -> None: ...

class CompactionStarted(_message.Message):
    __slots__ = ("strategy", "reason", "tokens_before")
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TOKENS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    strategy: str
    reason: CompactionReason
    tokens_before: int
    def __init__(self, strategy: _Optional[str] = ..., reason: _Optional[_Union[CompactionReason, str]] = ..., tokens_before: _Optional[int] = ...) -> None: ...

class CompactionFailed(_message.Message):
    __slots__ = ("strategy", "error")
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    strategy: str
    error: _types_pb2.RunError
    def __init__(self, strategy: _Optional[str] = ..., error: _Optional[_Union[_types_pb2.RunError, _Mapping]] = ...) -> None: ...

class ContextCompacted(_message.Message):
    __slots__ = ("strategy", "up_to_entry_no", "summary", "entry_no", "cut_up_to_entry_no", "tokens_before", "tokens_after", "usage")
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    UP_TO_ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    CUT_UP_TO_ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    TOKENS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_AFTER_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    strategy: str
    up_to_entry_no: int
    summary: str
    entry_no: int
    cut_up_to_entry_no: int
    tokens_before: int
    tokens_after: int
    usage: _types_pb2.Usage
    def __init__(self, strategy: _Optional[str] = ..., up_to_entry_no: _Optional[int] = ..., summary: _Optional[str] = ..., entry_no: _Optional[int] = ..., cut_up_to_entry_no: _Optional[int] = ..., tokens_before: _Optional[int] = ..., tokens_after: _Optional[int] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ...) -> None: ...

class ExtensionApplied(_message.Message):
    __slots__ = ("name", "outcome", "error", "kind", "call_id", "duration")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    outcome: str
    error: str
    kind: ExtensionKind
    call_id: str
    duration: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., outcome: _Optional[str] = ..., error: _Optional[str] = ..., kind: _Optional[_Union[ExtensionKind, str]] = ..., call_id: _Optional[str] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RunFinished(_message.Message):
    __slots__ = ("status", "final_entry_no", "error", "usage", "iterations", "tool_calls", "duration", "durations")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FINAL_ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    DURATIONS_FIELD_NUMBER: _ClassVar[int]
    status: _types_pb2.RunStatus
    final_entry_no: int
    error: _types_pb2.RunError
    usage: _types_pb2.Usage
    iterations: int
    tool_calls: int
    duration: _duration_pb2.Duration
    durations: _types_pb2.RunDurations
    def __init__(self, status: _Optional[_Union[_types_pb2.RunStatus, str]] = ..., final_entry_no: _Optional[int] = ..., error: _Optional[_Union[_types_pb2.RunError, _Mapping]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., iterations: _Optional[int] = ..., tool_calls: _Optional[int] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., durations: _Optional[_Union[_types_pb2.RunDurations, _Mapping]] = ...) -> None: ...

class ModelDelta(_message.Message):
    __slots__ = ("model_call", "attempt", "delta_seq", "text", "reasoning", "tool_call")
    MODEL_CALL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DELTA_SEQ_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    model_call: int
    attempt: int
    delta_seq: int
    text: str
    reasoning: str
    tool_call: ToolCallDelta
    def __init__(self, model_call: _Optional[int] = ..., attempt: _Optional[int] = ..., delta_seq: _Optional[int] = ..., text: _Optional[str] = ..., reasoning: _Optional[str] = ..., tool_call: _Optional[_Union[ToolCallDelta, _Mapping]] = ...) -> None: ...

class ToolCallDelta(_message.Message):
    __slots__ = ("index", "name", "arguments_fragment")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    index: int
    name: str
    arguments_fragment: str
    def __init__(self, index: _Optional[int] = ..., name: _Optional[str] = ..., arguments_fragment: _Optional[str] = ...) -> None: ...

class PartialMessage(_message.Message):
    __slots__ = ("model_call", "attempt", "delta_seq", "message")
    MODEL_CALL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DELTA_SEQ_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    model_call: int
    attempt: int
    delta_seq: int
    message: _types_pb2.Message
    def __init__(self, model_call: _Optional[int] = ..., attempt: _Optional[int] = ..., delta_seq: _Optional[int] = ..., message: _Optional[_Union[_types_pb2.Message, _Mapping]] = ...) -> None: ...

class ToolCallProgress(_message.Message):
    __slots__ = ("call_id", "attempt", "message", "fraction")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    message: str
    fraction: float
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., message: _Optional[str] = ..., fraction: _Optional[float] = ...) -> None: ...

class ToolCallOutput(_message.Message):
    __slots__ = ("call_id", "attempt", "chunk_seq", "stream", "data")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SEQ_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    chunk_seq: int
    stream: OutputStream
    data: bytes
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., chunk_seq: _Optional[int] = ..., stream: _Optional[_Union[OutputStream, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class TodosUpdated(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_types_pb2.TodoItem]
    def __init__(self, items: _Optional[_Iterable[_Union[_types_pb2.TodoItem, _Mapping]]] = ...) -> None: ...
