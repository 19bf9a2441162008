/**
 * A tool host for agentloop. It connects to the server, runs the calls that it gets, and survives lost connections.
 *
 *     const host = new Host({ server: "127.0.0.1:50051" });
 *     host.tool(declaration, async (call, { a, b }: { a: number; b: number }) => a + b);
 *     await host.run();
 *
 * It needs only the generated code, `@grpc/grpc-js` and `@bufbuild/protobuf`.
 */
export { AttemptEffect, OutputStream } from "../gen/agentloop/v1/events.js";
export { HookPoint, PlanSituation } from "../gen/agentloop/v1/tool_host.js";
export { EffectClass } from "../gen/agentloop/v1/types.js";
export { NoAnswer, type Option, type QuestionOptions } from "./ask.js";
export { type Beside, type Call, Output } from "./call.js";
export {
  type ContextSource,
  type ContextSourceOptions,
  ExtensionFailed,
  type Hook,
  type HookOptions,
  type Planner,
  type PlannerOptions,
  type Remember,
} from "./extensions.js";
export { HostRefused, ToolFailed } from "./failure.js";
export { Host, type HostOptions } from "./host.js";
export type { RuntimeOptions } from "./runtimes.js";
export type { ToolOptions } from "./tools.js";
