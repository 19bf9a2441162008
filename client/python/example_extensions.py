"""An example host with extensions: a planner, hooks, a context source that remembers, a runtime, and questions."""

import argparse
import asyncio
import json
import logging
import os
import sys
from datetime import timedelta

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.types_pb2 import (
    CallModelInstruction,
    CallToolsInstruction,
    FinishInstruction,
    RequestApprovalInstruction,
)
from agentloop_host import (
    POST_RUN,
    POST_TOOL,
    PRE_RUN,
    PRE_TOOL,
    READ_ONLY,
    UNSAFE,
    Call,
    ContextItem,
    HookVerdict,
    Host,
    HostRefused,
    Image,
    Instruction,
    NoAnswer,
    Output,
)
from agentloop_host.environment import credentials_of_environment
from example_host import NUMBER, STRING, arguments_schema

# The smallest valid image.
PICTURE = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;"


def declare_planner(host: Host) -> None:
    """Declares the default loop with one change: a human must approve every tool call."""

    @host.planner(description="Asks a human about every tool call.")
    async def careful(request: pb.PlanRequest, run) -> Instruction:
        match request.situation:
            case pb.PLAN_SITUATION_TOOLS_WANTED:
                return Instruction(request_human_approve=RequestApprovalInstruction())
            case pb.PLAN_SITUATION_ANSWERED:
                return Instruction(finish=FinishInstruction())
            case pb.PLAN_SITUATION_PROMPTED | pb.PLAN_SITUATION_TOOLS_SETTLED | pb.PLAN_SITUATION_COMPACTED:
                return Instruction(call_model=CallModelInstruction())
        return Instruction(call_tools=CallToolsInstruction())


def declare_hook(host: Host, note_effect) -> None:
    """Declares a hook that keeps passwords out of tools and sessions, and notes every finished run."""

    @host.hook(PRE_RUN, PRE_TOOL, POST_TOOL, POST_RUN, required=True, description="Keeps secrets out.")
    async def guard(request: pb.HookRequest, run) -> HookVerdict | None:
        match request.point:
            case pb.HOOK_POINT_PRE_RUN:
                return HookVerdict(system_prompt_addition="Never repeat a password.")
            case pb.HOOK_POINT_PRE_TOOL:
                arguments = json.loads(request.tool_call.arguments_json)
                if "password" in arguments.get("page", ""):
                    return HookVerdict(veto="pages with passwords are not opened")
            case pb.HOOK_POINT_POST_TOOL:
                if "hunter2" in request.tool_result.output:
                    output = request.tool_result.output.replace("hunter2", "[hidden]")
                    return HookVerdict(output=output, annotation="a password was hidden")
            case pb.HOOK_POINT_POST_RUN:
                note_effect(f"filed {run.run_id}")
        return None


def declare_memory(host: Host, note_effect) -> None:
    """Declares a context source that remembers the messages of runs, and adds them to later ones."""
    said: list[ContextItem] = []

    async def remember(request: pb.RememberRequest, run) -> None:
        for message in request.messages:
            text = "".join(part.text for part in message.parts)
            if text and all(item.text != text for item in said):
                said.append(ContextItem(text=text, origin=run.session_id))
        note_effect(f"remembered {run.run_id}")

    @host.context_source(description="What was said before.", remember=remember)
    async def diary(request: pb.ContextRequest, run) -> list[ContextItem]:
        return said[-10:]


def declare_runtime(host: Host, note_effect) -> None:
    """Declares a browser for each run, opened before its first page and closed after its last."""

    async def open_browser(init_data: dict, hints: dict) -> dict:
        note_effect(f"opened {init_data.get('profile', 'default')}")
        return {"profile": init_data.get("profile", "default"), "pages": 0}

    async def close_browser(browser: dict) -> None:
        note_effect(f"closed {browser['profile']} after {browser['pages']}")

    host.runtime(open=open_browser, close=close_browser)

    schema = arguments_schema(page=STRING)

    @host.tool(description="Opens a page.", schema=schema, effect=READ_ONLY, requires_runtime=True)
    async def browse(call: Call, page: str):
        call.runtime["pages"] += 1
        return f"page {call.runtime['pages']} in {call.runtime['profile']}: {page}, signed in with hunter2"


def declare_booking(host: Host, note_effect) -> None:
    """Declares a tool that asks a human while it runs."""
    schema = arguments_schema(patience=NUMBER)

    @host.tool(description="Books a seat.", schema=schema, effect=UNSAFE)
    async def book(call: Call, patience: float):
        note_effect(f"booking {call.call_id}")
        seat = await call.ask("Which seat?", name="seat")
        sides, meals = {"a": "aisle", "w": "window"}, ["lunch", "dinner"]
        try:
            side = await call.choose("Which side?", sides, timeout=timedelta(seconds=patience))
        except NoAnswer as no_answer:
            return f"seat {seat}, and no side: {no_answer}"
        wanted = await call.choose_several("Which meals?", meals)
        note_effect(f"booked {call.call_id}")
        boarding_pass = Image(data=PICTURE, media_type="image/gif")
        return Output(f"seat {seat}, {side}, with {' and '.join(wanted)}", [boarding_pass])


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    env = os.environ.get
    parser.add_argument("--server", default=env("AGENTLOOP_SERVER") or "127.0.0.1:50051")
    parser.add_argument("--host-id", default=env("AGENTLOOP_HOST_ID"))
    parser.add_argument("--effects", default=env("AGENTLOOP_EFFECTS", os.devnull), help="a file to note effects in")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)

    def note_effect(line: str) -> None:
        with open(options.effects, "a") as file:
            file.write(line + "\n")

    host = Host(
        options.server,
        options.host_id,
        on_ready=lambda: print("ready", host.host_id, flush=True),
        **credentials_of_environment(options.server),
    )
    declare_planner(host)
    declare_hook(host, note_effect)
    declare_memory(host, note_effect)
    declare_runtime(host, note_effect)
    declare_booking(host, note_effect)
    return 0 if await host.run() else 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except (HostRefused, ValueError) as error:  # ValueError: an option that cannot be used
        sys.exit(str(error))
