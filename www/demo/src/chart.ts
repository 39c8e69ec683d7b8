// The chart of tokens per second.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Curve } from "./rates.js";

const HEIGHT = 132;
const dark = matchMedia("(prefers-color-scheme: dark)");

export interface Chart {
  draw(curve: Curve | null): void;
  end(): void;
}

/** A chart as wide as `element`, in the colours of the page, whichever these are. */
export function chart(element: HTMLElement): Chart {
  let drawn: Curve | null = null;
  let plot = make();
  function make(): uPlot {
    const made = new uPlot(options(element), data(drawn), element);
    return made;
  }
  // A canvas does not follow the style sheet.
  function recolour(): void {
    plot.destroy();
    plot = make();
  }
  dark.addEventListener("change", recolour);
  const size = new ResizeObserver(() => {
    if (element.clientWidth > 0 && element.clientWidth !== plot.width) plot.setSize({ width: element.clientWidth, height: HEIGHT });
  });
  size.observe(element);
  return {
    draw(curve) {
      drawn = curve;
      plot.setData(data(curve));
    },
    end() {
      dark.removeEventListener("change", recolour);
      size.disconnect();
      plot.destroy();
    },
  };
}

function data(curve: Curve | null): uPlot.AlignedData {
  return curve === null ? [[], [], []] : [curve.tokens, curve.now, curve.mean];
}

function options(element: HTMLElement): uPlot.Options {
  const style = getComputedStyle(element);
  const of = (name: string): string => style.getPropertyValue(name).trim();
  const [soft, line, accent, ink] = [of("--soft"), of("--line"), of("--accent"), of("--ink")];
  const axis = { stroke: soft, font: "11px system-ui, sans-serif", grid: { stroke: line, width: 1 }, ticks: { show: false } };
  return {
    width: Math.max(element.clientWidth, 120),
    height: HEIGHT,
    padding: [8, 6, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.15 : 1] } },
    series: [
      {},
      { stroke: accent, width: 1.75, points: { show: false } },
      { stroke: ink, width: 1.25, dash: [5, 4], points: { show: false } },
    ],
    axes: [
      { ...axis, size: 22, space: 56, gap: 3 },
      { ...axis, size: 34, space: 28, gap: 4 },
    ],
  };
}
