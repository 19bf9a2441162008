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

class HostHealth(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOST_HEALTH_UNSPECIFIED: _ClassVar[HostHealth]
    HOST_HEALTH_CONNECTED: _ClassVar[HostHealth]
    HOST_HEALTH_DRAINING: _ClassVar[HostHealth]
    HOST_HEALTH_LOST: _ClassVar[HostHealth]

class RuleOrigin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RULE_ORIGIN_UNSPECIFIED: _ClassVar[RuleOrigin]
    RULE_ORIGIN_AGENT: _ClassVar[RuleOrigin]
    RULE_ORIGIN_REQUEST: _ClassVar[RuleOrigin]
    RULE_ORIGIN_RUN: _ClassVar[RuleOrigin]
    RULE_ORIGIN_SESSION: _ClassVar[RuleOrigin]
    RULE_ORIGIN_RULE: _ClassVar[RuleOrigin]
    RULE_ORIGIN_CANDIDATE: _ClassVar[RuleOrigin]
HOST_HEALTH_UNSPECIFIED: HostHealth
HOST_HEALTH_CONNECTED: HostHealth
HOST_HEALTH_DRAINING: HostHealth
HOST_HEALTH_LOST: HostHealth
RULE_ORIGIN_UNSPECIFIED: RuleOrigin
RULE_ORIGIN_AGENT: RuleOrigin
RULE_ORIGIN_REQUEST: RuleOrigin
RULE_ORIGIN_RUN: RuleOrigin
RULE_ORIGIN_SESSION: RuleOrigin
RULE_ORIGIN_RULE: RuleOrigin
RULE_ORIGIN_CANDIDATE: RuleOrigin

class ListToolsRequest(_message.Message):
    __slots__ = ("name", "page_size", "page_token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    page_size: int
    page_token: str
    def __init__(self, name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListToolsResponse(_message.Message):
    __slots__ = ("tools", "next_page_token")
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    next_page_token: str
    def __init__(self, tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ("declaration", "digest", "host_ids", "calls_in_flight", "calls_queued", "last_seen_at", "terms_digest", "refused", "configured")
    DECLARATION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    HOST_IDS_FIELD_NUMBER: _ClassVar[int]
    CALLS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    CALLS_QUEUED_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    TERMS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    declaration: _types_pb2.ToolDeclaration
    digest: str
    host_ids: _containers.RepeatedScalarFieldContainer[str]
    calls_in_flight: int
    calls_queued: int
    last_seen_at: _timestamp_pb2.Timestamp
    terms_digest: str
    refused: _containers.RepeatedCompositeFieldContainer[RefusedDeclaration]
    configured: bool
    def __init__(self, declaration: _Optional[_Union[_types_pb2.ToolDeclaration, _Mapping]] = ..., digest: _Optional[str] = ..., host_ids: _Optional[_Iterable[str]] = ..., calls_in_flight: _Optional[int] = ..., calls_queued: _Optional[int] = ..., last_seen_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., terms_digest: _Optional[str] = ..., refused: _Optional[_Iterable[_Union[RefusedDeclaration, _Mapping]]] = ..., configured: _Optional[bool] = ...) -> None: ...

class ListHostsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListHostsResponse(_message.Message):
    __slots__ = ("hosts", "next_page_token")
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    hosts: _containers.RepeatedCompositeFieldContainer[Host]
    next_page_token: str
    def __init__(self, hosts: _Optional[_Iterable[_Union[Host, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Host(_message.Message):
    __slots__ = ("host_id", "health", "sdk", "tools", "calls_in_flight", "free_credit", "connected_at", "last_seen_at", "extensions", "status_text", "instance_id")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    SDK_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    CALLS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    FREE_CREDIT_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    STATUS_TEXT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    health: HostHealth
    sdk: str
    tools: _containers.RepeatedScalarFieldContainer[str]
    calls_in_flight: int
    free_credit: int
    connected_at: _timestamp_pb2.Timestamp
    last_seen_at: _timestamp_pb2.Timestamp
    extensions: _containers.RepeatedScalarFieldContainer[str]
    status_text: str
    instance_id: str
    def __init__(self, host_id: _Optional[str] = ..., health: _Optional[_Union[HostHealth, str]] = ..., sdk: _Optional[str] = ..., tools: _Optional[_Iterable[str]] = ..., calls_in_flight: _Optional[int] = ..., free_credit: _Optional[int] = ..., connected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_seen_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., extensions: _Optional[_Iterable[str]] = ..., status_text: _Optional[str] = ..., instance_id: _Optional[str] = ...) -> None: ...

class CheckPolicyRequest(_message.Message):
    __slots__ = ("run_id", "agent", "session_id", "tool_policy", "tool", "arguments_json", "candidate")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_POLICY_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    agent: str
    session_id: str
    tool_policy: _types_pb2.ToolPolicy
    tool: str
    arguments_json: str
    candidate: _types_pb2.PolicyRule
    def __init__(self, run_id: _Optional[str] = ..., agent: _Optional[str] = ..., session_id: _Optional[str] = ..., tool_policy: _Optional[_Union[_types_pb2.ToolPolicy, _Mapping]] = ..., tool: _Optional[str] = ..., arguments_json: _Optional[str] = ..., candidate: _Optional[_Union[_types_pb2.PolicyRule, _Mapping]] = ...) -> None: ...

class CheckPolicyResponse(_message.Message):
    __slots__ = ("action", "reason", "rule", "origin", "candidate_matches", "matching_request_ids")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_MATCHES_FIELD_NUMBER: _ClassVar[int]
    MATCHING_REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    action: _types_pb2.PolicyAction
    reason: str
    rule: _types_pb2.PolicyRule
    origin: RuleOrigin
    candidate_matches: bool
    matching_request_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, action: _Optional[_Union[_types_pb2.PolicyAction, str]] = ..., reason: _Optional[str] = ..., rule: _Optional[_Union[_types_pb2.PolicyRule, _Mapping]] = ..., origin: _Optional[_Union[RuleOrigin, str]] = ..., candidate_matches: _Optional[bool] = ..., matching_request_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListRulesRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class ListRulesResponse(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[RememberedRule]
    def __init__(self, rules: _Optional[_Iterable[_Union[RememberedRule, _Mapping]]] = ...) -> None: ...

class RememberedRule(_message.Message):
    __slots__ = ("rule_id", "rule", "session_id", "request_id", "decided_by", "decided_at", "terms_digest")
    RULE_ID_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    DECIDED_AT_FIELD_NUMBER: _ClassVar[int]
    TERMS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    rule_id: str
    rule: _types_pb2.PolicyRule
    session_id: str
    request_id: str
    decided_by: str
    decided_at: _timestamp_pb2.Timestamp
    terms_digest: str
    def __init__(self, rule_id: _Optional[str] = ..., rule: _Optional[_Union[_types_pb2.PolicyRule, _Mapping]] = ..., session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., decided_by: _Optional[str] = ..., decided_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., terms_digest: _Optional[str] = ...) -> None: ...

class DeleteRuleRequest(_message.Message):
    __slots__ = ("rule_id",)
    RULE_ID_FIELD_NUMBER: _ClassVar[int]
    rule_id: str
    def __init__(self, rule_id: _Optional[str] = ...) -> None: ...

class DeleteRuleResponse(_message.Message):
    __slots__ = ("existed",)
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    existed: bool
    def __init__(self, existed: _Optional[bool] = ...) -> None: ...

class RefusedDeclaration(_message.Message):
    __slots__ = ("declaration", "host_id", "terms_digest", "reason", "refused_at")
    DECLARATION_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    TERMS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REFUSED_AT_FIELD_NUMBER: _ClassVar[int]
    declaration: _types_pb2.ToolDeclaration
    host_id: str
    terms_digest: str
    reason: str
    refused_at: _timestamp_pb2.Timestamp
    def __init__(self, declaration: _Optional[_Union[_types_pb2.ToolDeclaration, _Mapping]] = ..., host_id: _Optional[str] = ..., terms_digest: _Optional[str] = ..., reason: _Optional[str] = ..., refused_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AcceptToolRequest(_message.Message):
    __slots__ = ("name", "terms_digest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TERMS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    terms_digest: str
    def __init__(self, name: _Optional[str] = ..., terms_digest: _Optional[str] = ...) -> None: ...

class AcceptToolResponse(_message.Message):
    __slots__ = ("tool",)
    TOOL_FIELD_NUMBER: _ClassVar[int]
    tool: Tool
    def __init__(self, tool: _Optional[_Union[Tool, _Mapping]] = ...) -> None: ...

class ForgetToolRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ForgetToolResponse(_message.Message):
    __slots__ = ("existed",)
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    existed: bool
    def __init__(self, existed: _Optional[bool] = ...) -> None: ...
