"""Figures of a preset, in the paper's arrangement: a number over a parameter, curves over rounds, what parts noted, partitions
and schedules. `kinds` reads them from the preset, `series` takes their numbers from a run, `draw` makes plotly figures."""

from undrift.papers.figures.draw import drawn
from undrift.papers.figures.kinds import UNTRAINED, Figure, names_in, parse_figure
from undrift.papers.figures.series import kept_series

__all__ = ["UNTRAINED", "Figure", "drawn", "kept_series", "names_in", "parse_figure"]
