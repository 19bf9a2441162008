"""Declares the tools and extensions of a host."""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.types_pb2 import ToolDeclaration

from .extensions import Extensions, Runtimes


@dataclass
class Tool:
    declaration: ToolDeclaration
    function: Callable[..., Awaitable[Any]]


class Declarations:
    """Everything that a host offers. `Host` inherits these methods, which must be called before it runs."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}
        self._extensions = Extensions()
        self._runtimes = Runtimes()

    def tool(self, *, description: str, schema: dict, effect, name: str | None = None, **declaration):
        """Declares the decorated `async def name(call, **arguments)` as a tool.

        Without a `name`, it has that of the function. An object that is called, or a `functools.partial`, needs one.

        The model reads its result: a `str` as text, any other value as JSON. Further keyword arguments are fields of
        ToolDeclaration. Raises TypeError for a function that is not `async`, as the other decorators do, and ValueError
        for a second tool of its name, and for an argument with the name of the first parameter.
        """

        def register(function):
            check_async(function)
            called = name_of(function, name)
            check_arguments(function, called, schema)
            declared = ToolDeclaration(
                name=called,
                description=description,
                input_schema_json=json.dumps(schema, separators=(",", ":")),
                effect=effect,
                **declaration,
            )
            if declared.name in self._tools:
                raise ValueError(f"the host has a tool {declared.name!r} already")
            self._tools[declared.name] = Tool(declared, function)
            return function

        return register

    def hook(self, *points, name: str | None = None, **declaration):
        """Declares the decorated `async def name(request, run)` as a hook at these points, such as PRE_RUN.

        It gets a HookRequest and the run, and returns a HookVerdict, or None to change nothing. Further keyword
        arguments are fields of HookDeclaration.
        """

        def register(function):
            check_async(function)
            declared = pb.HookDeclaration(name=name_of(function, name), points=points, **declaration)
            self._extensions.add("hook", declared, function)
            return function

        return register

    def context_source(self, *, name: str | None = None, remember=None, **declaration):
        """Declares the decorated `async def name(request, run)` as a source of context.

        It gets a ContextRequest and the run, and returns a text, or texts and ContextItems, the best first. `remember`, an
        `async def (request, run)`, gets each finished run as a RememberRequest, and is called again until it succeeds.
        """

        def register(function):
            check_async(function)
            declared = pb.ContextSourceDeclaration(
                name=name_of(function, name), remembers=remember is not None, **declaration
            )
            self._extensions.add("context_source", declared, function, remember)
            return function

        return register

    def planner(self, *, name: str | None = None, **declaration):
        """Declares the decorated `async def name(request, run)` as a planner.

        It gets a PlanRequest and the run, and returns an Instruction.
        """

        def register(function):
            check_async(function)
            declared = pb.PlannerDeclaration(name=name_of(function, name), **declaration)
            self._extensions.add("planner", declared, function)
            return function

        return register

    def runtime(self, *, open: Callable[[dict, dict], Awaitable[Any]], close: Callable[[Any], Awaitable[None]]):
        """Sets the functions that open and close the runtimes of tools with `requires_runtime`.

        `open` gets a run's init data and hints, and returns the runtime, which is `call.runtime`. If it fails, the
        calls that need the runtime fail.
        """
        self._runtimes.declare(open, close)

    def capabilities(self) -> list[pb.Capability]:
        """The declarations, as `hello` has them."""
        tools = [pb.Capability(tool=tool.declaration) for tool in self._tools.values()]
        return tools + self._extensions.capabilities()


def check_async(function: Callable) -> None:
    """Raises TypeError for a function whose call would block, and whose result cannot be awaited."""
    # A decorator may return a function that is not `async` itself, and a callable object has its function inside.
    candidates = (function, inspect.unwrap(function), getattr(function, "__call__", None))
    name = getattr(function, "__name__", function)
    if any(inspect.isasyncgenfunction(candidate) for candidate in candidates):
        raise TypeError(f"{name} must return its result, not yield it: it is an asynchronous generator")
    if not any(inspect.iscoroutinefunction(candidate) for candidate in candidates):
        raise TypeError(f"{name} must be declared with `async def`; run blocking work with asyncio.to_thread")


def name_of(function: Callable, name: str | None) -> str:
    """The given name, or else the function's. Raises TypeError for a callable without one, such as a partial."""
    name = name or getattr(function, "__name__", None)
    if name is None:
        raise TypeError(f"{function!r} has no name of its own: give `name`")
    return name


def check_arguments(function: Callable, name: str, schema: Mapping[str, Any]) -> None:
    """Raises ValueError where an argument has the name of the first parameter, which is the call."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    by_name = first is not None and first.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    if by_name and first.name in schema.get("properties", {}):
        raise ValueError(
            f"{name}: the parameter {first.name!r} is the call, so no argument may have this name; "
            "rename the parameter"
        )
