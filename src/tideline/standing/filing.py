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

import numpy as np

from tideline.errors import InvalidRequest
from tideline.kernels.standing import layout as at
from tideline.standing.clauses import clauses, range_tokens
from tideline.standing.parts import Check, Clause, Column, Token, Way
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
        self._sets: dict[tuple[int, ...], int] = {}
        self._of_set: list[tuple[int, ...]] = []
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
        key = tuple(sorted(columns))
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
        self.rows: list[int] = []
        """Postings as `kernels.standing.table.file` takes them, one after the other."""
        self.program: list[int] = [0]
        self._in_text: list[tuple[list[int], int]] = []
        if not condition:
            self._always(at.F_ANY)
            return
        found = clauses(condition, tables.seed)
        for clause in found:
            self._clause(clause)
        self.program[0] = len(self.program)

    @property
    def program_words(self) -> int:
        """How many words the program takes; none when there is nothing in it."""
        return len(self.program) if len(self.program) > 1 else 0

    def place(self, number: int, text_at: int, program_at: int) -> None:
        """Say where number, text and program have their places."""
        rows = self.rows
        for words, place in self._in_text:
            words[place] += text_at << 24
        for first in range(0, len(rows), at.PLAN):
            if rows[first + 5] & at.LOW:
                rows[first + 5] += program_at
            rows[first + 6] |= number

    def _always(self, flags: int) -> None:
        shape = self._tables.shape(at.ALWAYS)
        self.rows += shape, 0, 0, 0, 0, 0, flags << 56, 0

    # ---- clauses --------------------------------------------------------------------------

    def _clause(self, clause: Clause) -> None:
        way, tokens, heads = self._choose(clause)
        inline, box = self._checks(clause, way)
        flags = 0 if clause.sure else at.F_MAYBE
        if inline is not None and inline.rough is not None and box[:1] == [[inline]] == box:
            flags |= at.F_ALONE
        box_at = self._box(box)
        if way is None:
            self._row(self._tables.shape(at.ALWAYS), 0, 0, inline, box_at, flags)
            return
        for number, (shape, a, b) in enumerate(tokens):
            each = inline
            if each is None and way.verify is not None:
                each = way.verify[number]
            self._row(shape, a, b, each, box_at, flags)
        for shape, a, levels in heads:
            self.rows += shape, a, 0, 0, 0, 0, 0, levels

    def _choose(
        self, clause: Clause
    ) -> tuple[Way | None, list[tuple[int, int, int]], list[tuple[int, int, int]]]:
        """The way to file a clause, its tokens, and those of heads with their masks."""
        ways = next(filter(None, clause.ways), None)
        if ways is None:
            return None, [], []
        all_tokens = [[self._token(token) for token in way.tokens] for way in ways]
        least = 0
        if len(ways) > 1 or clause.ranges:
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

    def _token(self, token: Token) -> tuple[int, int, int]:
        column = self._column(token.column)
        return self._tables.shape(token.kind, column, 0, token.level), token.a, token.b

    def _column(self, column: Column) -> int:
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
        ranges = [one for one in clause.ranges if one[1] > -np.inf and one[2] < np.inf]
        ranges = ranges or clause.ranges
        if not equal or not ranges:
            return None
        second, low, high = ranges[0]
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
        single = [group[0] for group in clause.groups if len(group) == 1]
        ranged = [check for check in single if check.op == at.OP_RANGE]
        if ranged:
            return ranged[0], [group for group in clause.groups if group[0] is not ranged[0]]
        rough = [check for check in single if check.rough is not None]
        if rough:  # the exact check comes first in the program
            first = min(rough, key=lambda check: check.op == at.OP_GRAMS)  # places are quicker
            others = [group for group in clause.groups if group[0] is not first]
            # Of grams it is all there is: perhaps, or no.
            return first, others if first.op == at.OP_GRAMS else [[first], *others]
        if way is not None and way.verify is not None:
            return None, [group for n, group in enumerate(clause.groups) if n != way.group]
        if single:
            return single[0], [group for group in clause.groups if group[0] is not single[0]]
        return None, clause.groups

    # ---- words ----------------------------------------------------------------------------

    def _row(
        self, shape: int, a: int, b: int, check: Check | None, box_at: int, flags: int
    ) -> None:
        op = column = 0
        operands, more = [0, 0], 0
        if check is not None:
            column = self._column(check.column)
            if check.rough is not None:
                op, operands[0], operands[1], more = check.rough
            else:
                op = check.op
                for place, operand in enumerate(check.operands):
                    operands[place] = operand
        if check is not None and check.text is not None:
            operands[1] = check.text[0] << 24 | check.text[1]
            self._in_text.append((self.rows, len(self.rows) + 4))
        more = more << 32 | box_at
        if more >= _SIGN:
            more -= 2 * _SIGN
        self.rows += shape, a, b, *operands, more, op << 48 | column << 32 | flags << 56, 0

    def _box(self, groups: list[list[Check]]) -> int:
        """Write a box of the program: where it begins, 0 for none."""
        if not groups:
            return 0
        first = len(self.program)
        program = self.program
        program.append(sum(map(len, groups)))
        for group in groups:
            for left, check in zip(range(len(group) - 1, -1, -1), group, strict=True):
                word = check.op | self._column(check.column) << 8 | (at.OR if left else 0)
                operands = [*check.operands, 0, 0, 0, 0][:4]
                if check.text is not None:
                    operands[1] = check.text[0] << 24 | check.text[1]
                    self._in_text.append((program, len(program) + 2))
                program += [word, *operands]
        return first
