// One connection to the server: its handshake, its frames and its heartbeat.

import {
  type ChannelOptions,
  type ClientDuplexStream,
  type Metadata,
  ServiceError,
  status,
} from "@grpc/grpc-js";
import {
  type ConnectRequest,
  type ConnectResponse,
  ToolHostClient,
  type Welcome,
} from "../gen/agentloop/v1/tool_host.js";
import type { Duration } from "../gen/google/protobuf/duration.js";
import { HostRefused } from "./failure.js";
import type { Frame } from "./frame.js";
import type { Transport } from "./transport.js";

const WELCOME_TIMEOUT_MS = 10_000;
export const CLOSE_TIMEOUT_MS = 2_000;
const DEFAULT_HEARTBEAT_MS = 5_000;
const SILENT_INTERVALS = 2; // heartbeat intervals without a frame, after which the server counts as gone

// Statuses that stay the same, however often the host tries: after a welcome, and before one.
const WRONG_CREDENTIALS = [status.UNAUTHENTICATED, status.PERMISSION_DENIED];
const LASTING = [...WRONG_CREDENTIALS, status.INVALID_ARGUMENT, status.FAILED_PRECONDITION, status.UNIMPLEMENTED];

// The status after a welcome of a stream whose host id another connection took. It is of another process: this one reads no
// stream any more when it connects again.
const REPLACED = status.FAILED_PRECONDITION;

// grpc-js itself sets TCP_NODELAY. With its own subchannel pool, a host opens a new TCP connection each time.
const CHANNEL_OPTIONS: ChannelOptions = {
  "grpc.keepalive_time_ms": 20_000,
  "grpc.keepalive_timeout_ms": 10_000,
  "grpc.use_local_subchannel_pool": 1,
};

/** The host, as its connection uses it. */
export interface ConnectionHost {
  hello(): Extract<Frame, { $case: "hello" }>["value"];
  heartbeat(): Frame;
  onWelcome(welcome: Welcome): void;
  onFrame(frame: NonNullable<ConnectResponse["frame"]>): void;
}

/** One stream. gRPC queues the frames that are written, so there is one writer. */
export class Connection {
  /** Calls granted since the stream began. */
  credit = 0n;
  /** Calls that came since then. */
  spent = 0n;
  welcomed = false;
  reconnectAfterMs = 0;
  readonly #host: ConnectionHost;
  readonly #client: ToolHostClient;
  readonly #metadata: Metadata;
  #stream?: ClientDuplexStream<ConnectRequest, ConnectResponse>;
  #welcomedAt?: number;
  #full = false;
  #closed = false;
  #timers: NodeJS.Timeout[] = [];
  #interval = DEFAULT_HEARTBEAT_MS;
  #silence?: NodeJS.Timeout;
  /** The end of the last frame's handling. */
  #handledAt = 0;

  constructor(host: ConnectionHost, { address, credentials, metadata }: Transport) {
    this.#host = host;
    this.#metadata = metadata;
    this.#client = new ToolHostClient(address, credentials, CHANNEL_OPTIONS);
  }

