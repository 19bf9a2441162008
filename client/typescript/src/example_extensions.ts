// An example host with extensions: a planner, hooks, a context source that remembers, a runtime, and questions.

import { type NoteEffect, schemaOf, serve } from "./example_options.js";
import { EffectClass, HookPoint, type Host, NoAnswer, Output, PlanSituation } from "./host/index.js";

/** The smallest valid image. */
const PICTURE = Buffer.from("GIF89a\x01\x00\x01\x00\x00\x00\x00;", "latin1");

/** Declares the default loop with one change: a human must approve every tool call. */
function declarePlanner(host: Host): void {
  host.planner({ name: "careful", description: "Asks a human about every tool call." }, async (request) => {
    switch (request.situation) {
      case PlanSituation.TOOLS_WANTED:
        return { instruction: { $case: "requestHumanApprove", value: {} } };
      case PlanSituation.ANSWERED:
        return { instruction: { $case: "finish", value: {} } };
      case PlanSituation.PROMPTED:
      case PlanSituation.TOOLS_SETTLED:
      case PlanSituation.COMPACTED:
        return { instruction: { $case: "callModel", value: {} } };
      default:
        return { instruction: { $case: "callTools", value: {} } };
    }
  });
}

/** Declares a hook that keeps passwords out of tools and sessions, and notes every finished run. */
function declareHook(host: Host, noteEffect: NoteEffect): void {
  const { PRE_RUN, PRE_TOOL, POST_TOOL, POST_RUN } = HookPoint;
  const points = [PRE_RUN, PRE_TOOL, POST_TOOL, POST_RUN];
  host.hook({ name: "guard", description: "Keeps secrets out.", points, required: true }, async (request, run) => {
    switch (request.point) {
      case PRE_RUN:
        return { systemPromptAddition: "Never repeat a password." };
      case PRE_TOOL: {
        const { page } = JSON.parse(request.toolCall!.argumentsJson) as { page?: string };
        if (page?.includes("password")) return { veto: "pages with passwords are not opened" };
        return;
      }
      case POST_TOOL: {
        const { output } = request.toolResult!;
        if (!output.includes("hunter2")) return;
        return { output: output.replaceAll("hunter2", "[hidden]"), annotation: "a password was hidden" };
      }
      case POST_RUN:
        return noteEffect(`filed ${run.runId}`);
    }
  });
}

/** Declares a context source that remembers the messages of runs, and adds them to later ones. */
function declareMemory(host: Host, noteEffect: NoteEffect): void {
  const said = new Map<string, { text: string; origin: string }>();
  host.contextSource(
    {
      name: "diary",
      description: "What was said before.",
      remember: async ({ messages }, run) => {
        for (const { parts } of messages) {
          const text = parts.map(({ content }) => (content?.$case === "text" ? content.value : "")).join("");
          if (text) said.set(text, { text, origin: run.sessionId });
        }
        noteEffect(`remembered ${run.runId}`);
      },
    },
    async () => [...said.values()].slice(-10),
  );
}

/** Declares a browser for each run, opened before its first page and closed after its last. */
function declareRuntime(host: Host, noteEffect: NoteEffect): void {
  type Browser = { profile: string; pages: number };
  host.runtime<Browser>({
    open: async ({ profile = "default" }) => {
      noteEffect(`opened ${profile}`);
      return { profile: String(profile), pages: 0 };
    },
    close: async ({ profile, pages }) => noteEffect(`closed ${profile} after ${pages}`),
  });
  host.tool(
    {
      name: "browse",
      description: "Opens a page.",
      schema: schemaOf({ page: "string" }),
      effect: EffectClass.READ_ONLY,
      requiresRuntime: true,
    },
    async (call, { page }: { page: string }) => {
      const browser = call.runtime as Browser;
      browser.pages += 1;
      return `page ${browser.pages} in ${browser.profile}: ${page}, signed in with hunter2`;
    },
  );
}

/** Declares a tool that asks a human while it runs. */
function declareBooking(host: Host, noteEffect: NoteEffect): void {
  host.tool(
    {
      name: "book",
      description: "Books a seat.",
      schema: schemaOf({ patience: "number" }),
      effect: EffectClass.UNSAFE,
    },
    async (call, { patience }: { patience: number }) => {
      noteEffect(`booking ${call.callId}`);
      const seat = await call.ask("Which seat?", { name: "seat" });
      const sides = [{ id: "a", label: "aisle" }, { id: "w", label: "window" }];
      let side: string;
      try {
        side = await call.choose("Which side?", sides, { timeoutMs: patience * 1000 });
      } catch (error) {
        if (error instanceof NoAnswer) return `seat ${seat}, and no side: ${error.message}`;
        throw error;
      }
      const meals = await call.chooseSeveral("Which meals?", ["lunch", "dinner"]);
      noteEffect(`booked ${call.callId}`);
      const boardingPass = { source: { $case: "data" as const, value: PICTURE }, mediaType: "image/gif" };
      return new Output(`seat ${seat}, ${side}, with ${meals.join(" and ")}`, [boardingPass]);
    },
  );
}

await serve((host, noteEffect) => {
  declarePlanner(host);
  declareHook(host, noteEffect);
  declareMemory(host, noteEffect);
  declareRuntime(host, noteEffect);
  declareBooking(host, noteEffect);
});
