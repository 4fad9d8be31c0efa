"""How a condition is filed: its clauses as postings and a program.

Of the ways to file a clause that narrow most, the one is taken whose lists are shortest now: so
the rarest word, the user and not the state, whatever the data are, without statistics. When all
are long and there is an equality and a range, both together are one more way, a *pair*.

The check that decides most stands in the entry itself; the others are a box of the program. What
lists hold is found by a hash, so what a token stands for is checked too.

    program := its words | box, box, ...       box := number of checks | check, check, ...

Not safe from several threads: callers hold a lock.
"""

from __future__ import annotations

import math

from tideline.errors import InvalidRequest
from tideline.kernels.standing import layout as at
from tideline.standing.clauses import Value, clauses, one_of, range_tokens
from tideline.standing.parts import Check, Clause, Column, Way
from tideline.standing.tables import Tables
from tideline.where import Condition

__all__ = ["Columns", "Filing"]

COLUMNS_LIMIT = 60_000
LONG = 16  # entries of a list that are looked at in no time
_PAIRED = {at.CELL: at.PAIR, at.ABOVE: at.PAIR_ABOVE, at.BELOW: at.PAIR_BELOW}
_SIGN = 1 << 63


class Columns:
    """Numbers of the columns in use, by the sets of them that conditions use."""

    def __init__(self) -> None:
        self.numbers: dict[Column, int] = {}
        self.count = 0
        self.changed = True
        self._free: list[int] = []
        self._sets: dict[frozenset[int], int] = {}
        self._of_set: list[frozenset[int]] = []
        self._uses: list[int] = []
        self._free_sets: list[int] = []

    def number(self, column: Column) -> int:
        """The number of a column, which is in use from `use` on."""
        found = self.numbers.get(column)
        if found is None:
            if not self._free and self.count == COLUMNS_LIMIT:
                raise InvalidRequest(
                    "too many different fields are asked about", limit=COLUMNS_LIMIT
                )
            if self._free:
                found = self._free.pop()
            else:
                found = self.count
                self.count += 1
            self.numbers[column] = found
            self.changed = True
        return found

    def use(self, columns: set[int]) -> int:
        """One more condition uses these: the number of the set."""
        key = frozenset(columns)
        found = self._sets.get(key)
        if found is None:
            found = self._free_sets.pop() if self._free_sets else len(self._of_set)
            if found == len(self._of_set):
                self._of_set.append(key)
                self._uses.append(0)
            self._of_set[found] = key
            self._sets[key] = found
            self.changed = True
        self._uses[found] += 1
        return found

    def give_up(self, number: int) -> None:
        """A condition that used this set is gone."""
        self._uses[number] -= 1
        if not self._uses[number]:
            del self._sets[self._of_set[number]]
            self._free_sets.append(number)
            self.changed = True

    def tidy(self) -> None:
        """Forget the columns that no condition uses."""
        used = {column for key in self._sets for column in key}
        for column, number in list(self.numbers.items()):
            if number not in used:
                del self.numbers[column]
                self._free.append(number)
        self.changed = False


