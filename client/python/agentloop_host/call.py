"""One call: what its tool sees of it, and what the host keeps of it."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.events_pb2 import ATTEMPT_EFFECT_DONE, ATTEMPT_EFFECT_MAYBE, OUTPUT_STREAM_STDOUT
from agentloop.v1.types_pb2 import Image

from .ask import Options, answer, question
from .failure import ToolFailed
from .frame import FrameBound, cut

if TYPE_CHECKING:
    from .host import Host

log = logging.getLogger(__package__)

# What the contract allows.
MAX_RESULT_BYTES = 3 << 20
MAX_CHUNK_BYTES = 64 << 10
MAX_CHECKPOINT_BYTES = 64 << 10
MAX_PROGRESS_BYTES = 4 << 10

# Enough to say why; what a model reads of a failure should not crowd out the conversation.
MAX_FAILURE_BYTES = 64 << 10
MAX_REFUSAL_BYTES = 4 << 10
MAX_RETRY_DELAY = timedelta(days=7)  # no call may take longer


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
        self.runtime: Any = None  # what the host opened for the run, where the tool needs it
        self._host = host
        self._chunks = 0
        self._questions = 0

    async def progress(self, message="", fraction: float | None = None, checkpoint: bytes | None = None) -> None:
        """Says how far the call is. The server keeps the checkpoint and gives it to the next try."""
        if checkpoint is not None and len(checkpoint) > MAX_CHECKPOINT_BYTES:
            raise ValueError(f"a checkpoint has at most {MAX_CHECKPOINT_BYTES} bytes")
        message = cut(message, MAX_PROGRESS_BYTES)
        await self._host.room()
        told = pb.Progress(**ref(self), message=message, fraction=fraction, checkpoint=checkpoint)
        if not self._host.bound.takes(pb.ConnectRequest(progress=told)):
            log.warning("a checkpoint of call %s is larger than the server takes, and left out", self.call_id)
            told.ClearField("checkpoint")
        self._host.send(progress=told)

    async def output(self, data: str | bytes, stream=OUTPUT_STREAM_STDOUT) -> None:
        """Shows output to whoever watches. What is said while the server is out of reach is lost."""
        data = data.encode(errors="replace") if isinstance(data, str) else data
        start = 0
        while start < len(data):
            await self._host.room()
            self._chunks += 1
            end = start + self._host.bound.beside(self.call_id, MAX_CHUNK_BYTES)
            chunk, start = data[start:end], end
            self._host.send(output_chunk=pb.OutputChunk(**ref(self), chunk_seq=self._chunks, stream=stream, data=chunk))

    async def ask(self, text: str, *, name: str | None = None, timeout: timedelta | None = None) -> str:
        """Asks a human for text, and waits for as long as that takes, through reconnects and restarts of the server.

        The call's deadline does not run meanwhile; after the answer the call has all of its time again. A call may
        ask 16 questions. A later try of the call that asks the same under the same name is given the answer of the
        earlier one; unless named, questions are numbered in the order in which they are asked. Without a timeout the
        run says when the question is given up. Errors: NoAnswer.
        """
        return await self._put(text, None, False, name, timeout)

    async def choose(
        self, text: str, options: Options, *, name: str | None = None, timeout: timedelta | None = None
    ) -> str:
        """Asks a human to choose one of at most 64 options, and returns its id; else as `ask`."""
        chosen = await self._put(text, options, False, name, timeout)
        return chosen[0]

    async def choose_several(
        self, text: str, options: Options, *, name: str | None = None, timeout: timedelta | None = None
    ) -> list[str]:
        """Asks a human to choose several options, or none, and returns their ids; else as `ask`."""
        return await self._put(text, options, True, name, timeout)

    async def _put(self, text, options, multiple, name, timeout):
        self._questions += 1
        asked = question(text, self._questions, options, multiple, name, timeout)
        asked.call_id, asked.attempt = self.call_id, self.attempt
        return answer(await self._host.ask(asked))


@dataclass
class Output:
    """What a tool returns that shows pictures beside its text."""

    text: str
    images: list[Image]


# What a tool came to.
Outcome = pb.CallResult | pb.CallFailed


@dataclass
class InHand:
    """A call from its request until its result is acknowledged."""

    call: Call
    lease_token: str
    task: asyncio.Task
    outcome: Outcome | None = None  # None while the tool runs
    cancelling: bool = False
    # Questions that wait, asked again after a reconnect.
    asked: dict[str, tuple[pb.NeedInput, asyncio.Future[pb.InputResponse]]] = field(default_factory=dict)


async def outcome_of(call: Call, run: Callable[[], Awaitable[Any]]) -> Outcome:
    """Runs a tool to its end. Whatever it raises is an outcome, but for its cancellation."""
    try:
        return _result(await run())
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # of which SystemExit would end the host
        if not isinstance(error, ToolFailed):
            log.info("call %s failed", call.call_id, exc_info=True)
        return failure_of(error)


def _result(value: Any) -> Outcome:
    images = value.images if isinstance(value, Output) else []
    value = value.text if isinstance(value, Output) else value
    output = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    output = output.encode(errors="replace")
    size = len(output) + sum(image.ByteSize() for image in images)
    if size > MAX_RESULT_BYTES:
        return _done(f"the result has {size} bytes, the limit is {MAX_RESULT_BYTES}")
    return pb.CallResult(output=output.decode(), images=images)


def failure_of(error: BaseException) -> pb.CallFailed:
    """What is told of a tool that raised."""
    if not isinstance(error, ToolFailed):
        message = cut(f"{type(error).__name__}: {_words(error)}", MAX_FAILURE_BYTES)
        return pb.CallFailed(message=message, effect=ATTEMPT_EFFECT_MAYBE)
    failed = pb.CallFailed(message=cut(_words(error), MAX_FAILURE_BYTES), effect=ATTEMPT_EFFECT_MAYBE)
    try:
        how = pb.CallFailed(retryable=error.retryable, retry_delay=_delay(error.retry_delay), effect=error.effect)
    except (TypeError, ValueError):
        log.exception("a ToolFailed has an attribute that is not of its type")
        return failed
    failed.MergeFrom(how)
    return failed


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "it does not say why"


def _delay(delay: timedelta | None) -> timedelta | None:
    return None if delay is None else min(max(delay, timedelta()), MAX_RETRY_DELAY)


def refused(words: str) -> pb.CallFailed:
    """What takes the place of a result that the server refuses, in its words."""
    return _done(f"the server refused the result: {cut(words, MAX_REFUSAL_BYTES)}")


def _done(message: str) -> pb.CallFailed:
    return pb.CallFailed(message=message, effect=ATTEMPT_EFFECT_DONE)


def outcome_frame(held: InHand, bound: FrameBound) -> pb.ConnectRequest:
    """Says the outcome, under the lease that the call has now.

    One that is larger than the server takes is a failure from here on; of a failure the beginning is left.
    """
    frame = _frame(held)
    if bound.takes(frame):
        return frame
    size, most = frame.ByteSize(), bound.max_bytes
    if isinstance(held.outcome, pb.CallResult):
        held.outcome = _done(f"the result has {size} bytes with its frame; the server takes {most}")
    else:
        left = len(held.outcome.message.encode()) - (size - most)
        held.outcome.message = cut(held.outcome.message, max(0, left))
    return _frame(held)


def _frame(held: InHand) -> pb.ConnectRequest:
    held.outcome.call_id, held.outcome.attempt = held.call.call_id, held.call.attempt
    held.outcome.lease_token = held.lease_token
    if isinstance(held.outcome, pb.CallResult):
        return pb.ConnectRequest(call_result=held.outcome)
    return pb.ConnectRequest(call_failed=held.outcome)


def ref(of) -> dict:
    return {"call_id": of.call_id, "attempt": of.attempt}
