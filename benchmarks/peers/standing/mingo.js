// mingo: every query is held against every document. Prints {"matches", "seconds"}.
// Arguments: the folder of node_modules, the file of queries, the file of documents.
const { readFileSync } = require("node:fs");
const [folder, queryFile, documentFile] = process.argv.slice(2);
const { Query } = require(folder + "/mingo");
const lines = (file) => readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));
const queries = lines(queryFile).map((where) => new Query(where));
const documents = lines(documentFile);
let matches = 0;
const begin = process.hrtime.bigint();
for (const document of documents) for (const query of queries) if (query.test(document)) matches++;
console.log(JSON.stringify({ matches, seconds: Number(process.hrtime.bigint() - begin) / 1e9 }));
