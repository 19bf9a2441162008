"""A tool host for agentloop: dials the server, serves the calls it is given, survives lost connections.

    host = Host("127.0.0.1:50051")

    @host.tool(description="Adds two numbers.", schema={...}, effect=IDEMPOTENT)
    async def add(call, a, b):
        return a + b

    asyncio.run(host.run())

It needs the generated package `agentloop`, grpcio and protobuf, and nothing else.
"""

import asyncio
import inspect
import json
import logging
import os
import random
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.events_pb2 import (
    ATTEMPT_EFFECT_DONE as DONE,
    ATTEMPT_EFFECT_MAYBE as MAYBE,
    ATTEMPT_EFFECT_NONE as NONE,
    OUTPUT_STREAM_STDERR as STDERR,
    OUTPUT_STREAM_STDOUT as STDOUT,
)
from agentloop.v1.tool_host_pb2_grpc import ToolHostStub
from agentloop.v1.types_pb2 import (
    EFFECT_CLASS_IDEMPOTENT as IDEMPOTENT,
    EFFECT_CLASS_KEYED as KEYED,
    EFFECT_CLASS_READ_ONLY as READ_ONLY,
    EFFECT_CLASS_UNSAFE as UNSAFE,
    ToolDeclaration,
)

__all__ = [
    *("Host", "Call", "ToolFailed"),
    *("READ_ONLY", "IDEMPOTENT", "KEYED", "UNSAFE"),  # what running a call twice means
    *("NONE", "MAYBE", "DONE"),  # what is known of a failed call's effects
    *("STDOUT", "STDERR"),
]

log = logging.getLogger("agentloop_host")

# What the contract allows.
MAX_RESULT_BYTES = 3 << 20
MAX_CHUNK_BYTES = 64 << 10
MAX_CHECKPOINT_BYTES = 64 << 10
MAX_PROGRESS_CHARS = 1 << 10  # of at most 4 bytes each

# What this host allows itself; times in seconds.
MAX_QUEUED_FRAMES = 64  # with more, a tool's output waits; what the protocol must say never does
WELCOME_TIMEOUT = 10.0
CLOSE_TIMEOUT = 2.0
FIRST_BACKOFF, MAX_BACKOFF = 0.1, 5.0
STABLE_AFTER = 1.0  # a connection that held this long was a good one: the backoff starts anew

# gRPC itself sets TCP_NODELAY. With a pool of its own, a host starts each connection afresh.
CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


class ToolFailed(Exception):
    """Raised by a tool that knows how it failed. `effect` is what is known of its effects: NONE, MAYBE or DONE."""

    def __init__(self, message: str, *, retryable=False, retry_delay: timedelta | None = None, effect=MAYBE):
        super().__init__(message)
        self.retryable = retryable
        self.retry_delay = retry_delay
        self.effect = effect


class Call:
    """One call, as its tool sees it.

    A tool is stopped in asyncio's way, by CancelledError: it cleans up and lets the error pass.
    """

    def __init__(self, host: "Host", request: pb.CallRequest):
        self.call_id: str = request.call_id
        self.attempt: int = request.attempt
        self.idempotency_key: str = request.idempotency_key
        self.checkpoint: bytes | None = request.checkpoint if request.HasField("checkpoint") else None
        self.deadline: datetime = request.deadline.ToDatetime(UTC)
        self.run_id: str = request.run_id
        self.session_id: str = request.session_id
        self.turn_id: str = request.turn_id
        self.traceparent: str = request.traceparent
        self._host = host
        self._chunks = 0

    async def progress(self, message="", fraction: float | None = None, checkpoint: bytes | None = None) -> None:
        """Says how far the call is. The server keeps the checkpoint and gives it to the next try."""
        if checkpoint is not None and len(checkpoint) > MAX_CHECKPOINT_BYTES:
            raise ValueError(f"a checkpoint has at most {MAX_CHECKPOINT_BYTES} bytes")
        message = message[:MAX_PROGRESS_CHARS]
        await self._host._room()
        self._host._send(progress=pb.Progress(**_ref(self), message=message, fraction=fraction, checkpoint=checkpoint))

    async def output(self, data: str | bytes, stream=STDOUT) -> None:
        """Shows output to whoever watches. What is said while the server is out of reach is lost."""
        data = data.encode() if isinstance(data, str) else data
        for start in range(0, len(data), MAX_CHUNK_BYTES):
            await self._host._room()
            self._chunks += 1
            chunk = data[start : start + MAX_CHUNK_BYTES]
            self._host._send(
                output_chunk=pb.OutputChunk(**_ref(self), chunk_seq=self._chunks, stream=stream, data=chunk)
            )


