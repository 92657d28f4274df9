/**
 * The controls of tracer.explore. Python decides everything and writes every text:
 *   form    -> the controls: names, ranges, options, modes, and what to say when no answer comes (fixed)
 *   state   -> values, mode, status, message; `answers` is the number of the question it answers
 *   picture -> HTML made by the package's own renderer
 *   asked   <- { serial, values, held }: what the reader chose last
 */

const WAIT = 30; // milliseconds in which the moves of one drag are gathered
const PATIENCE = 4000; // milliseconds after which a missing answer is spoken of

let views = 0;

/** Make an element with properties, attributes (names with a dash, `role`, `class`) and children. */
function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function labelOf(spec, id) {
  const label = make("label", { htmlFor: id, className: "te-label" }, make("b", {}, spec.name));
  if (spec.hint) label.append(" ", make("span", { className: "te-hint" }, spec.hint));
  return label;
}

/** A slider and a number field that follow each other. */
function makeRange(spec, id, ask) {
  const limits = { min: spec.low, max: spec.high, step: 1 };
  const slider = make("input", { type: "range", id, ...limits });
  const number = make("input", { type: "number", "aria-label": spec.number, ...limits });
  slider.addEventListener("input", () => {
    number.value = slider.value;
    ask();
  });
  number.addEventListener("input", () => {
    if (number.value === "" || !number.validity.valid) return; // half typed
    slider.value = number.value;
    ask();
  });
  number.addEventListener("change", () => {
    if (number.value === "") number.value = slider.value;
    else if (!number.validity.valid) ask(); // Python says what is wrong with it
  });
  return {
    name: spec.name,
    node: make("div", { className: "te-control" }, labelOf(spec, id), slider, number),
    fields: [slider, number],
    read: () => number.valueAsNumber,
    write(value) {
      const text = value === null ? "" : String(value);
      if (number.value !== text) number.value = text;
      if (value === null) return;
      slider.min = Math.min(spec.low, value); // a size that follows from others may lie outside
      slider.max = Math.max(spec.high, value);
      slider.value = value;
    },
    follow(follows) {
      slider.disabled = follows;
      number.readOnly = follows;
    },
  };
}

function makeMenu(spec, id, ask) {
  const options = spec.options.map((text, index) => make("option", { value: index }, text));
  const select = make("select", { id }, ...options);
  select.addEventListener("change", ask);
  return {
    name: spec.name,
    node: make("div", { className: "te-control" }, labelOf(spec, id), select),
    fields: [select],
    read: () => select.selectedIndex,
    write: (value) => (select.selectedIndex = value),
    follow() {},
  };
}

/** The two modes for H and D as a group of radio buttons. */
function makeModes(texts, name, ask) {
  const radio = (value) => make("input", { type: "radio", name, value });
  const free = radio("free");
  const held = radio("held");
  for (const button of [free, held]) button.addEventListener("change", ask);
  return {
    node: make(
      "fieldset",
      { className: "te-modes" },
      make("legend", {}, texts.legend),
      make("label", {}, free, texts.free),
      make("label", {}, held, texts.held),
    ),
    read: () => held.checked,
    write(value) {
      held.checked = value;
      free.checked = !value;
    },
  };
}

/** Keep keys typed here from JupyterLab's shortcuts. It asks the focused element itself before it asks those around it. */
function keepKeys(root) {
  for (const node of [root, ...root.querySelectorAll("input, select, summary, a, button, [tabindex]")]) {
    node.dataset.lmSuppressShortcuts = "true";
  }
}

/** Put new HTML in place; what the reader had folded open stays open where the picture has the same parts. */
function redraw(picture, html) {
  const open = [...picture.querySelectorAll("details")].map((part) => part.open);
  picture.innerHTML = html;
  const parts = picture.querySelectorAll("details");
  if (parts.length === open.length) parts.forEach((part, index) => (part.open = open[index]));
  keepKeys(picture);
}

function render({ model, el }) {
  const form = model.get("form");
  const id = `te-${++views}-${Math.random().toString(36).slice(2)}`;
  let timer = null;
  let silence = null;

  // 1. what goes to Python: the last values, at most once in WAIT
  function send() {
    timer = null;
    model.set("asked", {
      serial: (model.get("asked").serial ?? 0) + 1,
      values: Object.fromEntries(controls.map((control) => [control.name, control.read()])),
      held: modes?.read() ?? false,
    });
    clearTimeout(silence);
    silence = setTimeout(() => {
      message.textContent = form.silent;
      message.hidden = false;
    }, PATIENCE);
    model.save_changes();
  }
  const ask = () => (timer ??= setTimeout(send, WAIT));

  // 2. the elements
  const modes = form.modes && makeModes(form.modes, `${id}-mode`, ask);
  const controls = form.controls.map((spec, index) =>
    (spec.kind === "range" ? makeRange : makeMenu)(spec, `${id}-${index}`, ask),
  );
  const status = make("p", { className: "te-sentence" });
  const figures = make("p", { className: "te-figures" });
  const message = make("p", { className: "te-message", id: `${id}-message` });
  const picture = make("div", {
    className: "te-picture jp-RenderedHTMLCommon", // JupyterLab dresses it as it dresses any HTML output
    role: "region",
    "aria-label": form.picture,
    tabIndex: 0, // so that a wide table can be scrolled by keyboard
  });
  el.classList.add("tracer-explore");
  el.append(
    make("style", {}, `.${form.still} { display: none }`), // the still copy below is for pages without scripts
    make(
      "div",
      { className: "te-controls", role: "group", "aria-label": form.title },
      ...controls.map((control) => control.node),
      ...(modes ? [modes.node] : []),
    ),
    make("div", { className: "te-status", role: "status", "aria-live": "polite" }, message, status, figures),
    picture,
  );
  keepKeys(el);

  // 3. what comes from Python
  function showState() {
    const state = model.get("state");
    if (state.answers >= (model.get("asked").serial ?? 0)) clearTimeout(silence);
    status.textContent = state.status;
    message.textContent = state.message;
    message.hidden = !state.message;
    figures.replaceChildren(
      ...state.figures.map(([label, number]) => make("span", {}, `${label} `, make("b", {}, number))),
    );
    for (const control of controls) {
      control.follow(state.held && control.name === "D");
      for (const field of control.fields) {
        field.setAttribute("aria-invalid", state.blamed.includes(control.name));
        if (state.message) field.setAttribute("aria-describedby", message.id);
        else field.removeAttribute("aria-describedby");
      }
    }
    if (timer !== null || state.answers < (model.get("asked").serial ?? 0)) return; // the reader has moved on
    modes?.write(state.held);
    for (const control of controls) control.write(state.values[control.name]);
  }
  const showPicture = () => redraw(picture, model.get("picture"));
  model.on("change:state", showState);
  model.on("change:picture", showPicture);
  showState();
  showPicture();
  return () => {
    clearTimeout(timer);
    clearTimeout(silence);
    model.off("change:state", showState);
    model.off("change:picture", showPicture);
  };
}

export default { render };
