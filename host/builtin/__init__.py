"""Built-in effects: files of the workspace, HTTP, processes, and waiting.

Each declares its touches in advance, validates its parameters strictly, and returns a result or an error value. A
registered handler of the same type replaces a built-in one. Source: design section 8; KO-2.1, HC-handlers.
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
