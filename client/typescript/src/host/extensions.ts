// Extensions of a host: planners, hooks and context sources.

import {
  type Capability,
  ContextItem,
  type ContextRequest,
  ContextSourceDeclaration,
  type DeepPartial,
  type ExtensionFailure,
  type ExtensionRequest,
  type ExtensionResponse,
  HookDeclaration,
  type HookRequest,
  HookVerdict,
  PlannerDeclaration,
  type PlanRequest,
  type RememberRequest,
} from "../gen/agentloop/v1/tool_host.js";
import type { Run } from "../gen/agentloop/v1/runs.js";
import { Instruction } from "../gen/agentloop/v1/types.js";
import { milliseconds } from "./connection.js";
import { cut, type FrameBound, messageOf, sizeOf } from "./frame.js";

const MAX_FAILURE_BYTES = 4 << 10; // bound on the message of a failure

// Functions of extensions. `signal` aborts at the deadline, after which no answer counts.

/** Function of a hook. It is called at the hook's points, and returns a verdict, or nothing to change nothing. */
export type Hook = (request: HookRequest, run: Run, signal: AbortSignal) => Promise<DeepPartial<HookVerdict> | void>;
/** Function of a context source. It returns the items that fit the query, the best first. */
export type ContextSource = (
  request: ContextRequest,
  run: Run,
  signal: AbortSignal,
) => Promise<(string | DeepPartial<ContextItem>)[]>;
/**
 * Gets the entries that each finished run added to its session, and is called again until it succeeds. It may get the
 * same run twice.
 */
export type Remember = (request: RememberRequest, run: Run, signal: AbortSignal) => Promise<void>;
/** Function of a planner. It decides the next instruction of a run. */
export type Planner = (request: PlanRequest, run: Run, signal: AbortSignal) => Promise<DeepPartial<Instruction>>;

type Named<Declaration> = Partial<Declaration> & { name: string };
export type HookOptions = Named<HookDeclaration> & Pick<HookDeclaration, "points">;
export type ContextSourceOptions = Omit<Named<ContextSourceDeclaration>, "remembers"> & { remember?: Remember };
export type PlannerOptions = Named<PlannerDeclaration>;

/** Thrown by an extension that failed. */
export class ExtensionFailed extends Error {
  /** True if the server may ask again, here or on another host. */
  readonly retryable: boolean;

  constructor(message: string, how: { retryable?: boolean } = {}) {
    super(message);
    this.retryable = how.retryable ?? false;
  }
}

type Declared = NonNullable<Capability["capability"]>;
type Answer = NonNullable<ExtensionResponse["response"]>;

/** The extensions of a host, by kind and name. */
export class Extensions {
  readonly #declared = new Map<string, Declared>();
  readonly #hooks = new Map<string, Hook>();
  readonly #sources = new Map<string, { query: ContextSource; remember?: Remember }>();
  readonly #planners = new Map<string, Planner>();

  addHook(options: HookOptions, hook: Hook): void {
    this.#declare({ $case: "hook", value: HookDeclaration.fromPartial(options) });
    this.#hooks.set(options.name, hook);
  }

  addContextSource({ remember, ...options }: ContextSourceOptions, query: ContextSource): void {
    const remembers = remember !== undefined;
    this.#declare({ $case: "contextSource", value: ContextSourceDeclaration.fromPartial({ ...options, remembers }) });
    this.#sources.set(options.name, { query, remember });
  }

  addPlanner(options: PlannerOptions, planner: Planner): void {
    this.#declare({ $case: "planner", value: PlannerDeclaration.fromPartial(options) });
    this.#planners.set(options.name, planner);
  }

  capabilities(): Capability[] {
    return [...this.#declared.values()].map((capability) => ({ capability }));
  }

  /** Calls the extension that a request names. An error becomes a failure response. */
  async respond(request: ExtensionRequest, bound: FrameBound): Promise<ExtensionResponse> {
    const { requestId, timeLeft } = request;
    const deadline = new AbortController();
    const timeout = () => deadline.abort(new ExtensionFailed("there was no answer in time"));
    // Without the time left, the deadline is by a clock that may differ from this one.
    const timer = timeLeft && setTimeout(timeout, milliseconds(timeLeft));
    try {
      const response = { requestId, response: await this.#answer(request, deadline.signal) };
      const size = sizeOf({ $case: "extensionResponse", value: response });
      if (size <= bound.maxBytes) return response;
      throw new ExtensionFailed(`the response has ${size} bytes with its frame; the server takes ${bound.maxBytes}`);
    } catch (error) {
      return { requestId, response: { $case: "failure", value: failure(request.name, error) } };
    } finally {
      clearTimeout(timer);
    }
  }

  #declare(declared: Declared): void {
    const key = `${declared.$case} ${declared.value.name}`;
    if (this.#declared.has(key)) throw new Error(`the host has a ${declared.$case} "${declared.value.name}" already`);
    this.#declared.set(key, declared);
  }

  async #answer({ name, request, run }: ExtensionRequest, signal: AbortSignal): Promise<Answer> {
    switch (request?.$case) {
      case "plan": {
        const result = await find(this.#planners, name)(request.value, run!, signal);
        return { $case: "instruction", value: Instruction.fromPartial(result) };
      }
      case "hook": {
        const result = await find(this.#hooks, name)(request.value, run!, signal);
        return { $case: "hook", value: HookVerdict.fromPartial(result ?? {}) };
      }
      case "context": {
        const items = await find(this.#sources, name).query(request.value, run!, signal);
        return { $case: "context", value: { items: items.map(toItem) } };
      }
      case "remember":
        await find(this.#sources, name).remember?.(request.value, run!, signal);
        return { $case: "remembered", value: {} };
      default:
        throw new ExtensionFailed("this host does not know this kind of request", { retryable: true });
    }
  }
}

function find<T>(among: Map<string, T>, name: string): T {
  const found = among.get(name);
  if (found === undefined) throw new ExtensionFailed(`this host does not offer "${name}"`, { retryable: true });
  return found;
}

function failure(name: string, error: unknown): ExtensionFailure {
  if (error instanceof ExtensionFailed) {
    return { message: cut(error.message, MAX_FAILURE_BYTES), retryable: error.retryable === true };
  }
  console.error(`the extension ${name} failed: ${messageOf(error)}`);
  return { message: cut(messageOf(error), MAX_FAILURE_BYTES), retryable: false };
}

function toItem(item: string | DeepPartial<ContextItem>): ContextItem {
  return ContextItem.fromPartial(typeof item === "string" ? { text: item } : item);
}
