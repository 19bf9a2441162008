/** Blobs: files that are too large for a result of 3 MiB, in chunks. */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";

import type { ClientWritableStream, Metadata } from "@grpc/grpc-js";

import type { BlobsClient, PutBlobRequest, PutBlobResponse } from "../gen/agentloop/v1/blobs.js";
import type { FileContent } from "../gen/agentloop/v1/types.js";

const CHUNK_BYTES = 256 << 10; // the server takes up to 1 MiB

/** Stores bytes, or the file at a path, and resolves to the file for the `files` of an `Output`. */
export async function putBlob(
  client: BlobsClient,
  metadata: Metadata,
  name: string,
  contents: Buffer | string,
  mediaType: string,
): Promise<FileContent> {
  // A missing file fails before the upload begins.
  if (typeof contents === "string") await stat(contents);
  let upload!: ClientWritableStream<PutBlobRequest>;
  const answered = new AbortController();
  const stored = new Promise<PutBlobResponse>((resolve, reject) => {
    upload = client.putBlob(metadata, (error, response) => {
      answered.abort();
      if (error) reject(error);
      else resolve(response);
    });
  });
  const sending = send(upload, contents, mediaType, answered.signal).catch((error: unknown) => {
    upload.cancel(); // the upload is incomplete
    throw error;
  });
  const [{ header }] = await Promise.all([stored, sending]);
  const sizeBytes = header?.sizeBytes ?? 0n;
  return { name, mediaType, sizeBytes, source: { $case: "blobDigest", value: header?.digest ?? "" } };
}

/** Sends the contents, until the server has answered: after a refusal it reads no more, and nothing drains. */
async function send(
  upload: ClientWritableStream<PutBlobRequest>,
  contents: Buffer | string,
  mediaType: string,
  answered: AbortSignal,
) {
  upload.on("error", () => undefined); // the answer says why
  upload.write({ part: { $case: "header", value: { digest: "", sizeBytes: 0n, mediaType } } });
  for await (const value of chunks(contents)) {
    if (answered.aborted) return;
    if (!upload.write({ part: { $case: "chunk", value } })) await drained(upload, answered);
    if (answered.aborted) return;
  }
  upload.end();
}

/** Waits until more may be written, or the server has answered. */
async function drained(upload: ClientWritableStream<PutBlobRequest>, answered: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    const done = () => {
      upload.off("drain", done);
      answered.removeEventListener("abort", done);
      resolve();
    };
    upload.once("drain", done);
    answered.addEventListener("abort", done);
    if (answered.aborted) done();
  });
}

async function* chunks(contents: Buffer | string): AsyncGenerator<Buffer> {
  if (typeof contents === "string") {
    yield* createReadStream(contents, { highWaterMark: CHUNK_BYTES });
    return;
  }
  for (let at = 0; at < contents.length; at += CHUNK_BYTES) yield contents.subarray(at, at + CHUNK_BYTES);
}

/** The bytes of a blob, in chunks. It throws at the end if they do not have the digest. */
export async function* readBlob(client: BlobsClient, metadata: Metadata, digest: string): AsyncGenerator<Buffer> {
  const seen = createHash("sha256");
  for await (const response of client.getBlob({ digest, offset: 0n }, metadata)) {
    if (response.part?.$case !== "chunk") continue;
    seen.update(response.part.value);
    yield response.part.value;
  }
  if (digest !== `sha256:${seen.digest("hex")}`) {
    throw new Error(`the bytes that came are not those of the blob ${digest}`);
  }
}
