// Scripts about messages: each gives what a client of two saw, in an order that does not change.

import { createInbox, headers, nuid } from "@nats-io/nats-core";
import { decoded, described, failure, pair, status, take, told } from "./taking.mjs";

export async function publishAndSubscribe(open) {
  const [one, other] = await pair(open);
  const subscriptions = ["orders.*", "orders.>", "orders.1"].map((each) => one.subscribe(each));
  await one.flush();
  for (let number = 0; number < 20; number += 1) {
    other.publish(`orders.${number % 3}`, `${number}`, { reply: "back" });
  }
  const [star, all, single] = subscriptions;
  return [...await take(star, 20), ...await take(all, 20), ...await take(single, 7)].map(told);
}

export async function ownMessagesComeUnlessEchoIsOff(open) {
  const [loud, quiet] = [await open(), await open({ noEcho: true })];
  const [heard, other] = [loud.subscribe("echo"), quiet.subscribe("echo")];
  await Promise.all([loud.flush(), quiet.flush()]);
  quiet.publish("echo", "from quiet");
  await quiet.flush();
  loud.publish("echo", "from loud");
  await Promise.all([loud.flush(), quiet.flush()]);
  return { loud: (await take(heard, 2)).map(told), quiet: (await take(other, 1)).map(told) };
}

export async function queueGroup(open) {
  const members = await Promise.all([open(), open(), open()]);
  const received = [];
  const everything = new Promise((resolve) => {
    for (const member of members) {
      member.subscribe("jobs", {
        queue: "workers",
        callback: (_, message) => received.push(Number(message.string())) === 300 && resolve(),
      });
    }
  });
  await Promise.all(members.map((member) => member.flush()));
  for (let number = 0; number < 300; number += 1) members[0].publish("jobs", `${number}`);
  await everything;
  await Promise.all(members.map((member) => member.flush()));
  return received.sort((left, right) => left - right);
}

export async function requestAndReply(open) {
  const [one, other] = await pair(open);
  one.subscribe("service", { callback: (_, message) => message.respond(`<${message.string()}>`) });
  await one.flush();
  const shared = [];
  for (let number = 0; number < 50; number += 1) shared.push(other.request("service", `${number}`));
  const apart = await other.request("service", "apart", { timeout: 20_000, noMux: true });
  return [...await Promise.all(shared), apart].map((answer) => answer.string());
}

export async function requestWithManyReplies(open) {
  const [one, other] = await pair(open);
  one.subscribe("many", {
    callback: (_, message) => {
      for (let number = 0; number < 10; number += 1) message.respond(`${number}`);
      message.respond();
    },
  });
  await one.flush();
  const answers = {};
  for (const options of [{ strategy: "count", maxMessages: 4 }, { strategy: "sentinel" }]) {
    const taken = [];
    for await (const answer of await other.requestMany("many", "", { maxWait: 20_000, ...options })) {
      taken.push(answer.string());
    }
    answers[options.strategy] = taken;
  }
  return answers;
}

export async function nobodyAnswers(open) {
  const client = await open();
  const raw = client.subscribe("answers");
  client.publish("nobody", "", { reply: "answers" });
  const [answer] = await take(raw, 1);
  return {
    shared: await failure(() => client.request("nobody", "", { timeout: 20_000 })),
    apart: await failure(() => client.request("nobody", "", { timeout: 20_000, noMux: true })),
    status: [answer.headers.code, answer.headers.status, answer.data.length],
  };
}

export async function headersOfAllKinds(open) {
  const [one, other] = await pair(open);
  const subscription = one.subscribe("headed");
  await one.flush();
  const block = headers();
  block.append("Several", "one");
  block.append("Several", "two");
  block.set("lower-case", "two  words");
  block.set("Size", "größer · 大 · 🚰");
  block.set("Empty", "");
  other.publish("headed", "body", { headers: block, reply: "back" });
  other.publish("headed", "", { headers: block });
  other.publish("headed", "none");
  return (await take(subscription, 3)).map(told);
}

export async function autoUnsubscribe(open) {
  const [one, other] = await pair(open);
  const limited = one.subscribe("limited", { max: 5 });
  const later = one.subscribe("later");
  const everything = one.subscribe(">");
  later.unsubscribe(3);
  await one.flush();
  for (let number = 0; number < 10; number += 1) {
    other.publish("limited", `${number}`);
    other.publish("later", `${number}`);
  }
  const taken = {};
  for (const [name, subscription] of Object.entries({ limited, later })) {
    taken[name] = (await take(subscription, Infinity)).map(told);
  }
  return { ...taken, others: (await take(everything, 20)).length };
}

