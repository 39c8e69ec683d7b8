import { notice } from "./state.js";

/** What is no error, but explains what just happened. */
export function Notice() {
  if (notice.value === null) return null;
  return <p class="warn" data-testid="notice">{notice.value}</p>;
}
