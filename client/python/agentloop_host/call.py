"""One call: the object that its tool gets, and the state that the host keeps."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.events_pb2 import ATTEMPT_EFFECT_DONE, ATTEMPT_EFFECT_MAYBE, OUTPUT_STREAM_STDOUT
from agentloop.v1.types_pb2 import Caller, FileContent, Image, Link

from .ask import MAX_QUESTIONS, MAX_RESUME_STATES, WRONG_ANSWER, NoAnswer, Options, answer, check_state, json_text, question
from .failure import ToolFailed
from .frame import FrameBound, cut

log = logging.getLogger(__package__)

# Bounds of the contract.
MAX_RESULT_BYTES = 3 << 20
MAX_CHUNK_BYTES = 64 << 10
MAX_CHECKPOINT_BYTES = 64 << 10
MAX_PROGRESS_BYTES = 4 << 10

# Bound on the text of a failure, so that it does not crowd out the conversation.
MAX_FAILURE_BYTES = 64 << 10
MAX_REFUSAL_BYTES = 4 << 10
MAX_RETRY_DELAY = timedelta(days=7)  # no call may take longer


class CallChannel(Protocol):
    """The host, as its calls use it."""

    bound: FrameBound

    def send(self, **frame) -> None: ...
    async def wait_for_room(self) -> None: ...
    async def ask(self, question: pb.NeedInput) -> pb.InputResponse: ...
    async def save_state(self, progress: pb.Progress) -> None: ...
    def keep_checkpoint(self, call: "Call", progress: pb.Progress) -> None: ...


class Call:
    """One call, for its tool.

    A call is stopped with CancelledError: the tool cleans up and raises the error again.
    """

    def __init__(self, host: CallChannel, request: pb.CallRequest):
        self.call_id: str = request.call_id
        self.attempt: int = request.attempt
        self.idempotency_key: str = request.idempotency_key
        self.checkpoint: bytes | None = request.checkpoint if request.HasField("checkpoint") else None
        # The state that an earlier attempt left: go on from it. None: begin.
        self.resume_state: bytes | None = request.resume_state if request.HasField("resume_state") else None
        # Answers to the questions of earlier attempts, by name. A question of the same name gets its answer from here.
        self.answers: dict[str, pb.InputResponse] = {answer.input_id: answer for answer in request.answers}
        self.deadline: datetime = request.deadline.ToDatetime(UTC)
        if request.HasField("time_left"):  # this clock may differ from the server's
            self.deadline = datetime.now(UTC) + request.time_left.ToTimedelta()
        self.run_id: str = request.run_id
        self.session_id: str = request.session_id
        self.turn_id: str = request.turn_id
        # Who started the run: the tool can act with that person's rights. The name is empty where nobody was asked.
        self.caller: Caller = request.caller
        self.traceparent: str = request.traceparent
        self.runtime: Any = None  # the runtime that the host opened for the run, if the tool requires one
        self._host = host
        self._chunks = 0
        self._questions = 0  # those with an earlier answer, too: an unnamed one has the same number in each attempt
        self._asked = 0  # questions without an earlier answer
        self._states = 0

    async def progress(self, message="", fraction: float | None = None, checkpoint: bytes | None = None) -> None:
        """Reports progress. The server stores the checkpoint and gives it to the next attempt.

        After each reconnect the last progress with a checkpoint is sent again.
        """
        if checkpoint is not None and len(checkpoint) > MAX_CHECKPOINT_BYTES:
            raise ValueError(f"a checkpoint has at most {MAX_CHECKPOINT_BYTES} bytes")
        message = cut(message, MAX_PROGRESS_BYTES)
        progress = pb.Progress(**ref(self), message=message, fraction=fraction, checkpoint=checkpoint)
        if checkpoint is not None:
            self._host.keep_checkpoint(self, progress)
        await self._host.wait_for_room()
        self._host.send(progress=carried_progress(progress, self._host.bound))

    async def save_resume_state(self, state: bytes) -> None:
        """Records a state that the call goes on from, and waits until the server has it.

        Until then the call must do nothing that takes effect. The state is a promise: going on from it repeats nothing
        that was done, whatever the call does after it. The next attempt has it as `resume_state`, and an UNSAFE call
        whose host is lost goes on instead of being in doubt. One attempt saves 256 states at most. Errors: NoAnswer.
        """
        check_state(state)
        if self._states == MAX_RESUME_STATES:
            raise NoAnswer(f"one attempt of a call saves {MAX_RESUME_STATES} resume states at most")
        self._states += 1
        await self._host.save_state(pb.Progress(**ref(self), resume_state=state, resume_no=self._states))

    async def output(self, data: str | bytes, stream=OUTPUT_STREAM_STDOUT) -> None:
        """Sends output to the subscribers of the run. It is dropped while the server cannot be reached."""
        data = data.encode(errors="replace") if isinstance(data, str) else data
        start = 0
        while start < len(data):
            await self._host.wait_for_room()
            self._chunks += 1
            end = start + self._host.bound.payload_bytes(self.call_id, MAX_CHUNK_BYTES)
            chunk, start = data[start:end], end
            self._host.send(output_chunk=pb.OutputChunk(**ref(self), chunk_seq=self._chunks, stream=stream, data=chunk))

    async def ask(
        self,
        text: str,
        *,
        name: str | None = None,
        timeout: timedelta | None = None,
        allow_empty: bool = False,
        resume_state: bytes | None = None,
        metadata: Mapping[str, Any] | str | None = None,
    ) -> str:
        """Asks a human for text, and waits for the answer, through reconnects and restarts of the server.

        The call's deadline stands still meanwhile, and starts anew with the answer. A call may ask 16 questions. A
        later attempt that asks the same question under the same name gets the earlier answer; unnamed questions are
        numbered in the order in which they are asked. The default timeout is the run's. An empty text is an answer only
        with `allow_empty`. Errors: NoAnswer.

        With a `resume_state`, which needs a name, the call is given up until the answer, which may take a week: the
        server records the question with the state and cancels this attempt. The answer comes with the next attempt, on
        any host; there the question of the same name has it at once. The state is a promise: going on from it with the
        answer repeats nothing that was done until now.

        `metadata` is a JSON object of at most 16 KiB for user interfaces.
        """
        return await self._ask_human(
            "text", text, name, timeout, allow_empty=allow_empty, resume_state=resume_state, metadata=metadata
        )

    async def choose(
        self,
        text: str,
        options: Options,
        *,
        name: str | None = None,
        timeout: timedelta | None = None,
        resume_state: bytes | None = None,
        metadata: Mapping[str, Any] | str | None = None,
    ) -> str:
        """Asks a human to choose one of at most 64 options, and returns its id. Otherwise as `ask`."""
        chosen = await self._ask_human(
            "selection", text, name, timeout, options, resume_state=resume_state, metadata=metadata
        )
        if not chosen:
            raise NoAnswer(WRONG_ANSWER)
        return chosen[0]

    async def choose_several(
        self,
        text: str,
        options: Options,
        *,
        name: str | None = None,
        timeout: timedelta | None = None,
        resume_state: bytes | None = None,
        metadata: Mapping[str, Any] | str | None = None,
    ) -> list[str]:
        """Asks a human to choose several options, or none, and returns their ids. Otherwise as `ask`."""
        return await self._ask_human(
            "selection", text, name, timeout, options, multiple=True, resume_state=resume_state, metadata=metadata
        )

    async def fill_in(
        self,
        text: str,
        schema: Mapping[str, Any] | str,
        *,
        name: str | None = None,
        timeout: timedelta | None = None,
        resume_state: bytes | None = None,
        metadata: Mapping[str, Any] | str | None = None,
    ) -> dict[str, Any]:
        """Asks a human to fill in a form, and returns its fields. Otherwise as `ask`.

        The schema is a JSON schema of an object with flat fields: strings, numbers, integers, booleans, or one of
        several strings. The server has checked the fields.
        """
        form = json_text(schema)
        return await self._ask_human(
            "form_json", text, name, timeout, form_schema_json=form, resume_state=resume_state, metadata=metadata
        )

    async def visit(
        self,
        text: str,
        url: str,
        *,
        name: str | None = None,
        timeout: timedelta | None = None,
        resume_state: bytes | None = None,
        metadata: Mapping[str, Any] | str | None = None,
    ) -> bool:
        """Asks a human to visit a link; True if the human did there what was asked. Otherwise as `ask`."""
        return await self._ask_human("url", text, name, timeout, url=url, resume_state=resume_state, metadata=metadata)

    async def _ask_human(self, kind, text, name, timeout, options=None, *, metadata=None, **fields):
        self._questions += 1
        if name in self.answers:
            return answer(self.answers[name], kind)
        self._asked += 1
        if self._asked > MAX_QUESTIONS:
            raise NoAnswer(f"a call may ask {MAX_QUESTIONS} questions at most")
        if metadata is not None:
            fields["metadata_json"] = json_text(metadata)
        frame = question(text, self._questions, name, timeout, options, **fields)
        frame.call_id, frame.attempt = self.call_id, self.attempt
        return answer(await self._host.ask(frame), kind)


@dataclass
class Output:
    """The result of a tool that returns more than a text.

    `structured` is a value that follows the tool's `output_schema_json`; the model reads it as JSON if there is no text.
    """

    text: str = ""
    images: list[Image] = field(default_factory=list)
    structured: Any = None
    files: list[FileContent] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)


# The end of a call: its result or its failure, as a frame.
Outcome = pb.CallResult | pb.CallFailed


@dataclass
class TrackedCall:
    """The host's state of a call, from its request until its result is acknowledged."""

    call: Call
    lease_token: str
    task: asyncio.Task
    outcome: Outcome | None = None  # None while the tool runs
    outcome_bytes: int = 0
    cancelling: bool = False
    # Unanswered questions by id; repeated after a reconnect.
    questions: dict[str, tuple[pb.NeedInput, asyncio.Future[pb.InputResponse]]] = field(default_factory=dict)
    # States that are not recorded yet, by rising number. The last one is repeated after a reconnect.
    unrecorded: list[tuple[pb.Progress, asyncio.Future[None]]] = field(default_factory=list)
    # The last progress with a checkpoint; repeated after a reconnect.
    checkpoint: pb.Progress | None = None

    def refuse_newest(self, why: str) -> None:
        """Refuses the newest question or, without one, the states that are not recorded."""
        if self.questions:
            _, answered = self.questions[next(reversed(self.questions))]
            if not answered.done():
                answered.set_result(pb.InputResponse(refused=f"the server refused the question: {why}"))
            return
        for _, recorded in self.unrecorded:
            if not recorded.done():
                recorded.set_exception(NoAnswer(f"the server refused the resume state: {why}"))
        self.unrecorded.clear()


