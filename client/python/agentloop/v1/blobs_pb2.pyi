from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PutBlobRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: BlobHeader
    chunk: bytes
    def __init__(self, header: _Optional[_Union[BlobHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class BlobHeader(_message.Message):
    __slots__ = ("digest", "size_bytes", "media_type")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    digest: str
    size_bytes: int
    media_type: str
    def __init__(self, digest: _Optional[str] = ..., size_bytes: _Optional[int] = ..., media_type: _Optional[str] = ...) -> None: ...

class PutBlobResponse(_message.Message):
    __slots__ = ("header", "existed")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    header: BlobHeader
    existed: bool
    def __init__(self, header: _Optional[_Union[BlobHeader, _Mapping]] = ..., existed: _Optional[bool] = ...) -> None: ...

class GetBlobRequest(_message.Message):
    __slots__ = ("digest", "offset")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    digest: str
    offset: int
    def __init__(self, digest: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class GetBlobResponse(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: BlobHeader
    chunk: bytes
    def __init__(self, header: _Optional[_Union[BlobHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...
