"""The earlier form of a domain with models: field specs, under which older logs go on.

Its schemaHash is the one that a log recorded which adopted the domain before state models were enforced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from world.core.fields_of import input_spec, state_spec

__all__ = ["earlier_form"]


def earlier_form(
    portable: Mapping[str, Any], state: type[BaseModel] | None, inputs: Mapping[str, type[BaseModel] | None]
) -> dict[str, Any]:
    """Return the portable schema with the state and the inputs of models as field specs.

    Args:
        portable: the schema in its present form.
        state: the model of the state; None keeps the state.
        inputs: the models of inputs by action; others are kept.

    Raises:
        RefusedError: ``UNSUPPORTED_TYPE`` for a model that has no such form.
    """
    actions = dict(portable["actions"])
    for name, model in inputs.items():
        if model is not None:
            actions[name] = {**actions[name], "input": input_spec(model)}
    return {**portable, "actions": actions, **({} if state is None else {"state": state_spec(state)})}
