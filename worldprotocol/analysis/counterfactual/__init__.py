"""What if: a branch that never was, in a scratch log, with something dropped, inserted, or judged otherwise.

From some event of a log on, what people and the outside did is done again in its order and at its times: intents with
the recorded results of projections, answers of people where they are asked the same, results of effects where the
same effect is asked for with the same arguments. Rulings, verdicts, computations and worlds follow anew. No effect is
made: an execution that would need one is called off in the branch and reported. Source: CARD-audit, CARD-replay.
"""

from __future__ import annotations

from worldprotocol.analysis.counterfactual.asked import Insertion, WhatIf
from worldprotocol.analysis.counterfactual.branching import cut_of, what_if
from worldprotocol.analysis.counterfactual.report import WhatIfReport

__all__ = ["Insertion", "WhatIf", "WhatIfReport", "cut_of", "what_if"]