def carried_progress(progress: pb.Progress, bound: FrameBound) -> pb.Progress:
    """The progress, without a checkpoint that is larger than the server's bound."""
    if bound.fits(pb.ConnectRequest(progress=progress)):
        return progress
    log.warning("call %s: checkpoint dropped: it is larger than the server accepts", progress.call_id)
    carried = pb.Progress()
    carried.CopyFrom(progress)
    carried.ClearField("checkpoint")
    return carried


async def outcome_of(call: Call, run: Callable[[], Awaitable[Any]]) -> Outcome:
    """Runs a tool to its end. Every exception becomes a failure, except a cancellation."""
    try:
        value = await run()
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # includes SystemExit, which would end the host
        if not isinstance(error, ToolFailed):
            log.info("call %s failed", call.call_id, exc_info=True)
        return failure_of(error)
    try:
        return _result(value)
    except Exception as error:  # the tool ran
        log.info("the result of call %s cannot be sent", call.call_id, exc_info=True)
        message = f"the result cannot be sent: {type(error).__name__}: {_message(error)}"
        return _done(cut(message, MAX_FAILURE_BYTES))


def _result(value: Any) -> Outcome:
    whole = value if isinstance(value, Output) else Output(_text(value))
    output = _text(whole.text).encode(errors="replace")
    structured = "" if whole.structured is None else _json(whole.structured)
    beside = [*whole.images, *whole.files, *whole.links]
    size = len(output) + len(structured.encode()) + sum(part.ByteSize() for part in beside)
    if size > MAX_RESULT_BYTES:
        return _done(f"the result has {size} bytes, the limit is {MAX_RESULT_BYTES}")
    return pb.CallResult(
        output=output.decode(),
        images=whole.images,
        structured_json=structured,
        files=whole.files,
        links=whole.links,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)  # JSON has no NaN


