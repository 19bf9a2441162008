"""Extensions of a host (planners, hooks and context sources), and the runtimes of its tools."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.types_pb2 import Instruction

from .frame import cut

log = logging.getLogger(__package__)

MAX_FAILURE_BYTES = 4 << 10  # bound on the message of a failure
CLOSE_TIMEOUT = 5.0  # seconds for all runtimes to close at the shutdown


class ExtensionFailed(Exception):
    """Raised by an extension that failed. If `retryable`, the server may ask again, here or on another host."""

    def __init__(self, message: str, *, retryable=False):
        super().__init__(message)
        self.retryable = retryable


@dataclass
class Extension:
    """A planner, a hook or a context source, with its functions."""

    capability: pb.Capability
    answer: Callable[[Any, Any], Awaitable[Any]]
    remember: Callable[[Any, Any], Awaitable[None]] | None = None


class Extensions:
    """The extensions of a host, by kind and name."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], Extension] = {}

    def add(self, kind: str, declared, answer, remember=None) -> None:
        if (kind, declared.name) in self._by_key:
            raise ValueError(f"the host has a {kind} {declared.name!r} already")
        self._by_key[kind, declared.name] = Extension(pb.Capability(**{kind: declared}), answer, remember)

    def capabilities(self) -> list[pb.Capability]:
        return [extension.capability for extension in self._by_key.values()]

    async def respond(self, request: pb.ExtensionRequest) -> pb.ExtensionResponse:
        """Calls the extension that a request names. An error becomes a failure response.

        At the request's deadline the extension is cancelled: no answer counts after it.
        """
        # Without the time left, the deadline is by a clock that may differ from this one.
        left = request.time_left.ToTimedelta().total_seconds() if request.HasField("time_left") else None
        timeout = asyncio.timeout(left)
        try:
            async with timeout:
                return pb.ExtensionResponse(request_id=request.request_id, **await self._answer(request))
        except ExtensionFailed as failure:
            failed = pb.ExtensionFailure(message=cut(str(failure), MAX_FAILURE_BYTES), retryable=failure.retryable)
        except (Exception, SystemExit) as error:
            if isinstance(error, TimeoutError) and timeout.expired():
                failed = pb.ExtensionFailure(message="there was no answer in time")
                return pb.ExtensionResponse(request_id=request.request_id, failure=failed)
            log.exception("the extension %s failed", request.name)
            failed = pb.ExtensionFailure(message=cut(f"{type(error).__name__}: {error}", MAX_FAILURE_BYTES))
        return pb.ExtensionResponse(request_id=request.request_id, failure=failed)

    async def _answer(self, request: pb.ExtensionRequest) -> dict:
        match request.WhichOneof("request"):
            case "plan":
                result = await self._find("planner", request).answer(request.plan, request.run)
                return {"instruction": result if result is not None else Instruction()}
            case "hook":
                result = await self._find("hook", request).answer(request.hook, request.run)
                return {"hook": result if result is not None else pb.HookVerdict()}
            case "context":
                result = await self._find("context_source", request).answer(request.context, request.run)
                result = [result] if isinstance(result, str) else result
                return {"context": pb.ContextItems(items=[_item(item) for item in result or []])}
            case "remember":
                source = self._find("context_source", request)
                if source.remember:
                    await source.remember(request.remember, request.run)
                return {"remembered": pb.Remembered()}
        raise ExtensionFailed("this host does not know this kind of request", retryable=True)

    def _find(self, kind: str, request: pb.ExtensionRequest) -> Extension:
        try:
            return self._by_key[kind, request.name]
        except KeyError:
            raise ExtensionFailed(f"this host has no {kind} {request.name!r}", retryable=True) from None


def _item(item) -> pb.ContextItem:
    return pb.ContextItem(text=item) if isinstance(item, str) else item


class Runtimes:
    """The open runtimes of a host. Each is opened once, and closed when its run is over."""

    def __init__(self) -> None:
        self._open: Callable[[dict, dict], Awaitable[Any]] | None = None
        self._close: Callable[[Any], Awaitable[None]] | None = None
        self._opened: dict[str, asyncio.Future] = {}

    def declare(self, open, close) -> None:
        self._open, self._close = open, close

    def ids(self) -> list[str]:
        return list(self._opened)

    def opened(self, runtime_id: str) -> asyncio.Future | None:
        """A future of the runtime, which fails if it cannot be opened. None if it is not open."""
        return self._opened.get(runtime_id)

    def open(self, request: pb.OpenRuntime) -> None:
        if request.runtime_id not in self._opened:
            self._opened[request.runtime_id] = asyncio.ensure_future(self._do_open(request))

    async def _do_open(self, request: pb.OpenRuntime) -> Any:
        if self._open is None:
            raise RuntimeError("this host opens no runtimes")
        return await self._open(json.loads(request.init_data_json or "{}"), json.loads(request.hints_json or "{}"))

    async def close(self, runtime_id: str) -> None:
        opened = self._opened.pop(runtime_id, None)
        if opened is None:
            return
        try:
            runtime = await opened
            if self._close:
                await self._close(runtime)
        except Exception:
            log.exception("the runtime %s did not close well", runtime_id)

    async def close_all(self) -> None:
        """Closes all runtimes. One that does not close within CLOSE_TIMEOUT is left."""
        if closing := [asyncio.ensure_future(self.close(runtime_id)) for runtime_id in self.ids()]:
            _, late = await asyncio.wait(closing, timeout=CLOSE_TIMEOUT)
            for close in late:
                close.cancel()