export async function anyBytes(open) {
  const [one, other] = await pair(open);
  const subscription = one.subscribe("bytes");
  await one.flush();
  const all = Uint8Array.from({ length: 256 }, (_, place) => place);
  const payloads = [all, new Uint8Array(0), Uint8Array.of(0), all.slice().reverse()];
  for (const payload of payloads) other.publish("bytes", payload);
  other.publish("bytes", "MSG x 1 2\r\n");
  return (await take(subscription, 5)).map((message) => [...message.data]);
}

export async function largePayloads(open) {
  return payloadsOf(open, [4095, 4096, 65_535, 65_536, 1_048_575, 1_048_576]);
}

export async function compressiblePayloads(open) {
  return payloadsOf(open, [0, 1, 63, 64, 65, 200, 4096, 65_536, 300_000, 1_000_000]);
}

async function payloadsOf(open, sizes) {
  const [one, other] = await pair(open);
  const subscription = one.subscribe("large");
  await one.flush();
  for (const [place, size] of sizes.entries()) {
    other.publish("large", new Uint8Array(size).fill(place + 65));
    // What is compressed together may not be larger than the largest payload.
    await other.flush();
  }
  return (await take(subscription, sizes.length)).map(({ data }) => [
    data.length,
    decoded(data.subarray(0, 2)),
    data.every((each) => each === data[0]),
  ]);
}

export async function tenThousandInOrder(open) {
  const [one, other] = await pair(open);
  const subscription = one.subscribe("ordered");
  await one.flush();
  const filling = "x".repeat(120);
  for (let number = 0; number < 10_000; number += 1) other.publish("ordered", `${number} ${filling}`);
  const taken = await take(subscription, 10_000);
  return {
    inOrder: taken.every((message, place) => message.string() === `${place} ${filling}`),
    count: taken.length,
    counted: [other.stats().outMsgs, one.stats().inMsgs, one.stats().inBytes],
  };
}

export async function flushAndRoundTrip(open) {
  const client = await open();
  await Promise.all([client.flush(), client.flush(), client.flush()]);
  return { rtt: typeof await client.rtt(), flushed: await client.flush() };
}

export async function drainOfAClient(open) {
  const [one, other] = await pair(open);
  const seen = [];
  one.subscribe("drained", { callback: (_, message) => seen.push(message.string()) });
  await one.flush();
  for (let number = 0; number < 100; number += 1) other.publish("drained", `${number}`);
  await other.flush();
  await one.drain();
  other.publish("drained", "too late");
  await other.flush();
  return {
    seen,
    isClosed: one.isClosed(),
    closed: await one.closed() ?? null,
    publishing: await failure(() => one.publish("drained")),
  };
}

export async function drainOfASubscription(open) {
  const [one, other] = await pair(open);
  const [drained, kept] = [one.subscribe("both"), one.subscribe("both")];
  await one.flush();
  for (let number = 0; number < 10; number += 1) other.publish("both", `${number}`);
  await other.flush();
  await drained.drain();
  other.publish("both", "after");
  const left = (await take(kept, 11)).map(told);
  return { left, drained: (await take(drained, Infinity)).map(told), isClosed: drained.isClosed() };
}

export async function subjectsThatAreNone(open) {
  const client = await open({ pedantic: true });
  const everything = client.subscribe(">");
  await client.flush();
  const errors = [];
  for (const subject of ["a..b", "a.*.b", "a.>"]) {
    const heard = status(client, "error");
    client.publish(subject, "x");
    errors.push(described((await heard).error));
  }
  client.publish("end");
  return { errors, received: (await take(everything, 1)).map(told) };
}

export async function manySubscriptions(open) {
  const [one, other] = await pair(open);
  const received = [];
  const everything = new Promise((resolve) => {
    for (let number = 0; number < 1000; number += 1) {
      one.subscribe(`many.${number}.*`, {
        callback: (_, message) => received.push(message.subject) === 1000 && resolve(),
      });
    }
  });
  await one.flush();
  for (let number = 0; number < 1000; number += 1) other.publish(`many.${number}.x`);
  await everything;
  const inbox = createInbox("_own");
  return { received, inbox: inbox.length, id: nuid.next().length };
}
