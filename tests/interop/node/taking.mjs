// What scripts share: taking what arrives, and telling of errors.

const text = new TextDecoder();

export function pair(open) {
  return Promise.all([open(), open()]);
}

export async function take(subscription, count) {
  const taken = [];
  for await (const message of subscription) {
    if (taken.push(message) === count) break;
  }
  return taken;
}

export function told(message) {
  const headers = message.headers
    && message.headers.keys().map((key) => [key, message.headers.values(key)]);
  return { subject: message.subject, reply: message.reply ?? "", data: message.string(), headers };
}

export function decoded(bytes) {
  return text.decode(bytes);
}

export async function failure(doing) {
  try {
    await doing();
  } catch (error) {
    return described(error);
  }
  throw new Error("it did not fail");
}

export function described(error) {
  const texts = [error.message, error.cause?.message ?? ""];
  // Every client has an inbox of its own.
  const [message, cause] = texts.map((text) => text.replace(/_INBOX\.\w+/, "_INBOX.…"));
  return { name: error.name, message, cause };
}

export async function status(client, wanted) {
  for await (const event of client.status()) {
    if (event.type === wanted) return event;
  }
  throw new Error(`no status ${wanted} before the end`);
}
