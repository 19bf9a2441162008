// What the example hosts share: their options, and a journal of what their tools do.

import { closeSync, fsyncSync, openSync, writeSync } from "node:fs";
import { parseArgs } from "node:util";
import { Host } from "./host/index.js";

export type Journal = (line: string) => void;

/** The schema of an object that must have these properties. */
export function schemaOf(types: Record<string, string>): object {
  const properties = Object.fromEntries(Object.entries(types).map(([name, type]) => [name, { type }]));
  return { type: "object", properties, required: Object.keys(types), additionalProperties: false };
}

/** Serves what `declare` declares, as the command line says, until the process is told to end. */
export async function serve(declare: (host: Host, journal: Journal) => void): Promise<never> {
  const { values: options } = parseArgs({
    options: {
      server: { type: "string", default: process.env["AGENTLOOP_SERVER"] ?? "127.0.0.1:50051" },
      "host-id": { type: "string", default: process.env["AGENTLOOP_HOST_ID"] },
      journal: { type: "string", default: process.env["AGENTLOOP_JOURNAL"] },
    },
  });
  const host = new Host({
    server: options.server!.replace(/^http:\/\//, ""),
    hostId: options["host-id"],
    onReady: () => console.log("ready", host.hostId),
  });
  declare(host, journalTo(options.journal));
  process.exit((await host.run()) ? 0 : 1);
}

/** Appends lines to a file, each on disk before the next thing happens. Without a path, to nowhere. */
function journalTo(path: string | undefined): Journal {
  return (line) => {
    if (!path) return;
    const file = openSync(path, "a");
    writeSync(file, line + "\n");
    fsyncSync(file);
    closeSync(file);
  };
}
