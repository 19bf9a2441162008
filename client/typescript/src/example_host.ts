// An example tool host: six tools, from a harmless one to one that must not run twice.

import { closeSync, fsyncSync, openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { AttemptEffect, EffectClass, Host, ToolFailed } from "./host/index.js";

type Journal = (line: string) => void;

function declareTools(host: Host, journal: Journal): void {
  host.tool(
    {
      name: "get_weather",
      description: "Tells the current weather in a city.",
      schema: schemaOf({ city: "string" }),
      effect: EffectClass.READ_ONLY,
    },
    async (call, { city }: { city: string }) => ({ city, temperature: 25, condition: "sunny" }),
  );

  host.tool(
    {
      name: "add",
      description: "Adds two numbers.",
      schema: schemaOf({ a: "number", b: "number" }),
      effect: EffectClass.IDEMPOTENT,
    },
    async (call, { a, b }: { a: number; b: number }) => a + b,
  );

  host.tool(
    {
      name: "send_email",
      description: "Sends an email.",
      schema: schemaOf({ to: "string", subject: "string" }),
      effect: EffectClass.UNSAFE,
      requiresApproval: true,
    },
    async (call, { to }: { to: string; subject: string }) => {
      journal(`send_email ${call.idempotencyKey} ${to}`);
      return { sent: true };
    },
  );

  host.tool(
    {
      name: "slow",
      description: "Takes its time, and shows how far it is.",
      schema: schemaOf({ seconds: "number", label: "string" }),
      effect: EffectClass.READ_ONLY,
      streamsOutput: true,
    },
    async (call, { seconds, label }: { seconds: number; label: string }) => {
      journal(`slow-start ${call.callId} ${call.attempt}`);
      const steps = Math.round(seconds * 10);
      for (let step = 1; step <= steps; step++) {
        await sleep(100, undefined, { signal: call.signal }).catch((stopped) => {
          journal(`slow-cancelled ${call.callId}`);
          throw stopped;
        });
        await call.progress(`${label}: ${step} of ${steps}`, step / steps);
        await call.output(`${label} ${step}\n`);
      }
      journal(`slow-end ${call.callId}`);
      return { label, seconds };
    },
  );

  host.tool(
    {
      name: "charge",
      description: "Charges an amount of money.",
      schema: schemaOf({ amount: "number", seconds: "number" }),
      effect: EffectClass.UNSAFE,
    },
    async (call, { amount, seconds }: { amount: number; seconds: number }) => {
      journal(`charge ${call.callId} ${call.attempt}`);
      await sleep(seconds * 1000, undefined, { signal: call.signal });
      return { charged: amount };
    },
  );

  host.tool(
    {
      name: "fail",
      description: "Fails, always.",
      schema: schemaOf({ retryable: "boolean" }),
      effect: EffectClass.READ_ONLY,
    },
    async (call, { retryable }: { retryable: boolean }) => {
      throw new ToolFailed("this tool always fails", { retryable, effect: AttemptEffect.NONE });
    },
  );
}

/** The schema of an object that must have these properties. */
function schemaOf(types: Record<string, string>): object {
  const properties = Object.fromEntries(Object.entries(types).map(([name, type]) => [name, { type }]));
  return { type: "object", properties, required: Object.keys(types), additionalProperties: false };
}

/** Appends lines to a file, each on disk before the next thing happens. Without a path, to nowhere. */
function journalTo(path: string | undefined): Journal {
  return (line) => {
    if (!path) return;
    const file = openSync(path, "a");
    writeSync(file, line + "\n");
    fsyncSync(file);
    closeSync(file);
  };
}

const { values: options } = parseArgs({
  options: {
    server: { type: "string", default: process.env["AGENTLOOP_SERVER"] ?? "127.0.0.1:50051" },
    "host-id": { type: "string", default: process.env["AGENTLOOP_HOST_ID"] },
    journal: { type: "string", default: process.env["AGENTLOOP_JOURNAL"] },
  },
});
const host = new Host({
  server: options.server!.replace(/^http:\/\//, ""),
  hostId: options["host-id"],
  onReady: () => console.log("ready", host.hostId),
});
declareTools(host, journalTo(options.journal));
process.exit((await host.run()) ? 0 : 1);
