// The tool host: its tools, its calls, and the loop that connects it to the server.

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { BlobsClient } from "../gen/agentloop/v1/blobs.js";
import { AttemptEffect } from "../gen/agentloop/v1/events.js";
import {
  CallDisposition,
  type CallRequest,
  type Cancel,
  CancelOutcome,
  CapabilityRefusal,
  type CapabilityVerdict,
  type ConnectResponse,
  type ExtensionRequest,
  type Hello,
  type InputResponse,
  type ProtocolError,
  RejectReason,
  type Welcome,
} from "../gen/agentloop/v1/tool_host.js";
import type { FileContent } from "../gen/agentloop/v1/types.js";
import { putBlob, readBlob } from "./blobs.js";
import {
  Call,
  MAX_REFUSAL_BYTES,
  type Outcome,
  outcomeFrame,
  outcomeOf,
  type Ref,
  refusal,
  STOPPED,
  type TrackedCall,
} from "./call.js";
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
import { HostRefused, HostStops } from "./failure.js";
import { cut, type Frame, FrameBound, messageOf, sizeOf } from "./frame.js";
import { type RuntimeOptions, Runtimes } from "./runtimes.js";
import { type Rejection, type ToolOptions, Tools, type Work } from "./tools.js";
import { type Transport, type TransportOptions, transportOf } from "./transport.js";

const FIRST_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 5_000;
const STABLE_AFTER_MS = 1_000; // a connection that lasted longer resets the backoff
const MIN_CANCEL_GRACE_MS = 1_000;
const MAX_REJECTION_BYTES = 4 << 10; // bound of the contract
const MAX_STATUS_BYTES = 1 << 10; // length of the host's status that the server shows
const RUNTIMES_TIMEOUT_MS = 5_000;
// Bounds on results that wait for their acknowledgement. At either bound the host accepts no more calls.
const MAX_UNACKNOWLEDGED = 1024;
const MAX_UNACKNOWLEDGED_BYTES = 64 << 20;
/** Time that a stopped call has to end. Its result has as long again to be delivered. */
const STOP_GRACE_MS = 5_000;

const { version } = createRequire(import.meta.url)("@grpc/grpc-js/package.json") as { version: string };

export interface HostOptions extends TransportOptions {
  /** Id of this process; random by default. */
  hostId?: string;
  /** Number of calls that run at a time; default 4. */
  concurrency?: number;
  /** Time that running calls have to finish at a shutdown; then they are stopped. Default 30 s. */
  drainTimeoutMs?: number;
  labels?: Record<string, string>;
  /** Called after each welcome. An error that it throws is logged. */
  onReady?: () => void;
  /**
   * What the host says of itself, for people, cut to 1 KiB; asked before each heartbeat. An error that it throws is logged.
   */
  status?: () => string;
}

/**
 * The tools of this process and its calls, which outlive a connection.
 *
 * A call that comes a second time gets the same answer. After each reconnect the host repeats every result that the
 * server has not acknowledged.
 */
export class Host {
  readonly hostId: string;
  /** Random name of this process. */
  readonly #instance = randomUUID();
  /** Calls begun here that `hello` names no more without an acknowledgement. */
  #forgotten = 0;
  #connections = 0n;
  readonly #options: HostOptions;
  readonly #transport: Transport;
  readonly #concurrency: number;
  readonly #tools = new Tools();
  readonly #extensions = new Extensions();
  readonly #runtimes = new Runtimes();
  readonly #calls = new Map<string, TrackedCall>();
  #running = 0; // running tools, including those of dropped calls
  #connection?: Connection;
  #bound = new FrameBound();
  #draining = false;
  /** For tests only. */
  stopGraceMs = STOP_GRACE_MS;
  /** True once calls that did not stop are waited for no more. */
  #gaveUp = false;
  /** Set once the server has refused all tools and extensions. */
  #refused?: HostRefused;
  #stopping = new AbortController();
  #resolveDrain!: () => void;
  #resolveIdle!: () => void;
  readonly #drainRequested = new Promise<void>((resolve) => (this.#resolveDrain = resolve));
  readonly #idle = new Promise<void>((resolve) => (this.#resolveIdle = resolve));

  /** Throws where an option cannot be used. */
  constructor(options: HostOptions) {
    this.#options = options;
    this.#transport = transportOf(options);
    this.hostId = options.hostId || `${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`;
    this.#concurrency = options.concurrency ?? 4;
  }

