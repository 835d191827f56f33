// The page of proofs: checks the receipt in the form, in this browser alone, and shows what was checked and with which key.
import { check, NotProven, readKey, hex } from "./receipt.js";

const part = (id) => document.getElementById(id);
const result = part("result");
const visible = (text) =>
  String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu, (found) =>
    "\\u" + found.charCodeAt(0).toString(16).padStart(4, "0"));
const line = (name, text, kind) => {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  made.textContent = visible(text);
  return made;
};

const shown = async (found, trust) => {
  const about = found.kind === "event" ? `Event ${found.position}` : `The ${found.kind} ${found.name}, event ${found.position}`;
  const first = found.proven ? `Proven: ${about} is in the log ${found.origin}.` : `Consistent, but not proven: ${about}.`;
  const list = document.createElement("ul");
  const add = (text) => list.append(line("li", text));
  add(`Leaf: SHA-256 of the event's content is ${found.leaf}; its topic is ${found.topic}.`);
  add(`Inclusion: ${found.nodes} hashes lead from the leaf to the root of the tree head ${found.head}.`);
  for (const vkey of trust.keys) {
    const key = await readKey(vkey);
    const source = vkey === part("key").dataset.own
      ? "This server filled the key in: compare it with the one that you got from elsewhere."
      : "You gave this key.";
    add(`Signature: ${key.name} signed this tree head with the Ed25519 key ${hex(key.key)}. ${source}`);
  }
  if (!trust.keys.length) add("Signature: none was checked, because no key was given.");
  if (trust.head) add("Tree head: it is the one that you gave.");
  else if (!trust.keys.length) add("A receipt cannot vouch for itself: give a key, or a tree head that you know from elsewhere.");
  if (found.unchecked.length) add(`Not checked: signatures by ${found.unchecked.join(", ")}.`);
  const state = document.createElement("pre");
  state.textContent = JSON.stringify(found.state, null, 2).split("\n").map(visible).join("\n");
  state.tabIndex = 0;
  result.replaceChildren(line("p", first, found.proven ? "done" : "why"), list, line("h3", "The event"), state);
};

const refused = (error) => {
  const reason = error instanceof NotProven ? error.message : "this browser cannot check it";
  result.replaceChildren(line("p", `Not proven: ${reason}.`, "alert"));
};

let run = 0;
const checkForm = async () => {
  const mine = ++run;
  const keys = part("key").value.split(/[\s,]+/).filter(Boolean);
  const trust = { keys, origin: part("origin").value.trim() || null, head: part("head").value.trim() || null };
  result.dataset.state = "checking";
  let found = null;
  let wrong = null;
  try {
    found = await check(part("receipt").value, trust);
  } catch (error) {
    wrong = error;
  }
  if (mine !== run) return;
  if (wrong) refused(wrong);
  else await shown(found, trust);
  result.dataset.state = wrong ? "refused" : found.proven ? "proven" : "consistent";
};

part("file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (file) part("receipt").value = await file.text();
});
part("check").addEventListener("click", checkForm);
part("check").disabled = !globalThis.crypto?.subtle;
if (part("receipt").value) checkForm();
