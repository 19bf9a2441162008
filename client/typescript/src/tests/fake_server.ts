// A scripted server: the test receives and sends the frames of each connection.

import { Server, ServerCredentials, type ServerDuplexStream, status } from "@grpc/grpc-js";
import assert from "node:assert/strict";
import {
  CallRequest,
  type ConnectRequest,
  ConnectResponse,
  type Hello,
  ResultVerdict,
  ToolHostService,
  Welcome,
} from "../gen/agentloop/v1/tool_host.js";
import type { Frame } from "../host/frame.js";
import { EffectClass, Host } from "../host/index.js";

const TIMEOUT_MS = 20_000; // long enough for a slow machine

type ServerFrame = NonNullable<ConnectResponse["frame"]>;
type Kind = Frame["$case"];
type Content<K extends Kind> = Extract<Frame, { $case: K }>["value"];

/** A first-in, first-out queue, whose `take` waits for an item. */
class Queue<T> {
  readonly #items: T[] = [];
  readonly #takers: ((item: T) => void)[] = [];

  put(item: T): void {
    const taker = this.#takers.shift();
    taker ? taker(item) : this.#items.push(item);
  }

  take(what: string): Promise<T> {
    if (this.#items.length > 0) return Promise.resolve(this.#items.shift()!);
    return new Promise((resolve, reject) => {
      const tooLong = setTimeout(() => reject(new Error(`${what} takes too long`)), TIMEOUT_MS);
      this.#takers.push((item) => {
        clearTimeout(tooLong);
        resolve(item);
      });
    });
  }
}

/** One connection of a host, with the server's end in the test. */
export class Connection {
  readonly #stream: ServerDuplexStream<ConnectRequest, ConnectResponse>;
  readonly #frames = new Queue<Frame>();

  constructor(stream: ServerDuplexStream<ConnectRequest, ConnectResponse>) {
    this.#stream = stream;
    stream.on("data", ({ frame }: ConnectRequest) => this.#frames.put(frame!));
    stream.on("error", () => undefined);
    stream.on("end", () => stream.end());
  }

  /** The content of the next frame that is neither heartbeat nor credit. It must be of this kind. */
  async expect<K extends Kind>(kind: K): Promise<Content<K>> {
    for (;;) {
      const frame = await this.#frames.take(kind);
      if (frame.$case === "heartbeat" || frame.$case === "credit") continue;
      assert.equal(frame.$case, kind, JSON.stringify(frame, (_, value) => (typeof value === "bigint" ? `${value}` : value)));
      return frame.value as Content<K>;
    }
  }

  /** The total of the next frame that is no heartbeat. It must be credit. */
  async credit(): Promise<bigint> {
    for (;;) {
      const frame = await this.#frames.take("credit");
      if (frame.$case === "heartbeat") continue;
      assert.ok(frame.$case === "credit", frame.$case);
      return frame.value.total;
    }
  }

  /** The status of the next heartbeat. */
  async status(): Promise<string> {
    for (;;) {
      const frame = await this.#frames.take("heartbeat");
      if (frame.$case === "heartbeat") return frame.value.statusText;
    }
  }

  /** Waits for this many heartbeats. */
  async heartbeats(count: number): Promise<void> {
    while (count > 0) count -= (await this.#frames.take("heartbeat")).$case === "heartbeat" ? 1 : 0;
  }

  send(frame: ServerFrame): void {
    this.#stream.write({ frame });
  }

  welcome(fields: Partial<Welcome>): void {
    this.send({ $case: "welcome", value: Welcome.fromPartial({ protocolVersion: 1, ...fields }) });
  }

  offer(callId: string, tool: string, of: { args?: object; idempotencyKey?: string } = {}): void {
    const value = CallRequest.fromPartial({
      callId,
      attempt: 1,
      leaseToken: `lease-${callId}`,
      idempotencyKey: of.idempotencyKey ?? `key-${callId}`,
      tool,
      argumentsJson: JSON.stringify(of.args ?? {}),
    });
    this.send({ $case: "callRequest", value });
  }

  /** Sends a call that the host must accept. */
  async sendCall(callId: string, tool: string, of: { args?: object; idempotencyKey?: string } = {}): Promise<void> {
    this.offer(callId, tool, of);
    assert.equal((await this.expect("callAccepted")).callId, callId);
  }

  acknowledge(callId: string): void {
    this.send({ $case: "resultAck", value: { callId, attempt: 1, verdict: ResultVerdict.RECORDED } });
  }

  end(code: status): void {
    this.#stream.emit("error", { code, details: "the test ends the stream" });
  }
}

/** A host against a scripted server. Calls that run at the end of the test are dropped. */
export class Bench {
  readonly host: Host;
  readonly server: string;
  readonly #server: Server;
  readonly #connections: Queue<Connection>;
  #running?: Promise<boolean>;

  private constructor(server: Server, port: number, connections: Queue<Connection>) {
    this.#server = server;
    this.#connections = connections;
    this.server = `127.0.0.1:${port}`;
    this.host = new Host({ server: this.server, hostId: "host-1", drainTimeoutMs: 0 });
    this.host.stopGraceMs = 0;
  }

  static async start(): Promise<Bench> {
    const server = new Server();
    const connections = new Queue<Connection>();
    server.addService(ToolHostService, {
      connect: (stream: ServerDuplexStream<ConnectRequest, ConnectResponse>) => connections.put(new Connection(stream)),
      completeCall: () => assert.fail("not scripted"),
    });
    const port = await new Promise<number>((resolve, reject) => {
      const bound = (error: Error | null, port: number) => (error ? reject(error) : resolve(port));
      server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), bound);
    });
    return new Bench(server, port, connections);
  }

  tool<Args>(name: string, run: (args: Args) => unknown): void {
    const options = { name, description: name, schema: { type: "object" }, effect: EffectClass.READ_ONLY };
    this.host.tool<Args>(options, async (_, args) => run(args));
  }

  run(): void {
    this.#running = this.host.run();
  }

  async accept(): Promise<[Connection, Hello]> {
    const connection = await this.#connections.take("a connection");
    return [connection, await connection.expect("hello")];
  }

  async welcome(fields: Partial<Welcome> = {}): Promise<Connection> {
    const [connection] = await this.accept();
    connection.welcome(fields);
    return connection;
  }

  async stop(): Promise<void> {
    this.host.drain();
    await this.#running;
    this.#server.forceShutdown();
  }
}
