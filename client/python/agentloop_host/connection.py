"""One connection to the server: its handshake, its frames and its heartbeat."""

import asyncio
import logging
from time import monotonic
from typing import Protocol

import grpc

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.tool_host_pb2_grpc import ToolHostStub

from .failure import HostRefused

log = logging.getLogger(__package__)

# In seconds.
WELCOME_TIMEOUT = 10.0
CLOSE_TIMEOUT = 2.0
DEFAULT_HEARTBEAT_INTERVAL = 5.0

SILENT_INTERVALS = 2  # heartbeat intervals without a frame, after which the server counts as gone

MAX_QUEUED_FRAMES = 64  # with more, progress and output of tools wait; other frames do not

# Statuses that stay the same, however often the host tries: after a welcome, and before one.
WRONG_CREDENTIALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
LASTING = (
    *WRONG_CREDENTIALS,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
)

# The status after a welcome of a stream whose host id another connection took. It is of another process: this one reads no
# stream any more when it connects again.
REPLACED = grpc.StatusCode.FAILED_PRECONDITION

# gRPC itself sets TCP_NODELAY. With its own subchannel pool, a host opens a new TCP connection each time.
CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


class ConnectionHost(Protocol):
    """The host, as its connection uses it."""

    connection: "Connection | None"

    def channel(self) -> grpc.aio.Channel: ...
    def hello(self) -> pb.Hello: ...
    def heartbeat(self) -> pb.Heartbeat: ...
    def send(self, **frame) -> None: ...
    def forget_call(self, of: pb.LeaseLost) -> None: ...
    def drop_call(self, of: pb.ResultAck) -> None: ...
    def on_welcome(self, welcome: pb.Welcome) -> None: ...
    def on_call_request(self, request: pb.CallRequest) -> None: ...
    def on_cancel(self, cancel: pb.Cancel) -> None: ...
    def on_input_response(self, response: pb.InputResponse) -> None: ...
    def on_progress_ack(self, ack: pb.ProgressAck) -> None: ...
    def on_extension_request(self, request: pb.ExtensionRequest) -> None: ...
    def on_open_runtime(self, request: pb.OpenRuntime) -> None: ...
    def on_close_runtime(self, request: pb.CloseRuntime) -> None: ...
    def on_protocol_error(self, error: pb.ProtocolError) -> None: ...