  /**
   * Declares a tool. The model reads the result of `run`: a string as text, any other value as JSON. The server has
   * checked the arguments against the schema. Throws if there is a tool of this name, as the other methods that declare do.
   */
  tool<Args>(options: ToolOptions, run: (call: Call, args: Args) => Promise<unknown>): void {
    this.#tools.add(options, run);
  }

  /** Declares a hook that is called at `points`. */
  hook(options: HookOptions, hook: Hook): void {
    this.#extensions.addHook(options, hook);
  }

  /** Declares a context source. With `remember`, it gets each finished run. */
  contextSource(options: ContextSourceOptions, source: ContextSource): void {
    this.#extensions.addContextSource(options, source);
  }

  /** Declares a planner, which decides the next instruction of a run. */
  planner(options: PlannerOptions, planner: Planner): void {
    this.#extensions.addPlanner(options, planner);
  }

  /**
   * Sets the functions that open and close the runtimes of tools with `requiresRuntime`. The result of `open` is
   * `call.runtime`. If it fails, the calls that need the runtime fail.
   */
  runtime<Runtime>(options: RuntimeOptions<Runtime>): void {
    this.#runtimes.declare(options as RuntimeOptions<unknown>);
  }

  /**
   * Stores bytes, or the file at a path, as a blob: for what is too large for a result of 3 MiB. Resolves to the file for the
   * `files` of an `Output`.
   */
  async putFile(name: string, contents: Buffer | string, mediaType = ""): Promise<FileContent> {
    const client = this.#blobs();
    try {
      return await putBlob(client, this.#transport.metadata, name, contents, mediaType);
    } finally {
      client.close();
    }
  }

  /** The bytes of a blob, in chunks. It throws at the end if they do not have the digest. */
  async *readBlob(digest: string): AsyncGenerator<Buffer> {
    const client = this.#blobs();
    try {
      yield* readBlob(client, this.#transport.metadata, digest);
    } finally {
      client.close();
    }
  }

  #blobs(): BlobsClient {
    return new BlobsClient(this.#transport.address, this.#transport.credentials);
  }

  /**
   * Serves until `drain`, SIGTERM or SIGINT. Resolves to true if every call was finished and acknowledged.
   *
   * Connects again for as long as it takes. Calls that still run `drainTimeoutMs` after that are stopped, which takes up to
   * 10 s. Rejects with `HostRefused` where the server refuses the host for a lasting reason, such as a wrong token, and
   * stops the calls that run. If the server refuses all tools and extensions, it finishes the calls that it has, and
   * rejects with `HostRefused`.
   */
  async run(): Promise<boolean> {
    const onSignal = () => (this.#draining ? process.exit(1) : this.drain()); // the second signal ends it at once
    const signals = ["SIGTERM", "SIGINT"] as const;
    for (const signal of signals) process.on(signal, onSignal);
    try {
      const delivered = await this.#serveUntilDrained();
      if (this.#refused) throw this.#refused;
      return delivered;
    } catch (error) {
      for (const { controller } of this.#calls.values()) controller.abort();
      throw error;
    } finally {
      // Bounded, so that a runtime that does not close cannot stop the shutdown.
      await Promise.race([this.#runtimes.closeAll(), sleep(RUNTIMES_TIMEOUT_MS, undefined, { ref: false })]);
      for (const signal of signals) process.off(signal, onSignal);
    }
  }

  async #serveUntilDrained(): Promise<boolean> {
    const serving = this.#serveForEver();
    const refused = serving.then(() => new Promise<never>(() => undefined)); // rejects, or is never settled
    await Promise.race([this.#drainRequested, refused]);
    const idleWithin = (ms: number) => Promise.race([this.#idle.then(() => true), sleep(ms, false, { ref: false }), refused]);
    let delivered = await idleWithin(this.#options.drainTimeoutMs ?? 30_000);
    if (!delivered) {
      this.#stopCalls();
      delivered = await idleWithin(2 * this.stopGraceMs);
    }
    if (!delivered) console.error(`shutting down with ${this.#calls.size} calls unfinished or unacknowledged`);
    this.#disconnect(delivered);
    await Promise.race([serving, sleep(2 * CLOSE_TIMEOUT_MS, undefined, { ref: false })]);
    return delivered;
  }

  /** Accepts no more calls, finishes those that run, then lets `run` resolve. */
  drain(): void {
    this.#draining = true;
    this.#sendDraining();
    this.#resolveDrain();
    this.#checkIdle();
  }

  /** Stops the calls that run. Each is reported when it has ended, at the latest after the grace. */
  #stopCalls(): void {
    for (const { controller } of this.#calls.values()) controller.abort(new HostStops());
    setTimeout(() => this.#giveUpCalls(), this.stopGraceMs).unref();
  }

  /** Reports the calls that did not stop. */
  #giveUpCalls(): void {
    this.#gaveUp = true;
    for (const tracked of this.#calls.values()) {
      if (tracked.outcome) continue;
      // The server knows of a call that it has cancelled that it does not stop.
      if (tracked.cancelling) this.#forgetCall(tracked.call);
      else this.#recordOutcome(tracked, { failure: STOPPED });
    }
    this.#checkIdle();
  }

  async #serveForEver(): Promise<void> {
    let backoff = FIRST_BACKOFF_MS;
    while (!this.#stopping.signal.aborted) {
      const connection = new Connection(this.#connectionHost, this.#transport);
      this.#connection = connection;
      await connection.serve().catch((error) => {
        if (error instanceof HostRefused) throw error;
        console.error(`connection to ${this.#transport.url}: ${error.message}`);
      });
      this.#connection = undefined;
      if (connection.lasted() > STABLE_AFTER_MS) backoff = FIRST_BACKOFF_MS;
      const wait = Math.max(connection.reconnectAfterMs, Math.random() * backoff);
      await sleep(wait, undefined, { signal: this.#stopping.signal }).catch(() => undefined);
      backoff = Math.min(2 * backoff, MAX_BACKOFF_MS);
    }
  }

  #disconnect(delivered: boolean): void {
    this.#stopping.abort();
    if (!this.#connection?.welcomed) {
      this.#connection?.abandon();
      return;
    }
    if (delivered) this.#send({ $case: "goodbye", value: { reason: "the host shuts down" } });
    this.#connection.close();
  }

  // Frames to and from the server, in the order of a call's life.

  readonly #connectionHost = {
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
        return this.#dropCall(frame.value);
      case "leaseLost":
        return this.#forgetCall(frame.value);
      case "inputResponse":
        return this.#onInputResponse(frame.value);
      case "progressAck":
        for (const { call } of this.#calls.values()) {
          if (call.callId === frame.value.callId && call.attempt === frame.value.attempt) call.states.onAck(frame.value);
        }
        return;
      case "extensionRequest":
        return void this.#onExtensionRequest(frame.value, this.#connection);
      case "openRuntime":
        return this.#runtimes.open(frame.value);
      case "closeRuntime":
        return void this.#runtimes.close(frame.value.runtimeId);
      case "ping":
        return this.#send({ $case: "pong", value: { nonce: frame.value.nonce } });
      case "goAway":
        console.error(`the server asks to connect again later: ${frame.value.reason}`);
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
      callsInHand: [...this.#calls.values()].map(({ call, leaseToken, outcome }) => ({
        ...call.ref,
        leaseToken,
        finished: outcome !== undefined,
      })),
      initialCredit: BigInt(this.#freeSlots()),
      labels: this.#options.labels ?? {},
      // Without a call and under the same name, this process proves that it did not begin the call.
      instanceId: `${this.#instance}.${this.#forgotten}`,
      connectionNo: ++this.#connections,
    };
  }

  #freeSlots(): number {
    const waiting = [...this.#calls.values()].filter(({ outcome }) => outcome);
    const bytes = waiting.reduce((sum, { outcomeBytes }) => sum + outcomeBytes, 0);
    const full = waiting.length >= MAX_UNACKNOWLEDGED || bytes >= MAX_UNACKNOWLEDGED_BYTES;
    return full || this.#draining ? 0 : Math.max(0, this.#concurrency - this.#running);
  }

  #onWelcome(welcome: Welcome): void {
    this.#bound = new FrameBound(welcome.maxFrameBytes);
    this.#readVerdicts(welcome.capabilities);
    for (const verdict of welcome.calls) {
      const { STOP, ALREADY_RECORDED } = CallDisposition;
      if (verdict.disposition === STOP || verdict.disposition === ALREADY_RECORDED) this.#forgetCall(verdict);
    }
    for (const tracked of this.#calls.values()) {
      this.#offerOutcome(tracked);
      if (!tracked.outcome) tracked.call.repeatCheckpoint();
      tracked.call.questions.repeat();
      tracked.call.states.repeat();
    }
    this.#growCredit();
    this.#sendCredit();
    if (this.#draining) this.#sendDraining();
    this.#checkIdle();
    // The function may be async all the same. An error that nobody handles would end the process.
    void (async () => this.#options.onReady?.())().catch((error: unknown) => {
      console.error(`onReady failed: ${messageOf(error)}`);
    });
  }

  /**
   * Reports the tools and extensions that the server refused. If it refused all of them, the host ends once it has
   * delivered the results of its calls. It stays if one was refused as weaker: an operator may accept that declaration, and
   * the server then tells the host to connect again.
   */
  #readVerdicts(verdicts: readonly CapabilityVerdict[]): void {
    const refused = verdicts.filter(({ accepted }) => !accepted);
    const reasons = refused.map(({ name, reason }) => `${name}: ${reason}`);
    for (const { name, reason } of refused) console.error(`${name} was refused: ${reason}`);
    const mayBeAccepted = refused.some(({ refusal }) => refusal === CapabilityRefusal.WEAKER);
    const all = this.#tools.capabilities().length + this.#extensions.capabilities().length;
    if (refused.length === 0 || refused.length < all || mayBeAccepted) return;
    this.#refused = new HostRefused(`it refused every tool: ${reasons.join("; ")}`);
    this.#draining = true;
    this.#resolveDrain();
  }

  #onCallRequest(request: CallRequest): void {
    this.#connection!.spent += 1n;
    const tracked = this.#known(request);
    if (tracked) {
      this.#answerKnown(tracked, request.leaseToken);
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

  /** The call, if it is known. Drops the result of another call with the same id. */
  #known(request: CallRequest): TrackedCall | undefined {
    const tracked = this.#calls.get(key(request));
    if (tracked?.call.idempotencyKey === request.idempotencyKey) return tracked;
    if (tracked?.outcome) this.#forgetCall(request);
    return undefined;
  }

  #answerKnown(tracked: TrackedCall, leaseToken: string): void {
    tracked.leaseToken = leaseToken;
    if (!tracked.outcome) this.#sendAccepted(tracked.call);
    this.#offerOutcome(tracked);
  }

  #check(request: CallRequest): Rejection | { run: Work } {
    if (this.#draining) return { reason: RejectReason.DRAINING, message: "the host shuts down" };
    if (this.#calls.has(key(request))) {
      return { reason: RejectReason.BUSY, message: "another call of this id still runs here" };
    }
    if (this.#freeSlots() === 0) {
      return { reason: RejectReason.BUSY, message: "no room for another call" };
    }
    const prepared = this.#tools.prepare(request);
    if ("reason" in prepared || !request.runtimeId) return prepared;
    return { run: this.#runtimes.afterOpening(request.runtimeId, prepared.run) };
  }

  #start(request: CallRequest, run: Work): void {
    const controller = new AbortController();
    const channel = {
      send: (frame: Frame) => this.#send(frame),
      room: async () => this.#connection?.room(),
      bound: () => this.#bound,
    };
    const call = new Call(request, controller.signal, channel);
    const { leaseToken } = request;
    const tracked: TrackedCall = { call, leaseToken, controller, outcomeBytes: 0, cancelling: false };
    this.#calls.set(key(call), tracked);
    this.#running++;
    void outcomeOf(() => run(call)).then((outcome) => this.#onToolEnd(tracked, outcome));
  }

  #onToolEnd(tracked: TrackedCall, outcome: Outcome): void {
    this.#running--;
    // A call that was dropped or given up has no outcome to record.
    if (this.#calls.get(key(tracked.call)) === tracked && !tracked.outcome) this.#recordOutcome(tracked, outcome);
    this.#grantCredit();
    this.#checkIdle();
  }

  #recordOutcome(tracked: TrackedCall, outcome: Outcome): void {
    if (tracked.cancelling && "failure" in outcome) {
      this.#calls.delete(key(tracked.call));
      this.#forgotten++;
      const begun = outcome.failure.effect !== AttemptEffect.NONE;
      this.#acknowledgeCancel(tracked.call, begun ? CancelOutcome.STOPPED : CancelOutcome.NOT_BEGUN);
      return;
    }
    if (tracked.cancelling) this.#acknowledgeCancel(tracked.call, CancelOutcome.FINISHED);
    tracked.outcome = outcome;
    tracked.outcomeBytes = sizeOf(outcomeFrame(tracked, outcome, new FrameBound()));
    this.#offerOutcome(tracked);
  }

  #offerOutcome(tracked: TrackedCall): void {
    if (tracked.outcome) this.#send(outcomeFrame(tracked, tracked.outcome, this.#bound));
  }

  /**
   * Gives up what the server would refuse again on the next connection: a failure replaces a result; of a call that still
   * runs, the newest question gets no answer, or without one its states are not recorded.
   */
  #onProtocolError({ message, callId }: ProtocolError): void {
    console.error(`the server reports a protocol error: ${message}`);
    for (const tracked of this.#calls.values()) {
      const { call, outcome } = tracked;
      if (call.callId !== callId) continue;
      const why = cut(message, MAX_REFUSAL_BYTES);
      if (outcome) tracked.outcome = refusal(message);
      else if (!call.questions.refuseNewest(why)) call.states.refuse(why);
    }
  }

  #onInputResponse(response: InputResponse): void {
    for (const { call } of this.#calls.values()) {
      if (call.callId === response.callId) call.questions.onResponse(response);
    }
  }

  async #onExtensionRequest(request: ExtensionRequest, connection: Connection | undefined): Promise<void> {
    const response = await this.#extensions.respond(request, this.#bound);
    // Sent on the connection of the request. If that is closed, the response is dropped.
    connection?.send({ $case: "extensionResponse", value: response });
  }

  #onCancel(cancel: Cancel): void {
    const tracked = this.#calls.get(key(cancel));
    if (!tracked) {
      this.#acknowledgeCancel(cancel, CancelOutcome.UNKNOWN);
    } else if (tracked.outcome) {
      this.#acknowledgeCancel(cancel, CancelOutcome.FINISHED);
    } else if (!tracked.cancelling) {
      tracked.cancelling = true;
      tracked.controller.abort();
      const grace = Math.max(milliseconds(cancel.gracePeriod), MIN_CANCEL_GRACE_MS);
      setTimeout(() => this.#reportIfNotStopped(tracked), grace).unref();
    }
  }

  #reportIfNotStopped(tracked: TrackedCall): void {
    if (this.#calls.get(key(tracked.call)) === tracked && !tracked.outcome) {
      this.#acknowledgeCancel(tracked.call, CancelOutcome.CANNOT);
    }
  }

  #acknowledgeCancel({ callId, attempt }: Ref, outcome: CancelOutcome): void {
    this.#send({ $case: "cancelAck", value: { callId, attempt, outcome } });
  }