@dataclass
class _Tool:
    declaration: ToolDeclaration
    function: Callable[..., Awaitable[Any]]


@dataclass
class _InHand:
    """A call from its request until its result is acknowledged."""

    call: Call
    lease_token: str
    task: asyncio.Task
    outcome: pb.CallResult | pb.CallFailed | None = None  # None while the tool runs
    cancelling: bool = False


class Host:
    """The tools of this process and the calls it has in hand, which outlive any one connection.

    It says the same thing about a call however often it is asked, and after each reconnect it says again what was
    not acknowledged.
    """

    def __init__(
        self,
        server: str,
        host_id: str | None = None,
        *,
        concurrency: int = 4,
        drain_timeout: float = 30.0,
        labels: Mapping[str, str] | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        on_ready: Callable[[], None] = lambda: None,
    ):
        self.server = server
        self.host_id = host_id or f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        self.concurrency = concurrency
        self.drain_timeout = drain_timeout
        self.labels = dict(labels or {})
        self.credentials = credentials
        self.on_ready = on_ready
        self._tools: dict[str, _Tool] = {}
        self._in_hand: dict[tuple[str, int], _InHand] = {}
        self._running = 0  # tools at work, also for calls that nobody waits for any more
        self._background: set[asyncio.Task] = set()
        self._connection: _Connection | None = None
        self._draining = asyncio.Event()
        self._idle = asyncio.Event()
        self._leaving = False

    def tool(self, *, description: str, schema: dict, effect, **declaration):
        """Declares the decorated `async def name(call, **arguments)` as a tool.

        What it returns is what the model reads: a `str` as it is, anything else as JSON. Further keyword arguments
        are fields of ToolDeclaration.
        """

        def register(function):
            declared = ToolDeclaration(
                name=function.__name__,
                description=description,
                input_schema_json=json.dumps(schema),
                effect=effect,
                **declaration,
            )
            self._tools[declared.name] = _Tool(declared, function)
            return function

        return register

    async def run(self) -> bool:
        """Serves until `drain`, SIGTERM or SIGINT. True: every call in hand was finished and acknowledged."""
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._on_signal)
        serving = asyncio.create_task(self._serve_for_ever())
        await self._draining.wait()
        try:
            await asyncio.wait_for(self._idle.wait(), self.drain_timeout)
        except TimeoutError:
            log.error("leaving with %d calls in hand", len(self._in_hand))
        await self._leave(serving)
        return self._idle.is_set()

    def drain(self) -> None:
        """Takes no more calls, finishes those in hand, then lets `run` return."""
        self._draining.set()
        self._send(draining=pb.Draining(reason="the host shuts down"))
        self._note_idle()

    def _on_signal(self) -> None:
        if self._draining.is_set():
            os._exit(1)  # asked twice: at once
        self.drain()

    async def _serve_for_ever(self) -> None:
        backoff = FIRST_BACKOFF
        while not self._leaving:
            connection = _Connection(self)
            try:
                await connection.serve()
            except (grpc.aio.AioRpcError, ConnectionError) as error:
                log.warning("connection to %s: %s", self.server, _describe(error))
            if connection.lasted() > STABLE_AFTER:
                backoff = FIRST_BACKOFF
            await asyncio.sleep(max(connection.reconnect_after, random.uniform(0, backoff)))
            backoff = min(backoff * 2, MAX_BACKOFF)

    async def _leave(self, serving: asyncio.Task) -> None:
        self._leaving = True
        if self._connection and self._connection.welcomed:
            if self._idle.is_set():
                self._send(goodbye=pb.Goodbye(reason="the host shuts down"))
            self._connection.close()
            await asyncio.wait({serving}, timeout=2 * CLOSE_TIMEOUT)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    # What the host says and is told, in the order of a call's life.

    def _hello(self) -> pb.Hello:
        return pb.Hello(
            protocol_version=1,
            host_id=self.host_id,
            sdk=f"python/{grpc.__version__}",
            capabilities=[pb.Capability(tool=tool.declaration) for tool in self._tools.values()],
            calls_in_hand=[
                pb.CallInHand(**_ref(held.call), lease_token=held.lease_token, finished=held.outcome is not None)
                for held in self._in_hand.values()
            ],
            initial_credit=0 if self._draining.is_set() else max(0, self.concurrency - self._running),
            labels=self.labels,
        )

    def _on_welcome(self, welcome: pb.Welcome) -> None:
        for verdict in welcome.capabilities:
            if not verdict.accepted:
                log.warning("tool %s was refused: %s", verdict.name, verdict.reason)
        for verdict in welcome.calls:
            if verdict.disposition in (pb.CALL_DISPOSITION_STOP, pb.CALL_DISPOSITION_ALREADY_RECORDED):
                self._forget(verdict)
        for held in self._in_hand.values():
            self._offer_outcome(held)
        if self._draining.is_set():
            self._send(draining=pb.Draining(reason="the host shuts down"))
        self.on_ready()

    def _on_call_request(self, request: pb.CallRequest) -> None:
        held = self._in_hand.get((request.call_id, request.attempt))
        if held:
            self._answer_from_memory(held, request.lease_token)
            self._grant_credit()
            return
        tool, arguments, refusal = self._check(request)
        if refusal:
            self._send(call_rejected=refusal)
            self._grant_credit()
            return
        self._send(call_accepted=pb.CallAccepted(**_ref(request)))
        self._start(request, tool, arguments)

    def _answer_from_memory(self, held: _InHand, lease_token: str) -> None:
        held.lease_token = lease_token
        if held.outcome is None:
            self._send(call_accepted=pb.CallAccepted(**_ref(held.call)))
        self._offer_outcome(held)

    def _check(self, request: pb.CallRequest) -> tuple[_Tool | None, dict, pb.CallRejected | None]:
        def refuse(reason, message: str):
            return None, {}, pb.CallRejected(**_ref(request), reason=reason, message=message)

        if self._draining.is_set():
            return refuse(pb.REJECT_REASON_DRAINING, "the host shuts down")
        if self._running >= self.concurrency:
            return refuse(pb.REJECT_REASON_BUSY, "no room for another call")
        tool = self._tools.get(request.tool)
        if tool is None:
            return refuse(pb.REJECT_REASON_UNKNOWN_TOOL, f"this host has no tool {request.tool!r}")
        try:
            arguments = json.loads(request.arguments_json or "{}")
            inspect.signature(tool.function).bind(None, **arguments)
        except (ValueError, TypeError, RecursionError) as error:
            return refuse(pb.REJECT_REASON_BAD_ARGUMENTS, str(error))
        return tool, arguments, None

    def _start(self, request: pb.CallRequest, tool: _Tool, arguments: dict) -> None:
        call = Call(self, request)
        task = asyncio.create_task(tool.function(call, **arguments))
        held = self._in_hand[request.call_id, request.attempt] = _InHand(call, request.lease_token, task)
        self._running += 1
        self._spawn(self._finish(held))

    async def _finish(self, held: _InHand) -> None:
        outcome = await _outcome(held)
        self._running -= 1
        self._settle(held, outcome)
        self._grant_credit()
        self._note_idle()

    def _settle(self, held: _InHand, outcome: pb.CallResult | pb.CallFailed) -> None:
        key = held.call.call_id, held.call.attempt
        if self._in_hand.get(key) is not held:
            return  # nobody waits for it any more
        if held.cancelling and isinstance(outcome, pb.CallFailed):
            del self._in_hand[key]
            self._acknowledge_cancel(held.call, pb.CANCEL_OUTCOME_STOPPED)
            return
        if held.cancelling:
            self._acknowledge_cancel(held.call, pb.CANCEL_OUTCOME_FINISHED)
        held.outcome = outcome
        self._offer_outcome(held)

    def _offer_outcome(self, held: _InHand) -> None:
        if held.outcome is None:
            return
        held.outcome.call_id, held.outcome.attempt = held.call.call_id, held.call.attempt
        held.outcome.lease_token = held.lease_token
        kind = "call_result" if isinstance(held.outcome, pb.CallResult) else "call_failed"
        self._send(**{kind: held.outcome})

    def _on_cancel(self, cancel: pb.Cancel) -> None:
        held = self._in_hand.get((cancel.call_id, cancel.attempt))
        if held is None:
            self._acknowledge_cancel(cancel, pb.CANCEL_OUTCOME_UNKNOWN)
        elif held.outcome is not None:
            self._acknowledge_cancel(cancel, pb.CANCEL_OUTCOME_FINISHED)
        elif not held.cancelling:
            held.cancelling = True
            held.task.cancel()
            self._spawn(self._admit_if_unstoppable(held, _seconds(cancel.grace_period)))

    async def _admit_if_unstoppable(self, held: _InHand, grace: float) -> None:
        stopped, _ = await asyncio.wait({held.task}, timeout=max(grace, 1.0))
        if not stopped:
            self._acknowledge_cancel(held.call, pb.CANCEL_OUTCOME_CANNOT)

    def _acknowledge_cancel(self, ref: Call | pb.Cancel, outcome) -> None:
        self._send(cancel_ack=pb.CancelAck(**_ref(ref), outcome=outcome))

    def _forget(self, ref: pb.ResultAck | pb.LeaseLost | pb.CallVerdict) -> None:
        held = self._in_hand.pop((ref.call_id, ref.attempt), None)
        if held:
            held.task.cancel()
        self._note_idle()

    def _heartbeat(self) -> pb.Heartbeat:
        running = [held.call for held in self._in_hand.values() if held.outcome is None]
        return pb.Heartbeat(calls=[pb.CallRef(**_ref(call)) for call in running])

    def _grant_credit(self) -> None:
        if self._connection and not self._draining.is_set():
            self._connection.credit += 1
            self._send(credit=pb.Credit(total=self._connection.credit))

    def _note_idle(self) -> None:
        if self._draining.is_set() and not self._in_hand and not self._running:
            self._idle.set()

    def _send(self, **frame) -> None:
        """Without a welcome the frame is dropped: whatever matters is said again after the next one."""
        if self._connection and self._connection.welcomed:
            self._connection.frames.put_nowait(pb.ConnectRequest(**frame))

    async def _room(self) -> None:
        """Returns when there is room for a tool's output."""
        while (connection := self._connection) and connection.frames.qsize() >= MAX_QUEUED_FRAMES:
            connection.room.clear()
            await connection.room.wait()

    def _spawn(self, work) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


