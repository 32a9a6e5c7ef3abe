// @ts-check
/** Elements of the page. */

/**
 * Make an element with attributes and content; an attribute that begins with "on" is what listens to that event.
 *
 * @param {string} name
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | null)} content
 * @returns {HTMLElement}
 */
export function make(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, String(value));
  }
  made.append(...content.filter((part) => part !== null));
  return made;
}

/**
 * Return the element with an id.
 *
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
export function find(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${id}`);
  return found;
}

/**
 * Offer content as a file.
 *
 * @param {Blob} content
 * @param {string} name
 */
export function save(content, name) {
  const link = make("a", { href: URL.createObjectURL(content), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(/** @type {HTMLAnchorElement} */ (link).href), 10_000);
}

/**
 * Return milliseconds as people read them.
 *
 * @param {number} milliseconds
 */
export function duration(milliseconds) {
  return Math.abs(milliseconds) < 999.5 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(2)} s`;
}

/**
 * Return a number of things.
 *
 * @param {number} count
 * @param {string} thing
 */
export function plural(count, thing) {
  return `${count} ${thing}${count === 1 ? "" : "s"}`;
}
