// The page around explore.js: fields and sliders, and what they make of the plan, drawn anew at every change.
"use strict";
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const at = (id) => document.getElementById(id);
  const { bound, right, plain, whole, fixedAtMost } = Explore;

  const element = (tag, text, attributes = {}) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const percent = (value, places = 1) => `${(100 * value).toFixed(places)} %`;
  const { several } = facts.person;
  const counted = several ? "rows that count" : "records";

  // ---- Settings ---------------------------------------------------------------------------------------------------

  // From where to where a number may lie; `digits` are those that a slider sets.
  const FIELDS = {
    epsilon: { above: 0, most: 100, digits: 3 },
    delta: { least: 1e-100, below: 1, digits: 1 },
    rows: { least: 1, most: 1e12, digits: 2, whole: true },
    outlier_weight: { least: 0, most: 1, digits: 2 },
    outlier_epsilon: { above: 0, most: 100, digits: 3 },
    fraction: { least: 1, most: 50, digits: 3, per: 100 },
  };
  const [BY_WEIGHT, BY_EPSILON, ALIKE, AS_RELEASED] = ["weight", "epsilon", "uniform", "released"];
  const start = facts.start;
  const ownRule = start.rule !== "targeted" && start.rule !== "uniform";
  const kept = {
    ...{ epsilon: start.epsilon, delta: start.delta, rows: start.rows, fraction: Number((100 * start.fraction).toPrecision(12)) },
    ...{ outlier_weight: start.outlier_weight, outlier_epsilon: start.outlier_epsilon ?? Number((start.epsilon / 3).toPrecision(2)) },
  };

  const inside = (value, field) =>
    Number.isFinite(value) &&
    (field.above === undefined || value > field.above) && (field.below === undefined || value < field.below) &&
    (field.least === undefined || value >= field.least) && (field.most === undefined || value <= field.most) &&
    (!field.whole || Number.isInteger(value));

  const range = (field) => {
    const low = field.above === undefined ? `from ${plain(field.least)}` : `above ${field.above}`;
    return `Give a ${field.whole ? "whole " : ""}number ${low}, ${field.below === undefined ? `at most ${plain(field.most, 13)}` : `below ${field.below}`}.`;
  };

  const written = (name) => {
    if (name === "rows") return whole(kept.rows);
    return name === "delta" && kept.delta < 1e-3 ? kept.delta.toExponential() : String(kept[name]);
  };
  // 25,000 records; but 0,5 is a half.
  const read = (text, field) => Number((field.whole ? text.replace(/[,.\s'_]/g, "") : text.trim().replace(",", ".")) || NaN);

  const helps = {};
  for (const [name, field] of Object.entries(FIELDS)) {
    const slide = at(`slide-${name}`), box = at(name), help = at(`help-${name}`), log = "log" in slide.dataset;
    helps[name] = help.textContent;
    const follow = () => {
      slide.value = log ? Math.log10(kept[name]) : kept[name];
      slide.setAttribute("aria-valuetext", written(name));
    };
    const judge = (good) => {
      box.setAttribute("aria-invalid", String(!good));
      help.textContent = good ? helps[name] : range(field);
      help.classList.toggle("wrong", !good);
    };
    slide.addEventListener("input", () => {
      const place = Number(slide.value);
      const value = Number((log ? 10 ** place : place).toPrecision(field.digits));
      kept[name] = field.whole ? Math.round(value) : value;
      box.value = written(name);
      slide.setAttribute("aria-valuetext", written(name));
      judge(true);
      tell();
    });
    box.addEventListener("input", () => {
      const value = read(box.value, field), good = inside(value, field);
      judge(good);
      if (!good) return;
      kept[name] = value;
      follow();
      tell();
    });
    box.addEventListener("blur", () => { box.value = written(name); judge(true); });
    box.value = written(name);
    follow();
  }

  at("public").checked = start.public;
  for (const name of Object.keys(facts.models)) at("model").append(new Option(name, name));
  at("model").value = start.model;
  const modes = [[BY_WEIGHT, "get a smaller weight"], [BY_EPSILON, "get an ε of their own"], [ALIKE, "count like everybody"]];
  if (ownRule) modes.push([AS_RELEASED, `as in the release: ${start.rule}`]);
  for (const [value, text] of modes) at("outliers").append(new Option(text, value));
  at("outliers").value = ownRule ? AS_RELEASED : start.rule === "uniform" ? ALIKE : start.outlier_epsilon === null ? BY_WEIGHT : BY_EPSILON;
  for (const id of ["public", "model", "outliers"]) at(id).addEventListener("change", () => tell());
  at("settings").addEventListener("submit", (event) => event.preventDefault());

  const asked = () => {
    const mode = at("outliers").value;
    return {
      ...{ epsilon: kept.epsilon, delta: kept.delta, rows: kept.rows, public: at("public").checked, model: at("model").value },
      rule: mode === AS_RELEASED ? start.rule : mode === ALIKE ? "uniform" : "targeted",
      outlier_weight: kept.outlier_weight,
      outlier_epsilon: mode === BY_EPSILON ? kept.outlier_epsilon : mode === AS_RELEASED ? start.outlier_epsilon : null,
      fraction: Number((kept.fraction / 100).toPrecision(12)),
    };
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

  // A name and its number above each bar, and a tick at `mark`.
  const bars = (id, rows, { most, mark, axis }) => {
    const step = 40, tight = mark && axis && at(id).clientWidth < 420; // two lines for what does not fit side by side
    const height = rows.length * step + (axis ? 26 : 4) + (tight ? 18 : 0);
    const { made, width } = canvas(id, height);
    const x = (value) => (Math.min(value, most) / most) * width;
    rows.forEach((row, i) => {
      const y = i * step;
      const room = width - row.text.length * 7.2 - 12;
      made.append(svg("text", { x: 0, y: y + 14, fill: "var(--ink)" }, shortened(row.name, room)));
      made.append(svg("text", { x: width, y: y + 14, fill: "var(--quiet)", "text-anchor": "end" }, row.text));
      made.append(svg("rect", { x: 0, y: y + 20, width, height: 10, fill: "var(--shade)" }));
      made.append(svg("rect", { x: 0, y: y + 20, width: Math.max(x(row.value), 1), height: 10, fill: row.marked ? "var(--orange)" : "var(--blue)" }));
      if (mark) made.append(svg("line", { x1: x(mark.value), x2: x(mark.value), y1: y + 19, y2: y + 32, stroke: "var(--ink)", "stroke-width": 1.5 }));
    });
    if (mark) {
      made.append(svg("text", { x: x(mark.value) + 4, y: height - (tight ? 26 : 8), fill: "var(--ink)", "text-anchor": "end" }, mark.text));
    }
    if (axis) made.append(svg("text", { x: 0, y: height - 8, fill: "var(--quiet)" }, axis));
  };

  // A line over labelled axes, with one named place.
  const curve = (id, points, { x: across, y: up, mark, steps, ticks, digits = 3 }) => {
    const left = 46, top = 24, bottom = 44, height = 260;
    const { made, width } = canvas(id, height);
    const right = 14, low = points[0][0], high = points[points.length - 1][0];
    const most = Math.max(...points.map((each) => each[1])) * 1.05 || 1;
    const x = (value) => left + ((value - low) / (high - low || 1)) * (width - left - right);
    const y = (value) => height - bottom - (value / most) * (height - top - bottom);
    for (const value of nice(most)) {
      made.append(svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), stroke: "var(--line)" }));
      made.append(svg("text", { x: left - 6, y: y(value) + 4, fill: "var(--ink)", "text-anchor": "end" }, plain(value, digits)));
    }
    for (const value of ticks || nice(high).filter((each) => each >= low)) {
      made.append(svg("text", { x: x(value), y: height - bottom + 18, fill: "var(--ink)", "text-anchor": "middle" }, plain(value, 3)));
    }
    made.append(svg("text", { x: 0, y: 12, fill: "var(--quiet)" }, up));
    made.append(svg("text", { x: (left + width - right) / 2, y: height - 6, fill: "var(--quiet)", "text-anchor": "middle" }, across));
    const path = points.map(([a, b], i) => (i && steps ? `L${x(a)},${y(points[i - 1][1])}` : "") + `${i ? "L" : "M"}${x(a)},${y(b)}`).join("");
    made.append(svg("path", { d: path, fill: "none", stroke: "var(--blue)", "stroke-width": 2.5, "stroke-linejoin": "round" }));
    if (mark) {
      const place = x(mark.x), before = place > width * 0.6;
      made.append(svg("line", { x1: place, x2: place, y1: top, y2: height - bottom, stroke: "var(--orange)", "stroke-dasharray": "4 3", "stroke-width": 1.5 }));
      made.append(svg("circle", { cx: place, cy: y(mark.y), r: 4.5, fill: "var(--orange)" }));
      made.append(svg("text", { x: place + (before ? -8 : 8), y: top + 10, fill: "var(--orange)", "text-anchor": before ? "end" : "start" }, mark.text));
    }
  };
  const nice = (most) => {
    const raw = most / 4, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((each) => each * power >= raw) * power;
    return Array.from({ length: Math.floor(most / step) + 1 }, (_, k) => Number((k * step).toPrecision(6)));
  };

  const table = (id, head, rows) => {
    const made = element("table"), first = element("tr"), body = element("tbody");
    for (const text of head) first.append(element("th", text, { scope: "col" }));
    for (const row of rows) {
      const line = element("tr");
      row.forEach((cell, i) => line.append(element(i ? "td" : "th", cell, i ? { class: "number" } : { scope: "row", dir: "auto" })));
      body.append(line);
    }
    const top = element("thead");
    top.append(first);
    made.append(top, body);
    at(id).replaceChildren(made);
  };

  // ---- What is shown --------------------------------------------------------------------------------------------------

  // What holds for anybody is a bound on guesses; what holds for those who stand out is a joint one, on sets of releases.
  const cards = (found) => {
    const all = element("div", undefined, { class: "card" }), epsilon = (value, digits) => `ε\u00a0=\u00a0${bound(value, digits)}`;
    all.append(element("strong", `at most ${right(found.advantage)} times in 100`), " about anybody, whoever they are ");
    all.append(element("span", `(${epsilon(found.budget.epsilon)})`, { class: "quiet" }), ". Without any release it would be 50.");
    const some = element("div", undefined, { class: "card other" });
    const loss = found.outlier_epsilon, known = loss !== null;
    some.append(element("strong", known ? `${epsilon(loss, 3)} at most` : "?"), several ? " for persons all of whose rows stand out, above the threshold" : " for those who stand out, above the threshold");
    some.append(found.outlier_advantage === null ? ": repsynth plan says it for these settings." : `. If it were certain beforehand that they weigh so little, at most ${right(found.outlier_advantage)} guesses in 100 would be right.`);
    at("cards").replaceChildren(all, ...(found.scored ? [some] : []));
    at("joint").hidden = !found.scored;
    const outliers = found.scored && known ? `; those who stand out: ε = ${bound(loss, 3)} in place of ${bound(found.budget.epsilon, 3)}` : "";
    at("brief").textContent = `Right guesses of 100, at most: ${right(found.advantage)}${outliers}`;
  };

  const trained = (found, settings) => {
    const it = at("trained");
    it.hidden = !found.trained;
    if (!found.trained) return;
    const { grid } = found.trained, all = facts.models[found.model].grid;
    const reach = all ? `ε from ${all.epsilons[0]} to ${all.epsilons[all.epsilons.length - 1]}, δ = ${all.deltas.map((each) => each.toExponential()).join(" or ")}` : "default shares and training alone";
    it.textContent = grid
      ? `A trained model's account has no closed form. This was worked out beforehand${grid.exact ? "" : "; between the points of that grid, the next one on the safe side counts"}: noise of ${grid.exact ? "" : "at most "}${Explore.atMost(grid.noise, 3)} times the clip norm in every round. repsynth plan gives exact numbers.`
      : "A trained model's account has no closed form, and these settings are off the grid that was worked out beforehand " +
        `(${reach}). The first number follows from ε and δ alone; repsynth plan --epsilon ${settings.epsilon} --delta ${settings.delta} --model ${found.model} gives exact ones.`;
  };

  const budget = (found) => {
    const name = (each) => (each.what ? `${each.name}: ${each.what}` : each.name);
    const pays = (each) => (each.weighted ? "by weight" : "everybody in full");
    const whole_ = found.budget.mu ** 2;
    const gaussian = !found.trained;
    const rows = found.charges.map((each) => ({
      name: name(each),
      value: gaussian ? each.mu ** 2 / whole_ : each.epsilon,
      text: gaussian ? percent(each.mu ** 2 / whole_) : `ε ${bound(each.epsilon, 3)}`,
      marked: !each.weighted,
    }));
    const full = found.charges.filter((each) => !each.weighted);
    const floor = `What is orange costs everybody the same, whatever their weight: ε = ${bound(found.floor, 3)} together.`;
    at("words-budget").textContent = gaussian
      ? `${percent(full.reduce((sum, each) => sum + each.mu ** 2, 0) / whole_)} of it (of μ²) go to histograms and scores, the rest to the model ${found.model}. ${floor}`
      : `What is measured before the training, each alone; the training of ${found.model} takes the rest. ${floor}`;
    bars("drawing-budget", rows, { most: Math.max(...rows.map((row) => row.value)) });
    table(
      "table-budget",
      ["measurement", gaussian ? "part of μ²" : "ε alone", "noise σ", "who pays"],
      found.charges.map((each, i) => [rows[i].name, rows[i].text, each.sigma === null ? "a choice" : Explore.fixedAtLeast(each.sigma, 2), pays(each)]),
    );
  };

  const byWeight = (found) => {
    const known = found.curve.filter(([, epsilon]) => epsilon !== null);
    at("figure-weight").hidden = known.length < 2;
    if (known.length < 2) return;
    const first = bound(known[0][1], 3), last = bound(known[known.length - 1][1], 3);
    const mark = found.scored && found.weight !== null && found.weight < 1 ? { x: found.weight, y: found.outlier_epsilon, text: `outliers: ε = ${bound(found.outlier_epsilon, 3)}` } : null;
    at("words-weight").textContent = `The loss rises from ε = ${first} at weight 0 to ε = ${last} at weight 1${mark ? `; those above the threshold weigh ${fixedAtMost(found.weight, 3)} at most` : ""}.`;
    curve("drawing-weight", known.map(([w, e]) => [w, e]), { x: "weight in the model", y: "ε at most", mark, ticks: [0, 0.25, 0.5, 0.75, 1] });
    table(
      "table-weight",
      ["weight", "ε at most", "right guesses of 100, at most, if the weight is certain"],
      known.filter((_, k) => k % 4 === 0).map(([w, e, a]) => [w.toFixed(2), bound(e), a === null ? "?" : right(a)]),
    );
  };

  const MOST_BARS = 12;
  const noise = (found, settings) => {
    const { columns } = found, points = (value) => `${bound(100 * value, 2)}`;
    const worst = [...columns].sort((a, b) => b.relative - a.relative).slice(0, MOST_BARS);
    const drowned = columns.filter((column) => column.relative >= 1).length;
    at("words-noise").textContent =
      `With ${whole(settings.rows)} ${counted} the share of one value of a column is known to ± ${points(Math.max(...columns.map((column) => column.error)))} percentage points (one standard error). ` +
      `Beside it stands how large the share of a value, or of a range of numbers, is on average; ${drowned ? `in ${drowned} of ${columns.length} columns noise is as large or larger.` : "noise is smaller in all columns."}` +
      (columns.length > MOST_BARS ? ` Drawn are the ${MOST_BARS} columns with the most.` : "");
    const rows = worst.map((column) => ({
      name: column.name,
      value: column.relative,
      text: `± ${points(column.error)} of ${plain(100 * column.share, 2)} %`,
      marked: column.relative >= 1,
    }));
    bars("drawing-noise", rows, { most: 1.1, mark: { value: 1, text: "as much noise as share" }, axis: "noise over average share" });
    table(
      "table-noise",
      ["column", "values or ranges", "average share", "standard error", "noise over it"],
      columns.map((column) => [column.name, whole(column.bins), `${plain(100 * column.share, 3)} %`, `± ${points(column.error)} points`, percent(column.relative, 0)]),
    );
  };

  const who = (found, settings) => {
    const count = whole(settings.fraction * settings.rows);
    at("who").textContent = !found.scored
      ? `${several ? "All persons are protected" : "All records count"} alike: nobody is protected more than others.`
      : `About ${percent(settings.fraction, 0)} of the ${counted}, some ${count} of ${whole(settings.rows)}: those with the highest scores. ` +
        (found.weight === null ? "" : `They weigh ${fixedAtMost(found.weight, 3)} at most, so about ${percent(found.lost)} of all weight is lost to the model: what only they show, it learns less well.`) +
        (several ? " A person weighs what their rows that count weigh together, over the number that counts at most: whoever has ordinary rows besides weighs more, and loses more." : "");
    const release = facts.release, figure = at("figure-scores");
    figure.hidden = !(release && release.scores.length > 1 && found.scored);
    if (figure.hidden) return;
    const place = Explore.threshold(release.scores, settings.fraction), points = Explore.survival(release.scores);
    // The last bin of a histogram has no end: the curve stops where nearly nobody is left.
    const inner = points.slice(1);
    at("words-scores").textContent =
      `By its released histogram of scores, about ${percent(place.above)} (± ${Explore.fixedAtMost(100 * release.standard_error, 1)} %) of the ${counted} lie at ${place.score.toFixed(1)} or above: the nearest that the histogram can tell. A new run measures its own threshold.`;
    curve("drawing-scores", inner.map(([score, above]) => [score, 100 * above]), {
      x: `score: how much a ${several ? "row" : "record"} stands out`,
      y: `% of ${counted} at or above`,
      mark: { x: Math.max(place.score, inner[0][0]), y: 100 * place.above, text: `${percent(place.above, 0)} above` },
      ticks: [inner[0][0], inner[Math.floor(inner.length / 2)][0], inner[inner.length - 1][0]],
    });
    table("table-scores", ["score from", `${counted} at or above`], inner.map(([score, above]) => [score.toFixed(2), percent(above)]));
  };

  const cautions = (found) => {
    at("cautions").hidden = found.warnings.length === 0;
    at("warnings").replaceChildren(...found.warnings.map((text) => element("li", text, { dir: "auto" })));
  };

  const take = (settings, possible) => {
    const text = Explore.toml(facts, settings), link = at("download");
    at("toml").textContent = text;
    at("command-rows").textContent = settings.rows;
    if (possible) link.href = `data:application/toml;charset=utf-8,${encodeURIComponent(text)}`;
    else link.removeAttribute("href");
    link.setAttribute("aria-disabled", String(!possible));
  };

  const tell = () => {
    const settings = asked(), mode = at("outliers").value;
    at("control-outlier_weight").hidden = mode !== BY_WEIGHT;
    at("control-outlier_epsilon").hidden = mode !== BY_EPSILON;
    at("control-fraction").hidden = mode === ALIKE;
    const found = Explore.plan(facts, settings);
    at("refusal").hidden = found.refusal === null;
    at("found").hidden = found.refusal !== null;
    at("brief").textContent = "There is no such plan: see below.";
    at("refusal").textContent = found.refusal === null ? "" : `There is no such plan: ${found.refusal}.`;
    take(settings, found.refusal === null);
    if (found.refusal !== null) return;
    cards(found);
    trained(found, settings);
    cautions(found);
    budget(found);
    byWeight(found);
    noise(found, settings);
    who(found, settings);
  };

  let waiting = null;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(tell, 150);
  });
  tell();
})();
