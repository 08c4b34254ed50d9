// How a script reaches its server: over TCP or WebSocket, in the clear or under TLS.
//
// `settings` come from the test: {transport, port, caFile, compression, headers}. Whatever a script
// opened is closed by `closeAll`, so that a script may end anywhere.

import { readFileSync } from "node:fs";
import { wsconnect } from "@nats-io/nats-core";
import { connect } from "@nats-io/transport-node";
import { WebSocket } from "ws";

export function clients(settings) {
  const opened = [];

  async function open(options = {}) {
    const client = settings.transport.startsWith("ws")
      ? await wsconnect({ ...overWebSocket(settings), ...options })
      : await connect({ ...overTcp(settings), ...options });
    opened.push(client);
    return client;
  }

  async function closeAll() {
    await Promise.all(opened.map((client) => client.close()));
  }

  return { open, closeAll };
}

function overTcp({ transport, port, caFile }) {
  const servers = `localhost:${port}`;
  return transport === "tls" ? { servers, tls: { caFile } } : { servers };
}

function overWebSocket({ transport, port, caFile, compression, headers }) {
  return {
    servers: `${transport}://127.0.0.1:${port}`,
    wsFactory: async (url) => ({
      socket: new WebSocket(url, {
        ca: caFile && readFileSync(caFile),
        headers,
        perMessageDeflate: compression ?? false,
      }),
      encrypted: transport === "wss",
    }),
  };
}
