"""Blobs: files that are too large for a result of 3 MiB, in chunks."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator

import grpc

from agentloop.v1.blobs_pb2 import BlobHeader, GetBlobRequest, PutBlobRequest
from agentloop.v1.blobs_pb2_grpc import BlobsStub
from agentloop.v1.types_pb2 import FileContent

CHUNK_BYTES = 256 << 10  # the server takes up to 1 MiB

Contents = bytes | str | os.PathLike


async def put(channel: grpc.aio.Channel, metadata, name: str, contents: Contents, media_type: str) -> FileContent:
    """Stores bytes, or the file at a path, and returns the file for `Output.files`."""
    call = BlobsStub(channel).PutBlob(metadata=metadata)
    try:
        async for part in _parts(contents, media_type):
            if call.done():
                break  # the answer says why
            await call.write(part)
        if not call.done():
            await call.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass  # the answer says why
    except BaseException:
        call.cancel()  # the upload is incomplete
        raise
    header = (await call).header
    return FileContent(
        name=name, media_type=media_type, size_bytes=header.size_bytes, blob_digest=header.digest
    )


async def _parts(contents: Contents, media_type: str) -> AsyncIterator[PutBlobRequest]:
    yield PutBlobRequest(header=BlobHeader(media_type=media_type))
    if isinstance(contents, bytes):
        for at in range(0, len(contents), CHUNK_BYTES):
            yield PutBlobRequest(chunk=contents[at : at + CHUNK_BYTES])
        return
    with open(contents, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield PutBlobRequest(chunk=chunk)


async def read(channel: grpc.aio.Channel, metadata, digest: str) -> AsyncIterator[bytes]:
    """The bytes of a blob, in chunks. Raises ValueError at the end if they do not have the digest."""
    seen = hashlib.sha256()
    async for response in BlobsStub(channel).GetBlob(GetBlobRequest(digest=digest), metadata=metadata):
        if response.WhichOneof("part") == "chunk":
            seen.update(response.chunk)
            yield response.chunk
    if digest != f"sha256:{seen.hexdigest()}":
        raise ValueError(f"the bytes that came are not those of the blob {digest}")
