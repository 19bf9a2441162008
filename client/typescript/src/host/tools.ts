// The tools of a host, and the check of a call's arguments.

import { type CallRequest, type Capability, RejectReason } from "../gen/agentloop/v1/tool_host.js";
import { ToolDeclaration } from "../gen/agentloop/v1/types.js";
import type { Call } from "./call.js";
import { messageOf } from "./frame.js";

/** The declaration of a tool, with its schema as an object. */
export type ToolOptions = Partial<Omit<ToolDeclaration, "inputSchemaJson">> &
  Pick<ToolDeclaration, "name" | "description" | "effect"> & { schema: object };

/** A tool bound to its arguments. */
export type Work = (call: Call) => Promise<unknown>;
/** The reason why a call is rejected. */
export type Rejection = { reason: RejectReason; message: string };

type Tool = { declaration: ToolDeclaration; run: (call: Call, args: never) => Promise<unknown> };

/** The tools of a host, by name. */
export class Tools {
  readonly #tools = new Map<string, Tool>();

  add({ schema, ...options }: ToolOptions, run: Tool["run"]): void {
    const declaration = ToolDeclaration.fromPartial({ ...options, inputSchemaJson: JSON.stringify(schema) });
    if (this.#tools.has(declaration.name)) throw new Error(`the host has a tool "${declaration.name}" already`);
    this.#tools.set(declaration.name, { declaration, run });
  }

  capabilities(): Capability[] {
    return [...this.#tools.values()].map(({ declaration }) => ({ capability: { $case: "tool", value: declaration } }));
  }

  prepare(request: CallRequest): Rejection | { run: Work } {
    const tool = this.#tools.get(request.tool);
    if (!tool) {
      return { reason: RejectReason.UNKNOWN_TOOL, message: `this host has no tool "${request.tool}"` };
    }
    try {
      const args = parseObject(request.argumentsJson);
      return { run: async (call) => tool.run(call, args as never) };
    } catch (error) {
      return { reason: RejectReason.BAD_ARGUMENTS, message: messageOf(error) };
    }
  }
}

function parseObject(json: string): object {
  const value: unknown = JSON.parse(json || "{}");
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TypeError("the arguments are no JSON object");
  }
  return value;
}
