// An example tool host with six tools, from a read-only one to one that must not run twice.

import { setTimeout as sleep } from "node:timers/promises";
import { type NoteEffect, schemaOf, serve } from "./example_options.js";
import { AttemptEffect, EffectClass, type Host, ToolFailed } from "./host/index.js";

function declareTools(host: Host, noteEffect: NoteEffect): void {
  host.tool(
    {
      name: "get_weather",
      description: "Tells the current weather in a city.",
      title: "Weather in {city}",
      schema: schemaOf({ city: "string" }),
      effect: EffectClass.READ_ONLY,
    },
    async (call, { city }: { city: string }) => ({ city, celsius: 8.5, sky: "clear" }),
  );

  host.tool(
    {
      name: "add",
      description: "Adds two numbers.",
      schema: schemaOf({ a: "number", b: "number" }),
      effect: EffectClass.READ_ONLY,
    },
    async (call, { a, b }: { a: number; b: number }) => a + b,
  );

  host.tool(
    {
      name: "send_email",
      description: "Sends an email.",
      schema: schemaOf({ to: "string", subject: "string", body: "string" }),
      effect: EffectClass.UNSAFE,
      requiresApproval: true,
    },
    async (call, { to }: { to: string; subject: string; body: string }) => {
      noteEffect(`send_email ${call.idempotencyKey} ${to}`);
      return `sent to ${to}`;
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
      noteEffect(`slow-start ${call.callId} ${call.attempt}`);
      const steps = Math.round(seconds * 10);
      for (let step = 1; step <= steps; step++) {
        await sleep(100, undefined, { signal: call.signal }).catch((stopped) => {
          noteEffect(`slow-cancelled ${call.callId}`);
          throw stopped;
        });
        await call.progress(`${label}: ${step} of ${steps}`, step / steps);
        await call.output(`${label} ${step}\n`);
      }
      noteEffect(`slow-end ${call.callId}`);
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
      noteEffect(`charge ${call.callId} ${call.attempt}`);
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

await serve(declareTools);