  /**
   * Connects, and resolves when the server ends the stream with OK. Errors: HostRefused where another connection would end
   * the same way; ServiceError; Error before the welcome.
   */
  async serve(): Promise<void> {
    const stream = this.#client.connect(this.#metadata);
    this.#stream = stream;
    stream.on("drain", () => (this.#full = false));
    const hello = this.#host.hello();
    this.credit = hello.initialCredit;
    stream.write({ frame: { $case: "hello", value: hello } });
    try {
      await this.#exchangeFrames(stream, hello.hostId);
    } finally {
      this.welcomed = false;
      this.#closed = true;
      this.#timers.forEach(clearTimeout);
      clearTimeout(this.#silence);
      stream.emit("drain"); // wakes the calls that wait for room
      this.#client.close();
    }
  }

  /** Milliseconds since the welcome; 0 without one. */
  lasted(): number {
    return this.#welcomedAt === undefined ? 0 : performance.now() - this.#welcomedAt;
  }

  /** Sends a frame. Without a welcome it is dropped; everything that matters is repeated after the next one. */
  send(frame: Frame): void {
    if (this.welcomed) this.#full = !this.#stream!.write({ frame });
  }

  /** Resolves when gRPC's queue is short. */
  async room(): Promise<void> {
    while (this.#full && !this.#closed) {
      await new Promise((resolve) => this.#stream!.once("drain", resolve));
    }
  }

  /** Sends no more frames, and waits for the server to end the stream. */
  close(): void {
    this.welcomed = false;
    this.#closed = true;
    this.#stream!.end();
    this.#later(CLOSE_TIMEOUT_MS, () => this.abandon());
  }

  /** Cancels the stream at once. */
  abandon(): void {
    this.#closed = true;
    this.#stream?.cancel();
  }

  #exchangeFrames(stream: ClientDuplexStream<ConnectRequest, ConnectResponse>, hostId: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#later(WELCOME_TIMEOUT_MS, () => {
        if (this.#welcomedAt !== undefined) return;
        reject(new Error("no welcome in time"));
        this.abandon();
      });
      stream.on("data", ({ frame }: ConnectResponse) => {
        if (this.#welcomedAt !== undefined) {
          if (this.#leaveAfterStandstill(reject)) return;
          if (frame) this.#host.onFrame(frame);
          if (frame?.$case === "ping") this.#silence ??= this.#watch(reject);
          this.#silence?.refresh();
          this.#handledAt = performance.now();
        } else if (frame?.$case === "welcome") this.#onWelcome(frame.value);
        else if (frame?.$case === "protocolError") reject(new HostRefused(frame.value.message));
        else if (frame?.$case === "goAway") {
          this.reconnectAfterMs = milliseconds(frame.value.reconnectAfter);
          reject(new Error(`the server asks to connect again later: ${frame.value.reason}`));
        }
        else reject(new Error("the first frame was no welcome"));
      });
      stream.on("error", (error: ServiceError) => {
        const welcomed = this.#welcomedAt !== undefined;
        const lasting = welcomed ? WRONG_CREDENTIALS : LASTING;
        if (this.#closed && error.code === status.CANCELLED) resolve();
        else if (welcomed && error.code === REPLACED) {
          reject(new HostRefused(`another host took the id "${hostId}"; give each host its own id`));
        } else reject(lasting.includes(error.code) ? new HostRefused(error.message) : error);
      });
      stream.on("end", resolve);
    });
  }

  #onWelcome(welcome: Welcome): void {
    this.welcomed = true;
    this.#welcomedAt = performance.now();
    this.#host.onWelcome(welcome);
    this.#interval = milliseconds(welcome.heartbeatInterval) || DEFAULT_HEARTBEAT_MS;
    this.#beat(this.#interval);
  }

  /** A server that has sent one ping sends one each interval. An older server may send none. */
  #watch(leave: (reason: Error) => void): NodeJS.Timeout {
    const silence = SILENT_INTERVALS * this.#interval;
    return setTimeout(() => {
      leave(new Error(`the server sent nothing for ${silence / 1000} s`));
      this.abandon();
    }, silence);
  }

  /**
   * Leaves before a frame is handled that may have waited while the server gave the stream up. After a standstill of this
   * process, Node may come to that frame before it comes to the timer. The clock itself stands still while a machine with
   * Linux or macOS sleeps.
   */
  #leaveAfterStandstill(leave: (reason: Error) => void): boolean {
    const silence = SILENT_INTERVALS * this.#interval;
    const stoodStill = this.#silence !== undefined && performance.now() - this.#handledAt > silence;
    if (stoodStill) {
      leave(new Error(`no frame was read for ${silence / 1000} s; the server may have given the host up`));
      this.abandon();
    }
    return stoodStill;
  }

  #beat(interval: number): void {
    this.#timers.push(setInterval(() => this.send(this.#host.heartbeat()), interval));
  }

  #later(ms: number, action: () => void): void {
    this.#timers.push(setTimeout(action, ms));
  }
}

/** A finite time in milliseconds as a duration of the contract, in whole nanoseconds. */
export function durationOf(ms: number): Duration {
  const nanos = BigInt(Math.round(ms * 1e6));
  return { seconds: nanos / 1_000_000_000n, nanos: Number(nanos % 1_000_000_000n) };
}

export function milliseconds(duration: Duration | undefined): number {
  return duration ? Number(duration.seconds) * 1000 + duration.nanos / 1e6 : 0;
}
