// A reporter for `node --test`, in the process that starts the tests, not in theirs. It writes the
// report that observer.py describes, signed with the key that came on stdin.

import { createHmac } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { relative } from "node:path";

const MOST_IDS = 2000;
const MOST_FAILURES = 50;
const ID_LENGTH = 300;
const MESSAGE_LENGTH = 500;

const handedOver = JSON.parse(readFileSync(0, "utf8") || "null"); // null: an agent tries it

export default async function* observe(events) {
  const counts = { passed: 0, failed: 0, skipped: 0, xfailed: 0, deselected: 0 };
  const ids = [];
  const failures = [];
  const above = [];
  for await (const { type, data } of events) {
    if (type === "test:start") {
      above.length = data.nesting;
      above[data.nesting] = data.name;
    }
    if (type !== "test:pass" && type !== "test:fail") continue;
    if (data.details?.type === "suite") continue;
    const file = data.file ? relative(process.cwd(), data.file) : "";
    const isFile = data.nesting === 0 && [data.file, file].includes(data.name);
    if (isFile && type === "test:pass") continue; // a file without tests
    const names = isFile ? [] : [...above.slice(0, data.nesting), data.name];
    const id = cut([file, ...names].join(" > "), ID_LENGTH);
    const outcome = outcomeOf(type, data);
    counts[outcome] += 1;
    if (outcome === "passed" || outcome === "failed") ids.push(id);
    if (outcome === "failed") failures.push([id, messageOf(data.details?.error)]);
  }
  if (!handedOver) return;
  const report = JSON.stringify({
    ...counts,
    ids: ids.sort().slice(0, MOST_IDS),
    failures: failures.slice(0, MOST_FAILURES),
  });
  const signature = createHmac("sha256", handedOver.key).update(report).digest("hex");
  writeFileSync(handedOver.path, `${signature}\n${report}`);
}

function outcomeOf(type, data) {
  if (data.skip !== undefined) return "skipped";
  if (data.todo !== undefined) return "xfailed";
  return type === "test:pass" ? "passed" : "failed";
}

function messageOf(error) {
  const text = error?.cause?.message ?? error?.message ?? "failed";
  return cut(String(text), MESSAGE_LENGTH);
}

function cut(text, most) {
  return [...text].slice(0, most).join("").toWellFormed(); // never half a character
}
