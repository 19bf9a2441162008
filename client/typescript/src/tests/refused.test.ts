// A host that the server refuses: it ends where another attempt would end the same way, and only there.

import { status } from "@grpc/grpc-js";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { CapabilityRefusal } from "../gen/agentloop/v1/tool_host.js";
import { EffectClass, HostRefused } from "../host/index.js";
import { Bench } from "./fake_server.js";

let bench: Bench;
let running: Promise<boolean>;
let stopped: Promise<void>;

beforeEach(async () => {
  bench = await Bench.start();
  bench.host.stopGraceMs = 5_000;
  stopped = new Promise((resolve) => {
    bench.host.tool(
      { name: "wait", description: "Waits.", schema: { type: "object" }, effect: EffectClass.READ_ONLY },
      (call) => new Promise((_, reject) => call.signal.addEventListener("abort", () => (resolve(), reject(new Error("stopped"))))),
    );
  });
  running = bench.host.run();
});
afterEach(() => bench.stop());

async function refusal(): Promise<string> {
  const error: unknown = await running.then(() => "it was not refused", (error: unknown) => error);
  assert.ok(error instanceof HostRefused, String(error));
  return error.message;
}

test("before the welcome by a lasting status", async () => {
  // A status that may pass is no refusal.
  for (const code of [status.UNAVAILABLE, status.RESOURCE_EXHAUSTED, status.INTERNAL]) {
    const [connection] = await bench.accept();
    connection.end(code);
  }
  const [connection] = await bench.accept();
  connection.end(status.UNAUTHENTICATED);
  assert.match(await refusal(), /^the server refused the host: .*UNAUTHENTICATED/);
});

test("by a protocol error in place of a welcome", async () => {
  const [connection] = await bench.accept();
  connection.send({ $case: "protocolError", value: { message: "hello.hostId: no id", callId: "" } });
  assert.equal(await refusal(), "the server refused the host: hello.hostId: no id");
});

test("once it has delivered what it has, where all its tools are refused", async () => {
  const first = await bench.welcome();
  await first.sendCall("c1", "wait");
  first.end(status.UNAVAILABLE);
  const verdict = { name: "wait", accepted: false, reason: "other terms", refusal: CapabilityRefusal.DIFFERENT };
  const second = await bench.welcome({ capabilities: [verdict] });
  await second.expect("draining");
  await second.expect("callFailed"); // stopped, because its drain timeout is over at once
  second.acknowledge("c1");
  await second.expect("goodbye");
  assert.equal(await refusal(), "the server refused the host: it refused every tool: wait: other terms");
});

test("after the welcome where another host took its id", async () => {
  const connection = await bench.welcome();
  await connection.sendCall("c1", "wait");
  const message = "another connection with this host id took this one's place";
  connection.send({ $case: "protocolError", value: { message, callId: "" } });
  connection.end(status.FAILED_PRECONDITION);
  const words = 'the server refused the host: another host took the id "host-1"; give each host its own id';
  assert.equal(await refusal(), words);
  await stopped;
});

test("after the welcome by its credential alone", async () => {
  const first = await bench.welcome();
  first.end(status.INVALID_ARGUMENT);
  const second = await bench.welcome();
  await second.sendCall("c1", "wait");
  second.end(status.PERMISSION_DENIED);
  assert.match(await refusal(), /PERMISSION_DENIED/);
  await stopped;
});
