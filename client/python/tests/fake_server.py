"""A scripted server: the test receives and sends the frames of each connection."""

import asyncio
import json
import unittest

import grpc

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.tool_host_pb2_grpc import ToolHostServicer, add_ToolHostServicer_to_server
from agentloop_host import Host

TIMEOUT = 20.0  # seconds; long enough for a slow machine


async def soon(what):
    async with asyncio.timeout(TIMEOUT):
        return await what


class Connection:
    """One connection of a host, with the server's end in the test."""

    def __init__(self, stream: grpc.aio.ServicerContext):
        self._stream = stream
        self.over: asyncio.Future[grpc.StatusCode | None] = asyncio.get_running_loop().create_future()

    async def next(self) -> pb.ConnectRequest:
        frame = await soon(self._stream.read())
        assert frame is not grpc.aio.EOF, "the host has ended the stream"
        return frame

    async def reply(self):
        """The kind and the content of the next frame that is neither heartbeat nor credit."""
        while True:
            frame = await self.next()
            kind = frame.WhichOneof("frame")
            if kind not in ("heartbeat", "credit"):
                return kind, getattr(frame, kind)

    async def expect(self, kind: str):
        said, frame = await self.reply()
        assert said == kind, f"{kind} was expected, not {said}: {frame}"
        return frame

    async def send(self, **frame) -> None:
        await self._stream.write(pb.ConnectResponse(**frame))

    async def offer(self, call_id: str, tool: str, *, idempotency_key: str | None = None, **arguments) -> None:
        request = pb.CallRequest(
            call_id=call_id,
            attempt=1,
            lease_token=f"lease-{call_id}",
            idempotency_key=idempotency_key or f"key-{call_id}",
            tool=tool,
            arguments_json=json.dumps(arguments),
        )
        await self.send(call_request=request)

    async def send_call(self, call_id: str, tool: str, **of) -> None:
        """Sends a call that the host must accept."""
        await self.offer(call_id, tool, **of)
        accepted = await self.expect("call_accepted")
        assert accepted.call_id == call_id, accepted

    async def acknowledge(self, call_id: str) -> None:
        ack = pb.ResultAck(call_id=call_id, attempt=1, verdict=pb.RESULT_VERDICT_RECORDED)
        await self.send(result_ack=ack)

    def end(self, code: grpc.StatusCode | None) -> None:
        if not self.over.done():
            self.over.set_result(code)


class HostTest(unittest.IsolatedAsyncioTestCase):
    """A host against a scripted server. Calls that run at the end of the test are dropped."""

    async def asyncSetUp(self) -> None:
        self._connections: asyncio.Queue[Connection] = asyncio.Queue()
        self._all: list[Connection] = []
        self._over = False
        self._server = grpc.aio.server()
        add_ToolHostServicer_to_server(self._servicer(), self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self.host = Host(f"127.0.0.1:{port}", "host-1", drain_timeout=0.0)
        self.host._stop_grace = 0.0

    async def asyncTearDown(self) -> None:
        self.host.drain()
        self._over = True
        for connection in self._all:
            connection.end(None)
        await soon(self.running)
        await self._server.stop(None)

    def run_host(self) -> None:
        self.running = asyncio.create_task(self.host.run())

    async def accept(self) -> tuple[Connection, pb.Hello]:
        connection = await soon(self._connections.get())
        return connection, (await connection.next()).hello

    async def welcome(self, **fields) -> Connection:
        connection, _ = await self.accept()
        await connection.send(welcome=pb.Welcome(protocol_version=1, **fields))
        return connection

    def _servicer(self) -> ToolHostServicer:
        test = self

        class Servicer(ToolHostServicer):
            async def Connect(self, _, stream):
                if test._over:
                    return
                connection = Connection(stream)
                test._all.append(connection)
                test._connections.put_nowait(connection)
                if code := await connection.over:
                    await stream.abort(code)

        return Servicer()
