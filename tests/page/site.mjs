// A server of a few folders and texts, with headers of one's choice: the sites on which the package is tried out as a user would.

import { execFile } from "node:child_process";
import fs from "node:fs/promises";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import sirv from "sirv";
import { at } from "./helpers.mjs";

const TYPES = { html: "text/html", js: "text/javascript" };

/** A policy under which the package must work. */
export const STRICT = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'";

/**
 * `texts` are pages and scripts by path; `folders` are served under their prefix, `/pkg` and `/models` always; `headers(path)` are added to
 * every response. `requests` are the paths asked for, `reports` what browsers sent to `/report`.
 */
export async function site({ texts = {}, folders = {}, headers = () => ({}) } = {}) {
  const mounts = Object.entries({ "/pkg": at("pkg"), "/models": at("models"), ...folders }).map(([prefix, folder]) => [prefix, sirv(folder, { dev: true, etag: true })]);
  const requests = [];
  const reports = [];
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    requests.push(pathname);
    for (const [name, value] of Object.entries(headers(pathname))) response.setHeader(name, value);
    if (pathname === "/report") {
      const pieces = [];
      request.on("data", (piece) => pieces.push(piece)).on("end", () => (reports.push(Buffer.concat(pieces).toString()), response.end()));
      return;
    }
    if (pathname === "/favicon.ico") return response.writeHead(204).end();
    const text = texts[pathname];
    if (text !== undefined) return response.setHeader("content-type", TYPES[pathname.split(".")[1] ?? "html"]).end(text);
    const [prefix, handle] = mounts.find(([prefix]) => pathname.startsWith(`${prefix}/`)) ?? [];
    if (handle === undefined) return response.writeHead(404).end("not found");
    request.url = request.url.slice(prefix.length);
    handle(request, response, () => response.writeHead(404).end("not found"));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  const close = () => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve)));
  return { url: `http://127.0.0.1:${port}`, named: `http://localhost:${port}`, requests, reports, close };
}

/** A page in a context of its own; `errors` collects what nobody handled, `said` what the console says. */
export async function visit(browser, url, { errors = [], said = [] } = {}) {
  const page = await (await browser.newContext()).newPage();
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => said.push(message.text()));
  await page.goto(url);
  return page;
}

const start = promisify(execFile);

/** Runs a program and returns what it printed; what it printed is in the error, too. */
export async function run(folder, program, ...args) {
  try {
    const { stdout, stderr } = await start(program, args, { cwd: folder, env: { ...process.env, NO_COLOR: "1" }, maxBuffer: 1 << 24 });
    return stdout + stderr;
  } catch (error) {
    throw new Error(`${program} ${args.join(" ")}: ${error.stdout}${error.stderr}`, { cause: error });
  }
}

/** A temporary folder. */
export const temporary = () => fs.mkdtemp(path.join(os.tmpdir(), "rillm-"));

/** Writes the files of a project. */
export async function write(folder, files) {
  for (const [name, text] of Object.entries(files)) {
    await fs.mkdir(path.dirname(path.join(folder, name)), { recursive: true });
    await fs.writeFile(path.join(folder, name), text);
  }
}
