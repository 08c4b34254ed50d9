// Runs scripts against one server, one after the other, and prints a line of JSON for each.
//
// usage: node run.mjs SETTINGS SCRIPT...
// A line has the script's name and its result, or how it failed. A script that must see something
// happen to its server says so before, in a line {"ready": true}.

import { clients } from "./connecting.mjs";
import * as living from "./living.mjs";
import * as messages from "./messages.mjs";
import * as refusals from "./refusals.mjs";

const SCRIPTS = { ...messages, ...living, ...refusals };
const [settings, ...names] = process.argv.slice(2);

function print(document) {
  process.stdout.write(`${JSON.stringify(document)}\n`);
}

async function run(script) {
  const { open, closeAll } = clients(JSON.parse(settings));
  try {
    return { result: await SCRIPTS[script](open, () => print({ ready: true })) };
  } catch (error) {
    return { failed: error.stack };
  } finally {
    await closeAll();
  }
}

for (const script of names) {
  print({ script, ...await run(script) });
}
