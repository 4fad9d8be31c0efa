"""Where things stand in the index over standing conditions.

    slot      token | first entry of its list | length, class, shape | mask of levels
              An empty slot has the token 0. A list of class k has room for 2**k entries.
    entry     operand | operand | box of the program (32 bits), single float (32)
              | number of the condition (32 bits), column (16), op (8), flags (8)
    posting   next posting of the condition (32 bits), place in its list (32) | token
              A posting whose place is HEAD counts in the slot of a pair's equality.
    shape     kind | column | second column | level | how many postings | next of its pairs
              HEADS are the equality values of pairs of an equality and a range. The mask of such
              a slot says which levels its pairs have, modulo 64.
    program   boxes of checks; a box is the number of its checks, then CHECK words each:
              op, column << 8, OR << 24 | four operands
    column    view | node | node above | node of `type` | node of `coordinates`
    value     kind | hash | number | address of a text | its size      (what lies at a column)
              of a point: kind | cosine | longitude | latitude | sine of the latitude
              of another geometry, one for each cell that it may touch: kind | level | longitude
              | latitude of a place in the cell
              of the grams of a text: kind | mask | mask | address of the text | its size. The masks
              have a bit for each pair of bytes that follow one another, folded

All of these are words of 64 bits.
"""

from __future__ import annotations

from tideline.kernels.words import Layout

SLOT, ENTRY, POSTING, SHAPE, CHECK, COLUMN, VALUE, PLAN = 4, 4, 2, 6, 5, 5, 5, 8
CLASSES = 40
HEAD = (1 << 32) - 1
LOW = (1 << 32) - 1

# Kinds of shapes.
ALWAYS, EQUAL, CELL, ABOVE, BELOW, GRID, PREFIX, BRACKET, HEADS, GRAM = range(10)
PAIR, PAIR_ABOVE, PAIR_BELOW = range(10, 13)
BUCKET = 50  # bits of the order of a double that ABOVE and BELOW leave out

# Views of a column: its values, the words of its texts, the point it is, the grams of its texts.
VALUES, WORDS, POINT, GRAMS = range(4)
GRAM_BYTES = 4  # the longest gram that conditions are filed by
NO_LEVEL = -10_000

# Kinds of values.
K_NULL, K_FALSE, K_TRUE, K_NUMBER, K_TEXT, K_ARRAY, K_OBJECT, K_WORD, K_POINT, K_LOOSE = (
    1, 2, 3, 4, 6, 8, 9, 11, 12, 13,
)  # fmt: skip
K_GRAMS, K_SHAPED = 14, 15

# Checks. A loose point is one of a row with arrays: no check of it is sure. A shaped place says
# perhaps to every check.
OP_NONE, OP_RANGE, OP_NUMBER, OP_KIND, OP_TEXT, OP_HASH, OP_PREFIX = range(7)
OP_CIRCLE, OP_RING, OP_BOX, OP_NEAR_BOX, OP_NEAR_RING = range(7, 12)
OP_GRAMS = 12  # at most so many bits of two masks are missing
NOT = 64  # beside an op: it must not hold
OR = 1 << 24

# Flags of an entry: the predicate decides; the program only repeats the inline check exactly;
# whatever the body is, an object or not, the condition holds.
F_MAYBE, F_ALONE, F_ANY = 1, 2, 4

# What an image of a row may be.
NONE, OBJECT, OTHER, SLOW = range(4)
MANY = 16  # beside OBJECT: a column may have several values

# Bits of a stamp, and what is told of a row and a condition.
OLD_YES, OLD_MAYBE, NEW_YES, NEW_MAYBE = 1, 2, 4, 8
ADD, CHANGE, REMOVE, OPEN = 0, 1, 2, 16

# What `file` may need more of.
NEED_SLOTS, NEED_ENTRIES, NEED_POSTINGS = 1, 2, 3