def failure_of(error: BaseException) -> pb.CallFailed:
    """The failure of a call whose tool raised this error."""
    if not isinstance(error, ToolFailed):
        message = cut(f"{type(error).__name__}: {_message(error)}", MAX_FAILURE_BYTES)
        return pb.CallFailed(message=message, effect=ATTEMPT_EFFECT_MAYBE)
    failed = pb.CallFailed(message=cut(_message(error), MAX_FAILURE_BYTES), effect=ATTEMPT_EFFECT_MAYBE)
    try:
        how = pb.CallFailed(retryable=error.retryable, retry_delay=_delay(error.retry_delay), effect=error.effect)
    except (TypeError, ValueError):
        log.exception("a ToolFailed has an attribute that is not of its type")
        return failed
    failed.MergeFrom(how)
    return failed


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "it does not say why"


def _delay(delay: timedelta | None) -> timedelta | None:
    return None if delay is None else min(max(delay, timedelta()), MAX_RETRY_DELAY)


def refusal(server_message: str) -> pb.CallFailed:
    """The failure that replaces a result that the server refuses."""
    return _done(f"the server refused the result: {cut(server_message, MAX_REFUSAL_BYTES)}")


def stopped() -> pb.CallFailed:
    """The failure of a call that the shutdown of the host stopped. It may be tried again, where that is safe."""
    return pb.CallFailed(message="the call was stopped before it ended", retryable=True, effect=ATTEMPT_EFFECT_MAYBE)


