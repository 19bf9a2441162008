"""The tool host: its tools, its calls, and the loop that connects it to the server."""

import asyncio
import inspect
import json
import logging
import os
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import grpc

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.events_pb2 import ATTEMPT_EFFECT_NONE
from agentloop.v1.types_pb2 import FileContent

from . import blobs
from .ask import NoAnswer
from .call import (
    MAX_REFUSAL_BYTES,
    Call,
    Outcome,
    TrackedCall,
    carried_progress,
    failure_of,
    outcome_frame,
    outcome_of,
    ref,
    refusal,
    stopped,
)
from .connection import CHANNEL_OPTIONS, CLOSE_TIMEOUT, MAX_QUEUED_FRAMES, Connection, describe, seconds
from .declarations import Declarations, Tool
from .failure import HostRefused, ToolFailed
from .frame import FrameBound, cut
from .signals import signals_call
from .transport import address_of, credentials_of, metadata_of

log = logging.getLogger(__package__)

MAX_REJECTION_BYTES = 4 << 10  # bound of the contract
MAX_STATUS_BYTES = 1 << 10  # length of the host's status that the server shows

# Bounds on results that wait for their acknowledgement. At either bound the host accepts no more calls.
MAX_UNACKNOWLEDGED = 1024
MAX_UNACKNOWLEDGED_BYTES = 64 << 20

# In seconds.
FIRST_BACKOFF, MAX_BACKOFF = 0.1, 5.0
STABLE_AFTER = 1.0  # a connection that lasted longer resets the backoff
STOP_GRACE = 5.0  # a stopped call has this time to end; its result has as long again to be delivered


