"use strict";
// Adds the events that are committed while the page of the log is open. All text is set as text, never as HTML.
(() => {
  const body = document.getElementById("events");
  const live = document.getElementById("live");
  const size = document.getElementById("size");
  const cell = (name, text, kind) => {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    made.textContent = text;
    return made;
  };
  const visible = (text) =>
    text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (found) =>
      "\\u" + found.charCodeAt(0).toString(16).padStart(4, "0"));
  const show = (message) => {
    const event = JSON.parse(message.data);
    const row = document.createElement("tr");
    row.className = "fresh";
    const topic = document.createElement("th");
    topic.scope = "row";
    topic.append(cell("code", event.redacted ? "redacted" : event.topic));
    const stream = document.createElement("td");
    const named = visible(event.stream || "");
    stream.append(cell("code", named.length > 20 ? `${named.slice(0, 14)}…${named.slice(-5)}` : named));
    const at = event.state && event.state.at;
    const time = Number.isInteger(at) && Math.abs(at) < 8.64e15 ? new Date(at).toISOString().slice(0, 19) : "";
    const content = document.createElement("td");
    if (event.redacted) {
      content.append(cell("code", event.leaf));
    } else {
      const details = document.createElement("details");
      const pre = cell("pre", visible(JSON.stringify(event.state, null, 2)));
      pre.tabIndex = 0;
      details.append(cell("summary", visible(JSON.stringify(event.state)).slice(0, 90)), pre);
      content.append(details);
    }
    const place = cell("td", "", "num");
    const link = cell("a", event.position.toLocaleString("en-US"));
    link.href = `${body.dataset.log}?after=${event.position - 1}#e${event.position}`;
    place.append(link);
    row.id = `e${event.position}`;
    row.append(place, topic, stream, cell("td", time ? `${time.replace("T", " ")} UTC` : "", "when"), content);
    body.prepend(row);
    if (size) size.textContent = event.position.toLocaleString("en-US");
  };
  const source = new EventSource(body.dataset.stream);
  source.onopen = () => { live.textContent = "Live."; };
  source.onerror = () => { live.textContent = "The connection was lost and is tried again."; };
  // Each event carries its topic as the name of the message, so every name has to be listened to.
  const names = body.dataset.topics.split(" ").filter(Boolean);
  for (const name of [...names, "redacted", "message"]) source.addEventListener(name, show);
})();