def _done(message: str) -> pb.CallFailed:
    return pb.CallFailed(message=message, effect=ATTEMPT_EFFECT_DONE)


def outcome_frame(tracked: TrackedCall, bound: FrameBound) -> pb.ConnectRequest:
    """The frame of a call's outcome, under its current lease.

    A result larger than the server's bound becomes a failure for good. A failure keeps the beginning of its message.
    """
    frame = _frame(tracked)
    if bound.fits(frame):
        return frame
    size, most = frame.ByteSize(), bound.max_bytes
    if isinstance(tracked.outcome, pb.CallResult):
        tracked.outcome = _done(f"the result has {size} bytes with its frame; the server takes {most}")
    else:
        left = len(tracked.outcome.message.encode()) - (size - most)
        tracked.outcome.message = cut(tracked.outcome.message, max(0, left))
    return _frame(tracked)


def _frame(tracked: TrackedCall) -> pb.ConnectRequest:
    tracked.outcome.call_id, tracked.outcome.attempt = tracked.call.call_id, tracked.call.attempt
    tracked.outcome.lease_token = tracked.lease_token
    if isinstance(tracked.outcome, pb.CallResult):
        return pb.ConnectRequest(call_result=tracked.outcome)
    return pb.ConnectRequest(call_failed=tracked.outcome)


def ref(of) -> dict:
    """The fields that name an attempt of a call in a frame."""
    return {"call_id": of.call_id, "attempt": of.attempt}
