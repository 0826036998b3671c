// Look up plans that explore.py computed, and draw them. Every bound on the page is a text that Python rounded up.
"use strict";
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const at = (id) => document.getElementById(id);
  const { stops, rules, start, release } = facts;
  const counted = facts.several ? "rows that count" : "records";

  const element = (tag, text, attributes = {}) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const whole = (value) => Math.round(value).toString().replace(/\B(?=(?:[0-9]{3})+$)/g, ",");
  const percent = (value, places = 1) => `${(100 * value).toFixed(places)} %`;
  // Percentage points, rounded up to two digits.
  const points = (value) => {
    const places = Math.max(0, 1 - Math.floor(Math.log10(100 * value)));
    return `± ${(Math.ceil(100 * value * 10 ** places * (1 - 1e-12)) / 10 ** places).toFixed(places)} points`;
  };

  // ---- Settings ---------------------------------------------------------------------------------------------------

  const SHOWN = {
    epsilon: (value) => `ε = ${value}`,
    delta: (value) => `δ = ${value.toExponential()}`,
    rows: whole,
    fraction: (value) => percent(value, 0),
  };
  for (const [name, shown] of Object.entries(SHOWN)) {
    const slide = at(name), values = stops[name];
    slide.max = values.length - 1;
    slide.value = values.indexOf(start[name]);
    const follow = () => {
      at(`value-${name}`).textContent = shown(values[slide.value]);
      slide.setAttribute("aria-valuetext", shown(values[slide.value]));
    };
    slide.addEventListener("input", () => { follow(); tell(); });
    follow();
  }
  const named = ({ name, weight, scored }) =>
    !scored ? "everybody has the same weight" : name === "targeted" ? `weight ${weight}` : `as in the release: ${name}`;
  rules.forEach((rule, i) => at("rule").append(new Option(named(rule), i)));
  for (const name of Object.keys(facts.models)) at("model").append(new Option(name, name));
  for (const id of ["rule", "model"]) at(id).value = start[id];
  at("public").checked = start.public;
  for (const id of ["rule", "model", "public"]) at(id).addEventListener("change", () => tell());
  at("settings").addEventListener("submit", (event) => event.preventDefault());

  // Python's %g for the numbers of the stops.
  const key = (value) => (value < 1e-4 ? value.toExponential(5).replace(/\.?0+e/, "e").replace(/e-(\d)$/, "e-0$1") : String(Number(value.toPrecision(6))));
  const asked = () => {
    const stop = (name) => stops[name][at(name).value];
    const rule = rules[at("rule").value];
    return {
      ...{ epsilon: stop("epsilon"), delta: stop("delta"), rows: stop("rows"), place: Number(at("rows").value), fraction: stop("fraction") },
      ...{ rule, ruled: Number(at("rule").value), model: at("model").value, public: at("public").checked },
    };
  };
  const look = (it) => {
    const found = facts.models[it.model].plans[`${key(it.epsilon)} ${key(it.delta)} ${it.public ? 1 : 0} ${it.rule.scored ? 1 : 0}`];
    return typeof found === "number" ? { refusal: facts.texts[found] } : found;
  };
  const toml = (it) => {
    const set = (text, name, value) => text.replace(new RegExp(`^${name} = \\S+`, "m"), `${name} = ${value}`);
    const text = set(set(set(facts.toml[it.model][it.ruled], "epsilon", it.epsilon), "delta", it.delta), "outlier_fraction", it.fraction);
    return it.public ? set(text, "public_rows", it.rows) : text.replace(/^public_rows = .*\n/m, "");
  };

  // ---- Drawings -----------------------------------------------------------------------------------------------------

  const svg = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const canvas = (id, height) => {
    const width = Math.max(280, Math.min(at(id).clientWidth || 560, 720));
    const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true", focusable: "false" });
    made.style.font = "13px system-ui, sans-serif";
    at(id).replaceChildren(made);
    return { made, width };
  };
  const shortened = (text, width) => {
    const letters = [...text], most = Math.max(6, Math.floor(width / 7.4));
    return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
  };

  // Values from 0 to 1: a full bar means 100 %.
  const bars = (id, rows) => {
    const step = 40, { made, width } = canvas(id, rows.length * step + 4);
    rows.forEach((row, i) => {
      const y = i * step, fill = row.marked ? "var(--orange)" : "var(--blue)";
      made.append(svg("text", { x: 0, y: y + 14, fill: "var(--ink)" }, shortened(row.name, width - row.text.length * 7.2 - 12)));
      made.append(svg("text", { x: width, y: y + 14, fill: "var(--quiet)", "text-anchor": "end" }, row.text));
      made.append(svg("rect", { x: 0, y: y + 20, width, height: 10, fill: "var(--shade)" }));
      made.append(svg("rect", { x: 0, y: y + 20, width: Math.max(Math.min(row.value, 1) * width, 1), height: 10, fill }));
    });
  };

  const nice = (most) => {
    const raw = most / 4, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((each) => each * power >= raw) * power;
    return Array.from({ length: Math.floor(most / step) + 1 }, (_, k) => Number((k * step).toPrecision(6)));
  };

  // A line over labelled axes, with one named place.
  const curve = (id, line, { x: across, y: up, mark, ticks }) => {
    const left = 46, right = 14, top = 24, bottom = 44, height = 260;
    const { made, width } = canvas(id, height);
    const low = line[0][0], high = line[line.length - 1][0], most = Math.max(...line.map((each) => each[1])) * 1.05 || 1;
    const x = (value) => left + ((value - low) / (high - low || 1)) * (width - left - right);
    const y = (value) => height - bottom - (value / most) * (height - top - bottom);
    for (const value of nice(most)) {
      made.append(svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), stroke: "var(--line)" }));
      made.append(svg("text", { x: left - 6, y: y(value) + 4, fill: "var(--ink)", "text-anchor": "end" }, value));
    }
    for (const value of ticks) {
      made.append(svg("text", { x: x(value), y: height - bottom + 18, fill: "var(--ink)", "text-anchor": "middle" }, Number(value.toPrecision(3))));
    }
    made.append(svg("text", { x: 0, y: 12, fill: "var(--quiet)" }, up));
    made.append(svg("text", { x: (left + width - right) / 2, y: height - 6, fill: "var(--quiet)", "text-anchor": "middle" }, across));
    const path = line.map(([a, b], i) => `${i ? "L" : "M"}${x(a)},${y(b)}`).join("");
    made.append(svg("path", { d: path, fill: "none", stroke: "var(--blue)", "stroke-width": 2.5, "stroke-linejoin": "round" }));
    if (!mark) return;
    const place = x(mark.x), before = place > width * 0.6;
    made.append(svg("line", { x1: place, x2: place, y1: top, y2: height - bottom, stroke: "var(--orange)", "stroke-dasharray": "4 3", "stroke-width": 1.5 }));
    made.append(svg("circle", { cx: place, cy: y(mark.y), r: 4.5, fill: "var(--orange)" }));
    made.append(svg("text", { x: place + (before ? -8 : 8), y: top + 10, fill: "var(--orange)", "text-anchor": before ? "end" : "start" }, mark.text));
  };

  const table = (id, head, rows) => {
    const made = element("table"), top = element("thead"), first = element("tr"), body = element("tbody");
    for (const text of head) first.append(element("th", text, { scope: "col" }));
    for (const row of rows) {
      const line = element("tr");
      row.forEach((cell, i) => line.append(element(i ? "td" : "th", cell, i ? { class: "number" } : { scope: "row", dir: "auto" })));
      body.append(line);
    }
    top.append(first);
    made.append(top, body);
    at(id).replaceChildren(made);
  };

  // ---- What is shown ------------------------------------------------------------------------------------------------

  const cards = (found, it, outliers) => {
    const all = element("div", undefined, { class: "card" }), some = element("div", undefined, { class: "card other" });
    all.append(element("strong", `ε\u00a0=\u00a0${found.epsilon}`), `for everyone: at most ${found.right} of 100 guesses are right. Without any release it would be 50.`);
    some.append(element("strong", `ε\u00a0=\u00a0${outliers}`), facts.several ? "for persons all of whose rows are outliers" : "for outliers", `, with at most weight ${it.rule.weight}.`);
    at("cards").replaceChildren(all, ...(it.rule.scored ? [some] : []));
    at("joint").hidden = !it.rule.scored;
    at("brief").textContent = `Everyone: ε = ${found.epsilon}` + (it.rule.scored ? `; outliers: ε = ${outliers}` : "");
  };

  const budget = (found, it) => {
    const { trained } = facts.models[it.model];
    const shown = (part) => (trained ? `ε ${part}` : `${part} %`);
    at("words-budget").textContent = (trained
      ? `What is measured before the training, each alone; the training takes the rest of ε = ${found.epsilon}. `
      : "Parts of the budget (of μ²). ") + `What is orange costs everybody the same, whatever their weight: ε = ${found.losses[0]} together.`;
    const rows = found.charges.map(([text, part, weighted]) => ({
      name: facts.texts[text], text: shown(part), marked: !weighted,
      value: trained ? Number(part) / it.epsilon : Number(part) / 100,
    }));
    bars("drawing-budget", rows);
    table("table-budget", ["measurement", trained ? "ε alone" : "part of μ²", "depends on the weight"],
      rows.map((row) => [row.name, row.text, row.marked ? "no" : "yes"]));
  };

  const byWeight = (found, it, outliers) => {
    const losses = found.losses.slice(0, facts.curve.length);
    at("words-weight").textContent = `The privacy loss rises from ε = ${losses[0]} at weight 0 to ε = ${losses[losses.length - 1]} at weight 1.`;
    const mark = it.rule.scored ? { x: it.rule.weight, y: Number(outliers), text: `outliers: ε = ${outliers}` } : null;
    curve("drawing-weight", facts.curve.map((weight, i) => [weight, Number(losses[i])]), { x: "weight in the model", y: "ε at most", mark, ticks: [0, 0.25, 0.5, 0.75, 1] });
    table("table-weight", ["weight", "ε at most"], facts.curve.map((weight, i) => [String(weight), losses[i]]));
  };

  const MOST_BARS = 12;
  const noise = (found, it) => {
    const [sigma, count] = found.noise;
    const columns = facts.columns.map(({ name, cells }) => {
      const size = cells.length > 1 ? cells[found.cells[it.place]] : cells[0];
      return { name, size, share: 1 / size, error: (facts.z * Math.hypot(sigma, count / size)) / it.rows };
    });
    columns.sort((a, b) => b.error / b.share - a.error / a.share);
    at("words-noise").textContent =
      `With ${whole(it.rows)} ${counted} the share of one value of a column is known to ${points(Math.max(...columns.map((column) => column.error)))} (95 % interval). ` +
      "A full bar means that this is as much as the average share of a value, or of a range of numbers." +
      (columns.length > MOST_BARS ? ` Drawn are the ${MOST_BARS} columns with the most noise.` : "");
    const text = (column) => `${points(column.error)} of ${Number((100 * column.share).toPrecision(2))} %`;
    bars("drawing-noise", columns.slice(0, MOST_BARS).map((column) => ({ name: column.name, value: column.error / column.share, text: text(column), marked: column.error >= column.share })));
    table("table-noise", ["column", "values or ranges", "average share", "noise, 95 %"],
      columns.map((column) => [column.name, whole(column.size), `${Number((100 * column.share).toPrecision(3))} %`, points(column.error)]));
  };

  // The released score with about this fraction of the records at or above it.
  const threshold = (fraction) => {
    let above = 0, best = null;
    for (const [score, part] of [...release.scores].reverse()) {
      above += part;
      if (best === null || Math.abs(above - fraction) < Math.abs(best.above - fraction)) best = { score, above };
    }
    return best;
  };

  const who = (it) => {
    at("who").textContent = !it.rule.scored
      ? "Everybody has the same weight: nobody is protected more than others."
      : `Outliers are about ${percent(it.fraction, 0)} of the ${counted}, some ${whole(it.fraction * it.rows)} of ${whole(it.rows)}: those with the highest scores. ` +
        `About ${percent(it.fraction * (1 - it.rule.weight))} of all weight is lost to the model, which learns less of what only they show.` +
        (facts.several ? " A person's weight is the average weight of their rows: a person with ordinary rows, too, has a larger weight and a larger loss." : "");
    const figure = at("figure-scores");
    figure.hidden = !(release && release.scores.length > 1 && it.rule.scored);
    if (figure.hidden) return;
    const place = threshold(it.fraction), line = [];
    release.scores.reduce((above, [score, part]) => { line.push([score, 100 * Math.max(above, 0)]); return above - part; }, 1);
    const inner = line.slice(1); // the first bin has no lower end
    at("words-scores").textContent =
      `By its released histogram of scores, about ${percent(place.above)} (± ${percent(release.standard_error)}, one standard error) of the ${counted} have a score of ${place.score.toFixed(1)} or more. A new run measures its own threshold.`;
    curve("drawing-scores", inner, {
      x: `score: how much a ${facts.several ? "row" : "record"} stands out`, y: `% of ${counted} at or above`,
      mark: { x: Math.max(place.score, inner[0][0]), y: 100 * place.above, text: `${percent(place.above, 0)} above` },
      ticks: [inner[0][0], inner[Math.floor(inner.length / 2)][0], inner[inner.length - 1][0]],
    });
    table("table-scores", ["score from", `${counted} at or above`], inner.map(([score, above]) => [score.toFixed(2), `${above.toFixed(1)} %`]));
  };

  const save = (it, possible) => {
    const text = toml(it), link = at("download");
    at("toml").textContent = text;
    at("command-rows").textContent = it.rows;
    at("exact").hidden = !it.public;
    if (possible) link.href = `data:application/toml;charset=utf-8,${encodeURIComponent(text)}`;
    else link.removeAttribute("href");
    link.setAttribute("aria-disabled", String(!possible));
  };

  const tell = () => {
    const it = asked(), found = look(it), possible = found.refusal === undefined;
    at("control-fraction").hidden = !it.rule.scored;
    at("refusal").hidden = possible;
    at("found").hidden = !possible;
    at("refusal").textContent = possible ? "" : `There is no such plan: ${found.refusal}.`;
    save(it, possible);
    if (!possible) {
      at("brief").textContent = "There is no such plan: see below.";
      return;
    }
    const outliers = found.losses[facts.curve.length + it.ruled];
    const warnings = [...found.warnings[it.place].map((text) => facts.texts[text]), ...facts.csv];
    cards(found, it, outliers);
    at("trained").hidden = !facts.models[it.model].trained;
    at("cautions").hidden = warnings.length === 0;
    at("warnings").replaceChildren(...warnings.map((text) => element("li", text, { dir: "auto" })));
    budget(found, it);
    byWeight(found, it, outliers);
    noise(found, it);
    who(it);
  };

  let waiting = null;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(tell, 150);
  });
  tell();
})();
