// Checks receipts with WebCrypto alone: leaf hash, inclusion path, checkpoint and signatures. Nothing is requested.
// docs/reference/log-format.md describes the form; docs/verify_receipt.py is the same check in Python.
const TOPICS = {
  proposal: "proposal.submitted", intent: "proposal.submitted", decision: "decision.made", world: "world.sealed",
  verdict: "verdict.given", run: "run.opened",
};
const FIELDS = { intent: "intent.intentId", decision: "decision.decisionId" };
const MAX_NOTE = 2 ** 20;
const ED25519 = 1;
const COSIGNATURE = 4;

export class NotProven extends Error {}

const need = (fact, words) => {
  if (!fact) throw new NotProven(words);
};

const bytesOf = (text) => new TextEncoder().encode(text);
const joined = (...parts) => {
  const made = new Uint8Array(parts.reduce((size, one) => size + one.length, 0));
  let at = 0;
  for (const one of parts) {
    made.set(one, at);
    at += one.length;
  }
  return made;
};
const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
export const hex = (bytes) => Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
const isEqual = (a, b) => a.length === b.length && a.every((one, at) => one === b[at]);

// The one text of a value (RFC 8785), whose numbers and texts are those of ECMAScript.
const canonical = (value, levels = 200) => {
  if (typeof value === "string") need(value.isWellFormed(), "it has half a surrogate pair");
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  need(levels > 0, "it is nested too deep");
  if (Array.isArray(value)) return `[${value.map((one) => canonical(one, levels - 1)).join(",")}]`;
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${canonical(name)}:${canonical(value[name], levels - 1)}`).join(",")}}`;
};

const read = (text) => {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new NotProven("it is not whole JSON: it was cut off or changed");
  }
  need(canonical(value) === text, "it is not written in the one form that is allowed (RFC 8785)");
  return value;
};

const fields = (value, names) => {
  const wanted = names.split(" ");
  const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
  need(isObject && isEqual(Object.keys(value).sort(), [...wanted].sort()), `the fields should be ${names}`);
  return wanted.map((name) => value[name]);
};

const number = (value) => {
  need(Number.isInteger(value) && value >= 0 && value <= 2 ** 53, "a number is not one");
  return BigInt(value);
};

const unhex = (text) => {
  need(typeof text === "string" && /^[0-9a-f]{64}$/.test(text), "a hash is not one");
  return Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));
};

const unbase64 = (text) => {
  let raw = "";
  try {
    raw = atob(text);
  } catch {
    throw new NotProven("base64 is damaged");
  }
  need(btoa(raw) === text && raw.length > 4, "base64 is too short, or written in another form");
  return Uint8Array.from(raw, (one) => one.charCodeAt(0));
};

// The root that a leaf and its path lead to (RFC 9162, 2.1.3.2).
const climb = async (index, size, leaf, path) => {
  let place = index;
  let last = size - 1n;
  let node = leaf;
  for (const one of path) {
    need(last !== 0n, "the path is too long");
    if (place & 1n || place === last) {
      node = await sha256(joined([1], one, node));
      while (place && !(place & 1n)) {
        place >>= 1n;
        last >>= 1n;
      }
    } else {
      node = await sha256(joined([1], node, one));
    }
    place >>= 1n;
    last >>= 1n;
  }
  need(last === 0n, "the path is too short");
  return node;
};

const verifySignature = async (key, signature, text) => {
  const imported = await crypto.subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]);
  return crypto.subtle.verify({ name: "Ed25519" }, imported, signature, bytesOf(text));
};

// Returns name, id and public key of a verifier key, NAME+ID+KEY.
export const readKey = async (vkey) => {
  const [, name, id, encoded] = /^([^+\s]+)\+([0-9a-f]{8})\+(\S+)$/.exec(vkey) ?? [];
  need(name !== undefined, `${vkey} is not a verifier key (NAME+ID+KEY)`);
  const key = unbase64(encoded);
  const known = (await sha256(joined(bytesOf(`${name}\n`), key))).slice(0, 4);
  const isKey = key.length === 33 && (key[0] === ED25519 || key[0] === COSIGNATURE) && hex(known) === id;
  need(isKey, `${vkey} is not a verifier key: its id does not follow from it`);
  return { name, id: known, kind: key[0], key: key.slice(1) };
};

const checkSigned = async (body, signatures, vkey) => {
  const { name, id, kind, key } = await readKey(vkey);
  const own = signatures.filter((one) => one.name === name && isEqual(one.value.slice(0, 4), id));
  need(own.length > 0, `${name} has not signed it with the key ${vkey}`);
  for (const { value } of own) {
    let text = body;
    let signature = value.slice(4);
    if (kind === COSIGNATURE) {
      need(signature.length === 72, `the cosignature of ${name} has another length`);
      const at = new DataView(signature.buffer, signature.byteOffset).getBigUint64(0);
      need(at < 2n ** 63n, `the cosignature of ${name} has no time`);
      text = `cosignature/v1\ntime ${at}\n${body}`;
      signature = signature.slice(8);
    }
    need(await verifySignature(key, signature, text), `the signature of ${name} is wrong`);
  }
  return name;
};

const isPlain = (text) => [...text].every((one) => one === "\n" || one.codePointAt(0) >= 32);

