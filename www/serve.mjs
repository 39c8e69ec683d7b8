// Serves a folder: node www/serve.mjs www/demo/dist 8080
// With ranges, and with the headers that give a page shared memory.
import http from "node:http";
import sirv from "sirv";

const [folder = "www/demo/dist", port = "8080"] = process.argv.slice(2);
const serve = sirv(folder, {
  dev: true, // what is rebuilt is served anew
  etag: true,
  setHeaders(response) {
    response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
    response.setHeader("Cross-Origin-Embedder-Policy", "require-corp");
    response.setHeader("Cache-Control", "no-cache"); // ask each time whether it is still the same
  },
});
const server = http.createServer((request, response) => serve(request, response, () => response.writeHead(404).end("not found")));
server.on("error", (error) => {
  console.error(`port ${port}: ${error.message}`);
  process.exit(1);
});
server.listen(Number(port), () => console.log(`http://localhost:${server.address().port}/`));
