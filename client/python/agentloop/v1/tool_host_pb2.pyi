import datetime

from agentloop.v1 import events_pb2 as _events_pb2
from agentloop.v1 import runs_pb2 as _runs_pb2
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

class HookPoint(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOOK_POINT_UNSPECIFIED: _ClassVar[HookPoint]
    HOOK_POINT_PRE_RUN: _ClassVar[HookPoint]
    HOOK_POINT_POST_RUN: _ClassVar[HookPoint]
    HOOK_POINT_PRE_TOOL: _ClassVar[HookPoint]
    HOOK_POINT_POST_TOOL: _ClassVar[HookPoint]

class PlanSituation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLAN_SITUATION_UNSPECIFIED: _ClassVar[PlanSituation]
    PLAN_SITUATION_PROMPTED: _ClassVar[PlanSituation]
    PLAN_SITUATION_ANSWERED: _ClassVar[PlanSituation]
    PLAN_SITUATION_TOOLS_WANTED: _ClassVar[PlanSituation]
    PLAN_SITUATION_TOOLS_SETTLED: _ClassVar[PlanSituation]
    PLAN_SITUATION_HUMAN_ANSWERED: _ClassVar[PlanSituation]
    PLAN_SITUATION_COMPACTED: _ClassVar[PlanSituation]

class RejectReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REJECT_REASON_UNSPECIFIED: _ClassVar[RejectReason]
    REJECT_REASON_BUSY: _ClassVar[RejectReason]
    REJECT_REASON_DRAINING: _ClassVar[RejectReason]
    REJECT_REASON_UNKNOWN_TOOL: _ClassVar[RejectReason]
    REJECT_REASON_BAD_ARGUMENTS: _ClassVar[RejectReason]
    REJECT_REASON_TOO_LARGE: _ClassVar[RejectReason]

class CancelOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANCEL_OUTCOME_UNSPECIFIED: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_STOPPED: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_FINISHED: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_CANNOT: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_UNKNOWN: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_NOT_BEGUN: _ClassVar[CancelOutcome]

class CapabilityRefusal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CAPABILITY_REFUSAL_UNSPECIFIED: _ClassVar[CapabilityRefusal]
    CAPABILITY_REFUSAL_INVALID: _ClassVar[CapabilityRefusal]
    CAPABILITY_REFUSAL_DIFFERENT: _ClassVar[CapabilityRefusal]
    CAPABILITY_REFUSAL_WEAKER: _ClassVar[CapabilityRefusal]
    CAPABILITY_REFUSAL_NOT_ALLOWED: _ClassVar[CapabilityRefusal]

class CallDisposition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CALL_DISPOSITION_UNSPECIFIED: _ClassVar[CallDisposition]
    CALL_DISPOSITION_CONTINUE: _ClassVar[CallDisposition]
    CALL_DISPOSITION_STOP: _ClassVar[CallDisposition]
    CALL_DISPOSITION_ALREADY_RECORDED: _ClassVar[CallDisposition]

class CancelCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANCEL_CAUSE_UNSPECIFIED: _ClassVar[CancelCause]
    CANCEL_CAUSE_ABORTED: _ClassVar[CancelCause]
    CANCEL_CAUSE_DEADLINE: _ClassVar[CancelCause]
    CANCEL_CAUSE_SETTLED: _ClassVar[CancelCause]
    CANCEL_CAUSE_RUN_ENDED: _ClassVar[CancelCause]

class ResultVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESULT_VERDICT_UNSPECIFIED: _ClassVar[ResultVerdict]
    RESULT_VERDICT_RECORDED: _ClassVar[ResultVerdict]
    RESULT_VERDICT_DUPLICATE: _ClassVar[ResultVerdict]
    RESULT_VERDICT_STALE: _ClassVar[ResultVerdict]
HOOK_POINT_UNSPECIFIED: HookPoint
HOOK_POINT_PRE_RUN: HookPoint
HOOK_POINT_POST_RUN: HookPoint
HOOK_POINT_PRE_TOOL: HookPoint
HOOK_POINT_POST_TOOL: HookPoint
PLAN_SITUATION_UNSPECIFIED: PlanSituation
PLAN_SITUATION_PROMPTED: PlanSituation
PLAN_SITUATION_ANSWERED: PlanSituation
PLAN_SITUATION_TOOLS_WANTED: PlanSituation
PLAN_SITUATION_TOOLS_SETTLED: PlanSituation
PLAN_SITUATION_HUMAN_ANSWERED: PlanSituation
PLAN_SITUATION_COMPACTED: PlanSituation
REJECT_REASON_UNSPECIFIED: RejectReason
REJECT_REASON_BUSY: RejectReason
REJECT_REASON_DRAINING: RejectReason
REJECT_REASON_UNKNOWN_TOOL: RejectReason
REJECT_REASON_BAD_ARGUMENTS: RejectReason
REJECT_REASON_TOO_LARGE: RejectReason
CANCEL_OUTCOME_UNSPECIFIED: CancelOutcome
CANCEL_OUTCOME_STOPPED: CancelOutcome
CANCEL_OUTCOME_FINISHED: CancelOutcome
CANCEL_OUTCOME_CANNOT: CancelOutcome
CANCEL_OUTCOME_UNKNOWN: CancelOutcome
CANCEL_OUTCOME_NOT_BEGUN: CancelOutcome
CAPABILITY_REFUSAL_UNSPECIFIED: CapabilityRefusal
CAPABILITY_REFUSAL_INVALID: CapabilityRefusal
CAPABILITY_REFUSAL_DIFFERENT: CapabilityRefusal
CAPABILITY_REFUSAL_WEAKER: CapabilityRefusal
CAPABILITY_REFUSAL_NOT_ALLOWED: CapabilityRefusal
CALL_DISPOSITION_UNSPECIFIED: CallDisposition
CALL_DISPOSITION_CONTINUE: CallDisposition
CALL_DISPOSITION_STOP: CallDisposition
CALL_DISPOSITION_ALREADY_RECORDED: CallDisposition
CANCEL_CAUSE_UNSPECIFIED: CancelCause
CANCEL_CAUSE_ABORTED: CancelCause
CANCEL_CAUSE_DEADLINE: CancelCause
CANCEL_CAUSE_SETTLED: CancelCause
CANCEL_CAUSE_RUN_ENDED: CancelCause
RESULT_VERDICT_UNSPECIFIED: ResultVerdict
RESULT_VERDICT_RECORDED: ResultVerdict
RESULT_VERDICT_DUPLICATE: ResultVerdict
RESULT_VERDICT_STALE: ResultVerdict

class ConnectRequest(_message.Message):
    __slots__ = ("hello", "update_tools", "credit", "call_accepted", "call_rejected", "heartbeat", "progress", "output_chunk", "call_result", "call_failed", "need_input", "cancel_ack", "draining", "goodbye", "pong", "extension_response")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TOOLS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    CALL_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    CALL_REJECTED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_CHUNK_FIELD_NUMBER: _ClassVar[int]
    CALL_RESULT_FIELD_NUMBER: _ClassVar[int]
    CALL_FAILED_FIELD_NUMBER: _ClassVar[int]
    NEED_INPUT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_ACK_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    EXTENSION_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    update_tools: UpdateTools
    credit: Credit
    call_accepted: CallAccepted
    call_rejected: CallRejected
    heartbeat: Heartbeat
    progress: Progress
    output_chunk: OutputChunk
    call_result: CallResult
    call_failed: CallFailed
    need_input: NeedInput
    cancel_ack: CancelAck
    draining: Draining
    goodbye: Goodbye
    pong: Pong
    extension_response: ExtensionResponse
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., update_tools: _Optional[_Union[UpdateTools, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., call_accepted: _Optional[_Union[CallAccepted, _Mapping]] = ..., call_rejected: _Optional[_Union[CallRejected, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., output_chunk: _Optional[_Union[OutputChunk, _Mapping]] = ..., call_result: _Optional[_Union[CallResult, _Mapping]] = ..., call_failed: _Optional[_Union[CallFailed, _Mapping]] = ..., need_input: _Optional[_Union[NeedInput, _Mapping]] = ..., cancel_ack: _Optional[_Union[CancelAck, _Mapping]] = ..., draining: _Optional[_Union[Draining, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., extension_response: _Optional[_Union[ExtensionResponse, _Mapping]] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("welcome", "tools_updated", "call_request", "cancel", "result_ack", "lease_lost", "input_response", "ping", "go_away", "protocol_error", "extension_request", "open_runtime", "close_runtime", "progress_ack")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    TOOLS_UPDATED_FIELD_NUMBER: _ClassVar[int]
    CALL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RESULT_ACK_FIELD_NUMBER: _ClassVar[int]
    LEASE_LOST_FIELD_NUMBER: _ClassVar[int]
    INPUT_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    GO_AWAY_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_ERROR_FIELD_NUMBER: _ClassVar[int]
    EXTENSION_REQUEST_FIELD_NUMBER: _ClassVar[int]
    OPEN_RUNTIME_FIELD_NUMBER: _ClassVar[int]
    CLOSE_RUNTIME_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_ACK_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    tools_updated: ToolsUpdated
    call_request: CallRequest
    cancel: Cancel
    result_ack: ResultAck
    lease_lost: LeaseLost
    input_response: InputResponse
    ping: Ping
    go_away: GoAway
    protocol_error: ProtocolError
    extension_request: ExtensionRequest
    open_runtime: OpenRuntime
    close_runtime: CloseRuntime
    progress_ack: ProgressAck
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., tools_updated: _Optional[_Union[ToolsUpdated, _Mapping]] = ..., call_request: _Optional[_Union[CallRequest, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., result_ack: _Optional[_Union[ResultAck, _Mapping]] = ..., lease_lost: _Optional[_Union[LeaseLost, _Mapping]] = ..., input_response: _Optional[_Union[InputResponse, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., go_away: _Optional[_Union[GoAway, _Mapping]] = ..., protocol_error: _Optional[_Union[ProtocolError, _Mapping]] = ..., extension_request: _Optional[_Union[ExtensionRequest, _Mapping]] = ..., open_runtime: _Optional[_Union[OpenRuntime, _Mapping]] = ..., close_runtime: _Optional[_Union[CloseRuntime, _Mapping]] = ..., progress_ack: _Optional[_Union[ProgressAck, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "host_id", "sdk", "capabilities", "max_frame_bytes", "calls_in_hand", "initial_credit", "labels", "open_runtimes", "instance_id", "connection_no")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    SDK_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    CALLS_IN_HAND_FIELD_NUMBER: _ClassVar[int]
    INITIAL_CREDIT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    OPEN_RUNTIMES_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_NO_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    host_id: str
    sdk: str
    capabilities: _containers.RepeatedCompositeFieldContainer[Capability]
    max_frame_bytes: int
    calls_in_hand: _containers.RepeatedCompositeFieldContainer[CallInHand]
    initial_credit: int
    labels: _containers.ScalarMap[str, str]
    open_runtimes: _containers.RepeatedScalarFieldContainer[str]
    instance_id: str
    connection_no: int
    def __init__(self, protocol_version: _Optional[int] = ..., host_id: _Optional[str] = ..., sdk: _Optional[str] = ..., capabilities: _Optional[_Iterable[_Union[Capability, _Mapping]]] = ..., max_frame_bytes: _Optional[int] = ..., calls_in_hand: _Optional[_Iterable[_Union[CallInHand, _Mapping]]] = ..., initial_credit: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., open_runtimes: _Optional[_Iterable[str]] = ..., instance_id: _Optional[str] = ..., connection_no: _Optional[int] = ...) -> None: ...

class Capability(_message.Message):
    __slots__ = ("tool", "planner", "hook", "context_source")
    TOOL_FIELD_NUMBER: _ClassVar[int]
    PLANNER_FIELD_NUMBER: _ClassVar[int]
    HOOK_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    tool: _types_pb2.ToolDeclaration
    planner: PlannerDeclaration
    hook: HookDeclaration
    context_source: ContextSourceDeclaration
    def __init__(self, tool: _Optional[_Union[_types_pb2.ToolDeclaration, _Mapping]] = ..., planner: _Optional[_Union[PlannerDeclaration, _Mapping]] = ..., hook: _Optional[_Union[HookDeclaration, _Mapping]] = ..., context_source: _Optional[_Union[ContextSourceDeclaration, _Mapping]] = ...) -> None: ...

class PlannerDeclaration(_message.Message):
    __slots__ = ("name", "description", "timeout")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    timeout: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class HookDeclaration(_message.Message):
    __slots__ = ("name", "description", "points", "required", "timeout")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    points: _containers.RepeatedScalarFieldContainer[HookPoint]
    required: bool
    timeout: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., points: _Optional[_Iterable[_Union[HookPoint, str]]] = ..., required: _Optional[bool] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ContextSourceDeclaration(_message.Message):
    __slots__ = ("name", "description", "timeout", "remembers")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    REMEMBERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    timeout: _duration_pb2.Duration
    remembers: bool
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., remembers: _Optional[bool] = ...) -> None: ...

class ExtensionRequest(_message.Message):
    __slots__ = ("request_id", "name", "deadline", "run", "plan", "hook", "context", "remember", "time_left")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    HOOK_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    REMEMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_LEFT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    deadline: _timestamp_pb2.Timestamp
    run: _runs_pb2.Run
    plan: PlanRequest
    hook: HookRequest
    context: ContextRequest
    remember: RememberRequest
    time_left: _duration_pb2.Duration
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., run: _Optional[_Union[_runs_pb2.Run, _Mapping]] = ..., plan: _Optional[_Union[PlanRequest, _Mapping]] = ..., hook: _Optional[_Union[HookRequest, _Mapping]] = ..., context: _Optional[_Union[ContextRequest, _Mapping]] = ..., remember: _Optional[_Union[RememberRequest, _Mapping]] = ..., time_left: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("situation", "decision", "messages", "tool_calls", "answer")
    SITUATION_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    situation: PlanSituation
    decision: int
    messages: _containers.RepeatedCompositeFieldContainer[_types_pb2.Message]
    tool_calls: _containers.RepeatedCompositeFieldContainer[_types_pb2.ToolCall]
    answer: _types_pb2.HumanAnswer
    def __init__(self, situation: _Optional[_Union[PlanSituation, str]] = ..., decision: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[_types_pb2.Message, _Mapping]]] = ..., tool_calls: _Optional[_Iterable[_Union[_types_pb2.ToolCall, _Mapping]]] = ..., answer: _Optional[_Union[_types_pb2.HumanAnswer, _Mapping]] = ...) -> None: ...

class HookRequest(_message.Message):
    __slots__ = ("point", "input_messages", "tool_call", "tool_result", "run_result")
    POINT_FIELD_NUMBER: _ClassVar[int]
    INPUT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    TOOL_RESULT_FIELD_NUMBER: _ClassVar[int]
    RUN_RESULT_FIELD_NUMBER: _ClassVar[int]
    point: HookPoint
    input_messages: _containers.RepeatedCompositeFieldContainer[_types_pb2.Message]
    tool_call: _types_pb2.ToolCall
    tool_result: _types_pb2.ToolResult
    run_result: _runs_pb2.RunResult
    def __init__(self, point: _Optional[_Union[HookPoint, str]] = ..., input_messages: _Optional[_Iterable[_Union[_types_pb2.Message, _Mapping]]] = ..., tool_call: _Optional[_Union[_types_pb2.ToolCall, _Mapping]] = ..., tool_result: _Optional[_Union[_types_pb2.ToolResult, _Mapping]] = ..., run_result: _Optional[_Union[_runs_pb2.RunResult, _Mapping]] = ...) -> None: ...

class ContextRequest(_message.Message):
    __slots__ = ("query", "max_bytes")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    query: str
    max_bytes: int
    def __init__(self, query: _Optional[str] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class RememberRequest(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_types_pb2.Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[_types_pb2.Message, _Mapping]]] = ...) -> None: ...

class ExtensionResponse(_message.Message):
    __slots__ = ("request_id", "instruction", "hook", "context", "remembered", "failure")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    HOOK_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    REMEMBERED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    instruction: _types_pb2.Instruction
    hook: HookVerdict
    context: ContextItems
    remembered: Remembered
    failure: ExtensionFailure
    def __init__(self, request_id: _Optional[str] = ..., instruction: _Optional[_Union[_types_pb2.Instruction, _Mapping]] = ..., hook: _Optional[_Union[HookVerdict, _Mapping]] = ..., context: _Optional[_Union[ContextItems, _Mapping]] = ..., remembered: _Optional[_Union[Remembered, _Mapping]] = ..., failure: _Optional[_Union[ExtensionFailure, _Mapping]] = ...) -> None: ...

class HookVerdict(_message.Message):
    __slots__ = ("annotation", "veto", "input_messages", "system_prompt_addition", "arguments_json", "output")
    ANNOTATION_FIELD_NUMBER: _ClassVar[int]
    VETO_FIELD_NUMBER: _ClassVar[int]
    INPUT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_PROMPT_ADDITION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    annotation: str
    veto: str
    input_messages: _containers.RepeatedCompositeFieldContainer[_types_pb2.Message]
    system_prompt_addition: str
    arguments_json: str
    output: str
    def __init__(self, annotation: _Optional[str] = ..., veto: _Optional[str] = ..., input_messages: _Optional[_Iterable[_Union[_types_pb2.Message, _Mapping]]] = ..., system_prompt_addition: _Optional[str] = ..., arguments_json: _Optional[str] = ..., output: _Optional[str] = ...) -> None: ...

class ContextItems(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ContextItem]
    def __init__(self, items: _Optional[_Iterable[_Union[ContextItem, _Mapping]]] = ...) -> None: ...

class ContextItem(_message.Message):
    __slots__ = ("text", "origin")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    text: str
    origin: str
    def __init__(self, text: _Optional[str] = ..., origin: _Optional[str] = ...) -> None: ...

class Remembered(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExtensionFailure(_message.Message):
    __slots__ = ("message", "retryable")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    message: str
    retryable: bool
    def __init__(self, message: _Optional[str] = ..., retryable: _Optional[bool] = ...) -> None: ...

class OpenRuntime(_message.Message):
    __slots__ = ("runtime_id", "run_id", "session_id", "init_data_json", "hints_json")
    RUNTIME_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    INIT_DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    HINTS_JSON_FIELD_NUMBER: _ClassVar[int]
    runtime_id: str
    run_id: str
    session_id: str
    init_data_json: str
    hints_json: str
    def __init__(self, runtime_id: _Optional[str] = ..., run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., init_data_json: _Optional[str] = ..., hints_json: _Optional[str] = ...) -> None: ...

class CloseRuntime(_message.Message):
    __slots__ = ("runtime_id",)
    RUNTIME_ID_FIELD_NUMBER: _ClassVar[int]
    runtime_id: str
    def __init__(self, runtime_id: _Optional[str] = ...) -> None: ...

class CallInHand(_message.Message):
    __slots__ = ("call_id", "attempt", "lease_token", "finished")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    lease_token: str
    finished: bool
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., lease_token: _Optional[str] = ..., finished: _Optional[bool] = ...) -> None: ...

class UpdateTools(_message.Message):
    __slots__ = ("capabilities",)
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    capabilities: _containers.RepeatedCompositeFieldContainer[Capability]
    def __init__(self, capabilities: _Optional[_Iterable[_Union[Capability, _Mapping]]] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("total",)
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    total: int
    def __init__(self, total: _Optional[int] = ...) -> None: ...

class CallAccepted(_message.Message):
    __slots__ = ("call_id", "attempt")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class CallRejected(_message.Message):
    __slots__ = ("call_id", "attempt", "reason", "message")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    reason: RejectReason
    message: str
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[_Union[RejectReason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("calls", "status_text")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    STATUS_TEXT_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[CallRef]
    status_text: str
    def __init__(self, calls: _Optional[_Iterable[_Union[CallRef, _Mapping]]] = ..., status_text: _Optional[str] = ...) -> None: ...

class CallRef(_message.Message):
    __slots__ = ("call_id", "attempt")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("call_id", "attempt", "message", "fraction", "checkpoint", "resume_state", "resume_no")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    RESUME_STATE_FIELD_NUMBER: _ClassVar[int]
    RESUME_NO_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    message: str
    fraction: float
    checkpoint: bytes
    resume_state: bytes
    resume_no: int
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., message: _Optional[str] = ..., fraction: _Optional[float] = ..., checkpoint: _Optional[bytes] = ..., resume_state: _Optional[bytes] = ..., resume_no: _Optional[int] = ...) -> None: ...

class OutputChunk(_message.Message):
    __slots__ = ("call_id", "attempt", "chunk_seq", "stream", "data")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SEQ_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    chunk_seq: int
    stream: _events_pb2.OutputStream
    data: bytes
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., chunk_seq: _Optional[int] = ..., stream: _Optional[_Union[_events_pb2.OutputStream, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class CallResult(_message.Message):
    __slots__ = ("call_id", "attempt", "lease_token", "output", "images", "structured_json", "files", "links")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    STRUCTURED_JSON_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    lease_token: str
    output: str
    images: _containers.RepeatedCompositeFieldContainer[_types_pb2.Image]
    structured_json: str
    files: _containers.RepeatedCompositeFieldContainer[_types_pb2.FileContent]
    links: _containers.RepeatedCompositeFieldContainer[_types_pb2.Link]
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., lease_token: _Optional[str] = ..., output: _Optional[str] = ..., images: _Optional[_Iterable[_Union[_types_pb2.Image, _Mapping]]] = ..., structured_json: _Optional[str] = ..., files: _Optional[_Iterable[_Union[_types_pb2.FileContent, _Mapping]]] = ..., links: _Optional[_Iterable[_Union[_types_pb2.Link, _Mapping]]] = ...) -> None: ...

class CallFailed(_message.Message):
    __slots__ = ("call_id", "attempt", "lease_token", "message", "retryable", "retry_delay", "effect")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAY_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    lease_token: str
    message: str
    retryable: bool
    retry_delay: _duration_pb2.Duration
    effect: _events_pb2.AttemptEffect
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., lease_token: _Optional[str] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ..., retry_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., effect: _Optional[_Union[_events_pb2.AttemptEffect, str]] = ...) -> None: ...

class NeedInput(_message.Message):
    __slots__ = ("call_id", "attempt", "input_id", "question", "options", "multiple", "timeout", "form_schema_json", "url", "metadata_json", "resume_state", "allow_empty")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    INPUT_ID_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    FORM_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    RESUME_STATE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EMPTY_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    input_id: str
    question: str
    options: _containers.RepeatedCompositeFieldContainer[_types_pb2.SelectOption]
    multiple: bool
    timeout: _duration_pb2.Duration
    form_schema_json: str
    url: str
    metadata_json: str
    resume_state: bytes
    allow_empty: bool
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., input_id: _Optional[str] = ..., question: _Optional[str] = ..., options: _Optional[_Iterable[_Union[_types_pb2.SelectOption, _Mapping]]] = ..., multiple: _Optional[bool] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., form_schema_json: _Optional[str] = ..., url: _Optional[str] = ..., metadata_json: _Optional[str] = ..., resume_state: _Optional[bytes] = ..., allow_empty: _Optional[bool] = ...) -> None: ...

class CancelAck(_message.Message):
    __slots__ = ("call_id", "attempt", "outcome")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    outcome: CancelOutcome
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., outcome: _Optional[_Union[CancelOutcome, str]] = ...) -> None: ...

class Draining(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol_version", "connection_id", "capabilities", "heartbeat_interval", "lease_timeout", "grace_period", "max_frame_bytes", "calls")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_ID_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    LEASE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    GRACE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    connection_id: str
    capabilities: _containers.RepeatedCompositeFieldContainer[CapabilityVerdict]
    heartbeat_interval: _duration_pb2.Duration
    lease_timeout: _duration_pb2.Duration
    grace_period: _duration_pb2.Duration
    max_frame_bytes: int
    calls: _containers.RepeatedCompositeFieldContainer[CallVerdict]
    def __init__(self, protocol_version: _Optional[int] = ..., connection_id: _Optional[str] = ..., capabilities: _Optional[_Iterable[_Union[CapabilityVerdict, _Mapping]]] = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., lease_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., grace_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_frame_bytes: _Optional[int] = ..., calls: _Optional[_Iterable[_Union[CallVerdict, _Mapping]]] = ...) -> None: ...

class CapabilityVerdict(_message.Message):
    __slots__ = ("name", "accepted", "reason", "refusal")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    accepted: bool
    reason: str
    refusal: CapabilityRefusal
    def __init__(self, name: _Optional[str] = ..., accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., refusal: _Optional[_Union[CapabilityRefusal, str]] = ...) -> None: ...

class CallVerdict(_message.Message):
    __slots__ = ("call_id", "attempt", "disposition")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DISPOSITION_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    disposition: CallDisposition
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., disposition: _Optional[_Union[CallDisposition, str]] = ...) -> None: ...

class ToolsUpdated(_message.Message):
    __slots__ = ("capabilities",)
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    capabilities: _containers.RepeatedCompositeFieldContainer[CapabilityVerdict]
    def __init__(self, capabilities: _Optional[_Iterable[_Union[CapabilityVerdict, _Mapping]]] = ...) -> None: ...

class CallRequest(_message.Message):
    __slots__ = ("call_id", "attempt", "lease_token", "idempotency_key", "tool", "arguments_json", "deadline", "checkpoint", "run_id", "session_id", "turn_id", "traceparent", "runtime_id", "resume_state", "answers", "time_left", "caller")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_ID_FIELD_NUMBER: _ClassVar[int]
    RESUME_STATE_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    TIME_LEFT_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    lease_token: str
    idempotency_key: str
    tool: str
    arguments_json: str
    deadline: _timestamp_pb2.Timestamp
    checkpoint: bytes
    run_id: str
    session_id: str
    turn_id: str
    traceparent: str
    runtime_id: str
    resume_state: bytes
    answers: _containers.RepeatedCompositeFieldContainer[InputResponse]
    time_left: _duration_pb2.Duration
    caller: _types_pb2.Caller
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., lease_token: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., tool: _Optional[str] = ..., arguments_json: _Optional[str] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., checkpoint: _Optional[bytes] = ..., run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., traceparent: _Optional[str] = ..., runtime_id: _Optional[str] = ..., resume_state: _Optional[bytes] = ..., answers: _Optional[_Iterable[_Union[InputResponse, _Mapping]]] = ..., time_left: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., caller: _Optional[_Union[_types_pb2.Caller, _Mapping]] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("call_id", "attempt", "reason", "grace_period", "cause")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GRACE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    reason: str
    grace_period: _duration_pb2.Duration
    cause: CancelCause
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ..., grace_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cause: _Optional[_Union[CancelCause, str]] = ...) -> None: ...

class ResultAck(_message.Message):
    __slots__ = ("call_id", "attempt", "verdict")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    verdict: ResultVerdict
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., verdict: _Optional[_Union[ResultVerdict, str]] = ...) -> None: ...

class LeaseLost(_message.Message):
    __slots__ = ("call_id", "attempt")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class InputResponse(_message.Message):
    __slots__ = ("call_id", "input_id", "text", "selection", "refused", "form_json", "url")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FORM_JSON_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    input_id: str
    text: str
    selection: InputSelection
    refused: str
    form_json: str
    url: _types_pb2.UrlOutcome
    def __init__(self, call_id: _Optional[str] = ..., input_id: _Optional[str] = ..., text: _Optional[str] = ..., selection: _Optional[_Union[InputSelection, _Mapping]] = ..., refused: _Optional[str] = ..., form_json: _Optional[str] = ..., url: _Optional[_Union[_types_pb2.UrlOutcome, str]] = ...) -> None: ...

class ProgressAck(_message.Message):
    __slots__ = ("call_id", "attempt", "resume_no")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RESUME_NO_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    attempt: int
    resume_no: int
    def __init__(self, call_id: _Optional[str] = ..., attempt: _Optional[int] = ..., resume_no: _Optional[int] = ...) -> None: ...

class InputSelection(_message.Message):
    __slots__ = ("option_ids",)
    OPTION_IDS_FIELD_NUMBER: _ClassVar[int]
    option_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, option_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class GoAway(_message.Message):
    __slots__ = ("reconnect_after", "reason")
    RECONNECT_AFTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    reconnect_after: _duration_pb2.Duration
    reason: str
    def __init__(self, reconnect_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class ProtocolError(_message.Message):
    __slots__ = ("message", "call_id")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    message: str
    call_id: str
    def __init__(self, message: _Optional[str] = ..., call_id: _Optional[str] = ...) -> None: ...

class CompleteCallRequest(_message.Message):
    __slots__ = ("result", "failed")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    result: CallResult
    failed: CallFailed
    def __init__(self, result: _Optional[_Union[CallResult, _Mapping]] = ..., failed: _Optional[_Union[CallFailed, _Mapping]] = ...) -> None: ...

class CompleteCallResponse(_message.Message):
    __slots__ = ("verdict",)
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    verdict: ResultVerdict
    def __init__(self, verdict: _Optional[_Union[ResultVerdict, str]] = ...) -> None: ...
