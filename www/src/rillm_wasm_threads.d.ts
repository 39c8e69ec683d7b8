// The same for the modules with shared memory.

export * from "./rillm_wasm.js";
export { default } from "./rillm_wasm.js";
