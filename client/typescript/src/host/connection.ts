// One stream to the server.

import {
  type ChannelCredentials,
  type ChannelOptions,
  type ClientDuplexStream,
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
import type { Frame } from "./frame.js";

const WELCOME_TIMEOUT_MS = 10_000;
export const CLOSE_TIMEOUT_MS = 2_000;
const DEFAULT_HEARTBEAT_MS = 5_000;

// grpc-js itself sets TCP_NODELAY. With a pool of its own, a host starts each connection afresh.
const CHANNEL_OPTIONS: ChannelOptions = {
  "grpc.keepalive_time_ms": 20_000,
  "grpc.keepalive_timeout_ms": 10_000,
  "grpc.use_local_subchannel_pool": 1,
};

/** What a connection asks of its host. */
export interface Listener {
  hello(): Extract<Frame, { $case: "hello" }>["value"];
  heartbeat(): Frame;
  onWelcome(welcome: Welcome): void;
  onFrame(frame: NonNullable<ConnectResponse["frame"]>): void;
}

/** One stream. gRPC queues what is written: one writer. */
export class Connection {
  credit = 0n;
  welcomed = false;
  reconnectAfterMs = 0;
  readonly #listener: Listener;
  readonly #client: ToolHostClient;
  #stream?: ClientDuplexStream<ConnectRequest, ConnectResponse>;
  #welcomedAt?: number;
  #full = false;
  #closed = false;
  #timers: NodeJS.Timeout[] = [];

  constructor(listener: Listener, server: string, credentials: ChannelCredentials) {
    this.#listener = listener;
    this.#client = new ToolHostClient(server, credentials, CHANNEL_OPTIONS);
  }

  /** Connects, and resolves when the stream has ended well. Errors: ServiceError, and Error before the welcome. */
  async serve(): Promise<void> {
    const stream = this.#client.connect();
    this.#stream = stream;
    stream.on("drain", () => (this.#full = false));
    const hello = this.#listener.hello();
    this.credit = hello.initialCredit;
    stream.write({ frame: { $case: "hello", value: hello } });
    this.#later(WELCOME_TIMEOUT_MS, () => this.welcomed || stream.cancel());
    try {
      await this.#converse(stream);
    } finally {
      this.welcomed = false;
      this.#closed = true;
      this.#timers.forEach(clearTimeout);
      stream.emit("drain"); // wakes whoever waits for room
      this.#client.close();
    }
  }

  /** Milliseconds since the welcome; 0 without one. */
  lasted(): number {
    return this.#welcomedAt === undefined ? 0 : performance.now() - this.#welcomedAt;
  }

  /** Without a welcome the frame is dropped: whatever matters is said again after the next one. */
  send(frame: Frame): void {
    if (this.welcomed) this.#full = !this.#stream!.write({ frame });
  }

  /** Resolves when gRPC's queue is short. */
  async room(): Promise<void> {
    while (this.#full && !this.#closed) {
      await new Promise((resolve) => this.#stream!.once("drain", resolve));
    }
  }

  /** Says nothing more, and lets the server end the stream. */
  close(): void {
    this.welcomed = false;
    this.#closed = true;
    this.#stream!.end();
    this.#later(CLOSE_TIMEOUT_MS, () => this.abandon());
  }

  /** Ends the stream at once. */
  abandon(): void {
    this.#closed = true;
    this.#stream?.cancel();
  }

  #converse(stream: ClientDuplexStream<ConnectRequest, ConnectResponse>): Promise<void> {
    return new Promise((resolve, reject) => {
      stream.on("data", ({ frame }: ConnectResponse) => {
        if (this.#welcomedAt !== undefined) frame && this.#listener.onFrame(frame);
        else if (frame?.$case === "welcome") this.#onWelcome(frame.value);
        else
          reject(new Error(frame?.$case === "protocolError" ? frame.value.message : "the first frame was no welcome"));
      });
      stream.on("error", (error: ServiceError) => {
        this.#closed && error.code === status.CANCELLED ? resolve() : reject(error);
      });
      stream.on("end", resolve);
    });
  }

  #onWelcome(welcome: Welcome): void {
    this.welcomed = true;
    this.#welcomedAt = performance.now();
    this.#listener.onWelcome(welcome);
    this.#beat(milliseconds(welcome.heartbeatInterval) || DEFAULT_HEARTBEAT_MS);
  }

  #beat(interval: number): void {
    this.#timers.push(setInterval(() => this.send(this.#listener.heartbeat()), interval));
  }

  #later(ms: number, action: () => void): void {
    this.#timers.push(setTimeout(action, ms));
  }
}

export function milliseconds(duration: Duration | undefined): number {
  return duration ? Number(duration.seconds) * 1000 + duration.nanos / 1e6 : 0;
}
