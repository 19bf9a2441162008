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

class UsageGroup(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    USAGE_GROUP_UNSPECIFIED: _ClassVar[UsageGroup]
    USAGE_GROUP_AGENT: _ClassVar[UsageGroup]
    USAGE_GROUP_MODEL: _ClassVar[UsageGroup]
    USAGE_GROUP_LABEL: _ClassVar[UsageGroup]
    USAGE_GROUP_CREATED_BY: _ClassVar[UsageGroup]

class ReplicaState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLICA_STATE_UNSPECIFIED: _ClassVar[ReplicaState]
    REPLICA_STATE_OWNER: _ClassVar[ReplicaState]
    REPLICA_STATE_STANDBY: _ClassVar[ReplicaState]
    REPLICA_STATE_FENCED: _ClassVar[ReplicaState]
USAGE_GROUP_UNSPECIFIED: UsageGroup
USAGE_GROUP_AGENT: UsageGroup
USAGE_GROUP_MODEL: UsageGroup
USAGE_GROUP_LABEL: UsageGroup
USAGE_GROUP_CREATED_BY: UsageGroup
REPLICA_STATE_UNSPECIFIED: ReplicaState
REPLICA_STATE_OWNER: ReplicaState
REPLICA_STATE_STANDBY: ReplicaState
REPLICA_STATE_FENCED: ReplicaState

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("version", "started_at", "features", "limits", "store", "caller", "caller_roles", "authentication_required", "retention", "providers", "retained_sessions_max")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    CALLER_ROLES_FIELD_NUMBER: _ClassVar[int]
    AUTHENTICATION_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_SESSIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    version: str
    started_at: _timestamp_pb2.Timestamp
    features: _containers.RepeatedScalarFieldContainer[str]
    limits: ServerLimits
    store: str
    caller: _types_pb2.Caller
    caller_roles: _containers.RepeatedScalarFieldContainer[str]
    authentication_required: bool
    retention: _duration_pb2.Duration
    providers: _containers.RepeatedCompositeFieldContainer[ModelProvider]
    retained_sessions_max: int
    def __init__(self, version: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., features: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[ServerLimits, _Mapping]] = ..., store: _Optional[str] = ..., caller: _Optional[_Union[_types_pb2.Caller, _Mapping]] = ..., caller_roles: _Optional[_Iterable[str]] = ..., authentication_required: _Optional[bool] = ..., retention: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., providers: _Optional[_Iterable[_Union[ModelProvider, _Mapping]]] = ..., retained_sessions_max: _Optional[int] = ...) -> None: ...

class ModelProvider(_message.Message):
    __slots__ = ("name", "models")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    name: str
    models: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ...) -> None: ...

class ServerLimits(_message.Message):
    __slots__ = ("message_bytes_max", "live_runs_max", "live_bytes_max", "queued_runs_max", "tool_output_bytes_max", "blob_bytes_max", "hosts_max")
    MESSAGE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    LIVE_RUNS_MAX_FIELD_NUMBER: _ClassVar[int]
    LIVE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    QUEUED_RUNS_MAX_FIELD_NUMBER: _ClassVar[int]
    TOOL_OUTPUT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BLOB_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    HOSTS_MAX_FIELD_NUMBER: _ClassVar[int]
    message_bytes_max: int
    live_runs_max: int
    live_bytes_max: int
    queued_runs_max: int
    tool_output_bytes_max: int
    blob_bytes_max: int
    hosts_max: int
    def __init__(self, message_bytes_max: _Optional[int] = ..., live_runs_max: _Optional[int] = ..., live_bytes_max: _Optional[int] = ..., queued_runs_max: _Optional[int] = ..., tool_output_bytes_max: _Optional[int] = ..., blob_bytes_max: _Optional[int] = ..., hosts_max: _Optional[int] = ...) -> None: ...

class ListAgentsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListAgentsResponse(_message.Message):
    __slots__ = ("agents",)
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[Agent]
    def __init__(self, agents: _Optional[_Iterable[_Union[Agent, _Mapping]]] = ...) -> None: ...

