"""An example tool host with six tools, from a read-only one to one that must not run twice."""

import argparse
import asyncio
import logging
import os
import sys

from agentloop_host import NONE, READ_ONLY, UNSAFE, Call, Host, HostRefused, ToolFailed
from agentloop_host.environment import credentials_of_environment

NUMBER, STRING, BOOLEAN = {"type": "number"}, {"type": "string"}, {"type": "boolean"}


def arguments_schema(**properties) -> dict:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def declare_tools(host: Host, note_effect) -> None:
    @host.tool(
        description="Tells the current weather in a city.",
        title="Weather in {city}",
        schema=arguments_schema(city=STRING),
        effect=READ_ONLY,
    )
    async def get_weather(call: Call, city: str):
        return {"city": city, "celsius": 8.5, "sky": "clear"}

    @host.tool(
        description="Adds two numbers.",
        schema=arguments_schema(a=NUMBER, b=NUMBER),
        effect=READ_ONLY,
    )
    async def add(call: Call, a: float, b: float):
        return a + b

    @host.tool(
        description="Sends an email.",
        schema=arguments_schema(to=STRING, subject=STRING, body=STRING),
        effect=UNSAFE,
        requires_approval=True,
    )
    async def send_email(call: Call, to: str, subject: str, body: str):
        note_effect(f"send_email {call.idempotency_key} {to}")
        return f"sent to {to}"

    @host.tool(
        description="Takes its time, and shows how far it is.",
        schema=arguments_schema(seconds=NUMBER, label=STRING),
        effect=READ_ONLY,
        streams_output=True,
    )
    async def slow(call: Call, seconds: float, label: str):
        note_effect(f"slow-start {call.call_id} {call.attempt}")
        steps = round(seconds * 10)
        try:
            for step in range(1, steps + 1):
                await asyncio.sleep(0.1)
                await call.progress(f"{label}: {step} of {steps}", step / steps)
                await call.output(f"{label} {step}\n")
        except asyncio.CancelledError:
            note_effect(f"slow-cancelled {call.call_id}")
            raise
        note_effect(f"slow-end {call.call_id}")
        return {"label": label, "seconds": seconds}

    @host.tool(
        description="Charges an amount of money.",
        schema=arguments_schema(amount=NUMBER, seconds=NUMBER),
        effect=UNSAFE,
    )
    async def charge(call: Call, amount: float, seconds: float):
        note_effect(f"charge {call.call_id} {call.attempt}")
        await asyncio.sleep(seconds)
        return {"charged": amount}

    @host.tool(
        description="Fails, always.",
        schema=arguments_schema(retryable=BOOLEAN),
        effect=READ_ONLY,
    )
    async def fail(call: Call, retryable: bool):
        raise ToolFailed("this tool always fails", retryable=retryable, effect=NONE)


def effects_file(path: str | None):
    """A function that appends a line to a file and syncs it. Without a path it does nothing."""

    def write(line: str) -> None:
        if not path:
            return
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    return write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default=os.environ.get("AGENTLOOP_SERVER") or "127.0.0.1:50051")
    parser.add_argument("--host-id", default=os.environ.get("AGENTLOOP_HOST_ID"))
    parser.add_argument("--effects", default=os.environ.get("AGENTLOOP_EFFECTS"))
    options = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")

    async def serve() -> bool:
        host = Host(
            options.server,
            options.host_id,
            on_ready=lambda: print("ready", host.host_id, flush=True),
            **credentials_of_environment(options.server),
        )
        declare_tools(host, effects_file(options.effects))
        return await host.run()

    try:
        sys.exit(0 if asyncio.run(serve()) else 1)
    except (HostRefused, ValueError) as error:  # ValueError: an option that cannot be used
        sys.exit(str(error))


if __name__ == "__main__":
    main()
