// What a plan promises, in the page: gaussian.py's closed forms, and plan.py's split of the budget by the numbers that
// explore.py hands over. A loss is rounded up, an affordable μ down, as there.
"use strict";
const Explore = (() => {
  const CANCELLATION = 1e-12, ROUNDING = 1e-13, BISECTIONS = 200;
  // Two machines round differently; a bound gets so much more before it is shown, so that it is never below theirs.
  const MARGIN = 1 + 1e-11;
  const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);

  // ---- Normal distribution -------------------------------------------------------------------------------------

  const SMALL = 1.5;

  // erf for small x ≥ 0: a series of positive terms, times e^(x²).
  const series = (x) => {
    let term = x, total = x;
    for (let n = 1; term > total * 1e-18; n += 1) {
      term *= (2 * x * x) / (2 * n + 1);
      total += term;
    }
    return (2 / Math.sqrt(Math.PI)) * total;
  };

  // e^(x²) erfc(x) for x ≥ 0: where the series would cancel, a continued fraction.
  const erfcx = (x) => {
    if (x < SMALL) return Math.exp(x * x) - series(x);
    let rest = x;
    for (let n = 120; n >= 1; n -= 1) rest = x + n / 2 / rest;
    return 1 / (Math.sqrt(Math.PI) * rest);
  };
  const erf = (x) => (x < SMALL ? series(x) * Math.exp(-x * x) : 1 - erfcx(x) * Math.exp(-x * x));

  // ---- Gaussian differential privacy ----------------------------------------------------------------------------

  // The smallest δ for which μ-GDP is (ε, δ)-DP. Both terms have the factor e^(−a²/2), so nothing overflows.
  const deltaOf = (mu, epsilon) => {
    const ratio = mu > 0 ? epsilon / mu : Infinity;
    if (ratio === Infinity) return 0;
    const a = ratio - mu / 2, b = ratio + mu / 2, common = Math.exp((-a * a) / 2) / 2;
    const larger = a >= 0 ? erfcx(a / Math.SQRT2) * common : 1 - erfcx(-a / Math.SQRT2) * common;
    const delta = larger - erfcx(b / Math.SQRT2) * common + CANCELLATION * (1 + epsilon / 1000) * larger;
    return Math.min(Math.max(delta, 0), 1);
  };

  const epsilonOf = (mu, delta) => {
    if (deltaOf(mu, 0) <= delta) return 0;
    let low = 0, high = (mu * mu) / 2 + mu * Math.sqrt(2 * Math.log(1 / delta)) + 1e-9;
    for (let i = 0; i < BISECTIONS; i += 1) {
      const middle = (low + high) / 2;
      if (middle <= low || middle >= high) break;
      if (deltaOf(mu, middle) <= delta) high = middle;
      else low = middle;
    }
    return high;
  };

  const muOf = (epsilon, delta) => {
    let low = 0, high = 1;
    while (deltaOf(high, epsilon) <= delta) [low, high] = [high, high * 2];
    for (let i = 0; i < BISECTIONS; i += 1) {
      const middle = (low + high) / 2;
      if (!(low < middle && middle < high)) break;
      if (deltaOf(middle, epsilon) <= delta) low = middle;
      else high = middle;
    }
    return low * (1 - 1e-9);
  };

  const compose = (mus) => Math.sqrt(sum(mus.map((mu) => mu * mu))) * (1 + 1e-15);
  const advantageOf = (mu) => Math.min(erf(mu / Math.sqrt(8)) * (1 + ROUNDING), 1);

  // What (ε, δ) alone says of any attack, where no more is known.
  const advantageBy = (epsilon, delta) => Math.min((Math.expm1(epsilon) + 2 * delta) / (Math.exp(epsilon) + 1), 1);

  // ---- Bounds as text (shown.py) ----------------------------------------------------------------------------------

  // The shortest decimal number that reads back as this float: its digits, and the power of ten of the first.
  const decimal = (value) => {
    const [mantissa, power] = value.toExponential().split("e");
    return { digits: mantissa.replace(".", ""), power: Number(power) };
  };
  const grouped = (whole) => whole.replace(/\B(?=(?:[0-9]{3})+$)/g, ",");

  // Units of ten to the power −places in a number, rounded up or down: a whole number.
  const units = ({ digits, power }, places, up) => {
    const shift = power + 1 - digits.length + places;
    if (shift >= 0) return BigInt(digits) * 10n ** BigInt(shift);
    const unit = 10n ** BigInt(-shift), all = BigInt(digits);
    return all / unit + (up && all % unit ? 1n : 0n);
  };

  // Python's %g.
  const general = ({ digits, power }, most) => {
    const kept = digits.replace(/0+$/, "") || "0";
    if (power < -4 || power >= most) {
      const tail = kept.length > 1 ? `.${kept.slice(1)}` : "";
      return `${kept[0]}${tail}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
    }
    if (power < 0) return `0.${"0".repeat(-power - 1)}${kept}`;
    const filled = kept.padEnd(power + 1, "0");
    return filled.length > power + 1 ? `${filled.slice(0, power + 1)}.${filled.slice(power + 1)}` : filled;
  };

  const significant = (value, count, up) => {
    if (!Number.isFinite(value)) return value > 0 ? "inf" : "nan";
    if (value === 0) return "0";
    const exact = decimal(value);
    const digits = units(exact, count - 1 - exact.power, up).toString();
    return general({ digits, power: exact.power + digits.length - count }, count);
  };
  const atMost = (value, digits = 4) => significant(value, digits, true);
  const atLeast = (value, digits = 4) => significant(value, digits, false);

  const fixed = (value, places, up) => {
    if (!Number.isFinite(value)) return value > 0 ? "inf" : "nan";
    const all = units(decimal(value), places, up).toString().padStart(places + 1, "0");
    return grouped(all.slice(0, all.length - places)) + (places ? `.${all.slice(all.length - places)}` : "");
  };
  const fixedAtMost = (value, places = 4) => fixed(value, places, true);
  const fixedAtLeast = (value, places = 4) => fixed(value, places, false);

  // The same for what was worked out here, with the margin; a number of few digits is one that was asked for.
  const bound = (value, digits = 4) => atMost(decimal(value).digits.length <= digits ? value : value * MARGIN, digits);
  const right = (advantage) => fixedAtMost(Math.min((50 + 50 * advantage) * MARGIN, 100), 1);

  const plain = (value, digits = 6) => (value === 0 ? "0" : general(decimal(Number(value.toPrecision(digits))), digits));
  const whole = (value) => grouped(value.toFixed(0));

  // ---- A plan -----------------------------------------------------------------------------------------------------

  class Refusal extends Error {}

  const weighs = (facts, asked) => facts.rules[asked.rule].threshold || asked.outlier_epsilon !== null;

  // The charges of stage 1 and of the model, in order. The noise is that of all rows of a person that count; where
  // these may be several, the number of records is not public.
  const chargesOf = (facts, model, budget, asked) => {
    const shares = asked.public ? [] : [{ name: "count", share: facts.shares.count, sensitivity: 1 }];
    const own = facts.scorer.parts;
    const histograms = (facts.shares.score ?? model.score_share) - sum(own.map((part) => part.share));
    if (histograms < 1e-6) throw new Refusal("the scorer's own measurements take the whole score share; lower them, or raise that");
    shares.push({ name: "coarse histograms", share: histograms, sensitivity: Math.sqrt(facts.learned) });
    shares.push(...own);
    if (weighs(facts, asked)) {
      shares.push({ name: "scores", share: facts.shares.scores, sensitivity: 1 });
    }
    const rest = 1 - sum([...shares, ...facts.looks].map((part) => part.share));
    if (rest < 0.05) throw new Refusal("the shares leave less than a twentieth of the budget for the model; lower them");
    shares.push(...facts.looks);
    shares.push(...model.parts.map((part) => ({ ...part, share: rest * part.share })));
    return shares.map((part) => {
      const mu = budget.mu * Math.sqrt(part.share) * (1 - 1e-12), sensitivity = facts.person.rows * part.sensitivity;
      const sigma = part.choice ? null : (sensitivity / mu) * (1 + 1e-13);
      return { weighted: false, choice: false, ...part, sensitivity, mu, sigma, what: facts.purposes[part.name] };
    });
  };

  // What a record of some weight, or a person, loses: in closed form. With a chance of `failure` two persons are taken
  // for one: that is part of δ.
  const gaussianLoss = (charges, whole, failure) => {
    const delta = failure ? (whole - failure) * (1 - 1e-15) : whole;
    const floor = compose(charges.filter((each) => !each.weighted).map((each) => each.mu));
    const weighted = compose(charges.filter((each) => each.weighted).map((each) => each.mu));
    const muAt = (weight) =>
      Math.min(Math.sqrt(floor * floor + (weight * weighted) ** 2) * (1 + 1e-15), compose([floor, weighted]));
    return {
      floor,
      weighted,
      delta,
      epsilonAt: (weight) => epsilonOf(muAt(weight), delta),
      advantageAt: (weight) => Math.min(advantageOf(muAt(weight)) + failure, 1),
    };
  };

  // What a trained model loses, by the grid: at the next larger ε and weight of it; null where the grid ends.
  const trainedLoss = (model, charges, asked, person) => {
    const { floor, delta } = gaussianLoss(charges, asked.delta, person.failure);
    const off = { floor, delta, weighted: null, grid: null, epsilonAt: () => null, advantageAt: () => null };
    const grid = model.grid;
    const scored = charges.some((each) => each.name === "scores");
    const points = grid && grid.points[`${asked.public ? 0 : 1}${scored ? 1 : 0} ${plain(asked.delta)}`];
    if (!points || !grid.deltas.includes(asked.delta)) return off;
    const next = grid.epsilons.findIndex((each) => each >= asked.epsilon);
    const before = grid.epsilons.findLastIndex((each) => each <= asked.epsilon);
    if (next < 0 || before < 0) return off;
    const place = (weight) => (scored ? grid.weights.findIndex((each) => each >= weight) : 0);
    return {
      floor,
      delta,
      weighted: null,
      grid: { noise: person.rows * points[before].noise, rows: person.rows * points[before].rows, exact: next === before },
      epsilonAt: (weight) =>
        weight > 0 ? Math.min(points[next].epsilons[place(weight)], asked.epsilon) : epsilonOf(floor, delta),
      advantageAt: (weight) => (weight > 0 ? points[next].advantages[place(weight)] : advantageOf(floor)),
      atLeast: (weight) => points[before].epsilons[place(weight)], // a plan with more to spend loses no less
    };
  };

  // The largest weight above the threshold that meets the asked ε; of a trained model, one of the grid that is no
  // smaller.
  const ceilingOf = (loss, model, asked) => {
    const wanted = asked.outlier_epsilon;
    const allowed = muOf(wanted, loss.delta) ** 2 - loss.floor ** 2;
    if (allowed <= 0) {
      throw new Refusal(
        `outlier epsilon ${plain(wanted)} is out of reach: scoring alone costs every record ` +
          `${bound(epsilonOf(loss.floor, loss.delta))}; ask for more than that, or lower the score and threshold shares`,
      );
    }
    if (!model.training) return Math.min(1, (Math.sqrt(allowed) / loss.weighted) * (1 - 1e-12));
    if (!loss.grid) return null;
    return model.grid.weights.find((weight) => loss.atLeast(weight) > wanted) ?? 1;
  };

  const outlierWeight = (facts, loss, model, charges, asked) => {
    const ceiling = asked.outlier_epsilon === null ? 1 : ceilingOf(loss, model, asked);
    if (!charges.some((each) => each.name === "scores")) return 1;
    if (ceiling === null) return null;
    if (asked.rule !== "targeted") return Math.min(ceiling, facts.rules[asked.rule].at);
    return asked.outlier_epsilon === null ? asked.outlier_weight : ceiling;
  };

  const checkPersons = ({ rows, least_delta }, asked) => {
    if (asked.delta < least_delta) {
      throw new Refusal(
        `δ is ${atMost(asked.delta, 3)}; with several rows per person it must be at least ${plain(least_delta)}: ` +
          "there is a chance, far below that, to take two persons for one. Nothing was spent",
      );
    }
    if (rows > 1 && asked.public) {
      throw new Refusal(
        "the number of records that count is not public where several rows of a person do; leave public rows out: " +
          "it is measured. Nothing was spent",
      );
    }
  };

  const withModel = (facts, name, budget, asked) => {
    const model = facts.models[name];
    checkPersons(facts.person, asked);
    if (model.refused) throw new Refusal(model.refused);
    if (asked.outlier_epsilon !== null && asked.outlier_epsilon > budget.epsilon * (1 + 1e-6)) {
      throw new Refusal(
        `outlier epsilon ${plain(asked.outlier_epsilon)} is above the whole budget's ${bound(budget.epsilon)}; ` +
          "outliers are protected by asking for less",
      );
    }
    const charges = chargesOf(facts, model, budget, asked);
    const loss = model.training
      ? trainedLoss(model, charges, asked, facts.person)
      : gaussianLoss(charges, asked.delta, facts.person.failure);
    return { model, name, charges, loss, weight: outlierWeight(facts, loss, model, charges, asked) };
  };

  const reached = (steps, signal) => steps.findLast(([from]) => from <= signal)[1];

  // For each column: its bins, their noise, and the standard error of the share of a bin of mean size.
  const columnsOf = (facts, found, asked) => {
    const sigma = found.charges.find((each) => each.name === "coarse histograms").sigma;
    const count = found.charges.find((each) => each.name === "count");
    const { bins } = facts, place = bins.counts.indexOf(reached(bins.steps, asked.rows / sigma));
    return facts.columns.map((column, i) => {
      const own = bins.of[i];
      const cells = typeof own === "number" ? own : own[place];
      const error = Math.hypot(sigma, (count ? count.sigma : 0) / cells) / asked.rows;
      return { name: column.name, bins: cells, sigma, error, share: 1 / cells, relative: (sigma * cells) / asked.rows };
    });
  };

  // The first few names, and how many there are besides.
  const someColumns = (names, one, many) => {
    const more = names.length - 3;
    const listed = names.slice(0, 3).join(", ") + (more > 0 ? ` and ${whole(more)} more` : "");
    return `column${names.length === 1 ? "" : "s"} ${listed} ${names.length === 1 ? one : many}`;
  };

  // What cautions.py says of such a run.
  const warningsOf = (facts, found, budget, asked) => {
    const said = [], { rows } = asked, sigma = found.charges.find((each) => each.name === "coarse histograms").sigma;
    const noisy = facts.columns.filter((column) => column.size !== null && rows < sigma * column.fewest);
    if (rows < 4 * sigma) {
      said.push(
        `noise drowns the data: one bin's noise is ${whole(sigma)} records, the table has about ${whole(rows)}; ` +
          "use a larger epsilon or more records",
      );
    } else if (noisy.length) {
      const names = noisy.map((column) => `'${column.name}' (${whole(column.size)} values)`);
      said.push(
        `${someColumns(names, "has", "have")} fewer records per value than the noise of one, ${whole(sigma)}: rare ` +
          "values will be mostly noise; group them (prefix or parent in the schema), or use a larger epsilon",
      );
    }
    if (asked.delta * rows > 1) said.push("delta is larger than one over the number of records; use a smaller one");
    if (found.model.noisy) {
      const trained = found.loss.grid ? rows < found.loss.grid.rows : false;
      if (found.model.training ? trained : rows * budget.mu < found.model.noisy.least) said.push(...found.model.noisy.texts);
    }
    return [...said, ...found.model.cautions, ...facts.csv];
  };

  const CURVE = Array.from({ length: 41 }, (_, k) => k / 40);
  const known = (loss, weight) => (weight === null ? null : loss.epsilonAt(weight));

  // Everything that the page shows of the asked settings; `refusal` says why there is no such plan.
  const plan = (facts, asked) => {
    const mu = muOf(asked.epsilon, asked.delta);
    const budget = { epsilon: epsilonOf(mu, asked.delta), delta: asked.delta, mu };
    let found;
    try {
      found = withModel(facts, asked.model, budget, asked);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return { refusal: error.message, budget };
    }
    const { loss, weight } = found;
    const scored = found.charges.some((each) => each.name === "scores");
    const everybody = loss.advantageAt(1) ?? advantageBy(budget.epsilon, asked.delta);
    const outliers = weight === null ? null : loss.advantageAt(weight);
    const asIs = asked.outlier_epsilon;
    return {
      refusal: null,
      budget,
      model: found.name,
      trained: found.model.training && { name: found.model.training, grid: loss.grid },
      scored,
      charges: found.charges.map((each) => ({ ...each, epsilon: epsilonOf(each.mu, asked.delta) })),
      weight,
      floor: epsilonOf(loss.floor, loss.delta),
      outlier_epsilon: asIs === null ? known(loss, weight) : Math.min(known(loss, weight) ?? asIs, asIs),
      advantage: everybody,
      outlier_advantage: outliers ?? (asIs === null ? null : advantageBy(asIs, asked.delta)),
      curve: CURVE.map((each) => [each, loss.epsilonAt(each), loss.advantageAt(each)]),
      columns: columnsOf(facts, found, asked),
      warnings: warningsOf(facts, found, budget, asked),
      lost: scored && weight !== null ? asked.fraction * (1 - weight) : 0,
    };
  };

  // By a released histogram of scores: the score with about this fraction of the records at or above it.
  const threshold = (scores, fraction) => {
    let above = 0, best = null;
    for (const [score, part] of [...scores].reverse()) {
      above += part;
      if (best === null || Math.abs(above - fraction) < Math.abs(best.above - fraction)) best = { score, above };
    }
    return best;
  };

  // The fraction of the records at or above each score.
  const survival = (scores) => {
    let above = 1;
    return scores.map(([score, part]) => {
      const point = [score, Math.max(above, 0)];
      above -= part;
      return point;
    });
  };

  // The text of a plan.toml.
  const toml = (facts, asked) => {
    const values = {
      epsilon: asked.epsilon,
      delta: asked.delta,
      public_rows: asked.public ? asked.rows : null,
      outlier_epsilon: asked.outlier_epsilon,
      outlier_fraction: asked.fraction,
    };
    const set = (line, value) => line.replace(/ = \S+/, () => ` = ${value}`);
    const lines = facts.toml.lines
      .filter(([name]) => values[name] !== null)
      .map(([name, line]) => (values[name] === undefined ? line : set(line, values[name])));
    const weights = facts.toml.weights[asked.rule].replace(/^outlier_weight = \S+.*$/m, (line) => set(line, asked.outlier_weight));
    const parts = [weights, facts.toml.scorer, facts.toml.model[asked.model]].map((part) => `[${part.trimEnd()}`);
    return [[...facts.toml.head, ...lines].join("\n"), ...parts].join("\n\n") + "\n";
  };

  return {
    ...{ erfcx, erf, deltaOf, epsilonOf, muOf, advantageOf, advantageBy, plan, threshold, survival, toml },
    ...{ atMost, atLeast, fixedAtMost, fixedAtLeast, bound, right, plain, whole },
  };
})();
if (typeof module !== "undefined") module.exports = Explore;
