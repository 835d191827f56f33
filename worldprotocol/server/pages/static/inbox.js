"use strict";
// Keeps the inbox current without a reload, and moves between entries with j and k.
// The server renders every entry; this script exchanges entries that changed. A form is never exchanged: what was typed
// stays, and if what it answers has changed, its buttons wait until the change was acknowledged.
(() => {
  const LEAST_MS = 1000;
  const inbox = document.getElementById("inbox");
  const live = document.getElementById("live");
  const entries = () => [...document.querySelectorAll("article.entry")];

  // An entry under the pointer counts as used: a click must not answer what was exchanged the moment before.
  const isUsed = (entry) =>
    entry.matches(":hover") ||
    entry.contains(document.activeElement) ||
    [...entry.querySelectorAll("textarea, input:not([type=hidden])")].some((one) =>
      one.type === "checkbox" ? one.checked !== one.defaultChecked : one.value !== one.defaultValue);

  const hold = (entry, words) => {
    const form = entry.querySelector("form.answer");
    if (!form || form.querySelector(".notice")) return;
    const buttons = [...form.querySelectorAll("button")];
    for (const one of buttons) one.disabled = true;
    const notice = document.createElement("div");
    notice.className = "notice";
    notice.setAttribute("role", "alert");
    notice.append(words + " ");
    if (!entry.classList.contains("gone")) {
      const read = document.createElement("button");
      read.type = "button";
      read.className = "quiet";
      read.textContent = "I have read it";
      read.addEventListener("click", () => {
        notice.remove();
        for (const one of buttons) one.disabled = false;
        form.querySelector("textarea").focus();
      });
      notice.append(read);
    }
    form.prepend(notice);
  };

  const update = (entry, fresh) => {
    if (entry.dataset.shown === fresh.dataset.shown) return;
    const used = isUsed(entry);
    const outside = document.activeElement && document.activeElement.closest(".evidence, .asked, .entry > header");
    for (const part of [":scope > header", ".evidence", ".asked"]) {
      entry.querySelector(part).replaceWith(fresh.querySelector(part));
    }
    entry.dataset.shown = fresh.dataset.shown;
    const form = entry.querySelector("form.answer");
    form.elements.shown.value = fresh.querySelector("form.answer").elements.shown.value;
    const hash = form.querySelector("code[title]");
    hash.replaceWith(fresh.querySelector("form.answer code[title]"));
    entry.classList.add("fresh");
    if (used) hold(entry, "This entry changed while you had it open. What you typed is kept.");
    if (used && outside) entry.querySelector("h2").focus();
  };

  const merge = (next) => {
    const list = document.querySelector(".entries");
    const wanted = [...next.querySelectorAll("article.entry")];
    const ids = new Set(wanted.map((one) => one.id));
    for (const entry of entries()) {
      if (ids.has(entry.id)) continue;
      if (!isUsed(entry)) { entry.remove(); continue; }
      entry.classList.add("gone");
      hold(entry, "This proposal does not wait for you any more. What you typed is not sent.");
    }
    let before = null;
    for (const fresh of wanted) {
      let entry = document.getElementById(fresh.id);
      if (entry) {
        update(entry, fresh);
      } else {
        entry = document.adoptNode(fresh);
        entry.classList.add("fresh");
        if (before) before.after(entry); else list.prepend(entry);
      }
      before = entry;
    }
    const empty = list.querySelector(".empty");
    if (wanted.length && empty) empty.remove();
    if (!entries().length && !empty) list.append(...next.querySelectorAll(".entries > .empty"));
    const queue = document.querySelector(".queue");
    const other = next.querySelector(".queue");
    if (!queue || !queue.contains(document.activeElement)) {
      if (queue) queue.remove();
      if (other) inbox.prepend(document.adoptNode(other));
      inbox.className = next.getElementById("inbox").className;
    }
    const badge = document.querySelector(".bar [aria-current]");
    badge.replaceChildren(...next.querySelector(".bar [aria-current]").childNodes);
    document.getElementById("number").textContent = next.getElementById("number").textContent;
  };

  let running = false;
  let again = false;
  const refresh = async () => {
    if (running) { again = true; return; }
    running = true;
    again = false;
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", credentials: "same-origin" });
      if (answer.ok) {
        merge(new DOMParser().parseFromString(await answer.text(), "text/html"));
        live.textContent = "Live: updated just now.";
      } else if (answer.status === 401) {
        live.textContent = "Your session has ended; sign in again.";
        source.close();
      }
    } catch {
      again = true;
    }
    setTimeout(() => { running = false; if (again) refresh(); }, LEAST_MS);
  };

  const source = new EventSource(inbox.dataset.stream + "?seen=" + inbox.dataset.seen);
  source.addEventListener("changed", refresh);
  source.onopen = () => { live.textContent = "Live."; };
  source.onerror = () => { live.textContent = "The connection was lost and is tried again."; };

  const units = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]];
  setInterval(() => {
    for (const time of document.querySelectorAll("time[data-ms]")) {
      const ms = Number(time.dataset.ms) - Date.now();
      const [size, unit] = units.find(([one]) => Math.abs(ms) >= one) || units[3];
      const words = Math.floor(Math.abs(ms) / size) + " " + unit;
      const text = ms > 0 ? "in " + words : words + " ago";
      if (time.textContent !== text) time.textContent = text;
    }
  }, 15000);

  const title = (entry) => entry.querySelector("h2");
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target.closest("textarea, input, select")) return;
    const all = entries();
    const at = all.findIndex((one) => one.contains(document.activeElement));
    const step = { j: 1, k: -1 }[event.key];
    if (step && all.length) {
      const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + step))];
      title(next).focus({ preventScroll: true });
      next.scrollIntoView({ block: "start" });
      event.preventDefault();
    } else if (event.key === "a" && at >= 0) {
      all[at].querySelector("form.answer textarea").focus();
      event.preventDefault();
    }
  });
})();