class Agent(_message.Message):
    __slots__ = ("name", "description", "model", "allow_list", "loop_limits", "planner", "hooks", "context_sources", "cost_known", "context_window")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ALLOW_LIST_FIELD_NUMBER: _ClassVar[int]
    LOOP_LIMITS_FIELD_NUMBER: _ClassVar[int]
    PLANNER_FIELD_NUMBER: _ClassVar[int]
    HOOKS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_SOURCES_FIELD_NUMBER: _ClassVar[int]
    COST_KNOWN_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_WINDOW_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    model: str
    allow_list: _types_pb2.ToolNames
    loop_limits: _types_pb2.LoopLimits
    planner: str
    hooks: _containers.RepeatedScalarFieldContainer[str]
    context_sources: _containers.RepeatedScalarFieldContainer[str]
    cost_known: bool
    context_window: int
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., model: _Optional[str] = ..., allow_list: _Optional[_Union[_types_pb2.ToolNames, _Mapping]] = ..., loop_limits: _Optional[_Union[_types_pb2.LoopLimits, _Mapping]] = ..., planner: _Optional[str] = ..., hooks: _Optional[_Iterable[str]] = ..., context_sources: _Optional[_Iterable[str]] = ..., cost_known: _Optional[bool] = ..., context_window: _Optional[int] = ...) -> None: ...