class _Connection:
    """One stream. Whatever is said goes through `frames`, which gRPC alone reads: one writer."""

    def __init__(self, host: Host):
        self.host = host
        self.frames: asyncio.Queue[pb.ConnectRequest | None] = asyncio.Queue()
        self.room = asyncio.Event()
        self.credit = 0
        self.welcomed = False
        self.reconnect_after = 0.0
        self._stream: grpc.aio.StreamStreamCall | None = None
        self._welcomed_at: float | None = None
        self._patience = asyncio.timeout(None)

    async def serve(self) -> None:
        """Connects, and returns when the stream has ended well. Errors: AioRpcError, ConnectionError."""
        hello = self.host._hello()
        self.credit = hello.initial_credit
        self.frames.put_nowait(pb.ConnectRequest(hello=hello))
        self.host._connection = self
        try:
            async with self._channel() as channel:
                self._stream = ToolHostStub(channel).Connect(self._outgoing())
                await self._converse(await self._first_frame())
        finally:
            self.host._connection = None
            self.welcomed = False
            self.room.set()

    async def _converse(self, welcome: pb.Welcome) -> None:
        self.welcomed, self._welcomed_at = True, asyncio.get_running_loop().time()
        self.host._on_welcome(welcome)
        self.host._send(credit=pb.Credit(total=self.credit))
        beating = asyncio.create_task(self._beat(_seconds(welcome.heartbeat_interval) or 5.0))
        try:
            async with self._patience:
                while (frame := await self._stream.read()) is not grpc.aio.EOF:
                    self._on_frame(frame)
        except TimeoutError:
            pass  # closed, and the server did not end the stream
        finally:
            beating.cancel()

    def lasted(self) -> float:
        """Seconds since the welcome; 0 without one."""
        return asyncio.get_running_loop().time() - self._welcomed_at if self._welcomed_at else 0.0

    def close(self) -> None:
        """Says nothing more, and lets the server end the stream."""
        self.welcomed = False
        self.frames.put_nowait(None)
        self._patience.reschedule(asyncio.get_running_loop().time() + CLOSE_TIMEOUT)

    def _channel(self) -> grpc.aio.Channel:
        if self.host.credentials:
            return grpc.aio.secure_channel(self.host.server, self.host.credentials, options=CHANNEL_OPTIONS)
        return grpc.aio.insecure_channel(self.host.server, options=CHANNEL_OPTIONS)

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
        if not frame.HasField("welcome"):
            raise ConnectionError(frame.protocol_error.message or "the first frame was no welcome")
        return frame.welcome

    async def _beat(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            self.host._send(heartbeat=self.host._heartbeat())

    def _on_frame(self, frame: pb.ConnectResponse) -> None:
        match frame.WhichOneof("frame"):
            case "call_request":
                self.host._on_call_request(frame.call_request)
            case "cancel":
                self.host._on_cancel(frame.cancel)
            case "result_ack":
                self.host._forget(frame.result_ack)
            case "lease_lost":
                self.host._forget(frame.lease_lost)
            case "ping":
                self.host._send(pong=pb.Pong(nonce=frame.ping.nonce))
            case "go_away":
                self.reconnect_after = _seconds(frame.go_away.reconnect_after)
                self.close()
            case "protocol_error":
                log.error("the server says: %s", frame.protocol_error.message)


async def _outcome(held: _InHand) -> pb.CallResult | pb.CallFailed:
    try:
        return _result(await held.task)
    except ToolFailed as failure:
        delay = failure.retry_delay
        return pb.CallFailed(
            message=str(failure), retryable=failure.retryable, retry_delay=delay, effect=failure.effect
        )
    except (Exception, asyncio.CancelledError) as error:
        log.info("call %s failed", held.call.call_id, exc_info=not held.cancelling)
        return pb.CallFailed(message=f"{type(error).__name__}: {error}", effect=MAYBE)


def _result(value: Any) -> pb.CallResult | pb.CallFailed:
    output = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    size = len(output.encode())
    if size > MAX_RESULT_BYTES:
        return pb.CallFailed(message=f"the result has {size} bytes, the limit is {MAX_RESULT_BYTES}", effect=DONE)
    return pb.CallResult(output=output)


def _ref(of) -> dict:
    return {"call_id": of.call_id, "attempt": of.attempt}


def _seconds(duration) -> float:
    return duration.ToTimedelta().total_seconds()


def _describe(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
