// The way to the server: its address, and the credentials that the address asks for.

import { type ChannelCredentials, credentials, Metadata } from "@grpc/grpc-js";
import { messageOf } from "./frame.js";

/** Certificates and a key, for `https://`. */
export interface Certificates {
  /** The roots of the server's certificate, in PEM; the system's by default. */
  ca?: Buffer;
  /** This host's certificate, in PEM. */
  certificate?: Buffer;
  /** The key of the certificate, in PEM. */
  key?: Buffer;
}

export interface TransportOptions extends Certificates {
  /** Address of the server: `host:port`, or a URL. With `https://` the connection is encrypted. */
  server: string;
  /** Credentials in place of those that the other options make. */
  credentials?: ChannelCredentials;
  /** The bearer token. */
  token?: string;
}

/** Everything that a connection to the server needs. */
export interface Transport {
  address: string;
  /** The address for people, with the scheme that counts. */
  url: string;
  credentials: ChannelCredentials;
  metadata: Metadata;
}

/** Checks the options. Throws where one cannot be used, or does not fit the others. */
export function transportOf(options: TransportOptions): Transport {
  const { address, encrypted } = addressOf(options.server);
  const ofCertificates = credentialsOf(encrypted, options);
  if (options.credentials && (options.ca || options.certificate || options.key)) {
    throw new Error("give either credentials, or ca, certificate and key");
  }
  // Other credentials may not need the scheme that stands for encryption.
  const url = options.credentials ? options.server : `${encrypted ? "https" : "http"}://${address}`;
  const chosen = options.credentials ?? ofCertificates;
  return { address, url, credentials: chosen, metadata: metadataOf(options.token) };
}

/** The address without its scheme, and whether the connection is encrypted. Throws where it is no address. */
export function addressOf(server: string): { address: string; encrypted: boolean } {
  const url = server.includes("://") ? server : `http://${server}`;
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  // Only a host and a port: nothing before them, and nothing behind.
  const bare = parsed && !/[@?#\s]/.test(server) && parsed.pathname === "/";
  if (!bare || !["https:", "http:"].includes(parsed.protocol) || parsed.port === "0") {
    throw new Error(`"${server}" is no address of a server: write host:port, or https:// before it`);
  }
  // Not `parsed.host`, which leaves out the scheme's usual port.
  const address = url.slice(url.indexOf("://") + 3).replace(/\/$/, "");
  return { address, encrypted: parsed.protocol === "https:" };
}

/** Credentials of these certificates. Throws where they do not fit together, or to the address. */
export function credentialsOf(encrypted: boolean, { ca, certificate, key }: Certificates): ChannelCredentials {
  if (!encrypted) {
    if (ca || certificate || key) throw new Error("certificates need an address that begins with https://");
    return credentials.createInsecure();
  }
  if (!certificate !== !key) {
    throw new Error(`certificate and key belong together: ${key ? "certificate" : "key"} is missing`);
  }
  // Node would take an empty list of roots, and find fault with the server.
  if (ca && !ca.includes("CERTIFICATE-----")) throw new Error("ca has no certificate in PEM");
  try {
    return credentials.createSsl(ca, key, certificate);
  } catch (error) {
    throw new Error(`the certificates cannot be used: ${messageOf(error)}`);
  }
}

/** The metadata that presents the bearer token. Throws where no header can carry it. */
export function metadataOf(token: string | undefined): Metadata {
  const metadata = new Metadata();
  if (!token) return metadata;
  if (!/^[ -~]*$/.test(token)) throw new Error("the token has characters that a header cannot carry");
  metadata.set("authorization", `Bearer ${token}`);
  return metadata;
}
