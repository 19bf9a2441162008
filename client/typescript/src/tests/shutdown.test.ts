// The end of a host: calls that outlast the drain timeout, signals, and callbacks that throw.

import { status } from "@grpc/grpc-js";
import assert from "node:assert/strict";
import { once } from "node:events";
import { afterEach, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { CapabilityRefusal, ExtensionRequest } from "../gen/agentloop/v1/tool_host.js";
import { AttemptEffect, type Call, EffectClass, Host, HookPoint } from "../host/index.js";
import { Bench, type Connection } from "./fake_server.js";

const tool = { name: "wait", description: "Waits.", schema: { type: "object" }, effect: EffectClass.READ_ONLY };

let bench: Bench;
beforeEach(async () => {
  bench = await Bench.start();
  bench.host.stopGraceMs = 5_000;
});
afterEach(() => bench.stop());

/** A connection with a call, whose host shuts down. The drain timeout is over at once. */
async function drained(run: (call: Call) => Promise<unknown>): Promise<Connection> {
  bench.host.tool(tool, run);
  bench.run();
  const connection = await bench.welcome();
  await connection.sendCall("c1", "wait");
  bench.host.drain();
  await connection.expect("draining");
  return connection;
}

async function reported(connection: Connection): Promise<void> {
  const { message, retryable, effect } = await connection.expect("callFailed");
  assert.deepEqual([message, retryable, effect], ["the call was stopped before it ended", true, AttemptEffect.MAYBE]);
  connection.acknowledge("c1");
  await connection.expect("goodbye");
}

test("a call that outlasts the drain timeout is stopped and reported", async () => {
  const untilStopped = ({ signal }: Call) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  await reported(await drained(untilStopped));
});

test("and so is one that a function of Node stops", async () => {
  await reported(await drained(({ signal }) => sleep(60_000, undefined, { signal })));
});

test("a call that does not stop is reported after the grace", async () => {
  bench.host.stopGraceMs = 1_000;
  await reported(await drained(() => new Promise(() => undefined)));
});

test("a call that ends in its grace has its own result", async () => {
  const connection = await drained(({ signal }) => once(signal, "abort").then(() => "finished all the same"));
  assert.equal((await connection.expect("callResult")).output, "finished all the same");
  connection.acknowledge("c1");
});

test("listeners for signals are removed at the end", async () => {
  const before = process.listenerCount("SIGTERM");
  bench.run();
  await bench.welcome();
  assert.equal(process.listenerCount("SIGTERM"), before + 1);
  await bench.stop();
  assert.equal(process.listenerCount("SIGTERM"), before);
});

test("a host whose tools are refused as weaker waits until they are accepted", async () => {
  bench.host.tool(tool, async () => "served");
  bench.run();
  const verdict = { name: "wait", accepted: false, reason: "weaker", refusal: CapabilityRefusal.WEAKER };
  const first = await bench.welcome({ capabilities: [verdict] });
  first.send({ $case: "goAway", value: { reconnectAfter: undefined, reason: "accepted" } });
  first.end(status.UNAVAILABLE);
  const second = await bench.welcome();
  await second.sendCall("c1", "wait");
  assert.equal((await second.expect("callResult")).output, "served");
  second.acknowledge("c1");
});

test("callbacks that throw do not end the host or its heartbeats", async () => {
  const fail = () => {
    throw new Error("no");
  };
  const { server } = bench;
  const host = new Host({ server, onReady: fail, status: fail });
  const running = host.run();
  const connection = await bench.welcome({ heartbeatInterval: { seconds: 0n, nanos: 20_000_000 } });
  await connection.heartbeats(3);
  host.drain();
  await running;
});

test("the signal of an extension aborts at its deadline", async () => {
  bench.host.hook({ name: "guard", points: [HookPoint.PRE_RUN] }, async (_request, _run, signal) => {
    await once(signal, "abort");
    signal.throwIfAborted();
  });
  bench.run();
  const connection = await bench.welcome();
  const request = { $case: "hook" as const, value: {} };
  const value = ExtensionRequest.fromPartial({ name: "guard", request, timeLeft: { nanos: 1 } });
  connection.send({ $case: "extensionRequest", value });
  const { response } = await connection.expect("extensionResponse");
  assert.deepEqual(response, { $case: "failure", value: { message: "there was no answer in time", retryable: false } });
});

test("a resume state larger than the server accepts is refused", async () => {
  bench.host.tool(tool, (call) => call.saveResumeState(new Uint8Array(2_000)));
  bench.run();
  const connection = await bench.welcome({ maxFrameBytes: 1_000n });
  await connection.sendCall("c1", "wait");
  assert.equal((await connection.expect("callFailed")).message, "the resume state is larger than the server takes");
  connection.acknowledge("c1");
});