class GetUsageRequest(_message.Message):
    __slots__ = ("from_time", "to_time", "bucket", "group_by", "label_key", "agent", "model", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    FROM_TIME_FIELD_NUMBER: _ClassVar[int]
    TO_TIME_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    GROUP_BY_FIELD_NUMBER: _ClassVar[int]
    LABEL_KEY_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    from_time: _timestamp_pb2.Timestamp
    to_time: _timestamp_pb2.Timestamp
    bucket: _duration_pb2.Duration
    group_by: _containers.RepeatedScalarFieldContainer[UsageGroup]
    label_key: str
    agent: str
    model: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, from_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., to_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., bucket: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., group_by: _Optional[_Iterable[_Union[UsageGroup, str]]] = ..., label_key: _Optional[str] = ..., agent: _Optional[str] = ..., model: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GetUsageResponse(_message.Message):
    __slots__ = ("rows", "quotas")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[UsageRow]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    def __init__(self, rows: _Optional[_Iterable[_Union[UsageRow, _Mapping]]] = ..., quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ...) -> None: ...

class UsageRow(_message.Message):
    __slots__ = ("start", "agent", "model", "label_value", "runs", "model_calls", "tool_calls", "run_errors", "failed_model_attempts", "failed_tool_calls", "usage", "model_calls_without_price", "created_by")
    class RunErrorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    START_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LABEL_VALUE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    MODEL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    RUN_ERRORS_FIELD_NUMBER: _ClassVar[int]
    FAILED_MODEL_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    MODEL_CALLS_WITHOUT_PRICE_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    start: _timestamp_pb2.Timestamp
    agent: str
    model: str
    label_value: str
    runs: int
    model_calls: int
    tool_calls: int
    run_errors: _containers.ScalarMap[str, int]
    failed_model_attempts: int
    failed_tool_calls: int
    usage: _types_pb2.Usage
    model_calls_without_price: int
    created_by: str
    def __init__(self, start: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., agent: _Optional[str] = ..., model: _Optional[str] = ..., label_value: _Optional[str] = ..., runs: _Optional[int] = ..., model_calls: _Optional[int] = ..., tool_calls: _Optional[int] = ..., run_errors: _Optional[_Mapping[str, int]] = ..., failed_model_attempts: _Optional[int] = ..., failed_tool_calls: _Optional[int] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., model_calls_without_price: _Optional[int] = ..., created_by: _Optional[str] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("name", "holder", "limit", "used", "window")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    name: str
    holder: str
    limit: int
    used: int
    window: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., holder: _Optional[str] = ..., limit: _Optional[int] = ..., used: _Optional[int] = ..., window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ListAuditRecordsRequest(_message.Message):
    __slots__ = ("filter", "page_size", "page_token")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    filter: AuditFilter
    page_size: int
    page_token: str
    def __init__(self, filter: _Optional[_Union[AuditFilter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class AuditFilter(_message.Message):
    __slots__ = ("principal", "rpc", "run_id", "session_id", "from_time", "to_time", "denied")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    RPC_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_TIME_FIELD_NUMBER: _ClassVar[int]
    TO_TIME_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    principal: str
    rpc: str
    run_id: str
    session_id: str
    from_time: _timestamp_pb2.Timestamp
    to_time: _timestamp_pb2.Timestamp
    denied: bool
    def __init__(self, principal: _Optional[str] = ..., rpc: _Optional[str] = ..., run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., from_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., to_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., denied: _Optional[bool] = ...) -> None: ...

class ListAuditRecordsResponse(_message.Message):
    __slots__ = ("records", "next_page_token")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[AuditRecord]
    next_page_token: str
    def __init__(self, records: _Optional[_Iterable[_Union[AuditRecord, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class AuditRecord(_message.Message):
    __slots__ = ("no", "at", "principal", "tenant", "peer", "rpc", "session_id", "run_id", "request_id", "tool", "allowed", "reason", "previous_hash", "hash")
    NO_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    RPC_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_HASH_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    no: int
    at: _timestamp_pb2.Timestamp
    principal: str
    tenant: str
    peer: str
    rpc: str
    session_id: str
    run_id: str
    request_id: str
    tool: str
    allowed: bool
    reason: str
    previous_hash: str
    hash: str
    def __init__(self, no: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., principal: _Optional[str] = ..., tenant: _Optional[str] = ..., peer: _Optional[str] = ..., rpc: _Optional[str] = ..., session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., request_id: _Optional[str] = ..., tool: _Optional[str] = ..., allowed: _Optional[bool] = ..., reason: _Optional[str] = ..., previous_hash: _Optional[str] = ..., hash: _Optional[str] = ...) -> None: ...

class VerifyAuditRequest(_message.Message):
    __slots__ = ("known_hash",)
    KNOWN_HASH_FIELD_NUMBER: _ClassVar[int]
    known_hash: str
    def __init__(self, known_hash: _Optional[str] = ...) -> None: ...

class VerifyAuditResponse(_message.Message):
    __slots__ = ("broken_no", "problem", "records", "first_no", "last_no", "last_hash", "known_hash_found")
    BROKEN_NO_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_NO_FIELD_NUMBER: _ClassVar[int]
    LAST_NO_FIELD_NUMBER: _ClassVar[int]
    LAST_HASH_FIELD_NUMBER: _ClassVar[int]
    KNOWN_HASH_FOUND_FIELD_NUMBER: _ClassVar[int]
    broken_no: int
    problem: str
    records: int
    first_no: int
    last_no: int
    last_hash: str
    known_hash_found: bool
    def __init__(self, broken_no: _Optional[int] = ..., problem: _Optional[str] = ..., records: _Optional[int] = ..., first_no: _Optional[int] = ..., last_no: _Optional[int] = ..., last_hash: _Optional[str] = ..., known_hash_found: _Optional[bool] = ...) -> None: ...

class ListReplicasRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListReplicasResponse(_message.Message):
    __slots__ = ("replicas",)
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedCompositeFieldContainer[Replica]
    def __init__(self, replicas: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ...) -> None: ...

class Replica(_message.Message):
    __slots__ = ("number", "address", "version", "joined_at", "state", "silent_for", "configuration_digest", "shards", "keeps_hosts", "problem")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    JOINED_AT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SILENT_FOR_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    KEEPS_HOSTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    number: int
    address: str
    version: str
    joined_at: _timestamp_pb2.Timestamp
    state: ReplicaState
    silent_for: _duration_pb2.Duration
    configuration_digest: str
    shards: int
    keeps_hosts: bool
    problem: str
    def __init__(self, number: _Optional[int] = ..., address: _Optional[str] = ..., version: _Optional[str] = ..., joined_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., state: _Optional[_Union[ReplicaState, str]] = ..., silent_for: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., configuration_digest: _Optional[str] = ..., shards: _Optional[int] = ..., keeps_hosts: _Optional[bool] = ..., problem: _Optional[str] = ...) -> None: ...
