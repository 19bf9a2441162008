// Parts that the example hosts share: command-line options, and a file that records the effects of their tools.

import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { parseArgs } from "node:util";
import { tokenFor } from "./example_credentials.js";
import { Host, type HostOptions } from "./host/index.js";

export type NoteEffect = (line: string) => void;

/** The JSON schema of an object with these required properties, by name and type. */
export function schemaOf(types: Record<string, string>): object {
  const properties = Object.fromEntries(Object.entries(types).map(([name, type]) => [name, { type }]));
  return { type: "object", properties, required: Object.keys(types), additionalProperties: false };
}

/** Runs a host with the tools of `declare` and the options of the command line, until a signal ends it. */
export async function serve(declare: (host: Host, noteEffect: NoteEffect) => void): Promise<never> {
  const { values: options } = parseArgs({
    options: {
      server: { type: "string", default: process.env["AGENTLOOP_SERVER"] || "127.0.0.1:50051" },
      "host-id": { type: "string", default: process.env["AGENTLOOP_HOST_ID"] },
      effects: { type: "string", default: process.env["AGENTLOOP_EFFECTS"] },
    },
  });
  try {
    const host = new Host({
      server: options.server!,
      ...credentialsOf(options.server!),
      hostId: options["host-id"],
      onReady: () => console.log("ready", host.hostId),
    });
    declare(host, effectsFile(options.effects));
    process.exit((await host.run()) ? 0 : 1);
  } catch (error) {
    // An option that cannot be used, or a server that refuses the host.
    console.error(error instanceof Error ? error.message : error);
    process.exit(1);
  }
}

/** The certificates and the token of the environment, as the command `agentloop` reads them. */
function credentialsOf(server: string): Partial<HostOptions> {
  return {
    ca: fileOf("AGENTLOOP_CA_FILE"),
    certificate: fileOf("AGENTLOOP_CERT_FILE"),
    key: fileOf("AGENTLOOP_KEY_FILE"),
    token: tokenFor(server),
  };
}

/** The content of the file that the environment names. */
function fileOf(variable: string): Buffer | undefined {
  const path = process.env[variable];
  return path ? readFileSync(path) : undefined;
}

/** A function that appends a line to a file and syncs it. Without a path it does nothing. */
function effectsFile(path: string | undefined): NoteEffect {
  return (line) => {
    if (!path) return;
    const file = openSync(path, "a");
    writeSync(file, line + "\n");
    fsyncSync(file);
    closeSync(file);
  };
}
