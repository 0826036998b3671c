// What own_bound.py does, in the page: from texts to codes, to a score, to a weight, to ε.
// Numbers are IEEE doubles and whole numbers below 2^53, operations come in the same order: so the results are equal.
"use strict";
const OwnBound = (() => {
  const MISSING = -1;

  const toEven = (x) => {
    const below = Math.floor(x);
    const rest = x - below;
    if (rest !== 0.5) return rest < 0.5 ? below : below + 1;
    return below % 2 === 0 ? below : below + 1;
  };
  const clip = (x, low, high) => Math.min(Math.max(x, low), high);
  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\\/\-]/g, "\\$&");
  const trimmed = (text) => text.replace(/^[ \t\n\v\f\r]+|[ \t\n\v\f\r]+$/g, "");

  // The number that stands in a text, NaN where there is none.
  const numberIn = (text, column) => {
    const prefix = escaped((column.prefix || "").trim()), thousands = column.thousands || "";
    const mark = column.decimal || ".", blank = "[\\s\\u00a0\\u202f]*";
    const grouped = thousands ? `[0-9]{1,3}(?:${escaped(thousands)}[0-9]{3})+|` : "";
    const body = `(?:(?:${grouped}[0-9]+)(?:${escaped(mark)}[0-9]*)?|${escaped(mark)}[0-9]+)(?:[eE][+-]?[0-9]+)?`;
    const start = prefix ? `[+-]?(?:${prefix}${blank})?|${prefix}${blank}[+-]` : "[+-]?";
    if (!new RegExp(`^(?:${start})${body}$`).test(text)) return NaN;
    let plain = prefix ? text.replace(new RegExp(`^([+-]?)${prefix}${blank}`), "$1") : text;
    if (thousands) plain = plain.split(thousands).join("");
    return Number(plain.replace(mark, "."));
  };

  // Seconds since 1970 in UTC of a time, NaN where there is no such one.
  const secondsOf = (year, month, day, hour, minute, second) => {
    const date = new Date(0);
    date.setUTCFullYear(year, month - 1, day);
    const exists = year >= 1 && date.getUTCMonth() === month - 1 && date.getUTCDate() === day;
    if (!exists || hour > 23 || minute > 59 || second > 59) return NaN;
    return date.getTime() / 1000 + hour * 3600 + minute * 60 + second;
  };

  // Of a time in the column's own format.
  const months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
  const secondsAs = (text, pattern) => {
    const found = new RegExp(`^(?:${pattern})$`, "i").exec(text);
    if (!found) return NaN;
    const part = (name, otherwise) => found.groups[name] === undefined ? otherwise : Number(found.groups[name]);
    const named = months.indexOf(found.groups.month.slice(0, 3).toLowerCase());
    let year = part("year");
    if (found.groups.year.length === 2) year += year < 69 ? 2000 : 1900;
    return secondsOf(year, named < 0 ? part("month") : named + 1, part("day"), part("hour", 0), part("minute", 0), part("second", 0));
  };

  // Of a time as ISO writes it.
  const secondsIn = (text) => {
    const found = /^([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,9})?)?(Z|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)?$/.exec(text);
    if (!found) return NaN;
    const [year, month, day, hour, minute, second] = found.slice(1, 7).map((part) => Number(part || 0));
    const offset = found[8] ? (found[8] === "-" ? -1 : 1) * (Number(found[9]) * 3600 + Number(found[10] || 0) * 60) : 0;
    return secondsOf(year, month, day, hour, minute, second) - offset;
  };

  const onGrid = (position, column) => {
    const exact = column.exact;
    if (exact) return (position * exact.step + exact.start) / exact.power;
    return clip(column.min + position * column.unit, column.min, column.max);
  };

  const position = (number, column) => {
    if (!Number.isFinite(number)) return MISSING;
    const inside = clip(number, column.min, column.max);
    if (column.kind === "whole") {
      const whole = column.step === 1 ? toEven(inside) : inside;
      return toEven((whole - column.min) / column.step);
    }
    if (column.per !== undefined) return Math.floor((inside - column.min) * column.per);
    const guess = toEven((inside - column.min) / column.unit);
    let best = clip(guess, 0, column.steps);
    for (const near of [guess - 1, guess + 1]) {
      const other = clip(near, 0, column.steps);
      if (Math.abs(onGrid(other, column) - inside) < Math.abs(onGrid(best, column) - inside)) best = other;
    }
    return best;
  };

  const special = (text, column, number, seconds) => {
    const by = (found) => column.special.findIndex(found);
    const texts = by((each) => each.text === text);
    if (texts >= 0) return texts;
    const times = column.kind === "time" && Number.isFinite(seconds) ? by((each) => each.value === seconds) : -1;
    if (times >= 0) return times;
    return by((each) => each.number !== null && each.number === number);
  };

  const words = [["false", "f", "no", "n"], ["true", "t", "yes", "y"]];
  const orNumber = (place, cell, numbers) => place >= 0 ? place : numbers.indexOf(numberIn(cell, {}));

  // The code of a text in a column; an empty one is missing.
  const code = (text, column) => {
    if (text === null || text === undefined) return MISSING;
    const cell = trimmed(text);
    if (column.kind === "flag") return orNumber(words.findIndex((each) => each.includes(cell.toLowerCase())), cell, [0, 1]);
    if (column.kind === "choice") return orNumber(column.values.indexOf(cell), cell, column.numbers);
    const dated = column.numbered ? String(numberIn(cell, {})) : cell;
    const seconds = column.kind !== "time" ? NaN : column.pattern ? secondsAs(dated, column.pattern) : secondsIn(dated);
    const number = numberIn(cell, column);
    const place = special(cell, column, number, seconds);
    if (place >= 0) return column.steps + 1 + place;
    if (column.kind !== "time") return position(number, column);
    if (Number.isNaN(seconds)) return MISSING;
    return Math.floor(clip(seconds - column.start, 0, column.steps * column.unit) / column.unit);
  };

  const bin = (table, codes) => {
    const found = codes[table.column];
    if (found === MISSING) return table.count - 1;
    if (table.starts === null) return found;
    let low = 0, high = table.starts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (table.starts[middle] <= found) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  };

  const scores = {
    rarity: (score, codes) => score.columns.reduce((sum, table) => sum + table.scores[bin(table, codes)], 0),
    pairwise: (score, codes) => {
      const cells = score.cells.map((table) => bin(table, codes));
      const group = (i) => score.groups[i][cells[i]];
      const rarity = cells.reduce((sum, cell, i) => sum + score.apart[i][cell], 0);
      return score.pairs.reduce((sum, [a, b], p) => sum - score.gains[p][group(a)][group(b)], rarity);
    },
    random: (score, codes) => {
      const bits = (x) => BigInt.asUintN(64, x);
      let mixed = BigInt(score.salt);
      for (const name of score.names) {
        mixed = bits((mixed ^ bits(BigInt(codes[name]))) + 0x9e3779b97f4a7c15n);
        mixed = bits((mixed ^ (mixed >> 30n)) * 0xbf58476d1ce4e5b9n);
        mixed = bits((mixed ^ (mixed >> 27n)) * 0x94d049bb133111ebn);
        mixed ^= mixed >> 31n;
      }
      return Number(mixed % BigInt(score.span));
    },
    shifted: (score, codes, columns) => {
      const label = codes[score.label];
      return of(score.of, codes, columns) + score.shifts[label === MISSING ? score.shifts.length - 1 : label];
    },
  };
  const of = (score, codes, columns) => scores[score.kind](score, codes, columns);

  // Score, weight (in units of 1/full) and ε of a person with these texts; the bound for anybody where a value is
  // not given, though none may be missing there, or cannot be read.
  const find = (release, texts) => {
    const columns = new Map(release.columns.map((column) => [column.name, column]));
    const codes = Object.create(null);
    for (const column of release.columns) codes[column.name] = code(texts[column.name], column);
    const score = of(release.score, codes, columns);
    const { start, step, table } = release.weights;
    const place = Math.min(Math.floor((score - start) / step), table.length - 1);
    const given = (column) => texts[column.name] !== null && texts[column.name] !== undefined;
    const unknown = release.columns.filter((column) => codes[column.name] === MISSING && (given(column) || !column.missing));
    const weight = place < 0 || unknown.length ? release.full : table[place];
    return { codes, score, weight, epsilon: release.epsilons[weight], unknown: unknown.map((column) => column.name) };
  };

  // The smallest and the largest bound of a person with so many rows, of whom these are given. A row with
  // nothing in it, or with an unknown value, may have any weight. Weights are rounded up to those in the table.
  const ofPerson = (release, rows, count) => {
    const { rows: most, units, weights } = release.person;
    const found = rows.slice(0, count).map((texts) => {
      const row = find(release, texts);
      return { ...row, known: row.unknown.length === 0 && release.columns.some((column) => texts[column.name] !== null) };
    });
    const known = found.filter((row) => row.known);
    const sum = known.reduce((all, row) => all + row.weight, 0), rest = count - known.length;
    const factor = count > most ? Math.floor((units * most) / count) : units;
    const bound = (whole) => {
      const weight = weights.find((each) => each >= (factor * whole) / (units * most));
      return { weight, epsilon: release.epsilons[weight] };
    };
    const least = Math.min(release.full, ...release.weights.table);
    return { found, rest, low: bound(sum + rest * least), high: bound(sum + rest * release.full) };
  };

  return { find, code, ofPerson };
})();
if (typeof module !== "undefined") module.exports = OwnBound;
