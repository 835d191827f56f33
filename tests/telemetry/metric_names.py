"""Metrics as a scrape has them, and the names that expressions of Prometheus use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

_SUFFIXES = {
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
    "counter": ("_total", "_created"),
}
_KEYWORDS = frozenset(
    {"by", "without", "on", "ignoring", "group_left", "group_right", "offset", "bool", "and", "or", "unless"}
)
_FUNCTIONS = frozenset({
    "sum", "max", "min", "avg", "count", "rate", "increase", "histogram_quantile", "absent", "time", "predict_linear",
    "clamp_min", "changes", "label_replace", "vector", "delta",
})  # fmt: skip


@dataclass
class Scrape:
    """A parsed scrape.

    Args:
        text: as it was answered.
    """

    text: str

    def __post_init__(self) -> None:
        self.families = list(text_string_to_metric_families(self.text))

    def value(self, sample: str, **labels: str) -> float | None:
        """Return the value of one sample, None where there is none."""
        for family in self.families:
            for one in family.samples:
                if one.name == sample and one.labels == labels:
                    return float(one.value)
        return None

    def sample_names(self) -> set[str]:
        """Return the names that an expression may use: those of all samples, and of families without one yet."""
        found = {one.name for family in self.families for one in family.samples}
        for family in self.families:
            found |= {f"{family.name}{ending}" for ending in _SUFFIXES.get(family.type, ("",))}
        return found

    def labels(self, metric: str) -> set[str]:
        """Return the labels of the samples of a name."""
        return {
            label for family in self.families for one in family.samples if one.name == metric for label in one.labels
        }


def names_in(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the metrics that an expression reads, each with the labels that it selects by.

    Raises:
        AssertionError: brackets do not match, or a word is neither a function, nor a keyword, nor a metric.
    """
    text = re.sub(r"\$__rate_interval|\$__interval|\$__range", "5m", expression)
    for first, last in ("()", "[]", "{}"):
        assert text.count(first) == text.count(last), expression
    plain = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    plain = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", plain)
    plain = re.sub(r"\[[^\]]*\]", " ", plain)
    for found in re.finditer(r"([a-zA-Z_:][\w:]*)\s*(\(|\{[^}]*\})?", plain):
        name, after = found[1], found[2] or ""
        if after == "(":
            assert name in _FUNCTIONS, f"{name} in {expression}"
        elif name not in _KEYWORDS and not plain[: found.start()].rstrip().endswith(tuple("0123456789")):
            yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", after))


def grouped_by(expression: str) -> set[str]:
    """Return the labels that an expression groups by."""
    groups = re.findall(r"\bby\s*\(([^)]*)\)", expression)
    return {one.strip() for group in groups for one in group.split(",") if one.strip()}