// Checks a checkpoint (C2SP tlog-checkpoint); returns its size, its root, and the names whose signatures were checked.
const checkpoint = async (note, origin, trust) => {
  need(typeof note === "string" && typeof origin === "string", "the checkpoint is missing");
  need(isPlain(note) && bytesOf(note).length <= MAX_NOTE, "the checkpoint has characters that it cannot have");
  const at = note.lastIndexOf("\n\n") + 1;
  const body = at ? note.slice(0, at) : note;
  const lines = at ? note.slice(at + 1).split("\n") : [""];
  const [named, size, root, ...more] = body.split("\n");
  const isWhole = body.endsWith("\n") && lines.pop() === "" && lines.length >= (at ? 1 : 0) && lines.length <= 100;
  need(isWhole && root !== undefined, "the checkpoint is cut off");
  need(named === origin && origin !== "" && more.slice(0, -1).every(Boolean), "the origin and the checkpoint disagree");
  need(/^(0|[1-9][0-9]{0,18})$/.test(size) && BigInt(size) < 2n ** 63n, "the checkpoint has no size");
  const hash = unbase64(root);
  need(hash.length === 32, "the checkpoint has no root");
  const signatures = lines.map((line) => {
    const parts = line.split(" ");
    const isLine = parts.length === 3 && parts[0] === "\u2014" && parts[1] !== "" && !/[\s+]/.test(parts[1]);
    need(isLine, "a line of a signature is damaged");
    return { name: parts[1], value: unbase64(parts[2]) };
  });
  const keys = await Promise.all(trust.keys.map(readKey));
  const names = trust.origin ? [trust.origin] : keys.map((one) => one.name);
  need(!names.length || names.includes(origin), `it belongs to the log ${origin}, not to ${names.join(" or ")}`);
  const signed = [];
  for (const vkey of trust.keys) signed.push(await checkSigned(body, signatures, vkey));
  const unchecked = signatures.map((one) => one.name).filter((name) => !signed.includes(name));
  return { size: BigInt(size), root: hash, signed, unchecked };
};

const isName = (text) => {
  if (typeof text !== "string") return false;
  const letters = [...text];
  return letters.length > 0 && letters.length <= 512 &&
    letters.every((one) => one.codePointAt(0) >= 32 && one !== "\u007f");
};

const hashOf = async (value) => hex(await sha256(bytesOf(canonical(value))));

const checkSubject = async (about, position, topic, state) => {
  const [field, name, kind] = fields(about, "field id kind");
  if (kind === "event") {
    need(field === "position" && name === String(position), "the receipt is about another position");
    return { kind, name };
  }
  need(Object.hasOwn(TOPICS, kind) && topic === TOPICS[kind], "the event is not evidence of what the receipt names");
  const path = FIELDS[kind] ?? `${kind}Id`;
  const found = path.split(".").reduce((part, step) => (part !== null && typeof part === "object" ? part[step] : undefined), state);
  need(field === `state.${path}` && found === name, `the event is about another ${kind}`);
  if (kind === "world") {
    const parts = { schemaHash: state.schemaHash, snapshotHash: state.snapshotHash };
    const parent = state.parent ?? null;
    [...Object.values(parts), parent ?? name].forEach(unhex);
    const isMade = (await hashOf(parts)) === state.contentId && (await hashOf({ ...parts, parentWorldId: parent })) === name;
    need(isMade, "the id of the world does not follow from its hashes");
  }
  return { kind, name };
};

const checkReceipt = async (text, trust) => {
  const [about, note, event, format, inclusion, origin, kind] =
    fields(read(text), "about checkpoint event format inclusion origin worldProtocol");
  need(kind === "receipt" && format === 1, "it is not a receipt of format 1");
  const [content, leaf, position] = fields(event, "content leaf position");
  const [index, path, size] = fields(inclusion, "index path size");
  const head = await checkpoint(note, origin, trust);
  const place = number(index);
  need(typeof content === "string" && Array.isArray(path) && path.length <= 128, "the event or the path is missing");
  const found = await sha256(joined([0], bytesOf(content)));
  need(hex(found) === leaf, "the event is not the one of its leaf hash: its content was changed");
  const isPlaced = place < head.size && number(size) === head.size && number(position) === place + 1n;
  need(isPlaced, "position or size differ from those of the checkpoint");
  const root = await climb(place, head.size, found, path.map(unhex));
  need(isEqual(root, head.root), "the path does not lead from the event to the root of the checkpoint");
  const [form, state, stream, topic, version] = fields(read(content), "schemaVersion state stream topic version");
  need(number(form) * number(version) > 0n && isName(stream) && isName(topic), "the event has no stream, topic or version");
  const subject = await checkSubject(about, position, topic, state);
  const known = `${head.size}:${hex(head.root)}`;
  if (trust.head) need(trust.head === known, `the tree head is ${known}, and not the one that you know`);
  return {
    ...subject, position, topic, state, origin, leaf, head: known, nodes: path.length,
    signed: head.signed, unchecked: head.unchecked, proven: head.signed.length > 0 || Boolean(trust.head),
  };
};

// Checks a receipt: text, or bytes as in its file. `trust` has verifier keys, the expected origin, and a known tree
// head, SIZE:ROOT. Raises NotProven with the reason; `proven` is false where nothing vouches for the tree head.
export const check = async (given, trust) => {
  try {
    const text = typeof given === "string" ? given : new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(given);
    return await checkReceipt(text.endsWith("\n") ? text.slice(0, -1) : text, trust);
  } catch (error) {
    if (error instanceof NotProven) throw error;
    throw new NotProven(`a part is damaged or missing (${error.message})`);
  }
};
