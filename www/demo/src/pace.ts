// When to draw.

/** Between two drawings at least, in milliseconds: more often than this nobody reads. */
const INTERVAL = 110;
/** Drawing, layout and painting may take one part of the time in this many. */
const SHARE = 12;

/**
 * Calls `draw` about 9 times a second at most, at the beginning of a frame, and less often if drawing takes long: what is drawn may slow
 * down, the model may not. Returns how to end it.
 */
export function paced(draw: () => void): () => void {
  const channel = new MessageChannel();
  let began = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let frame = requestAnimationFrame(tick);
  function tick(): void {
    began = performance.now();
    draw();
    channel.port2.postMessage(null);
  }
  // A message that is posted before a frame is painted arrives after it: so layout and paint count too.
  channel.port1.onmessage = () => {
    const cost = performance.now() - began;
    // Not a frame more than is drawn: an empty one is not free either. The frame comes up to 16 ms after its request.
    timer = setTimeout(() => (frame = requestAnimationFrame(tick)), Math.max(INTERVAL, cost * SHARE) - cost - 12);
  };
  return () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    channel.port1.close();
  };
}
