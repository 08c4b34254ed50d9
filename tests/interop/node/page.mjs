// What a page does in a browser: it talks to a server over WebSocket and tells what it saw.
//
// Bundled for the browser by the test; `window.talk(address, cookies)` is the one way in.

import { headers, wsconnect } from "@nats-io/nats-core";
import { described, take, told } from "./taking.mjs";

async function admitted(client) {
  const answering = client.subscribe("service", {
    callback: (_, message) => message.respond(`<${message.string()}>`),
  });
  const subscription = client.subscribe("page.*");
  const block = headers();
  block.set("Size", "größer · 大 · 🚰");
  client.publish("page.headed", "body", { headers: block });
  client.publish("page.empty");
  client.publish("page.large", new Uint8Array(1_000_000).fill(66));
  for (let number = 0; number < 500; number += 1) client.publish("page.many", `${number}`);
  const [headed, empty, large, ...many] = await take(subscription, 503);
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, number) => client.request("service", `${number}`)),
  );
  await answering.drain();
  return {
    headed: told(headed),
    empty: told(empty),
    large: [large.data.length, large.data.every((each) => each === 66)],
    many: many.map((message) => message.string()),
    answers: answers.map((answer) => answer.string()),
    // With a server that has just been asked, and a socket that the browser itself has opened.
    nobody: await client.request("nobody").catch(described),
    host: client.info.host,
  };
}

window.talk = async (servers, cookies) => {
  for (const [name, value] of Object.entries(cookies)) document.cookie = `${name}=${value}`;
  let client;
  try {
    client = await wsconnect({ servers, reconnect: false });
  } catch (error) {
    return { refused: described(error) };
  }
  try {
    return await admitted(client);
  } finally {
    await client.close();
  }
};
