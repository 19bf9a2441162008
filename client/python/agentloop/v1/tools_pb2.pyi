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
HOST_HEALTH_UNSPECIFIED: HostHealth
HOST_HEALTH_CONNECTED: HostHealth
HOST_HEALTH_DRAINING: HostHealth
HOST_HEALTH_LOST: HostHealth

class ListToolsRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListToolsResponse(_message.Message):
    __slots__ = ("tools",)
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    def __init__(self, tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ("declaration", "digest", "host_ids", "calls_in_flight", "calls_queued", "last_seen_at")
    DECLARATION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    HOST_IDS_FIELD_NUMBER: _ClassVar[int]
    CALLS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    CALLS_QUEUED_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    declaration: _types_pb2.ToolDeclaration
    digest: str
    host_ids: _containers.RepeatedScalarFieldContainer[str]
    calls_in_flight: int
    calls_queued: int
    last_seen_at: _timestamp_pb2.Timestamp
    def __init__(self, declaration: _Optional[_Union[_types_pb2.ToolDeclaration, _Mapping]] = ..., digest: _Optional[str] = ..., host_ids: _Optional[_Iterable[str]] = ..., calls_in_flight: _Optional[int] = ..., calls_queued: _Optional[int] = ..., last_seen_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListHostsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListHostsResponse(_message.Message):
    __slots__ = ("hosts",)
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    hosts: _containers.RepeatedCompositeFieldContainer[Host]
    def __init__(self, hosts: _Optional[_Iterable[_Union[Host, _Mapping]]] = ...) -> None: ...

class Host(_message.Message):
    __slots__ = ("host_id", "health", "sdk", "tools", "calls_in_flight", "free_credit", "connected_at", "last_seen_at")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    SDK_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    CALLS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    FREE_CREDIT_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    health: HostHealth
    sdk: str
    tools: _containers.RepeatedScalarFieldContainer[str]
    calls_in_flight: int
    free_credit: int
    connected_at: _timestamp_pb2.Timestamp
    last_seen_at: _timestamp_pb2.Timestamp
    def __init__(self, host_id: _Optional[str] = ..., health: _Optional[_Union[HostHealth, str]] = ..., sdk: _Optional[str] = ..., tools: _Optional[_Iterable[str]] = ..., calls_in_flight: _Optional[int] = ..., free_credit: _Optional[int] = ..., connected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_seen_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
