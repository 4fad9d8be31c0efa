// Lucene Monitor: which stored queries does each document meet? Prints "matches seconds".
// Arguments: the file of queries, the file of documents, how many documents a call. Fields of a
// line are separated by tabs:
//   u USER | p PRODUCT PRODUCT PRODUCT | c CATEGORY LOW HIGH RATING (-1: any)
//   USER PRODUCT CATEGORY PRICE RATING
import java.nio.file.*;
import java.util.*;
import org.apache.lucene.analysis.core.KeywordAnalyzer;
import org.apache.lucene.document.*;
import org.apache.lucene.index.Term;
import org.apache.lucene.monitor.*;
import org.apache.lucene.search.*;

public class Monitor {
  static Query query(String[] f) {
    if (f[0].equals("u")) return new TermQuery(new Term("user", f[1]));
    BooleanQuery.Builder all = new BooleanQuery.Builder();
    if (f[0].equals("p")) {
      for (int i = 1; i < f.length; i++)
        all.add(new TermQuery(new Term("product", f[i])), BooleanClause.Occur.SHOULD);
      return all.build();
    }
    all.add(new TermQuery(new Term("category", f[1])), BooleanClause.Occur.MUST);
    long low = Long.parseLong(f[2]), high = Long.parseLong(f[3]), rating = Long.parseLong(f[4]);
    all.add(LongPoint.newRangeQuery("price", low, high - 1), BooleanClause.Occur.MUST);
    if (rating >= 0)
      all.add(LongPoint.newRangeQuery("rating", rating, Long.MAX_VALUE), BooleanClause.Occur.MUST);
    return all.build();
  }

  static Document document(String[] f) {
    Document made = new Document();
    made.add(new StringField("user", f[0], Field.Store.NO));
    made.add(new StringField("product", f[1], Field.Store.NO));
    made.add(new StringField("category", f[2], Field.Store.NO));
    made.add(new LongPoint("price", Long.parseLong(f[3])));
    made.add(new LongPoint("rating", Long.parseLong(f[4])));
    return made;
  }

  public static void main(String[] args) throws Exception {
    int batch = Integer.parseInt(args[2]);
    try (org.apache.lucene.monitor.Monitor monitor = new org.apache.lucene.monitor.Monitor(
        new KeywordAnalyzer(), new TermFilteredPresearcher())) {
      List<MonitorQuery> some = new ArrayList<>();
      int number = 0;
      for (String line : Files.readAllLines(Paths.get(args[0]))) {
        some.add(new MonitorQuery(Integer.toString(number++), query(line.split("\t"))));
        if (some.size() == 10000) { monitor.register(some); some.clear(); }
      }
      monitor.register(some);
      List<String> lines = Files.readAllLines(Paths.get(args[1]));
      long matches = 0, begin = 0;
      for (int round = 0; round < 2; round++) { // the first warms up
        matches = 0;
        begin = System.nanoTime();
        for (int first = 0; first < lines.size(); first += batch) {
          int limit = Math.min(first + batch, lines.size());
          Document[] documents = new Document[limit - first];
          for (int i = first; i < limit; i++) documents[i - first] = document(lines.get(i).split("\t"));
          MultiMatchingQueries<QueryMatch> found = monitor.match(documents, QueryMatch.SIMPLE_MATCHER);
          for (int i = 0; i < documents.length; i++) matches += found.getMatchCount(i);
        }
      }
      System.out.println(matches + " " + (System.nanoTime() - begin) / 1e9);
    }
  }
}
