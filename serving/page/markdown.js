// @ts-check
/** Cards of models, which are written in Markdown, as elements.  Nothing in a card can become code of the page. */

import { make } from "./dom.js";

/**
 * Return a line with its code, emphasis and links; links are shown with their address, and lead nowhere.
 *
 * @param {string} text
 * @returns {(Node | string)[]}
 */
function inline(text) {
  const parts = text.matchAll(/(`+)(.+?)\1|\*\*(.+?)\*\*|\[([^\]]*)\]\(([^)\s]*)\)|\\([\\`*_{}[\]()#+.!|<>~-])|[^`*[\\]+|./gs);
  return [...parts].map(([all, ticks, code, strong, label, address, escaped]) => {
    if (ticks) return make("code", {}, code.trim());
    if (strong) return make("strong", {}, ...inline(strong));
    if (address !== undefined) return `${label} (${address})`;
    return escaped ?? all;
  });
}

/** @param {string} line */
function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim());
}

/**
 * Return a text in Markdown as elements: headings, paragraphs, lists, tables, code.
 *
 * @param {string} text
 * @returns {DocumentFragment}
 */
export function render(text) {
  const fragment = document.createDocumentFragment();
  const body = text.replace(/^---\n[\s\S]*?\n---\n/, ""); // what hubs keep before the card
  const rows = body.split("\n");
  for (let n = 0; n < rows.length; ) {
    const line = rows[n];
    const fence = /^(`{3,}|~{3,})/.exec(line);
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    if (fence) {
      const end = rows.findIndex((own, at) => at > n && own.startsWith(fence[1]));
      const stop = end < 0 ? rows.length : end;
      fragment.append(make("pre", {}, rows.slice(n + 1, stop).join("\n")));
      n = stop + 1;
    } else if (heading) {
      fragment.append(make(`h${Math.min(6, heading[1].length + 3)}`, {}, ...inline(heading[2])));
      n += 1;
    } else if (line.trim().startsWith("|") && /^[\s|:-]+$/.test(rows[n + 1] ?? "")) {
      const end = rows.findIndex((own, at) => at > n && !own.trim().startsWith("|"));
      const stop = end < 0 ? rows.length : end;
      const [head, , ...others] = rows.slice(n, stop).map(cells);
      fragment.append(
        make(
          "div",
          { class: "scroll", tabindex: 0 },
          make(
            "table",
            {},
            make("tr", {}, ...head.map((cell) => make("th", { scope: "col" }, ...inline(cell)))),
            ...others.map((own) => make("tr", {}, ...own.map((cell) => make("td", {}, ...inline(cell))))),
          ),
        ),
      );
      n = stop;
    } else if (/^\s*[-*]\s/.test(line)) {
      const items = [];
      while (n < rows.length && /^\s*[-*]\s/.test(rows[n])) {
        items.push(make("li", {}, ...inline(rows[n].replace(/^\s*[-*]\s+/, ""))));
        n += 1;
      }
      fragment.append(make("ul", {}, ...items));
    } else if (line.trim()) {
      const end = rows.findIndex((own, at) => at > n && (!own.trim() || /^(#|```|\||\s*[-*]\s)/.test(own)));
      const stop = end < 0 ? rows.length : end;
      fragment.append(make("p", {}, ...inline(rows.slice(n, stop).join(" "))));
      n = stop;
    } else {
      n += 1;
    }
  }
  return fragment;
}
