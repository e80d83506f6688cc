"use strict";
// Updates the page and sends decisions. Pages are readable without it.
(() => {
  const body = document.body, connection = document.getElementById("connection");
  const held = new Map(); // parts that are updated after the user finishes typing in them

  // ---- theme
  const theme = document.getElementById("theme"), root = document.documentElement;
  const show = name => { if (name) root.dataset.theme = name; };
  try { show(localStorage.getItem("theme")); } catch { /* storage is switched off */ }
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    show(dark ? "light" : "dark");
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* storage is switched off */ }
  });

  // ---- live parts
  const isTyping = part => {
    const at = document.activeElement;
    if (at && part.contains(at) && at.matches("input, textarea, select")) return true;
    return [...part.querySelectorAll("textarea, input:not([type=hidden]):not([type=checkbox])")]
      .some(field => field.value !== field.defaultValue) || part.querySelector("input:checked, .collected li") !== null;
  };
  const put = (id, version, html) => {
    let part = document.getElementById(id);
    if (!part) {
      part = document.createElement("section");
      part.id = id;
      document.getElementById("main").append(part);
    }
    if (part.dataset.version === version) return;
    if (isTyping(part)) { held.set(id, [version, html]); return; }
    const open = new Map([...part.querySelectorAll("details[id]")].map(each => [each.id, each.open]));
    const focus = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const scrolled = [...part.querySelectorAll("[data-tail], .wide")].map(each => each.scrollLeft);
    const following = [...part.querySelectorAll("[data-tail]")].map(each => each.scrollTop + each.clientHeight > each.scrollHeight - 40);
    part.innerHTML = html;
    part.dataset.version = version;
    for (const each of part.querySelectorAll("details[id]")) if (open.has(each.id)) each.open = open.get(each.id);
    part.querySelectorAll("[data-tail], .wide").forEach((each, at) => { each.scrollLeft = scrolled[at] || 0; });
    part.querySelectorAll("[data-tail]").forEach((each, at) => { if (following[at] !== false) each.scrollTop = each.scrollHeight; });
    if (focus !== null) [...part.querySelectorAll("a[href]")].find(each => each.getAttribute("href") === focus)?.focus();
  };
  for (const each of document.querySelectorAll("[data-tail]")) each.scrollTop = each.scrollHeight;
  document.addEventListener("focusout", () => setTimeout(() => {
    for (const [id, [version, html]] of held) if (!isTyping(document.getElementById(id))) { held.delete(id); put(id, version, html); }
  }));
  let over = false; // whether the server announced that it stops
  const follow = () => {
    const source = new EventSource(body.dataset.live);
    source.onopen = () => { over = false; connection.textContent = ""; };
    source.addEventListener("over", () => { over = true; });
    source.onerror = () => {
      connection.textContent = over ? "The server has stopped. Run `fleet web` to start it again." : "Not connected. Retrying…";
      if (source.readyState === EventSource.CLOSED) setTimeout(follow, 3000); // browsers do not retry after an error response
    };
    source.onmessage = event => {
      const { title, waiting, parts } = JSON.parse(event.data);
      document.title = `${waiting ? `(${waiting}) ` : ""}${title} · fleet`;
      document.getElementById("waiting").textContent = waiting || "";
      for (const part of parts) put(...part);
    };
  };
  if (body.dataset.live) follow();

  // ---- replay: update the parts in place
  const slider = document.getElementById("at"), player = document.getElementById("play");
  const moment = place => `${location.pathname}?at=${Math.min(Number(slider.max), Math.max(1, Math.round(place)))}`;
  let shown = Promise.resolve(), wanted = "", playing = false, speed = 1;
  const draw = async url => {
    if (url !== wanted) return; // superseded by a later request
    const answer = await fetch(url);
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html"), key = document.activeElement?.dataset?.key;
    for (const part of page.querySelectorAll("main > section")) if (part.id !== "slider") put(part.id, part.dataset.version, part.innerHTML);
    if (key) document.querySelector(`.steps [data-key="${CSS.escape(key)}"]`)?.focus();
    slider.max = page.getElementById("at").max;
    if (url === wanted) slider.value = page.getElementById("at").value;
    document.title = page.title;
    history.replaceState(null, "", url);
    connection.textContent = "";
  };
  const travel = url => {
    wanted = url;
    shown = shown.then(() => draw(url)).catch(() => { playing = false; connection.textContent = "Not connected. Try again."; });
    return shown;
  };
  const play = async () => {
    playing = !playing;
    player.textContent = playing ? "Pause" : "Play";
    if (playing && slider.value === slider.max) await travel(moment(1));
    while (playing && slider.value !== slider.max) {
      const stride = Math.max(1, Number(slider.form.dataset.stride) * speed);
      await Promise.all([travel(moment(Number(slider.value) + stride)), new Promise(done => setTimeout(done, 400))]);
    }
    playing = false;
    player.textContent = "Play";
  };
  if (slider) {
    player.hidden = false;
    slider.form.querySelector("[type=submit]").hidden = true;
    player.addEventListener("click", play);
    slider.addEventListener("input", () => travel(moment(slider.value)));
    slider.form.addEventListener("submit", event => { event.preventDefault(); travel(moment(slider.value)); });
    document.addEventListener("click", event => {
      const link = event.target.closest(".steps a");
      if (link) { event.preventDefault(); travel(link.href); }
    });
  }
  const replayKey = event => {
    if (event.key === " " && !event.target.matches("a, button, summary")) play();
    else if (event.key === "+" || event.key === "-") speed = Math.min(64, Math.max(1 / 64, speed * (event.key === "+" ? 2 : 0.5)));
    else {
      const link = [...document.querySelectorAll(".steps [data-key]")].find(each => each.dataset.key === event.key);
      link?.click();
      return Boolean(link);
    }
    return true;
  };

  // ---- decisions
  const collected = form => [...form.querySelectorAll(".collected li")].map(each => JSON.parse(each.dataset.comment));
  const fields = form => {
    const given = {};
    for (const [name, value] of new FormData(form)) {
      if (name === "subtasks") (given.subtasks ||= []).push(value); else given[name] = value;
    }
    return form.matches(".comments") ? { ...given, attempt: Number(form.dataset.attempt), comments: collected(form) } : given;
  };
  document.addEventListener("submit", async event => {
    const form = event.target;
    if (!form.matches("form.act")) return;
    event.preventDefault();
    if (form.dataset.confirm && !confirm(form.dataset.confirm)) return;
    const output = form.querySelector("output");
    output.textContent = "Sending…";
    try {
      const answer = await fetch(form.action, {
        method: "POST", body: JSON.stringify(fields(form)),
        headers: { "Content-Type": "application/json", [body.dataset.mark]: "1" },
      });
      const result = answer.headers.get("Content-Type")?.startsWith("application/json") ? await answer.json() : { message: await answer.text() };
      output.textContent = result.message;
      if (result.ok) { form.querySelector(".collected")?.replaceChildren(); form.reset(); }
    } catch {
      output.textContent = "Not sent: no response from the server.";
    }
  });

  // ---- comments on lines
  document.addEventListener("click", event => {
    const note = event.target.closest("button.note");
    if (!note) return;
    const form = document.querySelector("form.comments");
    const text = prompt(`Comment on ${note.dataset.path}:${note.dataset.line}`);
    if (!text || !text.trim() || !form) return;
    const { path, side, line } = note.dataset, item = document.createElement("li");
    item.dataset.comment = JSON.stringify({ path, side, line: Number(line), text: text.trim() });
    item.textContent = `${path}:${line} ${text.trim()} `;
    const remove = document.createElement("button");
    remove.type = "button";
    remove.textContent = "Remove";
    remove.addEventListener("click", () => item.remove());
    item.append(remove);
    form.querySelector(".collected").append(item);
  });

  // ---- keys, as in the terminal UI
  const links = () => [...document.querySelectorAll("main a[href], main button, main summary")].filter(each => each.offsetParent !== null);
  const step = by => {
    const all = links(), at = all.indexOf(document.activeElement);
    all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))]?.focus();
  };
  const help = document.getElementById("help"), helper = document.getElementById("helper");
  helper.hidden = false;
  helper.addEventListener("click", () => help.showModal());
  help.addEventListener("click", event => { if (event.target === help || event.target.matches("button")) help.close(); });
  const go = path => { location.href = path; }, run = location.pathname.match(/^\/runs\/[^/]+/)?.[0];
  const attempt = by => {
    const all = [...document.querySelectorAll(".attempts h3 a")], at = all.findIndex(each => each.ariaCurrent === "true");
    if (all[at + by]) go(all[at + by].href);
  };
  const keys = { j: () => step(1), k: () => step(-1), g: () => links()[0]?.focus(), G: () => links().at(-1)?.focus(),
    0: () => go("/"), 1: () => run && go(run), 2: () => run && go(`${run}/subtasks`), 3: () => run && go(`${run}/plan`), i: () => go("/inbox"),
    a: () => document.querySelector("#needs textarea, #inbox textarea, #needs button, #inbox button")?.focus(),
    "[": () => attempt(-1), "]": () => attempt(1), Escape: () => document.querySelector("main a.up")?.click(),
    "/": () => { const words = document.getElementById("filter-q"); if (words) words.focus(); else if (run) go(`${run}/subtasks#filter-q`); },
    t: () => theme.click(), "?": () => help.showModal() };
  if (location.hash === "#filter-q") document.getElementById("filter-q")?.focus();
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=range]), textarea, select")) return;
    if (help.open) return;
    if (slider && replayKey(event)) { event.preventDefault(); return; }
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
})();
