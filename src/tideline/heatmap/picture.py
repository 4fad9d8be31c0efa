"""Counts on a grid as a picture.

    counts (row, col, count) -> one colour a cell, on a map in its true proportions

Few cells have most of the events, so colours follow the logarithm of the count once the busiest
cell has many times what the middle one has. Cells without events stay the colour of the paper.
Where the bounds meet New York State, its outline, main roads and towns are drawn
(workload/newyork.py).

Needs the extra `plot` (matplotlib) when called, not when imported. Draws into memory: no window
is opened and no global state of matplotlib is touched.
"""

from __future__ import annotations

import os
from math import cos, radians
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tideline.errors import InvalidRequest, Unavailable
from tideline.heatmap.counts import make_grid

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from pyspark.sql import DataFrame

    from tideline.space import Grid

__all__ = ["check_file", "check_plot", "heatmap"]

_KINDS = (".png", ".svg", ".pdf", ".jpg", ".webp")
_INK, _PALE, _PAPER = "#2b2f36", "#8a93a0", "#ffffff"
_MAP_IN = (7.1, 8.5)  # how large the map may be
_LEFT_IN, _RIGHT_IN, _LEAST_IN = 0.75, 1.15, 6.0
_CELLS_LIMIT = 4_000_000  # more than a page has points
_SKEWED = 8  # the busiest cell against the middle one
_TOWNS = 18


def heatmap(
    counts: DataFrame | pa.Table, path: str | os.PathLike[str], *,
    bounds: tuple[float, float, float, float], rows: int, cols: int, title: str = "events",
    subtitle: str = "", land: bool | None = None, log: bool | None = None, dpi: int = 150,
) -> Path:  # fmt: skip
    """Draw what `aggregate` counted on the same grid; returns the file.

    The file's ending says what it becomes: .png, .svg, .pdf, .jpg or .webp. `land` draws New
    York State, by default where the bounds meet it; `log` colours by the logarithm, by default
    when few cells have most of the events.

    >>> import pyarrow as pa
    >>> counts = pa.table({"row": [0, 1], "col": [0, 1], "count": [3, 40]})
    >>> heatmap(counts, "heat.png", bounds=(0, 0, 2, 2), rows=2, cols=2)  # doctest: +SKIP
    PosixPath('heat.png')
    """
    file = check_file(path)
    check_plot()
    grid = make_grid(bounds, rows, cols, None)
    if rows * cols > _CELLS_LIMIT:
        raise InvalidRequest(f"a picture has at most {_CELLS_LIMIT:,} cells", rows=rows, cols=cols)
    cells = _matrix(counts, grid)
    figure, axes = _page(grid)
    _cells(figure, axes, cells, grid, log)
    if _meets_new_york(grid) if land is None else land:
        _new_york(figure, axes, grid)
    _labels(figure, axes, grid, title, subtitle, int(cells.sum()))
    # Whole or not at all: a picture that is being looked at is replaced, not emptied.
    draft = file.with_name(f".{file.stem}.{os.getpid()}{file.suffix}")
    try:
        figure.savefig(draft, dpi=dpi, facecolor=_PAPER)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return file


def check_file(path: str | os.PathLike[str]) -> Path:
    """`InvalidRequest` unless a picture can be written there."""
    file = Path(path)
    if file.suffix.lower() not in _KINDS:
        raise InvalidRequest(f"the picture must end in {', '.join(_KINDS)}", path=str(file))
    if not file.parent.is_dir():
        raise InvalidRequest("the picture's folder is not there", path=str(file))
    return file


def check_plot() -> None:
    """`Unavailable` when there is nothing to draw with."""
    try:
        import matplotlib.figure
    except ImportError:
        raise Unavailable("a heat map needs matplotlib: pip install 'tideline[plot]'") from None
    assert matplotlib.figure


