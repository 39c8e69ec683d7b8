const PATHS = {
  history: "M4 6h16M4 12h16M4 18h10",
  settings: "M4 7h9M19 7h1M4 17h1M11 17h9M13 7a3 3 0 1 0 6 0a3 3 0 1 0-6 0M5 17a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
  model: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5l8-4.5M12 12v9",
  add: "M12 5v14M5 12h14",
};

/** A small drawing beside a word; on a narrow page it stands for it. */
export function Icon({ name }: { name: keyof typeof PATHS }) {
  return <svg class="icon" viewBox="0 0 24 24" width="18" height="18" aria-hidden="true"><path d={PATHS[name]} /></svg>;
}
