"""An account as data in Python; the same domain as ledger.mel and ledger.yaml."""

from __future__ import annotations

from world.core import load_domain

ledger = load_domain(
    {
        "id": "urn:example:ledger",
        "version": "1.0.0",
        "state": {
            "fields": {
                "balance": {"type": "number", "default": 0},
                "moves": {"type": "array", "items": {"type": "number"}, "default": []},
            }
        },
        "actions": {
            "deposit": {
                "input": {"type": "object", "fields": {"amount": {"type": "number", "required": True}}},
                "flow": {
                    "kind": "seq",
                    "steps": [
                        {
                            "kind": "patch",
                            "op": "set",
                            "path": "balance",
                            "value": {
                                "kind": "add",
                                "left": {"kind": "get", "path": "balance"},
                                "right": {"kind": "get", "path": "input.amount"},
                            },
                        },
                        {
                            "kind": "patch",
                            "op": "set",
                            "path": "moves",
                            "value": {
                                "kind": "append",
                                "array": {"kind": "get", "path": "moves"},
                                "items": [{"kind": "get", "path": "input.amount"}],
                            },
                        },
                    ],
                },
            },
            "withdraw": {
                "input": {"type": "object", "fields": {"amount": {"type": "number", "required": True}}},
                "flow": {
                    "kind": "if",
                    "cond": {
                        "kind": "gt",
                        "left": {"kind": "get", "path": "input.amount"},
                        "right": {"kind": "get", "path": "balance"},
                    },
                    "then": {
                        "kind": "fail",
                        "code": "NOT_COVERED",
                        "message": {"kind": "lit", "value": "the balance is too low"},
                    },
                    "else": {
                        "kind": "seq",
                        "steps": [
                            {
                                "kind": "patch",
                                "op": "set",
                                "path": "balance",
                                "value": {
                                    "kind": "sub",
                                    "left": {"kind": "get", "path": "balance"},
                                    "right": {"kind": "get", "path": "input.amount"},
                                },
                            },
                            {
                                "kind": "patch",
                                "op": "set",
                                "path": "moves",
                                "value": {
                                    "kind": "append",
                                    "array": {"kind": "get", "path": "moves"},
                                    "items": [{"kind": "neg", "arg": {"kind": "get", "path": "input.amount"}}],
                                },
                            },
                        ],
                    },
                },
            },
        },
    }
)
