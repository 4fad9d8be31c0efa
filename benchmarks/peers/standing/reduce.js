// event-reduce (RxDB): every event is held against every sorted query, and its result brought up
// to date. Prints {"results": keys by query, "seconds", "reruns"}.
// Arguments: the folder of node_modules, the file of queries, the file of documents, the limit.
const { readFileSync } = require("node:fs");
const [folder, queryFile, documentFile, limitText] = process.argv.slice(2);
const { calculateActionName, runAction } = require(folder + "/event-reduce-js");
const lines = (file) => readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));
const limit = Number(limitText);
const compare = (a, b) => b.price - a.price || a.id - b.id;
const queries = lines(queryFile).map((where) => ({
  results: [],
  keys: new Map(),
  params: {
    primaryKey: "id", sortFields: ["price", "id"], skip: undefined, limit,
    queryMatcher: (document) => document.shop === where.shop, sortComparator: compare,
  },
}));
const documents = lines(documentFile);
const stored = new Map();
let reruns = 0;
const begin = process.hrtime.bigint();
for (const doc of documents) {
  const previous = stored.get(doc.id);
  stored.set(doc.id, doc);
  const changeEvent = { operation: previous ? "UPDATE" : "INSERT", id: doc.id, doc, previous: previous || null };
  for (const query of queries) {
    const action = calculateActionName({
      queryParams: query.params, changeEvent, previousResults: query.results, keyDocumentMap: query.keys,
    });
    if (action === "runFullQueryAgain") {
      reruns++;
      query.results = [...stored.values()].filter(query.params.queryMatcher).sort(compare).slice(0, limit);
      query.keys = new Map(query.results.map((one) => [one.id, one]));
    } else if (action !== "doNothing") {
      runAction(action, query.params, changeEvent, query.results, query.keys);
    }
  }
}
const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
console.log(JSON.stringify({ results: queries.map((query) => query.results.map((one) => one.id)), seconds, reruns }));
