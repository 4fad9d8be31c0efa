// Every error of the client. A message says what is wrong first and carries the values last.
//
//   TidelineError
//   ├── InvalidRequest   the call is wrong
//   ├── Unauthorized     401 and 403: no good token, or it may not do this
//   ├── NotFound, Conflict, Unavailable, Closed, Corruption   as in Python

/** Base of every error. `kind` is the server's word, `status` that of HTTP (0: there was none). */
export class TidelineError extends Error {
  constructor(message, { kind, status = 0, retry_after_s, values, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    Object.assign(this, { kind: kind ?? this.name, status });
    if (retry_after_s !== undefined) this.retry_after_s = retry_after_s;
    if (values !== undefined) this.values = values;
  }
}
/** The call is wrong: fix it. Nothing was stored. */
export class InvalidRequest extends TidelineError {}
/** There is no good token, or it may not do this. */
export class Unauthorized extends TidelineError {}
/** No such channel, subscription, collection or document. */
export class NotFound extends TidelineError {}
/** It exists with other content: read it again, decide, retry. */
export class Conflict extends TidelineError {}
/** Not now: retry later. */
export class Unavailable extends TidelineError {}
/** The connection was closed: connect again. */
export class Closed extends TidelineError {}
/** Bytes on the server's disk are damaged: tell the operator. */
export class Corruption extends TidelineError {}

const CLASSES = { TidelineError, InvalidRequest, Unauthorized, NotFound, Conflict, Unavailable, Closed, Corruption };
for (const [name, made] of Object.entries(CLASSES)) made.prototype.name = name;
const KINDS = { ...CLASSES, Forbidden: Unauthorized, TooMany: Unavailable, TooSlow: Unavailable, Bug: Unavailable };

/** The error that the server told of. */
export function errorOf({ kind, message, retry_after_s, values }, status = 0) {
  const made = KINDS[kind] ?? (status >= 500 || status === 429 ? Unavailable : InvalidRequest);
  return new made(message, { kind, status, retry_after_s, values });
}
