"""Blobs, against a server that keeps them in memory."""

import hashlib
import tempfile
import unittest

import grpc

from agentloop.v1 import blobs_pb2 as pb
from agentloop.v1.blobs_pb2_grpc import BlobsServicer, add_BlobsServicer_to_server
from agentloop_host import Host


class Memory(BlobsServicer):
    def __init__(self):
        self.blobs: dict[str, bytes] = {}
        self.types: list[str] = []

    async def PutBlob(self, requests, context):
        contents = b""
        async for request in requests:
            if request.WhichOneof("part") == "header":
                self.types.append(request.header.media_type)
            contents += request.chunk
        digest = f"sha256:{hashlib.sha256(contents).hexdigest()}"
        self.blobs[digest] = contents
        return pb.PutBlobResponse(header=pb.BlobHeader(digest=digest, size_bytes=len(contents)))

    async def GetBlob(self, request, context):
        contents = self.blobs[request.digest]
        yield pb.GetBlobResponse(header=pb.BlobHeader(digest=request.digest, size_bytes=len(contents)))
        yield pb.GetBlobResponse(chunk=contents[:3])
        yield pb.GetBlobResponse(chunk=contents[3:])


class Blobs(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.memory = Memory()
        server = grpc.aio.server()
        add_BlobsServicer_to_server(self.memory, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        self.addAsyncCleanup(server.stop, None)
        self.host = Host(f"127.0.0.1:{port}")

    async def read(self, digest: str) -> bytes:
        return b"".join([chunk async for chunk in self.host.read_blob(digest)])

    async def test_a_file_and_bytes_are_stored_and_read(self):
        contents = bytes(range(256)) * 3000  # more than two chunks
        with tempfile.NamedTemporaryFile() as file:
            file.write(contents)
            file.flush()
            of_file = await self.host.put_file("a.bin", file.name, "application/x")
        of_bytes = await self.host.put_file("b.bin", contents, "text/plain")
        self.assertEqual(of_file.blob_digest, of_bytes.blob_digest)
        self.assertEqual((of_file.name, of_file.size_bytes), ("a.bin", len(contents)))
        self.assertEqual(self.memory.types, ["application/x", "text/plain"])
        self.assertEqual(await self.read(of_file.blob_digest), contents)

    async def test_a_file_that_is_not_there_is_not_stored(self):
        with self.assertRaises((OSError, grpc.aio.AioRpcError)):
            await self.host.put_file("a.bin", "/nothing/here")
        self.assertEqual(self.memory.blobs, {})

    async def test_other_bytes_are_told(self):
        stored = await self.host.put_file("a", b"good")
        self.memory.blobs[stored.blob_digest] = b"evil"
        with self.assertRaises(ValueError):
            await self.read(stored.blob_digest)
