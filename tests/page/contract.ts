// Compiles only if the generated declarations of the wasm module offer what `www/src/rillm_wasm.d.ts` says that they do.

import type * as generated from "../../pkg/rillm_wasm.js";
import type * as shared from "../../pkg/rillm_wasm_threads.js";
import type * as declared from "../../www/src/rillm_wasm.js";

export type Contract = [
  Offers<typeof generated.Loader, typeof declared.Loader>,
  Offers<typeof generated.default, typeof declared.default>,
  Offers<typeof generated.Pool, typeof declared.Pool>,
  Offers<typeof shared.default, typeof declared.default>,
  Offers<typeof shared.Loader, typeof declared.Loader>,
  Offers<typeof shared.Pool, typeof declared.Pool>,
  Offers<typeof shared.serve, typeof declared.serve>,
  Offers<typeof shared.abandon, typeof declared.abandon>,
  Offers<generated.Engine, declared.Engine>,
  Offers<generated.Generation, declared.Generation>,
  Offers<generated.Scoring, declared.Scoring>,
];

/** Is an error where `Has` cannot be used as `Wanted`. */
type Offers<Has extends Wanted, Wanted> = Has;
