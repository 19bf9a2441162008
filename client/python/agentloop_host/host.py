"""The tools of a process, and the calls it has in hand."""

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
from typing import Any

import grpc

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.events_pb2 import ATTEMPT_EFFECT_NONE
from agentloop.v1.types_pb2 import ToolDeclaration

from .ask import NoAnswer
from .call import Call, InHand, Outcome, failure_of, outcome_frame, outcome_of, ref, refused
from .connection import CLOSE_TIMEOUT, MAX_QUEUED_FRAMES, Connection, describe, seconds
from .extensions import Extensions, Runtimes
from .failure import ToolFailed
from .frame import FrameBound, cut

log = logging.getLogger(__package__)

MAX_REJECTION_BYTES = 4 << 10  # what the contract allows

# In seconds.
FIRST_BACKOFF, MAX_BACKOFF = 0.1, 5.0
STABLE_AFTER = 1.0  # a connection that held this long was a good one: the backoff starts anew


@dataclass
class _Tool:
    declaration: ToolDeclaration
    function: Callable[..., Awaitable[Any]]


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
        self._extensions = Extensions()
        self._runtimes = Runtimes()
        self._in_hand: dict[tuple[str, int], InHand] = {}
        self._running = 0  # tools at work, also for calls that nobody waits for any more
        self._background: set[asyncio.Task] = set()
        self.connection: Connection | None = None
        self.bound = FrameBound()
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
                input_schema_json=json.dumps(schema, separators=(",", ":")),
                effect=effect,
                **declaration,
            )
            self._tools[declared.name] = _Tool(declared, function)
            return function

        return register

    def hook(self, *points, name: str | None = None, **declaration):
        """Declares the decorated `async def name(request, run)` as a hook at these points: PRE_RUN and the like.

        It gets a HookRequest and the run, and returns a HookVerdict, or None to let everything be. Further keyword
        arguments are fields of HookDeclaration.
        """

        def register(function):
            declared = pb.HookDeclaration(name=name or function.__name__, points=points, **declaration)
            self._extensions.add("hook", declared, function)
            return function

        return register

    def context_source(self, *, name: str | None = None, remember=None, **declaration):
        """Declares the decorated `async def name(request, run)` as a source of context.

        It gets a ContextRequest and the run, and returns texts or ContextItems, the best first. `remember`, an
        `async def (request, run)`, is handed each finished run as a RememberRequest until it succeeds.
        """

        def register(function):
            declared = pb.ContextSourceDeclaration(
                name=name or function.__name__, remembers=remember is not None, **declaration
            )
            self._extensions.add("context_source", declared, function, remember)
            return function

        return register

    def planner(self, *, name: str | None = None, **declaration):
        """Declares the decorated `async def name(request, run)` as a planner.

        It gets a PlanRequest and the run, and returns an Instruction.
        """

        def register(function):
            declared = pb.PlannerDeclaration(name=name or function.__name__, **declaration)
            self._extensions.add("planner", declared, function)
            return function

        return register

    def runtime(self, *, open: Callable[[dict, dict], Awaitable[Any]], close: Callable[[Any], Awaitable[None]]):
        """How to open what tools with `requires_runtime` run in, from a run's init data and hints, and to close it.

        What `open` returns is `call.runtime`; where it fails, the calls that need it fail.
        """
        self._runtimes.declare(open, close)

    async def run(self) -> bool:
        """Serves until `drain`, SIGTERM or SIGINT. True: every call in hand was finished and acknowledged."""
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._on_signal)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(self._serve_for_ever())
            await self._draining.wait()
            try:
                await asyncio.wait_for(self._idle.wait(), self.drain_timeout)
            except TimeoutError:
                log.error("leaving with %d calls in hand", len(self._in_hand))
            await self._leave(serving)
        await self._runtimes.close_all()
        return self._idle.is_set()

    def drain(self) -> None:
        """Takes no more calls, finishes those in hand, then lets `run` return."""
        self._draining.set()
        self.send(draining=pb.Draining(reason="the host shuts down"))
        self._note_idle()

    def _on_signal(self) -> None:
        if self._draining.is_set():
            os._exit(1)  # asked twice: at once
        self.drain()

    async def _serve_for_ever(self) -> None:
        backoff = FIRST_BACKOFF
        while not self._leaving:
            connection = Connection(self)
            try:
                await connection.serve()
            except (grpc.aio.AioRpcError, ConnectionError) as error:
                log.warning("connection to %s: %s", self.server, describe(error))
            if connection.lasted() > STABLE_AFTER:
                backoff = FIRST_BACKOFF
            await asyncio.sleep(max(connection.reconnect_after, random.uniform(0, backoff)))
            backoff = min(backoff * 2, MAX_BACKOFF)

    async def _leave(self, serving: asyncio.Task) -> None:
        self._leaving = True
        if self.connection and self.connection.welcomed:
            if self._idle.is_set():
                self.send(goodbye=pb.Goodbye(reason="the host shuts down"))
            self.connection.close()
            await asyncio.wait({serving}, timeout=2 * CLOSE_TIMEOUT)
        serving.cancel()

    # What the host says and is told, in the order of a call's life.

    def hello(self) -> pb.Hello:
        return pb.Hello(
            protocol_version=1,
            host_id=self.host_id,
            sdk=f"python/{grpc.__version__}",
            capabilities=[
                *(pb.Capability(tool=tool.declaration) for tool in self._tools.values()),
                *self._extensions.capabilities(),
            ],
            open_runtimes=self._runtimes.ids(),
            calls_in_hand=[
                pb.CallInHand(**ref(held.call), lease_token=held.lease_token, finished=held.outcome is not None)
                for held in self._in_hand.values()
            ],
            initial_credit=0 if self._draining.is_set() else max(0, self.concurrency - self._running),
            labels=self.labels,
        )

    def on_welcome(self, welcome: pb.Welcome) -> None:
        self.bound = FrameBound(welcome.max_frame_bytes)
        for verdict in welcome.capabilities:
            if not verdict.accepted:
                log.warning("%s was refused: %s", verdict.name, verdict.reason)
        for verdict in welcome.calls:
            if verdict.disposition in (pb.CALL_DISPOSITION_STOP, pb.CALL_DISPOSITION_ALREADY_RECORDED):
                self.forget(verdict)
        for held in self._in_hand.values():
            self._offer_outcome(held)
            for question, answered in held.asked.values():
                self._put(question, answered)
        if self._draining.is_set():
            self.send(draining=pb.Draining(reason="the host shuts down"))
        self.on_ready()

    def on_call_request(self, request: pb.CallRequest) -> None:
        held = self._in_hand.get((request.call_id, request.attempt))
        if held and held.outcome is not None and held.call.idempotency_key != request.idempotency_key:
            self.forget(request)  # another call had this name
            held = None
        if held and held.call.idempotency_key == request.idempotency_key:
            self._answer_from_memory(held, request.lease_token)
            self._grant_credit()
            return
        tool, arguments, refusal = self._check(request)
        if refusal:
            self.send(call_rejected=refusal)
            self._grant_credit()
            return
        self.send(call_accepted=pb.CallAccepted(**ref(request)))
        self._start(request, tool, arguments)

    def _answer_from_memory(self, held: InHand, lease_token: str) -> None:
        held.lease_token = lease_token
        if held.outcome is None:
            self.send(call_accepted=pb.CallAccepted(**ref(held.call)))
        self._offer_outcome(held)

    def _check(self, request: pb.CallRequest) -> tuple[_Tool | None, dict, pb.CallRejected | None]:
        def refuse(reason, message: str):
            return None, {}, pb.CallRejected(**ref(request), reason=reason, message=cut(message, MAX_REJECTION_BYTES))

        if self._draining.is_set():
            return refuse(pb.REJECT_REASON_DRAINING, "the host shuts down")
        if (request.call_id, request.attempt) in self._in_hand:
            return refuse(pb.REJECT_REASON_BUSY, "another call of this id still runs here")
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

        async def run() -> Any:
            if request.runtime_id:
                call.runtime = await self._runtime(request.runtime_id)
            return await tool.function(call, **arguments)

        task = asyncio.create_task(outcome_of(call, run))
        held = self._in_hand[request.call_id, request.attempt] = InHand(call, request.lease_token, task)
        self._running += 1
        self._spawn(self._finish(held))

    async def _runtime(self, runtime_id: str) -> Any:
        """The runtime, as soon as it is open."""
        try:
            opened = self._runtimes.opened(runtime_id)
            if opened is None:
                raise RuntimeError("it was never opened")
            return await asyncio.shield(opened)
        except Exception as error:
            raise ToolFailed(f"the runtime cannot be opened: {error}", effect=ATTEMPT_EFFECT_NONE) from error

    async def ask(self, question: pb.NeedInput) -> pb.InputResponse:
        """Asks a human, now and after each reconnect, until there is an answer or the call is stopped."""
        held = self._in_hand.get((question.call_id, question.attempt))
        if held is None or held.outcome is not None or held.cancelling:
            raise NoAnswer("nobody waits for this call any more")
        if question.input_id in held.asked:
            raise NoAnswer(f"the call asks {question.input_id!r} already")
        answered = asyncio.get_running_loop().create_future()
        held.asked[question.input_id] = question, answered
        self._put(question, answered)
        try:
            return await answered
        finally:
            held.asked.pop(question.input_id, None)

    def _put(self, question: pb.NeedInput, answered: asyncio.Future[pb.InputResponse]) -> None:
        if self.bound.takes(pb.ConnectRequest(need_input=question)):
            self.send(need_input=question)
        elif not answered.done():
            why = f"the question has more than the {self.bound.max_bytes} bytes that the server takes"
            answered.set_result(pb.InputResponse(refused=why))

    def on_input_response(self, response: pb.InputResponse) -> None:
        for held in self._in_hand.values():
            _, answered = held.asked.get(response.input_id, (None, None))
            if held.call.call_id == response.call_id and answered and not answered.done():
                answered.set_result(response)

    def on_extension_request(self, request: pb.ExtensionRequest) -> None:
        self._spawn(self._respond(request, self.connection))

    async def _respond(self, request: pb.ExtensionRequest, connection: Connection | None) -> None:
        response = await self._extensions.respond(request)
        # What was asked on an earlier stream is not answered on a later.
        if connection is self.connection:
            size = pb.ConnectRequest(extension_response=response).ByteSize()
            if self.bound.max_bytes and size > self.bound.max_bytes:
                message = f"the answer has {size} bytes with its frame; the server takes {self.bound.max_bytes}"
                failure = pb.ExtensionFailure(message=message)
                response = pb.ExtensionResponse(request_id=request.request_id, failure=failure)
            self.send(extension_response=response)

    def on_open_runtime(self, request: pb.OpenRuntime) -> None:
        self._runtimes.open(request)

    def on_close_runtime(self, closed: pb.CloseRuntime) -> None:
        self._spawn(self._runtimes.close(closed.runtime_id))

    async def _finish(self, held: InHand) -> None:
        try:
            outcome = await held.task
        except asyncio.CancelledError as error:
            outcome = failure_of(error)
        finally:
            self._running -= 1
        self._settle(held, outcome)
        self._grant_credit()
        self._note_idle()

    def _settle(self, held: InHand, outcome: Outcome) -> None:
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

    def _offer_outcome(self, held: InHand) -> None:
        if held.outcome is not None:
            self._send(outcome_frame(held, self.bound))

    def on_protocol_error(self, error: pb.ProtocolError) -> None:
        """A result that the server refuses it would refuse for ever: the next connection is told so in its place."""
        log.error("the server says: %s", error.message)
        for held in self._in_hand.values():
            if held.call.call_id == error.call_id and held.outcome is not None:
                held.outcome = refused(error.message)

    def on_cancel(self, cancel: pb.Cancel) -> None:
        held = self._in_hand.get((cancel.call_id, cancel.attempt))
        if held is None:
            self._acknowledge_cancel(cancel, pb.CANCEL_OUTCOME_UNKNOWN)
        elif held.outcome is not None:
            self._acknowledge_cancel(cancel, pb.CANCEL_OUTCOME_FINISHED)
        elif not held.cancelling:
            held.cancelling = True
            held.task.cancel()
            self._spawn(self._admit_if_unstoppable(held, seconds(cancel.grace_period)))

    async def _admit_if_unstoppable(self, held: InHand, grace: float) -> None:
        stopped, _ = await asyncio.wait({held.task}, timeout=max(grace, 1.0))
        if not stopped:
            self._acknowledge_cancel(held.call, pb.CANCEL_OUTCOME_CANNOT)

    def _acknowledge_cancel(self, of: Call | pb.Cancel, outcome) -> None:
        self.send(cancel_ack=pb.CancelAck(**ref(of), outcome=outcome))

    def forget(self, of: pb.ResultAck | pb.LeaseLost | pb.CallVerdict) -> None:
        held = self._in_hand.pop((of.call_id, of.attempt), None)
        if held:
            held.task.cancel()
        self._note_idle()

    def heartbeat(self) -> pb.Heartbeat:
        running = [held.call for held in self._in_hand.values() if held.outcome is None]
        return pb.Heartbeat(calls=[pb.CallRef(**ref(call)) for call in running])

    def _grant_credit(self) -> None:
        if self.connection and not self._draining.is_set():
            self.connection.credit += 1
            self.send(credit=pb.Credit(total=self.connection.credit))

    def _note_idle(self) -> None:
        if self._draining.is_set() and not self._in_hand and not self._running:
            self._idle.set()

    def send(self, **frame) -> None:
        """Without a welcome the frame is dropped: whatever matters is said again after the next one."""
        self._send(pb.ConnectRequest(**frame))

    def _send(self, frame: pb.ConnectRequest) -> None:
        if self.connection and self.connection.welcomed:
            self.connection.frames.put_nowait(frame)

    async def room(self) -> None:
        """Returns when there is room for a tool's output."""
        while (connection := self.connection) and connection.frames.qsize() >= MAX_QUEUED_FRAMES:
            connection.room.clear()
            await connection.room.wait()

    def _spawn(self, work) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
