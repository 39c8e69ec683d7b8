// When to draw.

/** Between two drawings at least, in milliseconds: more often than this nobody reads. */
const INTERVAL = 33;
/** Drawing may take one part of the time in this many. */
const SHARE = 12;

/**
 * Calls `draw` once a frame at most, about 30 times a second, and less often if drawing takes long: what is drawn may slow down, the
 * model may not. Returns how to end it.
 */
export function paced(draw: () => void): () => void {
  const channel = new MessageChannel();
  let began = 0;
  let due = 0;
  // A message that is posted before a frame is painted arrives after it: so layout and paint count too.
  channel.port1.onmessage = () => {
    const cost = performance.now() - began;
    due = began + Math.max(INTERVAL, cost * SHARE) - 5; // the frame before would otherwise be missed by a hair
  };
  let frame = requestAnimationFrame(tick);
  function tick(now: number): void {
    frame = requestAnimationFrame(tick);
    if (now < due) return;
    began = performance.now();
    due = Number.POSITIVE_INFINITY; // until the cost is known
    draw();
    channel.port2.postMessage(null);
  }
  return () => {
    cancelAnimationFrame(frame);
    channel.port1.close();
  };
}
