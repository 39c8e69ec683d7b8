// Builds the page to dist/, with relative addresses so that it can be served from anywhere.
import { fileURLToPath } from "node:url";
import sirv from "sirv";
import { defineConfig } from "vite";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));

// They give the page shared memory, which threads need.
const headers = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };

/** Serves the repository's models/ beside the page, in parts where asked for. */
const models = {
  name: "models",
  configureServer: (server) => serveModels(server),
  configurePreviewServer: (server) => serveModels(server),
};
function serveModels(server) {
  const setHeaders = (response) => Object.entries(headers).forEach(([name, value]) => response.setHeader(name, value));
  server.middlewares.use("/models", sirv(at("../../models"), { dev: true, setHeaders }));
}

export default defineConfig({
  root: at("."),
  base: "./",
  resolve: { alias: { rillm: at("../../pkg/index.js") } },
  plugins: [models],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  worker: { format: "es" },
  build: { outDir: at("dist"), emptyOutDir: true, target: "es2022", assetsInlineLimit: 0 },
  server: { headers, fs: { allow: [at("../..")] } },
  preview: { headers },
});
