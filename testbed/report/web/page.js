"use strict";
// Draws each timeline when it comes into sight, in the colours that the reader's system prefers.
const dark = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map(); // the element of a timeline -> its root in Bokeh's document

const inks = {
  LinearAxis: (ink) => ({major_label_text_color: ink, axis_label_text_color: ink, axis_line_color: ink,
                         major_tick_line_color: ink, minor_tick_line_color: null}),
  Title: (ink) => ({text_color: ink}),
  Legend: (ink) => ({label_text_color: ink}),
};
const ink = () => dark.matches ? "#e5e7eb" : "#1b1f24";

function paint(root) {
  for (const model of root.references()) {
    if (model.type in inks) model.setv(inks[model.type](ink()));
  }
}

// Bokeh paints mark by mark, and that is most of the time which a large run takes to open. Of marks that fall on the same
// pixel one is painted; a lane still holds them all, finds them under the pointer, and shows more of them when zoomed.
function thin(name, pixel) {
  const view = Bokeh.Models[name].prototype.default_view.prototype;
  const paint_each = view._paint;
  view._paint = function (context, indices, data) {
    const at = pixel({...this, ...data}), taken = new Set();
    const kept = indices.filter((index) => taken.size < taken.add(at(index)).size);
    paint_each.call(this, context, kept, data);
  };
}

async function unpacked(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return {buffer: await new Response(stream).arrayBuffer()};
}

// Gives the models of a document their colours before they are drawn, and unpacks columns: the browser is faster at it.
async function prepare(part) {
  if (part === null || typeof part !== "object") return;
  if (part.type === "object" && part.name in inks) part.attributes = {...part.attributes, ...inks[part.name](ink())};
  if (part.type === "bytes") part.data = await unpacked(part.data);
  else await Promise.all(Object.values(part).map(prepare));
}

async function draw(element) {
  if (drawn.has(element)) return drawn.get(element);
  drawn.set(element, null);
  const item = JSON.parse(element.nextElementSibling.textContent);
  await prepare(item);
  const views = await Bokeh.embed.embed_item(item, element);
  const root = views.roots[0].model;
  drawn.set(element, root);
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

thin("Scatter", ({sx, sy}) => (index) => Math.round(sx[index]) * 65536 + Math.round(sy[index]));
thin("Segment", ({sx0, sy1}) => (index) => Math.round(sx0[index]) * 65536 + Math.round(sy1[index]));
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
