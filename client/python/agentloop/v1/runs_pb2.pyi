import datetime

from agentloop.v1 import types_pb2 as _types_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DisconnectPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DISCONNECT_POLICY_UNSPECIFIED: _ClassVar[DisconnectPolicy]
    DISCONNECT_POLICY_CONTINUE: _ClassVar[DisconnectPolicy]
    DISCONNECT_POLICY_CANCEL: _ClassVar[DisconnectPolicy]

class BusySessionPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUSY_SESSION_POLICY_UNSPECIFIED: _ClassVar[BusySessionPolicy]
    BUSY_SESSION_POLICY_REJECT: _ClassVar[BusySessionPolicy]
    BUSY_SESSION_POLICY_ENQUEUE: _ClassVar[BusySessionPolicy]
    BUSY_SESSION_POLICY_INTERRUPT: _ClassVar[BusySessionPolicy]
    BUSY_SESSION_POLICY_STEER: _ClassVar[BusySessionPolicy]

class WaitKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WAIT_KIND_UNSPECIFIED: _ClassVar[WaitKind]
    WAIT_KIND_MODEL: _ClassVar[WaitKind]
    WAIT_KIND_BACKOFF: _ClassVar[WaitKind]
    WAIT_KIND_TOOL: _ClassVar[WaitKind]
    WAIT_KIND_TOOL_HOST: _ClassVar[WaitKind]
    WAIT_KIND_HUMAN: _ClassVar[WaitKind]
    WAIT_KIND_OPERATOR: _ClassVar[WaitKind]
    WAIT_KIND_STEP: _ClassVar[WaitKind]
    WAIT_KIND_SESSION: _ClassVar[WaitKind]
    WAIT_KIND_EXTENSION: _ClassVar[WaitKind]
    WAIT_KIND_MEMORY: _ClassVar[WaitKind]
DISCONNECT_POLICY_UNSPECIFIED: DisconnectPolicy
DISCONNECT_POLICY_CONTINUE: DisconnectPolicy
DISCONNECT_POLICY_CANCEL: DisconnectPolicy
BUSY_SESSION_POLICY_UNSPECIFIED: BusySessionPolicy
BUSY_SESSION_POLICY_REJECT: BusySessionPolicy
BUSY_SESSION_POLICY_ENQUEUE: BusySessionPolicy
BUSY_SESSION_POLICY_INTERRUPT: BusySessionPolicy
BUSY_SESSION_POLICY_STEER: BusySessionPolicy
WAIT_KIND_UNSPECIFIED: WaitKind
WAIT_KIND_MODEL: WaitKind
WAIT_KIND_BACKOFF: WaitKind
WAIT_KIND_TOOL: WaitKind
WAIT_KIND_TOOL_HOST: WaitKind
WAIT_KIND_HUMAN: WaitKind
WAIT_KIND_OPERATOR: WaitKind
WAIT_KIND_STEP: WaitKind
WAIT_KIND_SESSION: WaitKind
WAIT_KIND_EXTENSION: WaitKind
WAIT_KIND_MEMORY: WaitKind

