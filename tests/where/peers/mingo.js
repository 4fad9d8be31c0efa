// Answers conditions with mingo: a JSON line {condition, bodies} in, a JSON line out.
// The folder mingo is installed in is the first argument.
const { createInterface } = require("node:readline");
const { Query } = require(process.argv[2]);

createInterface({ input: process.stdin }).on("line", (line) => {
  const { condition, bodies } = JSON.parse(line);
  let answer;
  try {
    const query = new Query(condition);
    answer = { answers: bodies.map((body) => query.test(body)) };
  } catch (error) {
    answer = { error: String(error.message) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
