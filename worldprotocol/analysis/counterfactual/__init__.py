"""Counterfactual: replay a log with changes in a scratch log, and report the differences.

A change drops a proposal, inserts an intent or replaces a policy. From a given event on, recorded inputs are repeated
in their order and at their times: intents with the recorded results of projections, human answers to the same
questions, results of effects with the same arguments. Rulings, verdicts, computations and worlds are computed again. No
effect is
performed: an execution that needs an unrecorded one is cancelled in the branch and reported. Source: CARD-audit,
CARD-replay.
"""

from __future__ import annotations

from worldprotocol.analysis.counterfactual.asked import Insertion, WhatIf
from worldprotocol.analysis.counterfactual.branching import cut_of, start_of, what_if
from worldprotocol.analysis.counterfactual.report import WhatIfReport

__all__ = ["Insertion", "WhatIf", "WhatIfReport", "cut_of", "start_of", "what_if"]
