"use strict";
// Draws each timeline when it comes into sight, in the colours that the reader's system prefers.
const dark = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map(); // the element of a timeline -> its root in Bokeh's document

function paint(root) {
  const ink = dark.matches ? "#e5e7eb" : "#1b1f24";
  for (const model of root.references()) {
    if (model.type === "LinearAxis") {
      model.setv({major_label_text_color: ink, axis_label_text_color: ink, axis_line_color: ink,
                  major_tick_line_color: ink, minor_tick_line_color: null});
    } else if (model.type === "Title") {
      model.text_color = ink;
    } else if (model.type === "Legend") {
      model.label_text_color = ink;
    }
  }
}

async function draw(element) {
  if (drawn.has(element)) return drawn.get(element);
  drawn.set(element, null);
  const item = JSON.parse(element.nextElementSibling.textContent);
  const views = await Bokeh.embed.embed_item(item, element);
  const root = views.roots[0].model;
  drawn.set(element, root);
  paint(root);
  element.dataset.drawn = "yes";
  return root;
}

async function zoom(button) {
  const [element] = [...document.querySelectorAll(".timeline")]
    .filter((each) => each.dataset.run.split(" ").includes(button.dataset.run));
  if (!element) return;
  const root = await draw(element);
  const from = Number(button.dataset.from), to = Number(button.dataset.to);
  const margin = (to - from) * 0.2 + 5;
  root.document.get_model_by_name("time").setv({start: from - margin, end: to + margin});
  element.scrollIntoView({block: "start"});
}

function follow() {
  const run = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (run instanceof HTMLDetailsElement) {
    run.open = true;
    run.scrollIntoView();
  }
}

for (const run of document.querySelectorAll("details.run")) {
  run.addEventListener("toggle", () => {
    const element = run.querySelector(".timeline");
    if (run.open && element) draw(element);
  });
}
for (const button of document.querySelectorAll("button[data-run]")) {
  button.addEventListener("click", (event) => {
    event.preventDefault();
    zoom(button);
  });
}
for (const element of document.querySelectorAll("body > .timeline")) draw(element);
dark.addEventListener("change", () => [...drawn.values()].filter(Boolean).forEach(paint));
addEventListener("hashchange", follow);
follow();
