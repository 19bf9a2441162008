// The tools of a process, and the calls it has in hand.

import { type ChannelCredentials, credentials } from "@grpc/grpc-js";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import {
  CallDisposition,
  type CallRequest,
  type Cancel,
  CancelOutcome,
  type ConnectResponse,
  type ExtensionRequest,
  type Hello,
  type InputResponse,
  type ProtocolError,
  RejectReason,
  type Welcome,
} from "../gen/agentloop/v1/tool_host.js";
import { Call, type InHand, type Outcome, outcomeFrame, outcomeOf, type Ref, refused } from "./call.js";
import { CLOSE_TIMEOUT_MS, Connection, milliseconds } from "./connection.js";
import {
  type ContextSource,
  type ContextSourceOptions,
  Extensions,
  type Hook,
  type HookOptions,
  type Planner,
  type PlannerOptions,
} from "./extensions.js";
import { cut, type Frame, FrameBound } from "./frame.js";
import { type RuntimeOptions, Runtimes } from "./runtimes.js";
import { type Rejection, type ToolOptions, Tools, type Work } from "./tools.js";

const FIRST_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 5_000;
const STABLE_AFTER_MS = 1_000; // a connection that held this long was a good one: the backoff starts anew
const MIN_CANCEL_GRACE_MS = 1_000;
const MAX_REJECTION_BYTES = 4 << 10; // what the contract allows
const RUNTIMES_TIMEOUT_MS = 5_000;

const { version } = createRequire(import.meta.url)("@grpc/grpc-js/package.json") as { version: string };

export interface HostOptions {
  server: string;
  /** Names this process; made up by default. */
  hostId?: string;
  /** Calls at a time; default 4. */
  concurrency?: number;
  /** For the calls in hand at the end; default 30 s. */
  drainTimeoutMs?: number;
  labels?: Record<string, string>;
  credentials?: ChannelCredentials;
  /** Called after each welcome. */
  onReady?: () => void;
}

/**
 * The tools of this process and the calls it has in hand, which outlive any one connection.
 *
 * It says the same thing about a call however often it is asked, and after each reconnect it says again what was not
 * acknowledged.
 */
export class Host {
  readonly hostId: string;
  readonly #options: HostOptions;
  readonly #concurrency: number;
  readonly #tools = new Tools();
  readonly #extensions = new Extensions();
  readonly #runtimes = new Runtimes();
  readonly #inHand = new Map<string, InHand>();
  #running = 0; // tools at work, also for calls that nobody waits for any more
  #connection?: Connection;
  #bound = new FrameBound();
  #draining = false;
  #leaving = new AbortController();
  #noteDrain!: () => void;
  #noteIdle!: () => void;
  readonly #drainAsked = new Promise<void>((resolve) => (this.#noteDrain = resolve));
  readonly #idle = new Promise<void>((resolve) => (this.#noteIdle = resolve));

  constructor(options: HostOptions) {
    this.#options = options;
    this.hostId = options.hostId ?? `${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`;
    this.#concurrency = options.concurrency ?? 4;
  }

  /**
   * Declares a tool. What `run` resolves to is what the model reads: a string as it is, anything else as JSON. The
   * server has checked the arguments against the schema.
   */
  tool<Args>(options: ToolOptions, run: (call: Call, args: Args) => Promise<unknown>): void {
    this.#tools.add(options, run);
  }

  /** Declares a hook, which has its say at `points`. */
  hook(options: HookOptions, hook: Hook): void {
    this.#extensions.addHook(options, hook);
  }

  /** Declares a source of context; with `remember`, one that is handed each finished run. */
  contextSource(options: ContextSourceOptions, source: ContextSource): void {
    this.#extensions.addContextSource(options, source);
  }

  /** Declares a planner. */
  planner(options: PlannerOptions, planner: Planner): void {
    this.#extensions.addPlanner(options, planner);
  }

