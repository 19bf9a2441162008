import datetime

from agentloop.v1 import events_pb2 as _events_pb2
from agentloop.v1 import runs_pb2 as _runs_pb2
from agentloop.v1 import types_pb2 as _types_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Session(_message.Message):
    __slots__ = ("session_id", "title", "created_at", "updated_at", "entry_count", "live_run_id", "labels", "forked_from_session_id", "forked_at_entry_no", "summary", "summary_up_to_entry_no", "preview", "todos", "status", "agent", "model", "damaged_entry_nos", "created_by")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    ENTRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    LIVE_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    FORKED_FROM_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    FORKED_AT_ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_UP_TO_ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    TODOS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_ENTRY_NOS_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    title: str
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    entry_count: int
    live_run_id: str
    labels: _containers.ScalarMap[str, str]
    forked_from_session_id: str
    forked_at_entry_no: int
    summary: str
    summary_up_to_entry_no: int
    preview: str
    todos: _containers.RepeatedCompositeFieldContainer[_types_pb2.TodoItem]
    status: _types_pb2.RunStatus
    agent: str
    model: str
    damaged_entry_nos: _containers.RepeatedScalarFieldContainer[int]
    created_by: str
    def __init__(self, session_id: _Optional[str] = ..., title: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., entry_count: _Optional[int] = ..., live_run_id: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., forked_from_session_id: _Optional[str] = ..., forked_at_entry_no: _Optional[int] = ..., summary: _Optional[str] = ..., summary_up_to_entry_no: _Optional[int] = ..., preview: _Optional[str] = ..., todos: _Optional[_Iterable[_Union[_types_pb2.TodoItem, _Mapping]]] = ..., status: _Optional[_Union[_types_pb2.RunStatus, str]] = ..., agent: _Optional[str] = ..., model: _Optional[str] = ..., damaged_entry_nos: _Optional[_Iterable[int]] = ..., created_by: _Optional[str] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("entry_no", "run_id", "seq", "at", "message", "compaction", "finish_reason", "usage", "duration", "model", "damaged")
    ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    entry_no: int
    run_id: str
    seq: int
    at: _timestamp_pb2.Timestamp
    message: _types_pb2.Message
    compaction: _events_pb2.ContextCompacted
    finish_reason: _types_pb2.FinishReason
    usage: _types_pb2.Usage
    duration: _duration_pb2.Duration
    model: str
    damaged: bool
    def __init__(self, entry_no: _Optional[int] = ..., run_id: _Optional[str] = ..., seq: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., message: _Optional[_Union[_types_pb2.Message, _Mapping]] = ..., compaction: _Optional[_Union[_events_pb2.ContextCompacted, _Mapping]] = ..., finish_reason: _Optional[_Union[_types_pb2.FinishReason, str]] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., model: _Optional[str] = ..., damaged: _Optional[bool] = ...) -> None: ...

class CreateSessionRequest(_message.Message):
    __slots__ = ("session_id", "title", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    title: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, session_id: _Optional[str] = ..., title: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class GetSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class GetSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class UpdateSessionRequest(_message.Message):
    __slots__ = ("session_id", "title", "set_labels", "remove_labels")
    class SetLabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    SET_LABELS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_LABELS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    title: str
    set_labels: _containers.ScalarMap[str, str]
    remove_labels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session_id: _Optional[str] = ..., title: _Optional[str] = ..., set_labels: _Optional[_Mapping[str, str]] = ..., remove_labels: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class GetOrCreateSessionRequest(_message.Message):
    __slots__ = ("user", "project", "title", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    USER_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    user: str
    project: str
    title: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, user: _Optional[str] = ..., project: _Optional[str] = ..., title: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GetOrCreateSessionResponse(_message.Message):
    __slots__ = ("session", "created")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    session: Session
    created: bool
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., created: _Optional[bool] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "filter")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    filter: SessionFilter
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[_Union[SessionFilter, _Mapping]] = ...) -> None: ...

class SessionFilter(_message.Message):
    __slots__ = ("labels", "statuses", "agents", "models", "updated_after", "updated_before", "text", "forked_from_session_id", "created_by")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AFTER_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FORKED_FROM_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    statuses: _containers.RepeatedScalarFieldContainer[_types_pb2.RunStatus]
    agents: _containers.RepeatedScalarFieldContainer[str]
    models: _containers.RepeatedScalarFieldContainer[str]
    updated_after: _timestamp_pb2.Timestamp
    updated_before: _timestamp_pb2.Timestamp
    text: str
    forked_from_session_id: str
    created_by: str
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ..., statuses: _Optional[_Iterable[_Union[_types_pb2.RunStatus, str]]] = ..., agents: _Optional[_Iterable[str]] = ..., models: _Optional[_Iterable[str]] = ..., updated_after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., text: _Optional[str] = ..., forked_from_session_id: _Optional[str] = ..., created_by: _Optional[str] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions", "next_page_token")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    next_page_token: str
    def __init__(self, sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListEntriesRequest(_message.Message):
    __slots__ = ("session_id", "after_entry_no", "page_size")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    after_entry_no: int
    page_size: int
    def __init__(self, session_id: _Optional[str] = ..., after_entry_no: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListEntriesResponse(_message.Message):
    __slots__ = ("entries", "more")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    more: bool
    def __init__(self, entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class ImportEntriesRequest(_message.Message):
    __slots__ = ("session_id", "run_id", "auto_create_session", "messages", "labels", "model")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AUTO_CREATE_SESSION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    auto_create_session: bool
    messages: _containers.RepeatedCompositeFieldContainer[_types_pb2.Message]
    labels: _containers.ScalarMap[str, str]
    model: str
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., auto_create_session: _Optional[bool] = ..., messages: _Optional[_Iterable[_Union[_types_pb2.Message, _Mapping]]] = ..., labels: _Optional[_Mapping[str, str]] = ..., model: _Optional[str] = ...) -> None: ...

class ImportEntriesResponse(_message.Message):
    __slots__ = ("run", "session", "first_entry_no", "last_entry_no")
    RUN_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    run: _runs_pb2.Run
    session: Session
    first_entry_no: int
    last_entry_no: int
    def __init__(self, run: _Optional[_Union[_runs_pb2.Run, _Mapping]] = ..., session: _Optional[_Union[Session, _Mapping]] = ..., first_entry_no: _Optional[int] = ..., last_entry_no: _Optional[int] = ...) -> None: ...

class ExportSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class ExportSessionResponse(_message.Message):
    __slots__ = ("json_line", "continues")
    JSON_LINE_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_FIELD_NUMBER: _ClassVar[int]
    json_line: str
    continues: bool
    def __init__(self, json_line: _Optional[str] = ..., continues: _Optional[bool] = ...) -> None: ...

class SearchEntriesRequest(_message.Message):
    __slots__ = ("query", "session_id", "except_session_id", "limit")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EXCEPT_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    query: str
    session_id: str
    except_session_id: str
    limit: int
    def __init__(self, query: _Optional[str] = ..., session_id: _Optional[str] = ..., except_session_id: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class SearchEntriesResponse(_message.Message):
    __slots__ = ("hits",)
    HITS_FIELD_NUMBER: _ClassVar[int]
    hits: _containers.RepeatedCompositeFieldContainer[EntryHit]
    def __init__(self, hits: _Optional[_Iterable[_Union[EntryHit, _Mapping]]] = ...) -> None: ...

class EntryHit(_message.Message):
    __slots__ = ("session_id", "entry_no", "run_id", "at", "role", "snippet", "score")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SNIPPET_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    entry_no: int
    run_id: str
    at: _timestamp_pb2.Timestamp
    role: _types_pb2.Role
    snippet: str
    score: float
    def __init__(self, session_id: _Optional[str] = ..., entry_no: _Optional[int] = ..., run_id: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., role: _Optional[_Union[_types_pb2.Role, str]] = ..., snippet: _Optional[str] = ..., score: _Optional[float] = ...) -> None: ...

class ForkSessionRequest(_message.Message):
    __slots__ = ("session_id", "at_entry_no", "new_session_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AT_ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    NEW_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    at_entry_no: int
    new_session_id: str
    def __init__(self, session_id: _Optional[str] = ..., at_entry_no: _Optional[int] = ..., new_session_id: _Optional[str] = ...) -> None: ...

class ForkSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class DeleteSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class DeleteSessionResponse(_message.Message):
    __slots__ = ("existed",)
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    existed: bool
    def __init__(self, existed: _Optional[bool] = ...) -> None: ...

class SubscribeSessionRequest(_message.Message):
    __slots__ = ("session_id", "resume_token", "durable_only")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DURABLE_ONLY_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    resume_token: str
    durable_only: bool
    def __init__(self, session_id: _Optional[str] = ..., resume_token: _Optional[str] = ..., durable_only: _Optional[bool] = ...) -> None: ...

class SubscribeSessionResponse(_message.Message):
    __slots__ = ("event", "session", "synced", "deleted", "resume_token")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    event: _events_pb2.RunEvent
    session: Session
    synced: SessionSynced
    deleted: SessionDeleted
    resume_token: str
    def __init__(self, event: _Optional[_Union[_events_pb2.RunEvent, _Mapping]] = ..., session: _Optional[_Union[Session, _Mapping]] = ..., synced: _Optional[_Union[SessionSynced, _Mapping]] = ..., deleted: _Optional[_Union[SessionDeleted, _Mapping]] = ..., resume_token: _Optional[str] = ...) -> None: ...

class SessionSynced(_message.Message):
    __slots__ = ("last_entry_no", "open_run_ids")
    LAST_ENTRY_NO_FIELD_NUMBER: _ClassVar[int]
    OPEN_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    last_entry_no: int
    open_run_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, last_entry_no: _Optional[int] = ..., open_run_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class SessionDeleted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