def _matrix(counts: DataFrame | pa.Table, grid: Grid) -> NDArray[np.int64]:
    """The counts as a matrix, from the south and from the west."""
    import pyarrow as pa

    table = counts if isinstance(counts, pa.Table) else counts.toArrow()
    missing = [name for name in ("row", "col", "count") if name not in table.schema.names]
    if missing:
        raise InvalidRequest(
            "counts need the columns row, col and count, as aggregate gives them", missing=missing
        )
    row, col, count = (
        table.column(name).cast(pa.int64()).to_numpy() for name in ("row", "col", "count")
    )
    if not (np.isin(row, range(grid.rows)).all() and np.isin(col, range(grid.cols)).all()):
        raise InvalidRequest(
            "the counts are of another grid", rows=grid.rows, cols=grid.cols,
            last_row=int(row.max()), last_col=int(col.max()),
        )  # fmt: skip
    matrix = np.zeros((grid.rows, grid.cols), np.int64)
    np.add.at(matrix, (row, col), count)
    return matrix


# ---- the picture --------------------------------------------------------------------


def _ratio(grid: Grid) -> float:
    """How much longer a degree of latitude is than one of longitude, in the middle."""
    _, south, _, north = grid.bounds
    return 1 / max(cos(radians((south + north) / 2)), 0.05)


