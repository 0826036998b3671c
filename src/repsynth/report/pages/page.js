// The form of the calculator: a field for each column, an answer whenever one changes.
"use strict";
(() => {
  const release = JSON.parse(document.getElementById("release").textContent);
  const form = document.getElementById("values"), answer = document.getElementById("bound");

  const hint = (column) => {
    const also = column.special.length ? `, or ${column.special.map((each) => each.text).join(", ")}` : "";
    const form = column.dates ? `, written ${column.dates}` : "";
    return `${column.min} to ${column.max}${form}${also}`;
  };

  release.columns.forEach((column, i) => {
    const label = document.createElement("label");
    const name = document.createElement("span");
    name.textContent = column.name;
    name.dir = "auto";
    label.append(name);
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
      if (column.values) {
        const list = document.createElement("datalist");
        list.id = `values-${i}`;
        for (const value of column.values) list.append(new Option("", value));
        field.setAttribute("list", list.id);
        form.append(list);
      }
    }
    field.id = `value-${i}`;
    field.dataset.place = i;
    label.htmlFor = field.id;
    label.append(field);
    form.append(label);
  });

  const texts = () => {
    const found = Object.create(null);
    for (const field of form.querySelectorAll("[data-place]")) {
      found[release.columns[field.dataset.place].name] = field.value === "" ? null : field.value;
    }
    return found;
  };

  const line = (tag, text) => {
    const made = document.createElement(tag);
    made.textContent = text;
    return made;
  };

  const FEW = 8;
  const listed = (names) => (names.length > FEW ? `${names.slice(0, FEW).join(", ")} and ${names.length - FEW} more` : names.join(", "));

  const tell = () => {
    const given = texts();
    const found = OwnBound.find(release, given);
    const empty = found.unknown.filter((name) => given[name] === null);
    const unread = found.unknown.filter((name) => given[name] !== null);
    const outlier = release.threshold !== null && found.score >= release.threshold;
    const shown = line("strong", `ε = ${release.shown[found.weight]}`);
    shown.id = "own-epsilon";
    const told = line("span", " at most");
    const rest = line(
      "p",
      `Score ${(found.score / release.nat).toFixed(2)}` +
        (release.threshold === null ? "." : ` (threshold ${(release.threshold / release.nat).toFixed(2)}: ${outlier ? "an outlier" : "not an outlier"}).`) +
        ` Weight ${(found.weight / release.full).toFixed(4)}.`,
    );
    rest.className = "quiet";
    answer.replaceChildren(shown, told);
    if (found.unknown.length === 0) answer.append(rest);
    else answer.append(line("p", "This holds for anybody. For your own bound, every value has to be known."));
    if (empty.length) answer.append(line("p", `Still empty: ${listed(empty)}.`));
    if (unread.length) answer.append(line("p", `Cannot be read as it stands: ${listed(unread)}.`));
    document.body.dataset.score = found.score;
    document.body.dataset.weight = found.weight;
  };

  form.addEventListener("input", tell);
  form.addEventListener("submit", (event) => event.preventDefault());
  tell();
})();
