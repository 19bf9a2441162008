"""A tool host for agentloop: dials the server, serves the calls it is given, survives lost connections.

    host = Host("127.0.0.1:50051")

    @host.tool(description="Adds two numbers.", schema={...}, effect=IDEMPOTENT)
    async def add(call, a, b):
        return a + b

    asyncio.run(host.run())

It needs the generated package `agentloop`, grpcio and protobuf, and nothing else.
"""

from agentloop.v1.events_pb2 import ATTEMPT_EFFECT_DONE as DONE
from agentloop.v1.events_pb2 import ATTEMPT_EFFECT_MAYBE as MAYBE
from agentloop.v1.events_pb2 import ATTEMPT_EFFECT_NONE as NONE
from agentloop.v1.events_pb2 import OUTPUT_STREAM_STDERR as STDERR
from agentloop.v1.events_pb2 import OUTPUT_STREAM_STDOUT as STDOUT
from agentloop.v1.tool_host_pb2 import HOOK_POINT_POST_RUN as POST_RUN
from agentloop.v1.tool_host_pb2 import HOOK_POINT_POST_TOOL as POST_TOOL
from agentloop.v1.tool_host_pb2 import HOOK_POINT_PRE_RUN as PRE_RUN
from agentloop.v1.tool_host_pb2 import HOOK_POINT_PRE_TOOL as PRE_TOOL
from agentloop.v1.tool_host_pb2 import ContextItem, HookVerdict
from agentloop.v1.types_pb2 import EFFECT_CLASS_IDEMPOTENT as IDEMPOTENT
from agentloop.v1.types_pb2 import EFFECT_CLASS_KEYED as KEYED
from agentloop.v1.types_pb2 import EFFECT_CLASS_READ_ONLY as READ_ONLY
from agentloop.v1.types_pb2 import EFFECT_CLASS_UNSAFE as UNSAFE
from agentloop.v1.types_pb2 import Image, Instruction

from .ask import NoAnswer
from .call import Call, Output
from .extensions import ExtensionFailed
from .failure import ToolFailed
from .host import Host

__all__ = [
    "Call",
    "Host",
    "Image",
    "Output",
    "ToolFailed",
    "NoAnswer",
    "ExtensionFailed",
    # What extensions answer.
    "ContextItem",
    "HookVerdict",
    "Instruction",
    # Where hooks have their say.
    "PRE_RUN",
    "POST_RUN",
    "PRE_TOOL",
    "POST_TOOL",
    # What running a call twice means.
    "READ_ONLY",
    "IDEMPOTENT",
    "KEYED",
    "UNSAFE",
    # What is known of a failed call's effects.
    "NONE",
    "MAYBE",
    "DONE",
    # Where a tool's output goes.
    "STDOUT",
    "STDERR",
]
