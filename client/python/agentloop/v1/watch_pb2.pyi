from agentloop.v1 import runs_pb2 as _runs_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRunsRequest(_message.Message):
    __slots__ = ("filter", "resume_token")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    filter: _runs_pb2.RunFilter
    resume_token: str
    def __init__(self, filter: _Optional[_Union[_runs_pb2.RunFilter, _Mapping]] = ..., resume_token: _Optional[str] = ...) -> None: ...

class WatchRunsResponse(_message.Message):
    __slots__ = ("reset", "run", "removed", "synced", "resume_token")
    RESET_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    reset: WatchReset
    run: _runs_pb2.Run
    removed: RunRemoved
    synced: WatchSynced
    resume_token: str
    def __init__(self, reset: _Optional[_Union[WatchReset, _Mapping]] = ..., run: _Optional[_Union[_runs_pb2.Run, _Mapping]] = ..., removed: _Optional[_Union[RunRemoved, _Mapping]] = ..., synced: _Optional[_Union[WatchSynced, _Mapping]] = ..., resume_token: _Optional[str] = ...) -> None: ...

class WatchReset(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class RunRemoved(_message.Message):
    __slots__ = ("run_id", "deleted")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    deleted: bool
    def __init__(self, run_id: _Optional[str] = ..., deleted: _Optional[bool] = ...) -> None: ...

class WatchSynced(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: int
    def __init__(self, runs: _Optional[int] = ...) -> None: ...
