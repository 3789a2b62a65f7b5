// The base class of the parts of a page: each draws the shared view and redraws what changes.

export class Panel extends HTMLElement {
  /** @param {import("regard/view.js").View} view */
  set view(view) {
    this.given = view;
    view.addEventListener("change", (event) => this.onChange(event.detail));
    this.replaceChildren();
    this.build();
    if (view.map) this.update(new Set(["map", "language", "theme"]));
  }

  get view() {
    return this.given;
  }

  onChange(changed) {
    if (this.view.map) this.update(changed);
  }

  /** Redraw before the next frame, once, however often this is called. */
  schedule(draw) {
    if (this.waiting) return this.waiting.add(draw);
    this.waiting = new Set([draw]);
    return requestAnimationFrame(() => {
      const draws = this.waiting;
      this.waiting = null;
      for (const each of draws) each.call(this);
    });
  }

  /** Redraw in the frame after the next: feedback to the pointer comes first. */
  scheduleLater(draw) {
    requestAnimationFrame(() => this.schedule(draw));
  }
}

/** An element with attributes and children; text is always text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Clear a canvas and match the resolution of the screen; its context draws in CSS pixels. */
export function sharpen(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const context = canvas.getContext("2d");
  const wide = Math.max(1, Math.round(width * ratio)), high = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  } else context.reset();
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** The value of a CSS variable where an element stands. */
export function css(element, name) {
  return getComputedStyle(element).getPropertyValue(name).trim();
}
