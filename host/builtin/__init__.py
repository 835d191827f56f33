"""The effects that are always at hand: files of the workspace, HTTP, processes, and waiting.

Each says what it touches before it is made, checks its parameters strictly, and answers a result or an error value. An
own handler of the same type takes the place of a built-in one. Source: design section 8; KO-2.1, HC-handlers.
"""

from host.builtin.files import FILES
from host.builtin.http import HTTP
from host.builtin.notes import prune_notes
from host.builtin.processes import PROCESSES
from host.builtin.timers import TIMERS
from host.effects import EffectHandler

__all__ = ["BUILTIN", "prune_notes"]

BUILTIN: tuple[EffectHandler, ...] = (*FILES, *HTTP, *PROCESSES, *TIMERS)
"""The built-in handlers."""