INDEX = Layout("index", "S_", "the index over standing conditions", globals())
S_SLOTS = INDEX.address("slots")
S_MASK = INDEX.count("slots, minus 1")
S_USED = INDEX.count("slots that have a token")
S_ENTRIES = INDEX.address("entries of all lists")
S_ENTRIES_TOP = INDEX.count("entries that were given out")
S_ENTRIES_ROOM = INDEX.count("entries there is room for")
S_POSTINGS = INDEX.address("postings; the first stands for none")
S_POSTINGS_TOP = INDEX.count("postings that were given out")
S_POSTINGS_ROOM = INDEX.count("postings there is room for")
S_POSTINGS_FREE = INDEX.word("the first free posting, 0 for none")
S_FIRST = INDEX.address("by number of a condition: its first posting, 32 bits each")
S_STAMPS = INDEX.address("by number of a condition: epoch << 4 and bits, 32 bits each")
S_SHAPES = INDEX.address("shapes")
S_SHAPES_COUNT = INDEX.count("shapes")
S_PROGRAMS = INDEX.address("programs")
S_TEXTS = INDEX.address("texts of conditions, which checks of texts point into")
S_TEXT_AT = INDEX.address("by number of a condition: where its text begins")
S_TEXT_SIZE = INDEX.address("by number of a condition: the size of its text, 32 bits each")
S_NAMES = INDEX.address("numbers of conditions by their texts, 32 bits each (names.py)")
S_NAMES_MASK = INDEX.count("slots of these, minus 1")
S_SEED = INDEX.word("seed of all hashes")
S_EPOCH = INDEX.count("rows that were stamped")
S_CHANGED = INDEX.word("1 when a shape came into use or went out of it")
S_NEED = INDEX.word("what `file` needs more of")
S_LIVE = INDEX.count("slots with a list that is not empty")
S_FREE = INDEX.word("the first of CLASSES words: free lists by class, -1 for none")
S_WORDS = INDEX.end(spare=CLASSES)

CALL = Layout("call", "C_", "a call of match", globals())
C_ROWS = CALL.count("rows to do")
C_STRIDE = CALL.count("rows of tags and values")
C_GIVEN = CALL.address("the row numbers, when what lies at their columns is given; else 0")
C_COLUMNS = CALL.address("columns")
C_COLUMNS_COUNT = CALL.count("columns")
C_PARENTS = CALL.address("by node: the node above")
C_OLD_TAGS = CALL.address("of the old images: tags, as kernels/jsonpath.py gives them; 0: none")
C_OLD_VALUES = CALL.address("values")
C_OLD_DATA = CALL.address("texts, with room behind")
C_OLD_OFFSETS = CALL.address("where each begins")
C_OLD_STATES = CALL.address("when given: what each is; 0: none")
C_OLD_STARTS = CALL.address("when given: first value of each column, for each row")
C_OLD_FOUND = CALL.address("when given: values")
C_NEW_TAGS = CALL.address("of the new images: tags")
C_NEW_VALUES = CALL.address("values")
C_NEW_DATA = CALL.address("texts")
C_NEW_OFFSETS = CALL.address("where each begins")
C_NEW_STATES = CALL.address("what each is")
C_NEW_STARTS = CALL.address("first value of each column, for each row")
C_NEW_FOUND = CALL.address("values")
C_BLOCK = CALL.address("scratch: the images of BLOCK rows")
C_STARTS = CALL.address("scratch for each image: first value of each column")
C_FOUND = CALL.address("values")
C_FOUND_ROOM = CALL.count("values that an image has room for")
C_TOKENS = CALL.address("tokens, then slots")
C_TOKENS_ROOM = CALL.count("tokens that an image has room for")
C_HITS = CALL.address("scratch: conditions that one row met")
C_OUT_ROWS = CALL.address("what was found: rows")
C_OUT_NUMBERS = CALL.address("numbers of conditions")
C_OUT_KINDS = CALL.address("ADD, CHANGE, REMOVE, or OPEN and bits")
C_OUT_ROOM = CALL.count("what there is room for")
C_OUT_COUNT = CALL.count("what was found")
C_OUT_OPEN = CALL.count("how many of these are OPEN")
C_SLOW = CALL.address("rows that were left out: they have to be decoded")
C_SLOW_COUNT = CALL.count("how many")
C_ROW = CALL.count("the next row to do")
C_WORDS = CALL.end()

BLOCK = 8  # rows whose slots and lists are loaded together
READ = Layout("image", "R_", "an image of a row that is matched", globals())
R_STATE = READ.word("what it is")
R_MANY = READ.word("whether a column may have several values")
R_STARTS = READ.address("first value of each column")
R_FOUND = READ.address("values")
R_TOKENS = READ.address("its tokens, then their slots")
R_COUNT = READ.count("how many")
R_WORDS = READ.end()
