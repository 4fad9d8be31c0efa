// Answers questions with mingo: a JSON line in, a JSON line out, for each of the bodies.
//   {condition, bodies}   whether each meets the condition
//   {change, bodies}      each after the change; null where it is refused
//   {fields, bodies}      each with these fields
//   {pipeline, bodies}    what comes out of the pipeline, for all bodies together
// The folder mingo is installed in is the first argument.
const { createInterface } = require("node:readline");
const { Aggregator, Query } = require(process.argv[2]);
const { update } = require(process.argv[2] + "/cjs/updater.js");
require(process.argv[2] + "/cjs/operators/update/index.js");

const changed = (body, change) => {
  try {
    update(body, change, [], {}, { cloneMode: "deep" });
    return body;
  } catch {
    return null;
  }
};

const answer = ({ condition, change, fields, pipeline, bodies }) => {
  if (change) return bodies.map((body) => changed(body, change));
  if (pipeline) return new Aggregator(pipeline).run(bodies);
  if (fields) return new Query({}).find(bodies, fields).all();
  const query = new Query(condition);
  return bodies.map((body) => query.test(body));
};

createInterface({ input: process.stdin }).on("line", (line) => {
  let found;
  try {
    found = { answers: answer(JSON.parse(line)) };
  } catch (error) {
    found = { error: String(error.message) };
  }
  process.stdout.write(JSON.stringify(found) + "\n");
});