class Host(Declarations):
    """The tools of this process and its calls, which outlive a connection.

    A call that comes a second time gets the same answer. After each reconnect the host repeats every result that the
    server has not acknowledged.

    With a `server` like `https://example.com:50051` the connection is encrypted: `ca` has the roots of the server's
    certificate (without it: the system's), `certificate` and `key` are this host's own, all in PEM. `token` is the bearer
    token. Options that cannot be used raise ValueError.
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
        ca: bytes | None = None,
        certificate: bytes | None = None,
        key: bytes | None = None,
        token: str | None = None,
        on_ready: Callable[[], None] = lambda: None,
        status: Callable[[], str] = lambda: "",
    ):
        super().__init__()
        self.server, encrypted = address_of(server)
        of_options = credentials_of(encrypted, ca, certificate, key)
        if credentials and (ca, certificate, key) != (None, None, None):
            raise ValueError("give either credentials, or ca, certificate and key")
        self.metadata = metadata_of(token)
        self.host_id = host_id or f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        self.concurrency = concurrency
        self.drain_timeout = drain_timeout
        self.labels = dict(labels or {})
        self.credentials = credentials or of_options
        self.url = f"{'https' if self.credentials else 'http'}://{self.server}"
        self.on_ready = on_ready
        self.status = status  # tells the host's state to people, cut to 1 KiB; called before each heartbeat
        self._calls: dict[tuple[str, int], TrackedCall] = {}
        self._instance = ""  # random name of this process, chosen by `run`, so that a fork gets one of its own
        self._connections = 0  # streams so far
        self._forgotten = 0  # calls begun here that `hello` names no more without an acknowledgement
        self._running = 0  # running tools, including those of dropped calls
        self._background: set[asyncio.Task] = set()
        self.connection: Connection | None = None
        self.bound = FrameBound()
        self._draining = asyncio.Event()
        self._idle = asyncio.Event()
        self._leaving = False
        self._stop_grace = STOP_GRACE
        self._stopping = False  # the running calls were told to stop
        self._gave_up = False  # calls that did not stop are waited for no more
        self._refused: HostRefused | None = None  # set once the server has refused all tools and extensions

    async def put_file(self, name: str, contents: blobs.Contents, media_type: str = "") -> FileContent:
        """Stores bytes, or the file at a path, as a blob: for files that are too large for a result of 3 MiB.

        Returns the file for `Output.files`.
        """
        async with self.channel() as channel:
            return await blobs.put(channel, self.metadata, name, contents, media_type)

    async def read_blob(self, digest: str) -> AsyncIterator[bytes]:
        """The bytes of a blob, in chunks. Raises ValueError at the end if they do not have the digest."""
        async with self.channel() as channel:
            async for chunk in blobs.read(channel, self.metadata, digest):
                yield chunk

    def channel(self) -> grpc.aio.Channel:
        """A new channel to the server."""
        if self.credentials:
            return grpc.aio.secure_channel(self.server, self.credentials, options=CHANNEL_OPTIONS)
        return grpc.aio.insecure_channel(self.server, options=CHANNEL_OPTIONS)

    async def run(self) -> bool:
        """Serves until `drain`, SIGTERM or SIGINT. Returns True if every call was finished and acknowledged.

        Connects again for as long as it takes. A signal stops every host of the process. Calls that still run
        `drain_timeout` after the first one are stopped; that takes up to 10 s. Raises HostRefused where the server refuses
        the host for a lasting reason, such as a wrong token, and stops the calls that run. If the server refuses all tools
        and extensions, it finishes the calls that it has, and raises HostRefused.
        """
        self._instance = os.urandom(16).hex()
        loop = asyncio.get_running_loop()
        with signals_call(lambda: loop.call_soon_threadsafe(self.drain)):
            try:
                await self._serve_until_drained()
            except ExceptionGroup as ended:
                for tracked in self._calls.values():
                    tracked.task.cancel()
                raise ended.exceptions[0]
            finally:
                await self._runtimes.close_all()
        if self._refused:
            raise self._refused
        return self._idle.is_set()

    async def _serve_until_drained(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(self._serve_for_ever())
            await self._draining.wait()
            if not await self._idle_within(self.drain_timeout):
                self._stop_calls()
                if not await self._idle_within(2 * self._stop_grace):
                    log.error("shutting down with %d calls unfinished or unacknowledged", len(self._calls))
            await self._leave(serving)

    async def _idle_within(self, timeout: float) -> bool:
        """Waits until the host has no calls. False after the timeout."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def _stop_calls(self) -> None:
        """Stops the calls that run. Each is reported when it has ended, at the latest after the grace."""
        self._stopping = True
        for tracked in self._calls.values():
            tracked.task.cancel()
        asyncio.get_running_loop().call_later(self._stop_grace, self._give_up_calls)

    def _give_up_calls(self) -> None:
        """Reports the calls that did not stop."""
        self._gave_up = True
        for tracked in list(self._calls.values()):
            if tracked.outcome is None and tracked.cancelling:
                self.forget_call(tracked.call)  # the server knows that it does not stop
            elif tracked.outcome is None:
                self._record_outcome(tracked, stopped())
        self._check_idle()

    def drain(self) -> None:
        """Accepts no more calls, finishes those that run, then lets `run` return."""
        self._draining.set()
        self.send(draining=pb.Draining(reason="the host shuts down"))
        self._check_idle()

    async def _serve_for_ever(self) -> None:
        backoff = FIRST_BACKOFF
        while not self._leaving:
            connection = Connection(self)
            try:
                await connection.serve()
            except (grpc.aio.AioRpcError, ConnectionError) as error:
                log.warning("connection to %s: %s", self.url, describe(error))
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

    # Frames to and from the server, in the order of a call's life.

    def hello(self) -> pb.Hello:
        self._connections += 1
        return pb.Hello(
            protocol_version=1,
            host_id=self.host_id,
            sdk=f"python/{grpc.__version__}",
            capabilities=self.capabilities(),
            open_runtimes=self._runtimes.ids(),
            calls_in_hand=[
                pb.CallInHand(**ref(call.call), lease_token=call.lease_token, finished=call.outcome is not None)
                for call in self._calls.values()
            ],
            initial_credit=self._free_slots(),
            labels=self.labels,
            # Without a call and under the same name, this process proves that it did not begin the call.
            instance_id=f"{self._instance}.{self._forgotten}" if self._instance else "",
            connection_no=self._connections,
        )

    def _free_slots(self) -> int:
        waiting = [tracked.outcome_bytes for tracked in self._calls.values() if tracked.outcome is not None]
        full = len(waiting) >= MAX_UNACKNOWLEDGED or sum(waiting) >= MAX_UNACKNOWLEDGED_BYTES
        return 0 if full or self._draining.is_set() else max(0, self.concurrency - self._running)

    def on_welcome(self, welcome: pb.Welcome) -> None:
        self.bound = FrameBound(welcome.max_frame_bytes)
        self._read_verdicts(welcome.capabilities)
        for verdict in welcome.calls:
            if verdict.disposition in (pb.CALL_DISPOSITION_STOP, pb.CALL_DISPOSITION_ALREADY_RECORDED):
                self.forget_call(verdict)
        for tracked in self._calls.values():
            self._offer_outcome(tracked)
            if tracked.checkpoint and tracked.outcome is None:
                self.send(progress=carried_progress(tracked.checkpoint, self.bound))
            for question, answered in tracked.questions.values():
                self._send_question(question, answered)
            if tracked.unrecorded:
                self.send(progress=tracked.unrecorded[-1][0])
        self._grow_credit()
        if self._draining.is_set():
            self.send(draining=pb.Draining(reason="the host shuts down"))
            self._check_idle()
        try:
            self.on_ready()
        except (Exception, SystemExit):
            log.exception("on_ready failed")

    def _read_verdicts(self, verdicts: Iterable[pb.CapabilityVerdict]) -> None:
        """Reports the tools and extensions that the server refused.

        If it refused all of them, the host ends once it has delivered the results of its calls. It stays if one was refused
        as weaker: an operator may accept that declaration, and the server then tells the host to connect again.
        """
        refused = [verdict for verdict in verdicts if not verdict.accepted]
        for verdict in refused:
            log.warning("%s was refused: %s", verdict.name, verdict.reason)
        may_be_accepted = any(verdict.refusal == pb.CAPABILITY_REFUSAL_WEAKER for verdict in refused)
        if refused and not may_be_accepted and len(refused) >= len(self.capabilities()):
            reasons = "; ".join(f"{verdict.name}: {verdict.reason}" for verdict in refused)
            self._refused = HostRefused(f"it refused every tool: {reasons}")
            self._draining.set()

    def on_call_request(self, request: pb.CallRequest) -> None:
        self.connection.spent += 1
        tracked = self._calls.get((request.call_id, request.attempt))
        if tracked and tracked.outcome is not None and tracked.call.idempotency_key != request.idempotency_key:
            self.forget_call(request)  # the result of another call with this id
            tracked = None
        if tracked and tracked.call.idempotency_key == request.idempotency_key:
            self._answer_known(tracked, request.lease_token)
            self._grant_credit()
            return
        tool, arguments, refusal = self._check(request)
        if refusal:
            self.send(call_rejected=refusal)
            self._grant_credit()
            return
        self.send(call_accepted=pb.CallAccepted(**ref(request)))
        self._start(request, tool, arguments)

    def _answer_known(self, tracked: TrackedCall, lease_token: str) -> None:
        tracked.lease_token = lease_token
        if tracked.outcome is None:
            self.send(call_accepted=pb.CallAccepted(**ref(tracked.call)))
        self._offer_outcome(tracked)

    def _check(self, request: pb.CallRequest) -> tuple[Tool | None, dict, pb.CallRejected | None]:
        def refuse(reason, message: str):
            return None, {}, pb.CallRejected(**ref(request), reason=reason, message=cut(message, MAX_REJECTION_BYTES))

        if self._draining.is_set():
            return refuse(pb.REJECT_REASON_DRAINING, "the host shuts down")
        if (request.call_id, request.attempt) in self._calls:
            return refuse(pb.REJECT_REASON_BUSY, "another call of this id still runs here")
        if not self._free_slots():
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

    def _start(self, request: pb.CallRequest, tool: Tool, arguments: dict) -> None:
        call = Call(self, request)

        async def run() -> Any:
            if request.runtime_id:
                call.runtime = await self._runtime(request.runtime_id)
            return await tool.function(call, **arguments)

        task = asyncio.create_task(outcome_of(call, run))
        tracked = self._calls[request.call_id, request.attempt] = TrackedCall(call, request.lease_token, task)
        self._running += 1
        self._spawn(self._finish(tracked))

    async def _runtime(self, runtime_id: str) -> Any:
        """Waits for a runtime to open. Errors: ToolFailed."""
        try:
            opened = self._runtimes.opened(runtime_id)
            if opened is None:
                raise RuntimeError("it was never opened")
            return await asyncio.shield(opened)
        except asyncio.CancelledError as error:
            raise ToolFailed("the call was stopped before it began", effect=ATTEMPT_EFFECT_NONE) from error
        except Exception as error:
            raise ToolFailed(f"the runtime cannot be opened: {error}", effect=ATTEMPT_EFFECT_NONE) from error

    async def ask(self, question: pb.NeedInput) -> pb.InputResponse:
        """Asks a human, and again after each reconnect, until there is an answer or the call is stopped."""
        tracked = self._calls.get((question.call_id, question.attempt))
        if tracked is None or tracked.outcome is not None or tracked.cancelling:
            raise NoAnswer("nobody waits for this call any more")
        if question.input_id in tracked.questions:
            raise NoAnswer(f"the call asks {question.input_id!r} already")
        answered = asyncio.get_running_loop().create_future()
        tracked.questions[question.input_id] = question, answered
        self._send_question(question, answered)
        try:
            return await answered
        finally:
            tracked.questions.pop(question.input_id, None)

    async def save_state(self, progress: pb.Progress) -> None:
        """Sends a state, and waits until it or a later one is recorded, or the call is stopped.

        After each reconnect the last state is sent again.
        """
        tracked = self._calls.get((progress.call_id, progress.attempt))
        if tracked is None or tracked.outcome is not None or tracked.cancelling:
            raise NoAnswer("nobody waits for this call any more")
        if not self.bound.fits(pb.ConnectRequest(progress=progress)):
            raise NoAnswer("the resume state is larger than the server takes")
        recorded = asyncio.get_running_loop().create_future()
        tracked.unrecorded.append((progress, recorded))
        self.send(progress=progress)
        await recorded

    def keep_checkpoint(self, call: Call, progress: pb.Progress) -> None:
        """Keeps the last checkpoint of a call, to be repeated after a reconnect."""
        tracked = self._calls.get((call.call_id, call.attempt))
        if tracked and tracked.call is call:
            tracked.checkpoint = progress

    def on_progress_ack(self, ack: pb.ProgressAck) -> None:
        tracked = self._calls.get((ack.call_id, ack.attempt))
        while tracked and tracked.unrecorded and tracked.unrecorded[0][0].resume_no <= ack.resume_no:
            _, recorded = tracked.unrecorded.pop(0)
            if not recorded.done():
                recorded.set_result(None)

    def _send_question(self, question: pb.NeedInput, answered: asyncio.Future[pb.InputResponse]) -> None:
        if self.bound.fits(pb.ConnectRequest(need_input=question)):
            self.send(need_input=question)
        elif not answered.done():
            why = f"the question has more than the {self.bound.max_bytes} bytes that the server takes"
            answered.set_result(pb.InputResponse(refused=why))

    def on_input_response(self, response: pb.InputResponse) -> None:
        for tracked in self._calls.values():
            _, answered = tracked.questions.get(response.input_id, (None, None))
            if tracked.call.call_id == response.call_id and answered and not answered.done():
                answered.set_result(response)

    def on_extension_request(self, request: pb.ExtensionRequest) -> None:
        self._spawn(self._respond(request, self.connection))

    async def _respond(self, request: pb.ExtensionRequest, connection: Connection | None) -> None:
        response = await self._extensions.respond(request)
        # A response to a request of an earlier connection is dropped.
        if connection is self.connection:
            size = pb.ConnectRequest(extension_response=response).ByteSize()
            if self.bound.max_bytes and size > self.bound.max_bytes:
                message = f"the response has {size} bytes with its frame; the server takes {self.bound.max_bytes}"
                failure = pb.ExtensionFailure(message=message)
                response = pb.ExtensionResponse(request_id=request.request_id, failure=failure)
            self.send(extension_response=response)

    def on_open_runtime(self, request: pb.OpenRuntime) -> None:
        self._runtimes.open(request)

    def on_close_runtime(self, request: pb.CloseRuntime) -> None:
        self._spawn(self._runtimes.close(request.runtime_id))

    async def _finish(self, tracked: TrackedCall) -> None:
        try:
            outcome = await tracked.task
        except asyncio.CancelledError as error:
            outcome = stopped() if self._stopping else failure_of(error)
        finally:
            self._running -= 1
        self._record_outcome(tracked, outcome)
        self._grant_credit()
        self._check_idle()

    def _record_outcome(self, tracked: TrackedCall, outcome: Outcome) -> None:
        key = tracked.call.call_id, tracked.call.attempt
        if self._calls.get(key) is not tracked or tracked.outcome is not None:
            return  # the call was dropped or given up
        if tracked.cancelling and isinstance(outcome, pb.CallFailed):
            del self._calls[key]
            self._forgotten += 1
            begun = outcome.effect != ATTEMPT_EFFECT_NONE
            stopped = pb.CANCEL_OUTCOME_STOPPED if begun else pb.CANCEL_OUTCOME_NOT_BEGUN
            self._acknowledge_cancel(tracked.call, stopped)
            return
        if tracked.cancelling:
            self._acknowledge_cancel(tracked.call, pb.CANCEL_OUTCOME_FINISHED)
        tracked.outcome, tracked.outcome_bytes = outcome, outcome.ByteSize()
        self._offer_outcome(tracked)

    def _offer_outcome(self, tracked: TrackedCall) -> None:
        if tracked.outcome is not None:
            self._send(outcome_frame(tracked, self.bound))

    def on_protocol_error(self, error: pb.ProtocolError) -> None:
        """Gives up what the server would refuse again on the next connection.

        A failure replaces a result. Of a call that still runs, the newest question gets no answer, or without one its
        states are not recorded: the older questions got past the server.
        """
        log.error("the server reports a protocol error: %s", error.message)
        for tracked in self._calls.values():
            if tracked.call.call_id != error.call_id:
                continue
            if tracked.outcome is not None:
                tracked.outcome = refusal(error.message)
            else:
                tracked.refuse_newest(cut(error.message, MAX_REFUSAL_BYTES))

    def on_cancel(self, cancel: pb.Cancel) -> None:
        tracked = self._calls.get((cancel.call_id, cancel.attempt))
        if tracked is None:
            self._acknowledge_cancel(cancel, pb.CANCEL_OUTCOME_UNKNOWN)
        elif tracked.outcome is not None:
            self._acknowledge_cancel(cancel, pb.CANCEL_OUTCOME_FINISHED)
        elif not tracked.cancelling:
            tracked.cancelling = True
            tracked.task.cancel()
            self._spawn(self._report_if_not_stopped(tracked, seconds(cancel.grace_period)))

    async def _report_if_not_stopped(self, tracked: TrackedCall, grace: float) -> None:
        stopped, _ = await asyncio.wait({tracked.task}, timeout=max(grace, 1.0))
        if not stopped:
            self._acknowledge_cancel(tracked.call, pb.CANCEL_OUTCOME_CANNOT)

    def _acknowledge_cancel(self, of: Call | pb.Cancel, outcome) -> None:
        self.send(cancel_ack=pb.CancelAck(**ref(of), outcome=outcome))

    def forget_call(self, of: Call | pb.LeaseLost | pb.CallVerdict | pb.CallRequest) -> None:
        """Drops a call that the server may not have recorded."""
        if (of.call_id, of.attempt) in self._calls:
            self._forgotten += 1
        self.drop_call(of)

    def drop_call(self, of: Call | pb.ResultAck | pb.LeaseLost | pb.CallVerdict | pb.CallRequest) -> None:
        tracked = self._calls.pop((of.call_id, of.attempt), None)
        if tracked:
            tracked.task.cancel()
        self._grant_credit()
        self._check_idle()

    def heartbeat(self) -> pb.Heartbeat:
        running = [tracked.call for tracked in self._calls.values() if tracked.outcome is None]
        calls = [pb.CallRef(**ref(call)) for call in running]
        try:
            return pb.Heartbeat(calls=calls, status_text=cut(self.status(), MAX_STATUS_BYTES))
        except (Exception, SystemExit):
            log.exception("status failed")
            return pb.Heartbeat(calls=calls)

    def _grant_credit(self) -> None:
        if self._grow_credit():
            self.send(credit=pb.Credit(total=self.connection.credit))

    def _grow_credit(self) -> bool:
        """Gives credit for the calls that there is room for. False if the server has as much already."""
        connection = self.connection
        if connection is None or connection.spent + self._free_slots() <= connection.credit:
            return False
        connection.credit = connection.spent + self._free_slots()
        return True

    def _check_idle(self) -> None:
        if self._draining.is_set() and not self._calls and (self._gave_up or not self._running):
            self._idle.set()

    def send(self, **frame) -> None:
        """Sends a frame. Without a welcome it is dropped; everything that matters is repeated after the next one."""
        self._send(pb.ConnectRequest(**frame))

    def _send(self, frame: pb.ConnectRequest) -> None:
        if self.connection and self.connection.welcomed:
            self.connection.frames.put_nowait(frame)

    async def wait_for_room(self) -> None:
        """Waits while the queue of frames is full."""
        while (connection := self.connection) and connection.frames.qsize() >= MAX_QUEUED_FRAMES:
            connection.room.clear()
            await connection.room.wait()

    def _spawn(self, work) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