  /**
   * How to open what tools with `requiresRuntime` run in, and to close it when the run is over. What `open` resolves
   * to is `call.runtime`; where it fails, the calls that need it fail.
   */
  runtime<Runtime>(how: RuntimeOptions<Runtime>): void {
    this.#runtimes.declare(how as RuntimeOptions<unknown>);
  }

  /** Serves until `drain`, SIGTERM or SIGINT. True: every call in hand was finished and acknowledged. */
  async run(): Promise<boolean> {
    for (const signal of ["SIGTERM", "SIGINT"]) {
      process.on(signal, () => (this.#draining ? process.exit(1) : this.drain())); // asked twice: at once
    }
    const serving = this.#serveForEver();
    await Promise.race([this.#drainAsked, serving]);
    const timeout = sleep(this.#options.drainTimeoutMs ?? 30_000, false, { ref: false });
    const delivered = await Promise.race([this.#idle.then(() => true), timeout]);
    if (!delivered) console.error(`leaving with ${this.#inHand.size} calls in hand`);
    this.#leave(delivered);
    await Promise.race([serving, sleep(2 * CLOSE_TIMEOUT_MS, undefined, { ref: false })]);
    // Whoever shuts down does not wait for a runtime that does not close.
    await Promise.race([this.#runtimes.closeAll(), sleep(RUNTIMES_TIMEOUT_MS, undefined, { ref: false })]);
    return delivered;
  }

  /** Takes no more calls, finishes those in hand, then lets `run` resolve. */
  drain(): void {
    this.#draining = true;
    this.#sendDraining();
    this.#noteDrain();
    this.#checkIdle();
  }

  async #serveForEver(): Promise<void> {
    const { server, credentials: given } = this.#options;
    let backoff = FIRST_BACKOFF_MS;
    while (!this.#leaving.signal.aborted) {
      const connection = new Connection(this.#listener, server, given ?? credentials.createInsecure());
      this.#connection = connection;
      await connection.serve().catch((error) => console.error(`connection to ${server}: ${error.message}`));
      this.#connection = undefined;
      if (connection.lasted() > STABLE_AFTER_MS) backoff = FIRST_BACKOFF_MS;
      const wait = Math.max(connection.reconnectAfterMs, Math.random() * backoff);
      await sleep(wait, undefined, { signal: this.#leaving.signal }).catch(() => undefined);
      backoff = Math.min(2 * backoff, MAX_BACKOFF_MS);
    }
  }

  #leave(delivered: boolean): void {
    this.#leaving.abort();
    if (!this.#connection?.welcomed) {
      this.#connection?.abandon();
      return;
    }
    if (delivered) this.#send({ $case: "goodbye", value: { reason: "the host shuts down" } });
    this.#connection.close();
  }

  // What the host says and is told, in the order of a call's life.

  readonly #listener = {
    hello: () => this.#hello(),
    heartbeat: () => this.#heartbeat(),
    onWelcome: (welcome: Welcome) => this.#onWelcome(welcome),
    onFrame: (frame: NonNullable<ConnectResponse["frame"]>) => this.#onFrame(frame),
  };

  #onFrame(frame: NonNullable<ConnectResponse["frame"]>): void {
    switch (frame.$case) {
      case "callRequest":
        return this.#onCallRequest(frame.value);
      case "cancel":
        return this.#onCancel(frame.value);
      case "resultAck":
      case "leaseLost":
        return this.#forget(frame.value);
      case "inputResponse":
        return this.#onInputResponse(frame.value);
      case "extensionRequest":
        return void this.#onExtensionRequest(frame.value, this.#connection);
      case "openRuntime":
        return this.#runtimes.open(frame.value);
      case "closeRuntime":
        return void this.#runtimes.close(frame.value.runtimeId);
      case "ping":
        return this.#send({ $case: "pong", value: { nonce: frame.value.nonce } });
      case "goAway":
        this.#connection!.reconnectAfterMs = milliseconds(frame.value.reconnectAfter);
        return this.#connection!.close();
      case "protocolError":
        return this.#onProtocolError(frame.value);
    }
  }

  #hello(): Hello {
    return {
      protocolVersion: 1,
      hostId: this.hostId,
      sdk: `typescript/${version}`,
      capabilities: [...this.#tools.capabilities(), ...this.#extensions.capabilities()],
      maxFrameBytes: 0n,
      openRuntimes: this.#runtimes.ids(),
      callsInHand: [...this.#inHand.values()].map(({ call, leaseToken, outcome }) => ({
        ...call.ref,
        leaseToken,
        finished: outcome !== undefined,
      })),
      initialCredit: this.#draining ? 0n : BigInt(Math.max(0, this.#concurrency - this.#running)),
      labels: this.#options.labels ?? {},
    };
  }

  #onWelcome(welcome: Welcome): void {
    this.#bound = new FrameBound(welcome.maxFrameBytes);
    for (const { name, accepted, reason } of welcome.capabilities) {
      if (!accepted) console.error(`${name} was refused: ${reason}`);
    }
    for (const verdict of welcome.calls) {
      const { STOP, ALREADY_RECORDED } = CallDisposition;
      if (verdict.disposition === STOP || verdict.disposition === ALREADY_RECORDED) this.#forget(verdict);
    }
    for (const held of this.#inHand.values()) {
      this.#offerOutcome(held);
      held.call.questions.askAgain();
    }
    this.#sendCredit();
    if (this.#draining) this.#sendDraining();
    this.#options.onReady?.();
  }

  #onCallRequest(request: CallRequest): void {
    const held = this.#known(request);
    if (held) {
      this.#answerFromMemory(held, request.leaseToken);
      this.#grantCredit();
      return;
    }
    const checked = this.#check(request);
    if ("reason" in checked) {
      const { callId, attempt } = request;
      const message = cut(checked.message, MAX_REJECTION_BYTES);
      this.#send({ $case: "callRejected", value: { callId, attempt, reason: checked.reason, message } });
      this.#grantCredit();
      return;
    }
    this.#sendAccepted(request);
    this.#start(request, checked.run);
  }

  /** The call, if it is in hand. What came of another that had its name is forgotten. */
  #known(request: CallRequest): InHand | undefined {
    const held = this.#inHand.get(key(request));
    if (held?.call.idempotencyKey === request.idempotencyKey) return held;
    if (held?.outcome) this.#forget(request);
    return undefined;
  }

  #answerFromMemory(held: InHand, leaseToken: string): void {
    held.leaseToken = leaseToken;
    if (!held.outcome) this.#sendAccepted(held.call);
    this.#offerOutcome(held);
  }

  #check(request: CallRequest): Rejection | { run: Work } {
    if (this.#draining) return { reason: RejectReason.DRAINING, message: "the host shuts down" };
    if (this.#inHand.has(key(request))) {
      return { reason: RejectReason.BUSY, message: "another call of this id still runs here" };
    }
    if (this.#running >= this.#concurrency) {
      return { reason: RejectReason.BUSY, message: "no room for another call" };
    }
    const prepared = this.#tools.prepare(request);
    if ("reason" in prepared || !request.runtimeId) return prepared;
    return { run: this.#runtimes.inside(request.runtimeId, prepared.run) };
  }

  #start(request: CallRequest, run: Work): void {
    const controller = new AbortController();
    const audience = {
      send: (frame: Frame) => this.#send(frame),
      room: async () => this.#connection?.room(),
      bound: () => this.#bound,
    };
    const call = new Call(request, controller.signal, audience);
    const held: InHand = { call, leaseToken: request.leaseToken, controller, cancelling: false };
    this.#inHand.set(key(call), held);
    this.#running++;
    void outcomeOf(() => run(call)).then((outcome) => this.#onEnd(held, outcome));
  }

  #onEnd(held: InHand, outcome: Outcome): void {
    this.#running--;
    if (this.#inHand.get(key(held.call)) === held) this.#settle(held, outcome); // else nobody waits any more
    this.#grantCredit();
    this.#checkIdle();
  }

  #settle(held: InHand, outcome: Outcome): void {
    if (held.cancelling && "failure" in outcome) {
      this.#inHand.delete(key(held.call));
      this.#acknowledgeCancel(held.call, CancelOutcome.STOPPED);
      return;
    }
    if (held.cancelling) this.#acknowledgeCancel(held.call, CancelOutcome.FINISHED);
    held.outcome = outcome;
    this.#offerOutcome(held);
  }

  #offerOutcome(held: InHand): void {
    if (held.outcome) this.#send(outcomeFrame(held, held.outcome, this.#bound));
  }

  /** A result that the server refuses it would refuse for ever: the next connection is told so in its place. */
  #onProtocolError({ message, callId }: ProtocolError): void {
    console.error(`the server says: ${message}`);
    for (const held of this.#inHand.values()) {
      if (held.outcome && held.call.callId === callId) held.outcome = refused(message);
    }
  }

  #onInputResponse(response: InputResponse): void {
    for (const { call } of this.#inHand.values()) {
      if (call.callId === response.callId) call.questions.onResponse(response);
    }
  }