class RunInput(_message.Message):
    __slots__ = ("session_id", "run_id", "prompt", "input_messages", "system_prompt_override", "allowed_tools", "tool_order", "tool_policy", "loop_limits", "auto_create_session", "runtime_init_data_json", "runtime_hints_json", "agent", "model", "model_options", "retry_policy", "on_disconnect", "on_busy_session", "labels", "approval_timeout_seconds", "stepped", "instruction_files", "environment", "context_policy", "planner", "hooks", "context_sources", "start_at", "parent_run_id")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    INPUT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_PROMPT_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_ORDER_FIELD_NUMBER: _ClassVar[int]
    TOOL_POLICY_FIELD_NUMBER: _ClassVar[int]
    LOOP_LIMITS_FIELD_NUMBER: _ClassVar[int]
    AUTO_CREATE_SESSION_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_INIT_DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_HINTS_JSON_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    RETRY_POLICY_FIELD_NUMBER: _ClassVar[int]
    ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    ON_BUSY_SESSION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEPPED_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FILES_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_POLICY_FIELD_NUMBER: _ClassVar[int]
    PLANNER_FIELD_NUMBER: _ClassVar[int]
    HOOKS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_SOURCES_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    PARENT_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    prompt: str
    input_messages: _containers.RepeatedCompositeFieldContainer[_types_pb2.Message]
    system_prompt_override: str
    allowed_tools: _types_pb2.ToolNames
    tool_order: _containers.RepeatedScalarFieldContainer[str]
    tool_policy: _types_pb2.ToolPolicy
    loop_limits: _types_pb2.LoopLimits
    auto_create_session: bool
    runtime_init_data_json: str
    runtime_hints_json: str
    agent: str
    model: str
    model_options: _types_pb2.ModelOptions
    retry_policy: _types_pb2.RetryPolicy
    on_disconnect: DisconnectPolicy
    on_busy_session: BusySessionPolicy
    labels: _containers.ScalarMap[str, str]
    approval_timeout_seconds: int
    stepped: bool
    instruction_files: _containers.RepeatedCompositeFieldContainer[_types_pb2.InstructionFile]
    environment: _containers.ScalarMap[str, str]
    context_policy: _types_pb2.ContextPolicy
    planner: str
    hooks: _types_pb2.Names
    context_sources: _types_pb2.Names
    start_at: _timestamp_pb2.Timestamp
    parent_run_id: str
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., prompt: _Optional[str] = ..., input_messages: _Optional[_Iterable[_Union[_types_pb2.Message, _Mapping]]] = ..., system_prompt_override: _Optional[str] = ..., allowed_tools: _Optional[_Union[_types_pb2.ToolNames, _Mapping]] = ..., tool_order: _Optional[_Iterable[str]] = ..., tool_policy: _Optional[_Union[_types_pb2.ToolPolicy, _Mapping]] = ..., loop_limits: _Optional[_Union[_types_pb2.LoopLimits, _Mapping]] = ..., auto_create_session: _Optional[bool] = ..., runtime_init_data_json: _Optional[str] = ..., runtime_hints_json: _Optional[str] = ..., agent: _Optional[str] = ..., model: _Optional[str] = ..., model_options: _Optional[_Union[_types_pb2.ModelOptions, _Mapping]] = ..., retry_policy: _Optional[_Union[_types_pb2.RetryPolicy, _Mapping]] = ..., on_disconnect: _Optional[_Union[DisconnectPolicy, str]] = ..., on_busy_session: _Optional[_Union[BusySessionPolicy, str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., approval_timeout_seconds: _Optional[int] = ..., stepped: _Optional[bool] = ..., instruction_files: _Optional[_Iterable[_Union[_types_pb2.InstructionFile, _Mapping]]] = ..., environment: _Optional[_Mapping[str, str]] = ..., context_policy: _Optional[_Union[_types_pb2.ContextPolicy, _Mapping]] = ..., planner: _Optional[str] = ..., hooks: _Optional[_Union[_types_pb2.Names, _Mapping]] = ..., context_sources: _Optional[_Union[_types_pb2.Names, _Mapping]] = ..., start_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., parent_run_id: _Optional[str] = ...) -> None: ...

class RunResult(_message.Message):
    __slots__ = ("session_id", "run_id", "status", "final_assistant_message", "last_error", "usage", "pending", "last_seq", "durations", "finish_reason")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FINAL_ASSISTANT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    DURATIONS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    status: _types_pb2.RunStatus
    final_assistant_message: _types_pb2.Message
    last_error: _types_pb2.RunError
    usage: _types_pb2.Usage
    pending: _containers.RepeatedCompositeFieldContainer[_types_pb2.HumanRequest]
    last_seq: int
    durations: _types_pb2.RunDurations
    finish_reason: _types_pb2.FinishReason
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., status: _Optional[_Union[_types_pb2.RunStatus, str]] = ..., final_assistant_message: _Optional[_Union[_types_pb2.Message, _Mapping]] = ..., last_error: _Optional[_Union[_types_pb2.RunError, _Mapping]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., pending: _Optional[_Iterable[_Union[_types_pb2.HumanRequest, _Mapping]]] = ..., last_seq: _Optional[int] = ..., durations: _Optional[_Union[_types_pb2.RunDurations, _Mapping]] = ..., finish_reason: _Optional[_Union[_types_pb2.FinishReason, str]] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("run_id", "session_id", "status", "agent", "model", "created_at", "updated_at", "last_seq", "last_error", "usage", "iterations", "tool_calls", "labels", "final_assistant_message", "waiting_on", "pending", "tool_calls_open", "durations", "queue_position", "parent_run_id", "root_run_id", "created_by", "preview", "start_at", "finish_reason")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    FINAL_ASSISTANT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WAITING_ON_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_OPEN_FIELD_NUMBER: _ClassVar[int]
    DURATIONS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    PARENT_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROOT_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    session_id: str
    status: _types_pb2.RunStatus
    agent: str
    model: str
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    last_seq: int
    last_error: _types_pb2.RunError
    usage: _types_pb2.Usage
    iterations: int
    tool_calls: int
    labels: _containers.ScalarMap[str, str]
    final_assistant_message: _types_pb2.Message
    waiting_on: WaitingOn
    pending: _containers.RepeatedCompositeFieldContainer[_types_pb2.HumanRequest]
    tool_calls_open: _containers.RepeatedCompositeFieldContainer[ToolCallView]
    durations: _types_pb2.RunDurations
    queue_position: int
    parent_run_id: str
    root_run_id: str
    created_by: str
    preview: str
    start_at: _timestamp_pb2.Timestamp
    finish_reason: _types_pb2.FinishReason
    def __init__(self, run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., status: _Optional[_Union[_types_pb2.RunStatus, str]] = ..., agent: _Optional[str] = ..., model: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_seq: _Optional[int] = ..., last_error: _Optional[_Union[_types_pb2.RunError, _Mapping]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., iterations: _Optional[int] = ..., tool_calls: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., final_assistant_message: _Optional[_Union[_types_pb2.Message, _Mapping]] = ..., waiting_on: _Optional[_Union[WaitingOn, _Mapping]] = ..., pending: _Optional[_Iterable[_Union[_types_pb2.HumanRequest, _Mapping]]] = ..., tool_calls_open: _Optional[_Iterable[_Union[ToolCallView, _Mapping]]] = ..., durations: _Optional[_Union[_types_pb2.RunDurations, _Mapping]] = ..., queue_position: _Optional[int] = ..., parent_run_id: _Optional[str] = ..., root_run_id: _Optional[str] = ..., created_by: _Optional[str] = ..., preview: _Optional[str] = ..., start_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finish_reason: _Optional[_Union[_types_pb2.FinishReason, str]] = ...) -> None: ...

class RunFilter(_message.Message):
    __slots__ = ("session_id", "statuses", "labels", "agents", "models", "created_after", "created_before", "text", "parent_run_id", "root_run_id", "created_by")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AFTER_FIELD_NUMBER: _ClassVar[int]
    CREATED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PARENT_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROOT_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    statuses: _containers.RepeatedScalarFieldContainer[_types_pb2.RunStatus]
    labels: _containers.ScalarMap[str, str]
    agents: _containers.RepeatedScalarFieldContainer[str]
    models: _containers.RepeatedScalarFieldContainer[str]
    created_after: _timestamp_pb2.Timestamp
    created_before: _timestamp_pb2.Timestamp
    text: str
    parent_run_id: str
    root_run_id: str
    created_by: str
    def __init__(self, session_id: _Optional[str] = ..., statuses: _Optional[_Iterable[_Union[_types_pb2.RunStatus, str]]] = ..., labels: _Optional[_Mapping[str, str]] = ..., agents: _Optional[_Iterable[str]] = ..., models: _Optional[_Iterable[str]] = ..., created_after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., text: _Optional[str] = ..., parent_run_id: _Optional[str] = ..., root_run_id: _Optional[str] = ..., created_by: _Optional[str] = ...) -> None: ...

class ToolCallView(_message.Message):
    __slots__ = ("call_id", "tool", "state", "attempt", "host_id", "started_at")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    tool: str
    state: _types_pb2.ToolCallState
    attempt: int
    host_id: str
    started_at: _timestamp_pb2.Timestamp
    def __init__(self, call_id: _Optional[str] = ..., tool: _Optional[str] = ..., state: _Optional[_Union[_types_pb2.ToolCallState, str]] = ..., attempt: _Optional[int] = ..., host_id: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class WaitingOn(_message.Message):
    __slots__ = ("kind", "since", "what", "attempt", "next_at", "last_error")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NEXT_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    kind: WaitKind
    since: _timestamp_pb2.Timestamp
    what: str
    attempt: int
    next_at: _timestamp_pb2.Timestamp
    last_error: _types_pb2.RunError
    def __init__(self, kind: _Optional[_Union[WaitKind, str]] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., what: _Optional[str] = ..., attempt: _Optional[int] = ..., next_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_error: _Optional[_Union[_types_pb2.RunError, _Mapping]] = ...) -> None: ...
