import { useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { chart, type Chart } from "./chart.js";
import { rate } from "./format.js";
import { curve } from "./work.js";

/** The last answer's speed, token by token. */
export function ChartView() {
  const element = useRef<HTMLDivElement>(null);
  const drawn = useRef<Chart | null>(null);
  useEffect(() => {
    if (element.current === null) return;
    drawn.current = chart(element.current);
    drawn.current.draw(curve.peek());
    return () => {
      drawn.current?.end();
      drawn.current = null;
    };
  }, []);
  useSignalEffect(() => drawn.current?.draw(curve.value));
  const { value } = curve;
  const said = value === null || value.tokens.length === 0 ? "nothing to show yet" : `${rate(value.now.at(-1))} at the end, ${rate(value.mean.at(-1))} on average, after ${value.tokens.at(-1)} tokens`;
  return (
    <figure class="chart" hidden={value === null} data-testid="chart" data-points={value?.tokens.length ?? 0}>
      <figcaption><span>Tokens/s</span><span class="key now">now</span><span class="key mean">average</span></figcaption>
      <div class="plot" ref={element} role="img" aria-label={`Chart of tokens per second: ${said}`} />
    </figure>
  );
}