  async #onExtensionRequest(request: ExtensionRequest, connection: Connection | undefined): Promise<void> {
    const response = await this.#extensions.respond(request, this.#bound);
    // What was asked on an earlier stream is not answered on a later.
    connection?.send({ $case: "extensionResponse", value: response });
  }

  #onCancel(cancel: Cancel): void {
    const held = this.#inHand.get(key(cancel));
    if (!held) {
      this.#acknowledgeCancel(cancel, CancelOutcome.UNKNOWN);
    } else if (held.outcome) {
      this.#acknowledgeCancel(cancel, CancelOutcome.FINISHED);
    } else if (!held.cancelling) {
      held.cancelling = true;
      held.controller.abort();
      const grace = Math.max(milliseconds(cancel.gracePeriod), MIN_CANCEL_GRACE_MS);
      setTimeout(() => this.#admitIfUnstoppable(held), grace).unref();
    }
  }

  #admitIfUnstoppable(held: InHand): void {
    if (this.#inHand.get(key(held.call)) === held && !held.outcome) {
      this.#acknowledgeCancel(held.call, CancelOutcome.CANNOT);
    }
  }

  #acknowledgeCancel({ callId, attempt }: Ref, outcome: CancelOutcome): void {
    this.#send({ $case: "cancelAck", value: { callId, attempt, outcome } });
  }

  #forget(ref: Ref): void {
    this.#inHand.get(key(ref))?.controller.abort();
    this.#inHand.delete(key(ref));
    this.#checkIdle();
  }

  #heartbeat(): Frame {
    const running = [...this.#inHand.values()].filter(({ outcome }) => !outcome);
    return { $case: "heartbeat", value: { calls: running.map(({ call }) => call.ref) } };
  }

  #grantCredit(): void {
    if (!this.#connection || this.#draining) return;
    this.#connection.credit += 1n;
    this.#sendCredit();
  }

  #sendCredit(): void {
    this.#send({ $case: "credit", value: { total: this.#connection!.credit } });
  }

  #sendAccepted({ callId, attempt }: Ref): void {
    this.#send({ $case: "callAccepted", value: { callId, attempt } });
  }

  #sendDraining(): void {
    this.#send({ $case: "draining", value: { reason: "the host shuts down" } });
  }

  #send(frame: Frame): void {
    this.#connection?.send(frame);
  }

  #checkIdle(): void {
    if (this.#draining && this.#inHand.size === 0 && this.#running === 0) this.#noteIdle();
  }
}

function key({ callId, attempt }: Ref): string {
  return `${attempt} ${callId}`;
}
