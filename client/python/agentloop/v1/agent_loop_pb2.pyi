import datetime

from agentloop.v1 import events_pb2 as _events_pb2
from agentloop.v1 import runs_pb2 as _runs_pb2
from agentloop.v1 import types_pb2 as _types_pb2
from agentloop.v1 import watch_pb2 as _watch_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RememberScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REMEMBER_SCOPE_UNSPECIFIED: _ClassVar[RememberScope]
    REMEMBER_SCOPE_ONCE: _ClassVar[RememberScope]
    REMEMBER_SCOPE_RUN: _ClassVar[RememberScope]
    REMEMBER_SCOPE_SESSION: _ClassVar[RememberScope]
    REMEMBER_SCOPE_RULE: _ClassVar[RememberScope]
REMEMBER_SCOPE_UNSPECIFIED: RememberScope
REMEMBER_SCOPE_ONCE: RememberScope
REMEMBER_SCOPE_RUN: RememberScope
REMEMBER_SCOPE_SESSION: RememberScope
REMEMBER_SCOPE_RULE: RememberScope

class RunRequest(_message.Message):
    __slots__ = ("input",)
    INPUT_FIELD_NUMBER: _ClassVar[int]
    input: _runs_pb2.RunInput
    def __init__(self, input: _Optional[_Union[_runs_pb2.RunInput, _Mapping]] = ...) -> None: ...

class RunResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: _runs_pb2.RunResult
    def __init__(self, result: _Optional[_Union[_runs_pb2.RunResult, _Mapping]] = ...) -> None: ...

class RunStreamRequest(_message.Message):
    __slots__ = ("input", "after_seq")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    input: _runs_pb2.RunInput
    after_seq: int
    def __init__(self, input: _Optional[_Union[_runs_pb2.RunInput, _Mapping]] = ..., after_seq: _Optional[int] = ...) -> None: ...

class RunStreamResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: _events_pb2.RunEvent
    def __init__(self, event: _Optional[_Union[_events_pb2.RunEvent, _Mapping]] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("run_id", "after_seq", "durable_only")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    DURABLE_ONLY_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    after_seq: int
    durable_only: bool
    def __init__(self, run_id: _Optional[str] = ..., after_seq: _Optional[int] = ..., durable_only: _Optional[bool] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: _events_pb2.RunEvent
    def __init__(self, event: _Optional[_Union[_events_pb2.RunEvent, _Mapping]] = ...) -> None: ...

class AbortRequest(_message.Message):
    __slots__ = ("run_id", "session_id", "reason")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    session_id: str
    reason: str
    def __init__(self, run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ("run_id", "status")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    status: _types_pb2.RunStatus
    def __init__(self, run_id: _Optional[str] = ..., status: _Optional[_Union[_types_pb2.RunStatus, str]] = ...) -> None: ...

class SubmitApprovalRequest(_message.Message):
    __slots__ = ("request_id", "decision", "digest", "decided_by", "remember", "remember_rule")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    REMEMBER_FIELD_NUMBER: _ClassVar[int]
    REMEMBER_RULE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    decision: _types_pb2.Decision
    digest: str
    decided_by: str
    remember: RememberScope
    remember_rule: _types_pb2.PolicyRule
    def __init__(self, request_id: _Optional[str] = ..., decision: _Optional[_Union[_types_pb2.Decision, _Mapping]] = ..., digest: _Optional[str] = ..., decided_by: _Optional[str] = ..., remember: _Optional[_Union[RememberScope, str]] = ..., remember_rule: _Optional[_Union[_types_pb2.PolicyRule, _Mapping]] = ...) -> None: ...

class SubmitApprovalResponse(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: _types_pb2.HumanRequest
    def __init__(self, request: _Optional[_Union[_types_pb2.HumanRequest, _Mapping]] = ...) -> None: ...

class SubmitInputRequest(_message.Message):
    __slots__ = ("request_id", "text", "selection", "form_json", "url", "declined", "answered_by")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    FORM_JSON_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    DECLINED_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    text: str
    selection: _types_pb2.Selection
    form_json: str
    url: _types_pb2.UrlOutcome
    declined: _types_pb2.Declined
    answered_by: str
    def __init__(self, request_id: _Optional[str] = ..., text: _Optional[str] = ..., selection: _Optional[_Union[_types_pb2.Selection, _Mapping]] = ..., form_json: _Optional[str] = ..., url: _Optional[_Union[_types_pb2.UrlOutcome, str]] = ..., declined: _Optional[_Union[_types_pb2.Declined, _Mapping]] = ..., answered_by: _Optional[str] = ...) -> None: ...

class SubmitInputResponse(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: _types_pb2.HumanRequest
    def __init__(self, request: _Optional[_Union[_types_pb2.HumanRequest, _Mapping]] = ...) -> None: ...

class StepRequest(_message.Message):
    __slots__ = ("run_id", "request_id", "approve_request_id")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    APPROVE_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    request_id: str
    approve_request_id: str
    def __init__(self, run_id: _Optional[str] = ..., request_id: _Optional[str] = ..., approve_request_id: _Optional[str] = ...) -> None: ...

class StepResponse(_message.Message):
    __slots__ = ("events", "run", "instruction")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_events_pb2.RunEvent]
    run: _runs_pb2.Run
    instruction: _types_pb2.Instruction
    def __init__(self, events: _Optional[_Iterable[_Union[_events_pb2.RunEvent, _Mapping]]] = ..., run: _Optional[_Union[_runs_pb2.Run, _Mapping]] = ..., instruction: _Optional[_Union[_types_pb2.Instruction, _Mapping]] = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class GetRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _runs_pb2.Run
    def __init__(self, run: _Optional[_Union[_runs_pb2.Run, _Mapping]] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("session_id", "statuses", "page_size", "page_token", "filter")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    statuses: _containers.RepeatedScalarFieldContainer[_types_pb2.RunStatus]
    page_size: int
    page_token: str
    filter: _runs_pb2.RunFilter
    def __init__(self, session_id: _Optional[str] = ..., statuses: _Optional[_Iterable[_Union[_types_pb2.RunStatus, str]]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[_Union[_runs_pb2.RunFilter, _Mapping]] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "next_page_token")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[_runs_pb2.Run]
    next_page_token: str
    def __init__(self, runs: _Optional[_Iterable[_Union[_runs_pb2.Run, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListPendingRequest(_message.Message):
    __slots__ = ("session_id", "run_id", "page_size", "page_token", "filter")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    page_size: int
    page_token: str
    filter: PendingFilter
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[_Union[PendingFilter, _Mapping]] = ...) -> None: ...

class PendingFilter(_message.Message):
    __slots__ = ("kinds", "tools", "labels", "agents", "models", "created_after", "created_before", "text", "root_run_id", "mine")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KINDS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AFTER_FIELD_NUMBER: _ClassVar[int]
    CREATED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ROOT_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    MINE_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedScalarFieldContainer[_types_pb2.HumanRequestKind]
    tools: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    agents: _containers.RepeatedScalarFieldContainer[str]
    models: _containers.RepeatedScalarFieldContainer[str]
    created_after: _timestamp_pb2.Timestamp
    created_before: _timestamp_pb2.Timestamp
    text: str
    root_run_id: str
    mine: bool
    def __init__(self, kinds: _Optional[_Iterable[_Union[_types_pb2.HumanRequestKind, str]]] = ..., tools: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., agents: _Optional[_Iterable[str]] = ..., models: _Optional[_Iterable[str]] = ..., created_after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., text: _Optional[str] = ..., root_run_id: _Optional[str] = ..., mine: _Optional[bool] = ...) -> None: ...

class ListPendingResponse(_message.Message):
    __slots__ = ("requests", "next_page_token")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[_types_pb2.HumanRequest]
    next_page_token: str
    def __init__(self, requests: _Optional[_Iterable[_Union[_types_pb2.HumanRequest, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ResumeRunRequest(_message.Message):
    __slots__ = ("run_id", "request_id", "resumed_by")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESUMED_BY_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    request_id: str
    resumed_by: str
    def __init__(self, run_id: _Optional[str] = ..., request_id: _Optional[str] = ..., resumed_by: _Optional[str] = ...) -> None: ...

class ResumeRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _runs_pb2.Run
    def __init__(self, run: _Optional[_Union[_runs_pb2.Run, _Mapping]] = ...) -> None: ...

class ReplayRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class ReplayRunResponse(_message.Message):
    __slots__ = ("events", "faithful", "difference", "state_digest", "context_digest", "unverified_events")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    FAITHFUL_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    STATE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    UNVERIFIED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: int
    faithful: bool
    difference: str
    state_digest: str
    context_digest: str
    unverified_events: int
    def __init__(self, events: _Optional[int] = ..., faithful: _Optional[bool] = ..., difference: _Optional[str] = ..., state_digest: _Optional[str] = ..., context_digest: _Optional[str] = ..., unverified_events: _Optional[int] = ...) -> None: ...
