// SHA-256 and HMAC for signed requests. The browser's own is there only on https or this machine, and this page is
// also served over plain http behind a key. The text signed is that of agent/wire/signing.py.

const K = [];
const START = [];
(() => {
  const fraction = (x) => ((x - Math.floor(x)) * 0x100000000) | 0;
  for (let n = 2; K.length < 64; n += 1) {
    let prime = true;
    for (let d = 2; d * d <= n; d += 1) if (n % d === 0) { prime = false; break; }
    if (!prime) continue;
    if (START.length < 8) START.push(fraction(Math.sqrt(n)));
    K.push(fraction(Math.cbrt(n)));
  }
})();

export function sha256(bytes) {
  const length = bytes.length;
  const padded = new Uint8Array(((length + 8) >> 6) * 64 + 64);
  padded.set(bytes);
  padded[length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(length / 0x20000000));
  view.setUint32(padded.length - 4, length << 3);
  const hash = START.slice();
  const w = new Int32Array(64);
  const turn = (x, n) => (x >>> n) | (x << (32 - n));
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 16; i += 1) w[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i += 1) {
      const a = w[i - 15], b = w[i - 2];
      const s0 = turn(a, 7) ^ turn(a, 18) ^ (a >>> 3), s1 = turn(b, 17) ^ turn(b, 19) ^ (b >>> 10);
      w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
    }
    let [a, b, c, d, e, f, g, h] = hash;
    for (let i = 0; i < 64; i += 1) {
      const s1 = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25), s0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
      const one = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g; g = f; f = e; e = (d + one) | 0; d = c; c = b; b = a; a = (one + two) | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((value, i) => { hash[i] = (hash[i] + value) | 0; });
  }
  const out = new DataView(new ArrayBuffer(32));
  hash.forEach((value, i) => out.setInt32(4 * i, value));
  return new Uint8Array(out.buffer);
}

export function hmac(key, message) {
  const block = new Uint8Array(64);
  block.set(key.length > 64 ? sha256(key) : key);
  const join = (pad, rest) => {
    const joined = new Uint8Array(64 + rest.length);
    block.forEach((byte, i) => { joined[i] = byte ^ pad; });
    joined.set(rest, 64);
    return joined;
  };
  return sha256(join(0x5c, sha256(join(0x36, message))));
}

export const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

const text = new TextEncoder();
const sign = (key, parts) => hex(hmac(text.encode(key), text.encode(parts.join("\n"))));
const seconds = () => performance.now() / 1000;

// The server's epoch, and how far its clock is ahead of this page's: known from its signed answer to a first request.
let met = { epoch: "", ahead: 0 };

export function signedHeaders(key, method, path, body) {
  const time = (seconds() + met.ahead).toFixed(6);
  const nonce = hex(crypto.getRandomValues(new Uint8Array(16)));
  const digest = hex(sha256(text.encode(body)));
  return {
    "floodway-epoch": met.epoch,
    "floodway-time": time,
    "floodway-nonce": nonce,
    "floodway-digest": digest,
    "floodway-signature": sign(key, [method, path, met.epoch, time, nonce, digest]),
  };
}

// Take the epoch from a refusal, if that was signed with the key and for this very request; whether it was taken.
export function meet(key, sent, answer, body) {
  const parts = ["answer", answer.status, sent["floodway-nonce"], hex(sha256(text.encode(body)))];
  if (answer.headers.get("floodway-signature") !== sign(key, parts)) return false;
  const told = JSON.parse(body);
  if (!["unmet", "stale"].includes(told.refused)) return false;
  met = { epoch: told.epoch, ahead: told.seconds - seconds() };
  return true;
}
