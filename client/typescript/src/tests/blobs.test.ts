// Blobs, against a server that keeps them in memory.

import { Server, ServerCredentials, status } from "@grpc/grpc-js";
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { type BlobsServer, BlobsService, type PutBlobRequest } from "../gen/agentloop/v1/blobs.js";
import { Host } from "../host/index.js";

/** A media type that the server has no room for. */
const REFUSED = "application/refused";
const stored = new Map<string, Buffer>();
const types: string[] = [];
const server = new Server();
let host: Host;

const service: BlobsServer = {
  putBlob(call, callback) {
    const chunks: Buffer[] = [];
    call.on("data", ({ part }: PutBlobRequest) => {
      if (part?.$case === "header" && part.value.mediaType === REFUSED) {
        call.pause(); // it reads no more
        callback({ code: status.RESOURCE_EXHAUSTED, details: "no room" });
        return;
      }
      if (part?.$case === "header") types.push(part.value.mediaType);
      if (part?.$case === "chunk") chunks.push(part.value);
    });
    call.on("error", () => undefined);
    call.on("end", () => {
      if (call.cancelled) return;
      const contents = Buffer.concat(chunks);
      const digest = `sha256:${createHash("sha256").update(contents).digest("hex")}`;
      stored.set(digest, contents);
      callback(null, {
        header: { digest, sizeBytes: BigInt(contents.length), mediaType: "" },
        existed: false,
      });
    });
  },
  getBlob(call) {
    const contents = stored.get(call.request.digest)!;
    const header = { digest: call.request.digest, sizeBytes: BigInt(contents.length), mediaType: "" };
    call.write({ part: { $case: "header", value: header } });
    call.write({ part: { $case: "chunk", value: contents.subarray(0, 3) } });
    call.write({ part: { $case: "chunk", value: contents.subarray(3) } });
    call.end();
  },
};

before(async () => {
  server.addService(BlobsService, service);
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
  host = new Host({ server: `127.0.0.1:${port}` });
});

after(() => server.forceShutdown());

async function read(digest: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of host.readBlob(digest)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function digestOf(file: { source?: { $case: string; value: unknown } }): string {
  assert.equal(file.source?.$case, "blobDigest");
  return file.source.value as string;
}

test("a file and bytes are stored and read", async () => {
  const contents = Buffer.alloc(700_000, "0123456789"); // more than two chunks
  const folder = await mkdtemp(join(tmpdir(), "blobs-"));
  try {
    await writeFile(join(folder, "a.bin"), contents);
    const ofFile = await host.putFile("a.bin", join(folder, "a.bin"), "application/x");
    const ofBytes = await host.putFile("b.bin", contents, "text/plain");
    assert.equal(digestOf(ofFile), digestOf(ofBytes));
    assert.deepEqual([ofFile.name, ofFile.sizeBytes], ["a.bin", 700_000n]);
    assert.deepEqual(types, ["application/x", "text/plain"]);
    assert.deepEqual(await read(digestOf(ofFile)), contents);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("a file that is not there is not stored", async () => {
  const before = stored.size;
  await assert.rejects(host.putFile("a.bin", "/nothing/here"), { code: "ENOENT" });
  assert.equal(stored.size, before);
});

test("a refusal ends an upload that is under way", async () => {
  const contents = Buffer.alloc(16 << 20); // more than any buffer on the way holds
  await assert.rejects(host.putFile("a.bin", contents, REFUSED), { code: status.RESOURCE_EXHAUSTED });
});

test("other bytes are told", async () => {
  const digest = digestOf(await host.putFile("a", Buffer.from("good")));
  stored.set(digest, Buffer.from("evil"));
  await assert.rejects(read(digest), /not those of the blob/);
});