  /** Drops a call that the server may not have recorded. */
  #forgetCall(ref: Ref): void {
    if (this.#calls.has(key(ref))) this.#forgotten++;
    this.#dropCall(ref);
  }

  #dropCall(ref: Ref): void {
    this.#calls.get(key(ref))?.controller.abort();
    this.#calls.delete(key(ref));
    this.#grantCredit();
    this.#checkIdle();
  }

  #heartbeat(): Frame {
    const running = [...this.#calls.values()].filter(({ outcome }) => !outcome);
    return { $case: "heartbeat", value: { calls: running.map(({ call }) => call.ref), statusText: this.#statusText() } };
  }

  #statusText(): string {
    try {
      const text: unknown = this.#options.status?.() ?? "";
      if (typeof text === "string") return cut(text, MAX_STATUS_BYTES);
      Promise.resolve(text).catch(() => undefined);
      throw new TypeError("it is no text");
    } catch (error) {
      console.error(`status failed: ${messageOf(error)}`);
      return "";
    }
  }

  #grantCredit(): void {
    if (this.#growCredit()) this.#sendCredit();
  }

  /** Gives credit for the calls that there is room for. False if the server has as much already. */
  #growCredit(): boolean {
    const connection = this.#connection;
    if (!connection) return false;
    const total = connection.spent + BigInt(this.#freeSlots());
    if (total <= connection.credit) return false;
    connection.credit = total;
    return true;
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
    if (this.#draining && this.#calls.size === 0 && (this.#gaveUp || this.#running === 0)) this.#resolveIdle();
  }
}

function key({ callId, attempt }: Ref): string {
  return `${attempt} ${callId}`;
}
