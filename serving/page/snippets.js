// @ts-check
/** A request as programs send it, to copy. */

/** @typedef {{path: string, body: unknown, openai?: string[]}} Request */

/**
 * Return a text in single quotes of a shell.
 *
 * @param {string} text
 */
function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * Return a value of JSON as Python writes it.
 *
 * @param {unknown} value
 * @returns {string}
 */
export function python(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(/** @type {object} */ (value)).map(([key, own]) => `${python(key)}: ${python(own)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}

/**
 * Return a request for each kind of program, by name.
 *
 * @param {string} origin The server, as in http://localhost:8000.
 * @param {Request} request
 * @param {boolean} hasKey Whether the server asks for a key.
 * @returns {Record<string, string>}
 */
export function snippets(origin, { path, body, openai }, hasKey) {
  const header = hasKey ? ' -H "authorization: Bearer $KEY"' : "";
  const headers = hasKey ? ', headers={"authorization": f"Bearer {os.environ[\'KEY\']}"}' : "";
  const found = {
    curl: `curl ${origin}${path}${header} --json ${quoted(JSON.stringify(body))}`,
    Python: [
      ...(hasKey ? ["import os", ""] : []),
      "import requests",
      "",
      `reply = requests.post(${python(`${origin}${path}`)}, json=${python(body)}${headers})`,
      "reply.raise_for_status()",
      "print(reply.json())",
    ].join("\n"),
  };
  if (openai === undefined) return found;
  const secret = hasKey ? 'os.environ["KEY"]' : '"none"';
  const client = [
    ...(hasKey ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${python(`${origin}/v1`)}, api_key=${secret})`,
    ...openai,
  ];
  return { ...found, "OpenAI client": client.join("\n") };
}