def _page(grid: Grid) -> tuple[Any, Axes]:
    """A page around a map in its proportions: room for the title above, the colours beside it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    west, south, east, north = grid.bounds
    shape = (north - south) * _ratio(grid) / (east - west)
    wide = min(_MAP_IN[0], _MAP_IN[1] / shape)
    high = wide * shape
    width, height = max(wide + _LEFT_IN + _RIGHT_IN, _LEAST_IN), max(high, 1.6) + 1.45
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    below = 0.55 + max(0.0, (1.6 - high) / 2)
    frame = (_LEFT_IN / width, below / height, wide / width, high / height)
    return figure, figure.add_axes(frame)


def _cells(figure: Any, axes: Axes, cells: NDArray[np.int64], grid: Grid, log: bool | None) -> None:
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    west, south, east, north = grid.bounds
    filled = cells[cells > 0]
    top = int(filled.max()) if len(filled) else 1
    if log is None:
        log = bool(len(filled)) and top > _SKEWED * float(np.median(filled))
    low = int(filled.min()) if log and len(filled) else 0
    norm = LogNorm(max(low, 1), max(top, low + 1)) if log else Normalize(low, max(top, 1))
    image = axes.imshow(
        np.ma.masked_equal(cells, 0),
        origin="lower",
        extent=(west, east, south, north),
        aspect=_ratio(grid),
        cmap=_colours(),
        norm=norm,
        interpolation="nearest",
        zorder=2,
    )
    if not len(filled):
        return
    box = axes.get_position()
    width, height = figure.get_size_inches()
    high = min(box.height, 3.6 / height)
    middle = box.y0 + (box.height - high) / 2
    side = figure.add_axes((box.x1 + 0.18 / width, middle, 0.14 / width, high))
    bar = figure.colorbar(image, cax=side)
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}" if n >= 1 else ""))
    if log:
        few = top / max(low, 1) < 50  # less than two decades: some numbers in between
        bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
        bar.ax.yaxis.set_minor_locator(NullLocator())
    else:
        bar.ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    bar.ax.tick_params(labelsize=8.5, length=0, colors=_INK, pad=5)
    what = "events in a cell" + (", log" if log else "")
    bar.set_label(what, fontsize=8.5, color=_INK, labelpad=9)


def _colours() -> Any:
    """From pale to dark, readable in print and to the colour-blind."""
    from matplotlib.colors import LinearSegmentedColormap

    steps = ["#fdeccb", "#fbc97f", "#f59b5f", "#e56456", "#bf3b67", "#862a72", "#4a1a60"]
    return LinearSegmentedColormap.from_list("tideline", steps)


def _labels(figure: Any, axes: Axes, grid: Grid, title: str, subtitle: str, total: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    west, south, east, north = grid.bounds
    axes.set_xlim(west, east)
    axes.set_ylim(south, north)
    axes.set_facecolor("#f6f7f9")
    for spine in axes.spines.values():
        spine.set_color("#d5d9df")
    box, (wide, high) = axes.get_position(), figure.get_size_inches()
    steps = [1, 2, 5, 10]
    axes.xaxis.set_major_locator(MaxNLocator(max(1, int(box.width * wide)), steps=steps))
    axes.yaxis.set_major_locator(MaxNLocator(max(1, int(box.height * high / 0.8)), steps=steps))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _degrees(x, "E", "W")))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _degrees(y, "N", "S")))
    axes.tick_params(labelsize=8.5, colors=_PALE, length=0, pad=6)
    if total == 0:
        axes.text(
            0.5, 0.5, "no events", transform=axes.transAxes, ha="center", va="center",
            fontsize=16, color=_PALE, zorder=6,
        )  # fmt: skip
    text = {"x": box.x0, "ha": "left", "va": "baseline"}
    figure.text(
        y=box.y1 + 0.44 / high, s=_fitted(title, int(wide * 6)), fontsize=15, color=_INK,
        weight="bold", **text,
    )  # fmt: skip
    many = f"{total:,} event{'' if total == 1 else 's'}"
    below = " · ".join(part for part in (many, subtitle) if part)
    below = _fitted(below, int(wide * 12))
    figure.text(y=box.y1 + 0.17 / high, s=below, fontsize=9.5, color=_PALE, **text)


def _fitted(text: str, most: int) -> str:
    """A text that does not run off the page; `$` is a letter here, not the start of a formula."""
    text = " ".join(text.split())
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("\\", "\\\\").replace("$", r"\$")


def _degrees(value: float, positive: str, negative: str) -> str:
    side = positive if value > 0 else negative if value < 0 else ""
    return f"{abs(value):.6g}°{side}"


# ---- New York State -----------------------------------------------------------------


def _meets_new_york(grid: Grid) -> bool:
    from tideline.workload.newyork import BOUNDS

    west, south, east, north = grid.bounds
    return west < BOUNDS[2] and east > BOUNDS[0] and south < BOUNDS[3] and north > BOUNDS[1]


def _new_york(figure: Any, axes: Axes, grid: Grid) -> None:
    """The state below the cells; roads, outline and towns above them."""
    from matplotlib.patches import Polygon
    from matplotlib.patheffects import withStroke

    from tideline.workload.newyork import CITIES, OUTLINE, ROADS

    axes.add_patch(Polygon(OUTLINE, closed=True, facecolor=_PAPER, edgecolor="none", zorder=1))
    axes.add_patch(
        Polygon(OUTLINE, closed=True, facecolor="none", edgecolor="#9aa3af", lw=0.9, zorder=4)
    )
    for _, start, end, between in ROADS:
        points = np.array([CITIES[start][:2], *between, CITIES[end][:2]])
        axes.plot(points[:, 0], points[:, 1], color="#6b7480", lw=0.5, alpha=0.35, zorder=3)
    west, south, east, north = grid.bounds
    inches = figure.get_size_inches() * axes.get_position().size
    taken: list[tuple[float, float, float]] = []
    for name, (lon, lat, _) in sorted(CITIES.items(), key=lambda city: -city[1][2]):
        x, y = (lon - west) / (east - west), (lat - south) / (north - south)
        long, high = (0.08 + 0.075 * len(name)) / inches[0], 0.2 / inches[1]
        left = x if x + long < 1 else x - long
        free = all(abs(y - b) > high or left > d or left + long < c for b, c, d in taken)
        if not (0.01 < x < 0.99 and 0.02 < y < 0.97) or not free or len(taken) == _TOWNS:
            continue
        taken.append((y, left, left + long))
        axes.plot(lon, lat, "o", ms=2.6, mfc=_PAPER, mec=_INK, mew=0.7, zorder=5)
        axes.annotate(
            name, (lon, lat), xytext=(5 if left == x else -5, 2), textcoords="offset points",
            ha="left" if left == x else "right", fontsize=7.8, color=_INK, zorder=6,
            path_effects=[withStroke(linewidth=2.2, foreground=_PAPER)],
        )  # fmt: skip
