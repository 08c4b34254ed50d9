// Opens pages in a real browser and prints what they saw, as one line of JSON.
//
// usage: node browser.mjs SETTINGS
// SETTINGS: {executable, profile, visits: {name: {page, server, cookies}}}. Each visit has a browser
// context of its own, so that no cookie of another is left.

import { chromium } from "playwright-core";

const { executable, profile, visits } = JSON.parse(process.argv[2]);

const browser = await chromium.launch({
  executablePath: executable,
  headless: true,
  env: { ...process.env, HOME: profile },
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
const seen = {};
for (const [name, { page: address, server, cookies }] of Object.entries(visits)) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(address);
  seen[name] = await page.evaluate(([to, given]) => window.talk(to, given), [server, cookies]);
  await context.close();
}
await browser.close();
process.stdout.write(`${JSON.stringify(seen)}\n`);
