"""Declares the tools and extensions of a host."""

import json
from collections.abc import Awaitable, Callable
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

    def tool(self, *, description: str, schema: dict, effect, **declaration):
        """Declares the decorated `async def name(call, **arguments)` as a tool.

        The model reads its result: a `str` as text, any other value as JSON. Further keyword arguments are fields of
        ToolDeclaration.
        """

        def register(function):
            declared = ToolDeclaration(
                name=function.__name__,
                description=description,
                input_schema_json=json.dumps(schema, separators=(",", ":")),
                effect=effect,
                **declaration,
            )
            self._tools[declared.name] = Tool(declared, function)
            return function

        return register

    def hook(self, *points, name: str | None = None, **declaration):
        """Declares the decorated `async def name(request, run)` as a hook at these points, such as PRE_RUN.

        It gets a HookRequest and the run, and returns a HookVerdict, or None to change nothing. Further keyword
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
        `async def (request, run)`, gets each finished run as a RememberRequest, and is called again until it succeeds.
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
        """Sets the functions that open and close the runtimes of tools with `requires_runtime`.

        `open` gets a run's init data and hints, and returns the runtime, which is `call.runtime`. If it fails, the
        calls that need the runtime fail.
        """
        self._runtimes.declare(open, close)

    def capabilities(self) -> list[pb.Capability]:
        """The declarations, as `hello` has them."""
        tools = [pb.Capability(tool=tool.declaration) for tool in self._tools.values()]
        return tools + self._extensions.capabilities()
