// The form of the calculator: a field for each column, an answer whenever one changes. With several rows per person
// it asks how many there are, and has the fields of each.
"use strict";
(() => {
  const release = JSON.parse(document.getElementById("release").textContent);
  const form = document.getElementById("values"), answer = document.getElementById("bound");
  const MOST = 100, FEW = 8;

  const line = (tag, text) => {
    const made = document.createElement(tag);
    made.textContent = text;
    return made;
  };

  const hint = (column) => {
    const also = column.special.length ? `, or ${column.special.map((each) => each.text).join(", ")}` : "";
    const form = column.dates ? `, written ${column.dates}` : "";
    return `${column.min} to ${column.max}${form}${also}`;
  };

  const labelled = (text, field) => {
    const label = document.createElement("label");
    const name = line("span", text);
    name.dir = "auto";
    label.htmlFor = field.id;
    label.append(name, field);
    return label;
  };

  release.columns.forEach((column, i) => {
    if (!column.values || column.values.length <= 200) return;
    const list = document.createElement("datalist");
    list.id = `values-${i}`;
    for (const value of column.values) list.append(new Option("", value));
    form.append(list);
  });

  const addRow = (place, row) => release.columns.forEach((column, i) => {
    let field;
    if (column.values && column.values.length <= 200) {
      field = document.createElement("select");
      field.append(new Option(column.missing ? "(missing)" : "(choose)", ""));
      for (const value of column.values) field.append(new Option(value, value));
    } else {
      field = document.createElement("input");
      field.type = "text";
      field.placeholder = column.values ? "a value of this column" : hint(column);
      if (!column.values && column.kind !== "time") field.inputMode = "decimal";
      if (column.values) field.setAttribute("list", `values-${i}`);
    }
    field.id = row ? `value-${i}-${row}` : `value-${i}`;
    field.dataset.place = i;
    place.append(labelled(column.name, field));
  });

  const textsIn = (place) => {
    const found = Object.create(null);
    for (const field of place.querySelectorAll("[data-place]")) {
      found[release.columns[field.dataset.place].name] = field.value === "" ? null : field.value;
    }
    return found;
  };

  const listed = (names) => (names.length > FEW ? `${names.slice(0, FEW).join(", ")} and ${names.length - FEW} more` : names.join(", "));

  const scored = (found) => {
    const outlier = release.threshold !== null && found.score >= release.threshold;
    return (
      `Score ${(found.score / release.nat).toFixed(2)}` +
      (release.threshold === null ? "." : ` (threshold ${(release.threshold / release.nat).toFixed(2)}: ${outlier ? "an outlier" : "not an outlier"}).`) +
      ` Weight ${(found.weight / release.full).toFixed(4)}.`
    );
  };

  // What is still missing in a row.
  const gaps = (found, given, before) => {
    const empty = found.unknown.filter((name) => given[name] === null);
    const unread = found.unknown.filter((name) => given[name] !== null);
    return [
      ...(empty.length ? [line("p", `${before}Still empty: ${listed(empty)}.`)] : []),
      ...(unread.length ? [line("p", `${before}Cannot be read as it stands: ${listed(unread)}.`)] : []),
    ];
  };

  const told = (row, given, before) => {
    if (row.known) return [quiet(before + scored(row))];
    return row.unknown.length ? gaps(row, given, before) : [line("p", `${before}Nothing is entered.`)];
  };

  const quiet = (text) => Object.assign(line("p", text), { className: "quiet" });
  const show = (text, ...rest) => {
    const shown = line("strong", text);
    shown.id = "own-epsilon";
    answer.replaceChildren(shown, line("span", " at most"), ...rest);
  };

  const tellRow = () => {
    const given = textsIn(form), found = OwnBound.find(release, given);
    const whole = found.unknown.length === 0;
    show(
      `ε = ${release.shown[found.weight]}`,
      whole ? quiet(scored(found)) : line("p", "This holds for anybody. For your own bound, every value has to be known."),
      ...gaps(found, given, ""),
    );
    document.body.dataset.score = found.score;
    document.body.dataset.weight = found.weight;
  };

  const count = () => {
    const text = document.getElementById("count").value.trim();
    return /^[1-9][0-9]{0,8}$/.test(text) ? Number(text) : null;
  };

  const tellPerson = () => {
    const wanted = count(), rows = [...form.querySelectorAll("fieldset")];
    const shown = Math.min(wanted || 0, MOST);
    rows.slice(shown).forEach((row) => row.remove());
    for (let row = rows.length; row < shown; row += 1) {
      const place = document.createElement("fieldset");
      place.append(line("legend", `Row ${row + 1}`));
      addRow(place, row);
      form.append(place);
    }
    if (wanted === null) {
      show(`ε = ${release.shown[release.full]}`, line("p", "This holds for anybody. For your own bound, say how many rows you have, and enter each of them."));
      return;
    }
    const given = [...form.querySelectorAll("fieldset")].map(textsIn);
    const { found, rest, low, high } = OwnBound.ofPerson(release, given, wanted);
    const [least, most] = [release.shown[low.weight], release.shown[high.weight]];
    const weight = (each) => (each.weight / release.full).toFixed(4);
    show(
      least === most ? `ε = ${most}` : `ε = ${least} to ${most}`,
      rest
        ? line("p", `${wanted - rest} of ${wanted} rows are known. By the others your bound is between ε = ${least} and ε = ${most}; until you enter them, the larger one holds.`)
        : quiet(`Your weight, over all of your rows, is ${weight(high)}.`),
      ...(wanted > MOST ? [line("p", `This page takes ${MOST} rows; repsynth.own_bound takes any number.`)] : []),
      ...found.slice(0, FEW).flatMap((row, i) => told(row, given[i], `Row ${i + 1}. `)),
      ...(found.length > FEW ? [quiet(`And ${found.length - FEW} more rows.`)] : []),
    );
    document.body.dataset.weight = high.weight;
  };

  if (release.person === null) addRow(form, 0);
  else {
    const field = document.createElement("input");
    field.id = "count";
    field.inputMode = "numeric";
    field.placeholder = "a whole number";
    form.append(labelled("How many rows of the table are yours?", field));
  }
  const tell = release.person === null ? tellRow : tellPerson;
  form.addEventListener("input", tell);
  form.addEventListener("submit", (event) => event.preventDefault());
  tell();
})();