class Connection:
    """One stream. All frames go through `frames`, which only gRPC reads, so there is one writer."""

    def __init__(self, host: ConnectionHost):
        self.host = host
        self.frames: asyncio.Queue[pb.ConnectRequest | None] = asyncio.Queue()
        self.room = asyncio.Event()
        self.credit = 0  # calls granted since the stream began
        self.spent = 0  # calls that came since then
        self.welcomed = False
        self.reconnect_after = 0.0
        self._stream: grpc.aio.StreamStreamCall | None = None
        self._welcomed_at: float | None = None
        self._close_timeout = asyncio.timeout(None)
        self._silence_timeout = asyncio.timeout(None)
        self._silence: float | None = None  # the time that the server may be silent, once it has sent a ping
        self._handled_at = 0.0  # the end of the last frame's handling, once there is a silence

    async def serve(self) -> None:
        """Connects, and returns when the server ends the stream with OK.

        Errors: HostRefused where another connection would end the same way; AioRpcError, ConnectionError.
        """
        hello = self.host.hello()
        self.credit = hello.initial_credit
        self.frames.put_nowait(pb.ConnectRequest(hello=hello))
        self.host.connection = self
        try:
            async with self.host.channel() as channel:
                self._stream = ToolHostStub(channel).Connect(self._outgoing(), metadata=self.host.metadata)
                await self._exchange_frames(await self._first_frame())
        except grpc.aio.AioRpcError as error:
            if self._welcomed_at is not None and error.code() is REPLACED:
                reason = f'another host took the id "{hello.host_id}"; give each host its own id'
                raise HostRefused(reason) from error
            if error.code() in (LASTING if self._welcomed_at is None else WRONG_CREDENTIALS):
                raise HostRefused(describe(error)) from error
            raise
        finally:
            self.host.connection = None
            self.welcomed = False
            self.frames.put_nowait(None)  # ends gRPC's reading of `frames`
            self.room.set()

    async def _exchange_frames(self, welcome: pb.Welcome) -> None:
        self.welcomed, self._welcomed_at = True, asyncio.get_running_loop().time()
        self.host.on_welcome(welcome)
        self.host.send(credit=pb.Credit(total=self.credit))
        interval = seconds(welcome.heartbeat_interval) or DEFAULT_HEARTBEAT_INTERVAL
        beating = asyncio.create_task(self._beat(interval))
        try:
            async with self._close_timeout, self._silence_timeout:
                while (frame := await self._stream.read()) is not grpc.aio.EOF:
                    self._leave_after_standstill()
                    self._on_frame(frame)
                    self._expect_next(frame, interval)
        except TimeoutError:
            if self._silence_timeout.expired():
                raise ConnectionError(f"the server sent nothing for {self._silence:g} s") from None
            # Otherwise it was closed here, but the server did not end the stream in time.
        finally:
            beating.cancel()

    def lasted(self) -> float:
        """Seconds since the welcome; 0 without one."""
        return asyncio.get_running_loop().time() - self._welcomed_at if self._welcomed_at else 0.0

    def close(self) -> None:
        """Sends no more frames, and waits for the server to end the stream."""
        self.welcomed = False
        self.frames.put_nowait(None)
        self._close_timeout.reschedule(asyncio.get_running_loop().time() + CLOSE_TIMEOUT)

    async def _outgoing(self):
        while (frame := await self.frames.get()) is not None:
            yield frame
            self.room.set()

    async def _first_frame(self) -> pb.Welcome:
        try:
            frame = await asyncio.wait_for(self._stream.read(), WELCOME_TIMEOUT)
        except TimeoutError:
            raise ConnectionError("no welcome in time") from None
        if frame is grpc.aio.EOF:
            raise ConnectionError("the stream ended before the welcome")
        if frame.HasField("protocol_error"):
            raise HostRefused(frame.protocol_error.message)
        if frame.HasField("go_away"):
            self.reconnect_after = seconds(frame.go_away.reconnect_after)
            raise ConnectionError(f"the server asks to connect again later: {frame.go_away.reason}")
        if not frame.HasField("welcome"):
            raise ConnectionError("the first frame was no welcome")
        return frame.welcome

    async def _beat(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            self.host.send(heartbeat=self.host.heartbeat())

    def _expect_next(self, frame: pb.ConnectResponse, interval: float) -> None:
        """A server that has sent one ping sends one each interval. An older server may send none."""
        if frame.HasField("ping"):
            self._silence = SILENT_INTERVALS * interval
        if self._silence is not None:
            self._handled_at = monotonic()
            self._silence_timeout.reschedule(asyncio.get_running_loop().time() + self._silence)

    def _leave_after_standstill(self) -> None:
        """Leaves before a frame is handled that may have waited while the server gave the stream up.

        After a standstill of this process, the loop may come to that frame before it comes to the timeout. The clock itself
        stands still while a machine with Linux or macOS sleeps.
        """
        if self._silence is not None and monotonic() - self._handled_at > self._silence:
            raise ConnectionError(f"no frame was read for {self._silence:g} s; the server may have given the host up")

    def _on_frame(self, frame: pb.ConnectResponse) -> None:
        match frame.WhichOneof("frame"):
            case "call_request":
                self.host.on_call_request(frame.call_request)
            case "cancel":
                self.host.on_cancel(frame.cancel)
            case "result_ack":
                self.host.drop_call(frame.result_ack)
            case "lease_lost":
                self.host.forget_call(frame.lease_lost)
            case "input_response":
                self.host.on_input_response(frame.input_response)
            case "progress_ack":
                self.host.on_progress_ack(frame.progress_ack)
            case "extension_request":
                self.host.on_extension_request(frame.extension_request)
            case "open_runtime":
                self.host.on_open_runtime(frame.open_runtime)
            case "close_runtime":
                self.host.on_close_runtime(frame.close_runtime)
            case "ping":
                self.host.send(pong=pb.Pong(nonce=frame.ping.nonce))
            case "go_away":
                self.reconnect_after = seconds(frame.go_away.reconnect_after)
                log.info("the server asks to connect again later: %s", frame.go_away.reason)
                self.close()
            case "protocol_error":
                self.host.on_protocol_error(frame.protocol_error)


def seconds(duration) -> float:
    return duration.ToTimedelta().total_seconds()


def describe(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        # gRPC does not pass on the alert of a server that asks for a certificate; it is lost in decryption.
        hint = "; the server may ask for a certificate" if "TSI_DATA_CORRUPTED" in (error.details() or "") else ""
        return f"{error.code().name}: {error.details()}{hint}"
    return str(error)
