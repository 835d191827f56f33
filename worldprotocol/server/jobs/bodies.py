"""Bodies of requests that start jobs: the options of the commands, read strictly.

Policies are names of loaded policies, or the text of a policy file, which contains conditions in CEL and no code.
Nothing that a request contains is imported.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from world.model.immutable_json import freeze
from worldprotocol.server.bodies import Name, StrictBody

__all__ = ["BacktestToStart", "InsertedIntent", "JobToCancel", "RecheckToStart", "VerifyToStart", "WhatIfToStart"]


def _frozen(value: Any, info: ValidationInfo) -> Any:
    """Refuse before the job begins what no log can hold; an integer beyond 2^53 becomes a double, as in a log."""
    return freeze(value, f"$.{info.field_name}")


Json = Annotated[Any, BeforeValidator(_frozen)]
JsonObject = Annotated[dict[str, Any], BeforeValidator(_frozen)]
Time = Annotated[str, Field(min_length=1, max_length=100)]
Position = Annotated[int, Field(ge=1, le=2**53)]
PolicyText = Annotated[str, Field(min_length=1, max_length=200_000)]
Format = Literal["toml", "yaml"]
Processes = Annotated[int, Field(ge=1, le=8)]


class VerifyToStart(StrictBody):
    """A verification of the whole log, also against tree heads that were kept elsewhere, as `SIZE:ROOT`."""

    against: list[Annotated[str, Field(pattern="^[0-9]{1,18}:[0-9a-f]{64}$")]] = Field(default=[], max_length=100)


class RecheckToStart(StrictBody):
    """A recheck: all of it or up to the first divergence, up to an event or a point in the past, or varied.

    With `proposal`, it rechecks the steps of that proposal.
    """

    all: bool = False
    upto: Position | None = None
    at: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    jobs: Processes | None = None
    runs: Annotated[int, Field(ge=1, le=10)] | None = None
    vary: list[Literal["hashseed", "order", "locale", "timezone"]] = Field(default=[], max_length=4)
    proposal: Name | None = None

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.proposal is not None and self.model_fields_set - {"proposal", "all"}:
            raise ValueError("`proposal` can be combined with `all` only")
        if self.at is not None and self.upto is not None:
            raise ValueError("`at` and `upto` both name the end; name one of them")
        return self


class InsertedIntent(StrictBody):
    """An intent that is submitted only in the what-if; without `at`, at its start."""

    actor: Name
    type: Name
    input: Json = None
    scopeProposal: JsonObject | None = None  # noqa: N815  # wire form
    branch: Name | None = None
    at: Time | None = None


class WhatIfToStart(StrictBody):
    """A what-if: where it begins, dropped proposals, other policies, inserted intents."""

    begin: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(default=None, alias="from")
    drop: list[Name] = Field(default=[], max_length=1_000)
    policies: list[Name] = Field(default=[], max_length=20)
    policyText: PolicyText | None = None  # noqa: N815
    policyFormat: Format = "toml"  # noqa: N815
    insert: list[InsertedIntent] = Field(default=[], max_length=1_000)


class BacktestToStart(StrictBody):
    """A backtest of a loaded policy, or of the text of one, over a stretch of the log."""

    policy: Name | None = None
    policyText: PolicyText | None = None  # noqa: N815
    policyFormat: Format = "toml"  # noqa: N815
    of: Name | None = None
    since: Time | None = None
    until: Time | None = None
    branch: Name | None = None
    last: Annotated[int, Field(ge=1, le=2**53)] | None = None
    jobs: Processes | None = None

    @model_validator(mode="after")
    def _one_policy(self) -> Self:
        if (self.policy is None) == (self.policyText is None):
            raise ValueError("name a `policy`, or give its `policyText`")
        return self


class JobToCancel(StrictBody):
    """A cancellation; it has no members."""
