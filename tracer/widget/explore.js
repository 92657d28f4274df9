/**
 * The controls of tracer.explore. Python decides everything and writes every text:
 *   form    -> the controls: names, ranges, options, modes, and what to say when no answer comes (fixed)
 *   state   -> values, mode, status, message; `answers` is the number of the question it answers
 *   picture -> HTML made by the package's own renderer
 *   asked   <- { serial, values, held }: what the reader chose last
 */

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

/** A choice between yes and no. */
function makeSwitch(spec, id, ask) {
  const box = make("input", { type: "checkbox", id, role: "switch" });
  box.addEventListener("change", ask);
  return {
    name: spec.name,
    node: make("div", { className: "te-control te-switch" }, box, labelOf(spec, id)),
    fields: [box],
    read: () => box.checked,
    write: (value) => (box.checked = value),
    follow() {},
  };
}

const MAKERS = { range: makeRange, menu: makeMenu, switch: makeSwitch };

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

const MARK = "te-changed";
const OURS = new Set(["open", "data-lm-suppress-shortcuts"]); // what the reader or this script sets on a picture

function sameAttributes(one, other) {
  const told = (node) => [...node.attributes].filter(({ name }) => !OURS.has(name));
  const theirs = told(other);
  return told(one).length === theirs.length && theirs.every(({ name, value }) => one.getAttribute(name) === value);
}

/** Turn `old` into `fresh`, touching only what differs, so that folds, focus and scrolling stay; mark what is new. */
function update(old, fresh, marked) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType === Node.TEXT_NODE && fresh.nodeType === Node.TEXT_NODE) {
    old.data = fresh.data;
    marked.add(old.parentElement);
  } else if (
    old.nodeName !== fresh.nodeName ||
    old.nodeType !== Node.ELEMENT_NODE ||
    old.childNodes.length !== fresh.childNodes.length ||
    !sameAttributes(old, fresh)
  ) {
    old.replaceWith(fresh);
    marked.add(fresh.nodeType === Node.ELEMENT_NODE ? fresh : fresh.parentElement);
  } else {
    const others = [...fresh.childNodes];
    [...old.childNodes].forEach((child, index) => update(child, others[index], marked));
  }
}

/** Show new HTML; what differs from the last is marked, unless it is the first. */
function redraw(picture, html) {
  const template = make("template");
  template.innerHTML = html;
  for (const node of picture.querySelectorAll(`.${MARK}`)) {
    node.classList.remove(MARK);
    if (!node.classList.length) node.removeAttribute("class");
  }
  if (!picture.hasChildNodes()) {
    picture.append(template.content);
  } else {
    const marked = new Set();
    const fresh = make("div", {}, template.content);
    const others = [...fresh.childNodes];
    if (picture.childNodes.length !== others.length) picture.replaceChildren(...others);
    else [...picture.childNodes].forEach((child, index) => update(child, others[index], marked));
    for (const node of marked) {
      if (node !== picture && node.closest("style, title, desc") === null) node.classList.add(MARK);
    }
  }
  keepKeys(picture);
}

function render({ model, el }) {
  const form = model.get("form");
  const id = `te-${++views}-${Math.random().toString(36).slice(2)}`;
  let silence = null;

  // 1. what goes to Python: the first move at once; those made before its answer came are gathered into one
  let waiting = false;
  const asked = () => model.get("asked").serial ?? 0;
  function send() {
    waiting = false;
    model.set("asked", {
      serial: asked() + 1,
      values: Object.fromEntries(controls.map((control) => [control.name, control.read()])),
      held: modes?.read() ?? false,
    });
    clearTimeout(silence);
    silence = setTimeout(() => {
      silence = null;
      message.textContent = form.silent;
      message.hidden = false;
    }, PATIENCE);
    model.save_changes();
  }
  const unanswered = () => silence !== null && model.get("state").answers < asked();
  function ask() {
    if (unanswered()) waiting = true;
    else send();
  }

  // 2. the elements
  const modes = form.modes && makeModes(form.modes, `${id}-mode`, ask);
  const controls = form.controls.map((spec, index) => MAKERS[spec.kind](spec, `${id}-${index}`, ask));
  const status = make("p", { className: "te-sentence" });
  const figures = make("p", { className: "te-figures" });
  const changed = make("p", { className: "te-difference" });
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
    changed, // not in the live region: the sentence is long, and stands here when it is looked for
    picture,
  );
  keepKeys(el);

  // 3. what comes from Python
  function showState() {
    const state = model.get("state");
    const answered = state.answers >= asked();
    if (answered) {
      clearTimeout(silence);
      silence = null;
    }
    status.textContent = state.status;
    message.textContent = state.message;
    message.hidden = !state.message;
    figures.replaceChildren(
      ...state.figures.map(([label, number, change]) =>
        make("span", {}, `${label} `, make("b", {}, number), ...(change ? [" ", make("small", {}, change)] : [])),
      ),
    );
    changed.replaceChildren(state.changed, " ", make("small", {}, form.marked));
    changed.hidden = !state.changed;
    for (const control of controls) {
      control.follow(state.held && control.name === "D");
      for (const field of control.fields) {
        field.setAttribute("aria-invalid", state.blamed.includes(control.name));
        if (state.message) field.setAttribute("aria-describedby", message.id);
        else field.removeAttribute("aria-describedby");
      }
    }
    if (answered && waiting) {
      send(); // the reader has moved on
      return;
    }
    if (!answered) return;
    modes?.write(state.held);
    for (const control of controls) control.write(state.values[control.name]);
  }
  const showPicture = () => redraw(picture, model.get("picture"));
  model.on("change:state", showState);
  model.on("change:picture", showPicture);
  showState();
  showPicture();
  return () => {
    clearTimeout(silence);
    model.off("change:state", showState);
    model.off("change:picture", showPicture);
  };
}

export default { render };