class Filing:
    """What is to be filed of one condition."""

    def __init__(self, condition: Condition, tables: Tables, columns: Columns) -> None:
        self._tables = tables
        self._columns = columns
        self.used: set[int] = set()
        """The columns it is asked about."""
        self.rows: list[int] = []
        """Postings as `kernels.standing.table.file` takes them, one after the other."""
        self.program: list[int] = [0]
        self._in_text: list[tuple[list[int], int]] = []
        if not condition:
            self._always(at.F_ANY)
            return
        wanted = one_of(condition, tables.seed)
        if wanted is not None:
            self._one_of(wanted)
            return
        for clause in clauses(condition, tables.seed):
            self._clause(clause)
        self.program[0] = len(self.program)

    @property
    def program_words(self) -> int:
        """How many words the program takes; none when there is nothing in it."""
        words = len(self.program)
        return words if words > 1 else 0

    def place(self, number: int, text_at: int, program_at: int) -> None:
        """Say where number, text and program have their places."""
        rows = self.rows
        for words, place in self._in_text:
            words[place] += text_at << 24
        for place in range(6, len(rows), at.PLAN):
            rows[place] |= number
        if program_at:
            for place in range(5, len(rows), at.PLAN):
                if rows[place] & at.LOW:
                    rows[place] += program_at

    def _always(self, flags: int) -> None:
        shape = self._tables.shape(at.ALWAYS)
        self.rows += shape, 0, 0, 0, 0, 0, flags << 56, 0

    # ---- clauses --------------------------------------------------------------------------

    def _one_of(self, wanted: list[Value]) -> None:
        """File values at one path, as `_clause` does, to the word: half of all conditions are so.

        Each is a token that its own check verifies, and nothing is left for a program.
        """
        column = self._column(wanted[0][0].column)
        shape, about = self._tables.shape(at.EQUAL, column), column << 32
        for _, _, exact in wanted:
            if not exact:
                about |= at.F_MAYBE << 56
        for check, token, _ in wanted:
            second = 0
            if check.text is not None:
                second = check.text[0] << 24 | check.text[1]
                self._in_text.append((self.rows, len(self.rows) + 4))
            word = check.op << 48 | about
            self.rows += shape, token.a, 0, check.operands[0], second, 0, word, 0

    def _clause(self, clause: Clause) -> None:
        way, tokens, heads = self._choose(clause)
        inline, box = self._checks(clause, way)
        flags = 0 if clause.sure else at.F_MAYBE
        if inline is not None and inline.rough is not None and _is_only(inline, box):
            flags |= at.F_ALONE
        box_at = self._box(box)
        if way is None:
            tokens = [(self._tables.shape(at.ALWAYS), 0, 0)]
        if inline is None and way is not None and way.verify is not None:
            entries = [self._entry(check, box_at, flags) for check in way.verify]
        else:
            entries = [self._entry(inline, box_at, flags)] * len(tokens)
        for (shape, a, b), (check, words) in zip(tokens, entries, strict=True):
            if check is not None and check.text is not None:
                self._in_text.append((self.rows, len(self.rows) + 4))
            self.rows += shape, a, b, *words, 0
        for shape, a, levels in heads:
            self.rows += shape, a, 0, 0, 0, 0, 0, levels

    def _choose(
        self, clause: Clause
    ) -> tuple[Way | None, list[tuple[int, int, int]], list[tuple[int, int, int]]]:
        """The way to file a clause, its tokens, and those of heads with their masks."""
        values, kinds = clause.ways
        ways = values or _ranged(clause) or kinds
        if not ways:
            return None, [], []
        if len(ways) == 1 and not clause.ranges:
            return ways[0], self._tokens(ways[0]), []
        all_tokens = [self._tokens(way) for way in ways]
        flat: list[int] = []
        for tokens in all_tokens:
            for token in tokens:
                flat += *token, 0, 0, 0, 0, 0
        lengths = self._tables.lengths(flat)
        costs, first = [], 0
        for tokens in all_tokens:
            costs.append(sum(lengths[first : first + len(tokens)]))
            first += len(tokens)
        least = costs.index(min(costs))
        if costs[least] >= LONG:
            pair = self._pair(clause, ways)
            if pair is not None:
                return pair
        return ways[least], all_tokens[least], []

    def _tokens(self, way: Way) -> list[tuple[int, int, int]]:
        """The tokens of a way as a shape and two words each."""
        shape, found = self._tables.shape, []
        for token in way.tokens:
            column = self._column(token.column)
            found.append((shape(token.kind, column, 0, token.level), token.a, token.b))
        return found

    def _column(self, column: Column) -> int:
        number = self._columns.numbers.get(column)
        if number is None:
            number = self._columns.number(column)
        self.used.add(number)
        return number

    def _pair(
        self, clause: Clause, ways: list[Way]
    ) -> tuple[Way, list[tuple[int, int, int]], list[tuple[int, int, int]]] | None:
        """An equality and a range together."""
        equal = [
            way
            for way in ways
            if len(way.tokens) <= 4 and all(token.kind == at.EQUAL for token in way.tokens)
        ]
        if not equal or not clause.ranges:
            return None
        second, low, high = _narrowest(clause)[0]
        tokens, heads = [], []
        for token in equal[0].tokens:
            first = self._column(token.column)
            for part in range_tokens(second, low, high):
                kind, column = _PAIRED[part.kind], self._column(second)
                shape = self._tables.shape(kind, first, column, part.level)
                tokens.append((shape, part.a, token.a))
                levels = 1 << (part.level & 63)
            shape = self._tables.shape(at.HEADS, first, self._column(second))
            heads.append((shape, token.a, levels if levels < _SIGN else levels - 2 * _SIGN))
        return Way([], None, -1), tokens, heads

    def _checks(self, clause: Clause, way: Way | None) -> tuple[Check | None, list[list[Check]]]:
        """The check that stands in the entries, and the groups that are left for the program."""
        groups = clause.groups
        if len(groups) == 1 and way is not None and way.verify is not None:
            return None, []
        single = [group[0] for group in groups if len(group) == 1]
        for check in single:
            if check.op == at.OP_RANGE:
                return check, [group for group in groups if group[0] is not check]
        rough = [check for check in single if check.rough is not None]
        if rough:  # the exact check comes first in the program
            first = min(rough, key=lambda check: check.op == at.OP_GRAMS)  # places are quicker
            others = [group for group in groups if group[0] is not first]
            # Of grams it is all there is: perhaps, or no.
            return first, others if first.op == at.OP_GRAMS else [[first], *others]
        if way is not None and way.verify is not None:
            return None, [group for n, group in enumerate(groups) if n != way.group]
        if single:
            return single[0], [group for group in groups if group[0] is not single[0]]
        return None, groups

    # ---- words ----------------------------------------------------------------------------

    def _entry(
        self, check: Check | None, box_at: int, flags: int
    ) -> tuple[Check | None, tuple[int, int, int, int]]:
        """A check, and the words of an entry that it stands in."""
        if check is None:
            return None, (0, 0, box_at, flags << 56)
        op, column = check.op, self._column(check.column)
        if check.rough is not None:
            op, first, second, more = check.rough
            box_at |= more << 32
            if box_at >= _SIGN:
                box_at -= 2 * _SIGN
        elif check.text is not None:
            first, second = check.operands[0], check.text[0] << 24 | check.text[1]
        else:
            first, second = (*check.operands, 0)[:2]
        return check, (first, second, box_at, op << 48 | column << 32 | flags << 56)

    def _box(self, groups: list[list[Check]]) -> int:
        """Write a box of the program: where it begins, 0 for none."""
        if not groups:
            return 0
        first = len(self.program)
        program = self.program
        program.append(sum(map(len, groups)))
        for group in groups:
            left = len(group)
            for check in group:
                left -= 1
                word = check.op | self._column(check.column) << 8 | (at.OR if left else 0)
                if check.text is None:
                    program += (word, *check.operands, 0, 0, 0, 0)[: at.CHECK]
                else:
                    self._in_text.append((program, len(program) + 2))
                    second = check.text[0] << 24 | check.text[1]
                    program += (word, check.operands[0], second, 0, 0)
        return first


def _narrowest(clause: Clause) -> list[tuple[Column, float, float]]:
    """The ranges with two ends, or all if there is none."""
    both = [one for one in clause.ranges if one[1] > -math.inf and one[2] < math.inf]
    return both or clause.ranges


def _ranged(clause: Clause) -> list[Way]:
    """The ways of the ranges that narrow most."""
    return [Way(list(range_tokens(*one))) for one in _narrowest(clause)]


def _is_only(check: Check, groups: list[list[Check]]) -> bool:
    """Whether there is one check in groups, and it is this one."""
    return len(groups) == 1 and len(groups[0]) == 1 and groups[0][0] is check
