// Scripts about a connection's life: what the server says of itself, its end, its return.

import { failure, pair, status, take, told } from "./taking.mjs";

// Differs between any two servers, or between any two connections.
const OWN = new Set(["server_id", "server_name", "client_id", "git_commit", "go", "xkey", "nonce"]);

export async function whatTheServerSays(open) {
  const client = await open();
  const { port, ...info } = client.info;
  const fields = Object.entries(info).map(([name, value]) => [
    name,
    OWN.has(name) ? typeof value : value,
  ]);
  const isOwnPort = client.getServer().endsWith(`:${port}`);
  return { isOwnPort, ...Object.fromEntries(fields.sort()) };
}

export async function closing(open) {
  const [one, other] = await pair(open);
  const subscription = one.subscribe("closing");
  await one.flush();
  one.publish("closing", "before");
  const heard = take(subscription, 1);
  other.subscribe("closing", { callback: (_, message) => message.respond("answered") });
  await other.flush();
  const received = (await heard).map(told);
  await one.close();
  return {
    received,
    closed: await one.closed() ?? null,
    requesting: await failure(() => one.request("closing")),
    subscribing: await failure(() => one.subscribe("closing")),
    othersGoOn: await other.flush() ?? null,
  };
}

export async function reconnecting(open, ready) {
  const client = await open({ reconnectTimeWait: 50, maxReconnectAttempts: -1 });
  const subscription = client.subscribe("kept", { queue: "workers" });
  await client.flush();
  const [gone, back] = [status(client, "disconnect"), status(client, "reconnect")];
  ready();
  await gone;
  await back;
  client.publish("kept", "after");
  const received = (await take(subscription, 1)).map(told);
  return { received, reconnects: client.stats().reconnects ?? null };
}

export async function lameDuck(open, ready) {
  const client = await open({ reconnect: false, ignoreServerUpdates: false });
  const heard = status(client, "ldm");
  await client.flush();
  ready();
  const { type } = await heard;
  return { type, ldm: client.info.ldm };
}

export async function serverGoes(open, ready) {
  const client = await open({ reconnect: false });
  await client.flush();
  ready();
  const error = await client.closed();
  return { name: error?.name ?? null, message: error?.message ?? null };
}
