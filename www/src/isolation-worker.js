// A service worker that adds the two headers of cross-origin isolation to what a page loads, for hosts that can't send them.
// Copy it to the top folder of the page and register it there (see README.md); the page is isolated from its next load on.

const HEADERS = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp", "Cross-Origin-Resource-Policy": "same-origin" };

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => {
  const { request } = event;
  // Other origins answer for themselves, and such a request of the browser's own can't be repeated here.
  if (new URL(request.url).origin !== self.location.origin || (request.cache === "only-if-cached" && request.mode !== "same-origin")) return;
  event.respondWith(isolated(request));
});

async function isolated(request) {
  const response = await fetch(request);
  if (response.type === "opaqueredirect" || response.status === 0) return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  const empty = [101, 204, 205, 304].includes(response.status); // these have no body
  return new Response(empty ? null : response.body, { status: response.status, statusText: response.statusText, headers });
}
