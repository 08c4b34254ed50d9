// Scripts about what is refused: who may connect, and what a client may do.

import { credsAuthenticator, nkeyAuthenticator } from "@nats-io/nats-core";
import { fromSeed } from "@nats-io/nkeys";
import { described, failure, pair, status, take, told } from "./taking.mjs";

// The seed of the nkey user in the test's configuration.
const SEED = new TextEncoder().encode(
  "SUAGDV7A3M5SMKWEC7WA5VDTMBU7DU4IMXD7JRLEGZ6CZ32IVVKVS3L2EE",
);
const PLAIN = { reconnect: false };

async function admitted(open, options) {
  const client = await open({ ...PLAIN, ...options });
  const subscription = client.subscribe("admitted");
  client.publish("admitted", "hello");
  return (await take(subscription, 1)).map(told);
}

export async function connectingAsUsers(open) {
  const attempts = {
    right: { user: "all", pass: "p" },
    wrongPassword: { user: "all", pass: "wrong" },
    noPassword: { user: "all" },
    unknown: { user: "nobody", pass: "p" },
    nothing: {},
    token: { token: "p" },
  };
  return attempted(open, attempts);
}

export async function connectingWithAToken(open) {
  return attempted(open, {
    right: { token: "s3cret" },
    wrong: { token: "wrong" },
    nothing: {},
    asUser: { user: "s3cret" },
  });
}

export async function connectingWithNothing(open) {
  return attempted(open, { nothing: {}, user: { user: "all", pass: "p" } });
}

async function attempted(open, attempts) {
  const ends = {};
  for (const [name, options] of Object.entries(attempts)) {
    try {
      ends[name] = await admitted(open, options);
    } catch (error) {
      ends[name] = described(error);
    }
  }
  return ends;
}

export async function connectingWithAnNkey(open) {
  const key = fromSeed(SEED);
  return attempted(open, {
    right: { authenticator: nkeyAuthenticator(SEED) },
    wrongSignature: {
      authenticator: () => ({ nkey: key.getPublicKey(), sig: "c2lnbmVk" }),
    },
    otherKey: {
      authenticator: (nonce) => ({
        nkey: "UB66TQFK2K3MRFMVJS2W22VXJEUAKWFTZ2VEC7B4JD4BONHOL6GE2HUI",
        sig: Buffer.from(key.sign(new TextEncoder().encode(nonce))).toString("base64url"),
      }),
    },
  });
}

export async function credentialsThatNobodyAskedFor(open) {
  return attempted(open, {
    user: { user: "u", pass: "p" },
    token: { token: "t" },
    broken: { authenticator: credsAuthenticator(new TextEncoder().encode("none")) },
  });
}

export async function notAllowed(open) {
  const client = await open({ ...PLAIN, user: "some", pass: "p" });
  const publishing = status(client, "error");
  client.publish("other", "x");
  const published = described((await publishing).error);
  const subscription = client.subscribe("other");
  const subscribed = await failure(() => take(subscription, 1));
  const queued = client.subscribe("other", { queue: "workers" });
  const grouped = await failure(() => take(queued, 1));
  const replies = await failure(() => client.request("foo.a", "", { timeout: 20_000 }));
  return { published, subscribed, grouped, replies, isClosed: client.isClosed() };
}

export async function heldBackAtDelivery(open) {
  const [some, all] = [
    await open({ ...PLAIN, user: "some", pass: "p" }),
    await open({ ...PLAIN, user: "all", pass: "p" }),
  ];
  const subscription = some.subscribe("foo.*");
  await some.flush();
  for (const subject of ["foo.a", "foo.hidden", "foo.b"]) all.publish(subject, subject);
  return (await take(subscription, 2)).map(told);
}

export async function tooLarge(open) {
  const [one, other] = await pair(() => open(PLAIN));
  const refused = await failure(() => one.publish("large", new Uint8Array(1025)));
  const subscription = other.subscribe("large");
  await other.flush();
  one.publish("large", new Uint8Array(1024));
  const [received] = await take(subscription, 1);
  return { refused, received: received.data.length };
}
