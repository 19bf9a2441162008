"""One call: what its tool sees of it, and what the host keeps of it."""

import asyncio
import json
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.events_pb2 import ATTEMPT_EFFECT_DONE, ATTEMPT_EFFECT_MAYBE, OUTPUT_STREAM_STDOUT
from agentloop.v1.types_pb2 import Image

from .ask import Options, answer, question
from .failure import ToolFailed

if TYPE_CHECKING:
    from .host import Host

log = logging.getLogger(__package__)

# What the contract allows.
MAX_RESULT_BYTES = 3 << 20
MAX_CHUNK_BYTES = 64 << 10
MAX_CHECKPOINT_BYTES = 64 << 10
MAX_PROGRESS_CHARS = 1 << 10  # of at most 4 bytes each


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
        message = message[:MAX_PROGRESS_CHARS]
        await self._host.room()
        self._host.send(progress=pb.Progress(**ref(self), message=message, fraction=fraction, checkpoint=checkpoint))

    async def output(self, data: str | bytes, stream=OUTPUT_STREAM_STDOUT) -> None:
        """Shows output to whoever watches. What is said while the server is out of reach is lost."""
        data = data.encode() if isinstance(data, str) else data
        for start in range(0, len(data), MAX_CHUNK_BYTES):
            await self._host.room()
            self._chunks += 1
            chunk = data[start : start + MAX_CHUNK_BYTES]
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


@dataclass
class InHand:
    """A call from its request until its result is acknowledged."""

    call: Call
    lease_token: str
    task: asyncio.Task
    outcome: pb.CallResult | pb.CallFailed | None = None  # None while the tool runs
    cancelling: bool = False
    # Questions that wait, asked again after a reconnect.
    asked: dict[str, tuple[pb.NeedInput, asyncio.Future[pb.InputResponse]]] = field(default_factory=dict)


async def outcome_of(held: InHand) -> pb.CallResult | pb.CallFailed:
    try:
        return _result(await held.task)
    except ToolFailed as failure:
        delay = failure.retry_delay
        return pb.CallFailed(
            message=str(failure), retryable=failure.retryable, retry_delay=delay, effect=failure.effect
        )
    except (Exception, asyncio.CancelledError) as error:
        log.info("call %s failed", held.call.call_id, exc_info=not held.cancelling)
        return pb.CallFailed(message=f"{type(error).__name__}: {error}", effect=ATTEMPT_EFFECT_MAYBE)


def _result(value: Any) -> pb.CallResult | pb.CallFailed:
    images = value.images if isinstance(value, Output) else []
    value = value.text if isinstance(value, Output) else value
    output = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    size = len(output.encode()) + sum(image.ByteSize() for image in images)
    if size > MAX_RESULT_BYTES:
        return pb.CallFailed(
            message=f"the result has {size} bytes, the limit is {MAX_RESULT_BYTES}", effect=ATTEMPT_EFFECT_DONE
        )
    return pb.CallResult(output=output, images=images)


def ref(of) -> dict:
    return {"call_id": of.call_id, "attempt": of.attempt}
