// Formats numbers and times for display.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const some = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

const NO_VALUE = "\u2013";
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 12,345 @param {number | string | undefined} value */
export function count(value) {
  return value === undefined || value === "" ? NO_VALUE : whole.format(Number(value));
}

/** 12,345 clients, 1 client @param {number | string | undefined} value @param {string} what the noun, in the plural */
export function counted(value, what) {
  return `${count(value)} ${named(value, what)}`;
}

/** Return the noun in singular or plural. @param {number | string | undefined} value @param {string} what the noun, in the plural */
export function named(value, what) {
  return Number(value) === 1 ? what.replace(/s$/, "") : what;
}

/** 12.3K @param {number | string | undefined} value */
export function brief(value) {
  const number = Number(value ?? 0);
  return Math.abs(number) < 10_000 ? plain(number) : short.format(number);
}

/** @param {number} number */
function plain(number) {
  return Number.isInteger(number) ? whole.format(number) : some.format(number);
}

/** 1.2 MiB @param {number | string | undefined} value */
export function bytes(value) {
  if (value === undefined || value === "") return NO_VALUE;
  let number = Number(value);
  let unit = 0;
  while (Math.abs(number) >= 1_024 && unit < UNITS.length - 1) {
    number /= 1_024;
    unit += 1;
  }
  const digits = unit === 0 || Math.abs(number) >= 100 ? 0 : 1;
  return `${number.toFixed(digits)} ${UNITS[unit]}`;
}

/** 430 µs, 12 ms, 1.5 s, 3 min, 2 h @param {number | string | undefined} value seconds */
export function duration(value) {
  if (value === undefined || value === "") return NO_VALUE;
  const seconds = Number(value);
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${some.format(seconds * 1e6)} \u00b5s`;
  if (seconds < 1) return `${some.format(seconds * 1e3)} ms`;
  if (seconds < 120) return `${some.format(seconds)} s`;
  if (seconds < 7_200) return `${whole.format(seconds / 60)} min`;
  if (seconds < 172_800) return `${whole.format(seconds / 3_600)} h`;
  return `${whole.format(seconds / 86_400)} d`;
}

/** @param {number | string | undefined} value */
export function percent(value) {
  return value === undefined || value === "" ? NO_VALUE : `${some.format(Number(value))}%`;
}

/** Parse a time such as 20261123T041500.25Z to milliseconds since 1970; NaN if it is invalid. @param {string} text */
export function instant(text) {
  const found = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(?:\.(\d+))?Z?$/.exec(text);
  if (!found) return NaN;
  const [year, month, day, hour, minute, second] = found.slice(1, 7).map(Number);
  return Date.UTC(year, month - 1, day, hour, minute, second) + Number(`0.${found[7] ?? 0}`) * 1e3;
}

/** Format a time as the parameters t0 and t1. @param {number} milliseconds */
export function moment(milliseconds) {
  return new Date(milliseconds).toISOString().replace(/[-:]/g, "").replace(/\.\d+Z$/, "");
}

/** Format a time of day, local; with the date if it is not today. @param {number | string} when */
export function clock(when) {
  const milliseconds = typeof when === "number" ? when : instant(when);
  if (Number.isNaN(milliseconds)) return typeof when === "string" && when ? when : NO_VALUE;
  const date = new Date(milliseconds);
  const time = date.toLocaleTimeString("en-GB");
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.toLocaleDateString("en-CA")} ${time}`;
}

/** Format a time of day with milliseconds. @param {string} when */
export function preciseClock(when) {
  const milliseconds = instant(when);
  if (Number.isNaN(milliseconds)) return clock(when);
  return `${clock(milliseconds)}.${String(Math.floor(milliseconds) % 1_000).padStart(3, "0")}`;
}

/** Format hh:mm:ss.uuuuuu as 3 d 4 h. @param {string | undefined} text */
export function uptime(text) {
  const [hours = 0, minutes = 0, seconds = 0] = (text ?? "").split(":").map(Number);
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

/**
 * Escape control characters in text of other users.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g,
    (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
