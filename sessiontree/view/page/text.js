/** Numbers, durations, costs and states as people read them. */

const GLYPHS = new Map(
  Object.entries({
    active: "●", calling: "▸", "waiting for model": "○", "waiting for approval": "◆",
    "waiting for an answer": "?", "waiting for children": "↳", suspended: "‖", stopping: "■",
    completed: "✓", failed: "✕", cancelled: "⊘", expired: "◔",
  }),
);

/** @param {string} state */
export function glyphOf(state) {
  return GLYPHS.get(state) ?? "·";
}

/** @param {number} count With thin groups of three digits. */
export function formatCount(count) {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/** @param {number} tokens Short: 940, 12.3k, 4.56M. */
export function formatTokens(tokens) {
  if (tokens < 1000) return String(Math.round(tokens));
  if (tokens < 999_950) return `${formatShort(tokens / 1e3)}k`;
  return tokens < 999_950_000 ? `${formatShort(tokens / 1e6)}M` : `${formatShort(tokens / 1e9)}G`;
}

/** @param {number} value */
function formatShort(value) {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

/** @param {number|null} dollars */
export function formatCost(dollars) {
  if (dollars === null) return "–";
  if (dollars === 0) return "$0";
  if (dollars < 0.0001) return "<$0.0001";
  if (dollars < 0.1) return `$${dollars.toFixed(4)}`;
  return dollars < 1000 ? `$${dollars.toFixed(2)}` : `$${formatCount(dollars)}`;
}

/** @param {number} ms */
export function formatDuration(ms) {
  if (ms < 0) return "0 s";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  const hours = Math.round(minutes / 60);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {number} ms A duration in few letters, for a column. */
export function formatBrief(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const pad = (/** @type {number} */ value) => String(value).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)}:${pad(seconds % 60)}`;
  const hours = Math.floor(seconds / 3600);
  return hours < 100 ? `${hours}:${pad(Math.floor(seconds / 60) % 60)}:${pad(seconds % 60)}` : `${Math.round(hours / 24)} d`;
}

/** @param {number} ms The time of day of a moment. */
export function formatClock(ms) {
  const date = new Date(ms);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

/** @param {number} share From 0 to 1. */
export function formatShare(share) {
  const percent = Math.max(0, Math.min(1, share)) * 100;
  return `${percent > 0 && percent < 1 ? "<1" : Math.round(percent)}\u2009%`;
}

/**
 * @param {number} count
 * @param {string} one
 * @param {string} [many]
 */
export function formatNumber(count, one, many = `${one}s`) {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}

/**
 * Returns the first line of a text, cut.
 * @param {string} text
 * @param {number} most
 */
export function firstLine(text, most = 120) {
  const line = text.trimStart().split("\n", 1)[0];
  const letters = Array.from(line.slice(0, most * 2)); // a cut within a surrogate pair would leave half a letter
  return letters.length > most || line.length > most * 2 ? `${letters.slice(0, most).join("")}…` : line;
}

/** @param {unknown} error What went wrong, in words. */
export function wordsOf(error) {
  return error instanceof Error ? error.message : String(error);
}
