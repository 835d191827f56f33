"""A to-do list as data in Python; the same domain as todo.mel and todo.yaml."""

from __future__ import annotations

from world.core import load_domain

todo = load_domain(
    {
        "id": "urn:example:todo",
        "version": "1.0.0",
        "state": {
            "fields": {
                "todos": {
                    "type": "array",
                    "required": True,
                    "items": {
                        "type": "object",
                        "required": True,
                        "fields": {
                            "id": {"type": "string", "required": True},
                            "title": {"type": "string", "required": True},
                            "done": {"type": "boolean", "required": True},
                        },
                    },
                    "default": [],
                },
                "shown": {"type": {"enum": ["all", "open", "done"]}, "required": True, "default": "all"},
            }
        },
        "computed": {
            "fields": {
                "computed.openCount": {
                    "deps": ["todos"],
                    "expr": {
                        "kind": "len",
                        "arg": {
                            "kind": "filter",
                            "array": {"kind": "get", "path": "todos"},
                            "predicate": {"kind": "not", "arg": {"kind": "get", "path": "$item.done"}},
                        },
                    },
                },
                "computed.hasDone": {
                    "deps": ["computed.openCount", "todos"],
                    "expr": {
                        "kind": "lt",
                        "left": {"kind": "get", "path": "computed.openCount"},
                        "right": {"kind": "len", "arg": {"kind": "get", "path": "todos"}},
                    },
                },
            }
        },
        "actions": {
            "todo.add": {
                "input": {"type": "object", "fields": {"title": {"type": "string", "required": True}}},
                "flow": {
                    "kind": "if",
                    "cond": {
                        "kind": "neq",
                        "left": {"kind": "trim", "str": {"kind": "get", "path": "input.title"}},
                        "right": {"kind": "lit", "value": ""},
                    },
                    "then": {
                        "kind": "patch",
                        "op": "set",
                        "path": "todos",
                        "value": {
                            "kind": "append",
                            "array": {"kind": "get", "path": "todos"},
                            "items": [
                                {
                                    "kind": "object",
                                    "fields": {
                                        "id": {"kind": "get", "path": "$system.uuid"},
                                        "title": {"kind": "trim", "str": {"kind": "get", "path": "input.title"}},
                                        "done": {"kind": "lit", "value": False},
                                    },
                                }
                            ],
                        },
                    },
                    "else": {"kind": "fail", "code": "INTENT_NOT_DISPATCHABLE"},
                },
            },
            "todo.toggle": {
                "input": {"type": "object", "fields": {"id": {"type": "string", "required": True}}},
                "flow": {
                    "kind": "seq",
                    "steps": [
                        {
                            "kind": "if",
                            "cond": {
                                "kind": "not",
                                "arg": {
                                    "kind": "not",
                                    "arg": {
                                        "kind": "isNull",
                                        "arg": {
                                            "kind": "find",
                                            "array": {"kind": "get", "path": "todos"},
                                            "predicate": {
                                                "kind": "eq",
                                                "left": {"kind": "get", "path": "$item.id"},
                                                "right": {"kind": "get", "path": "input.id"},
                                            },
                                        },
                                    },
                                },
                            },
                            "then": {
                                "kind": "fail",
                                "code": "NOT_FOUND",
                                "message": {
                                    "kind": "concat",
                                    "args": [
                                        {"kind": "lit", "value": "There is no entry "},
                                        {"kind": "get", "path": "input.id"},
                                        {"kind": "lit", "value": "."},
                                    ],
                                },
                            },
                        },
                        {
                            "kind": "patch",
                            "op": "set",
                            "path": "todos",
                            "value": {
                                "kind": "map",
                                "array": {"kind": "get", "path": "todos"},
                                "mapper": {
                                    "kind": "if",
                                    "cond": {
                                        "kind": "eq",
                                        "left": {"kind": "get", "path": "$item.id"},
                                        "right": {"kind": "get", "path": "input.id"},
                                    },
                                    "then": {
                                        "kind": "merge",
                                        "objects": [
                                            {"kind": "get", "path": "$item"},
                                            {
                                                "kind": "object",
                                                "fields": {
                                                    "done": {
                                                        "kind": "not",
                                                        "arg": {
                                                            "kind": "field",
                                                            "object": {
                                                                "kind": "find",
                                                                "array": {"kind": "get", "path": "todos"},
                                                                "predicate": {
                                                                    "kind": "eq",
                                                                    "left": {"kind": "get", "path": "$item.id"},
                                                                    "right": {"kind": "get", "path": "input.id"},
                                                                },
                                                            },
                                                            "property": "done",
                                                        },
                                                    }
                                                },
                                            },
                                        ],
                                    },
                                    "else": {"kind": "get", "path": "$item"},
                                },
                            },
                        },
                    ],
                },
            },
            "todo.show": {
                "input": {
                    "type": "object",
                    "fields": {"which": {"type": {"enum": ["all", "open", "done"]}, "required": True}},
                },
                "flow": {
                    "kind": "seq",
                    "steps": [
                        {
                            "kind": "if",
                            "cond": {
                                "kind": "eq",
                                "left": {"kind": "get", "path": "shown"},
                                "right": {"kind": "get", "path": "input.which"},
                            },
                            "then": {"kind": "halt", "reason": "shown_already"},
                        },
                        {
                            "kind": "patch",
                            "op": "set",
                            "path": "shown",
                            "value": {"kind": "get", "path": "input.which"},
                        },
                    ],
                },
            },
            "todo.clear": {
                "available": {"kind": "get", "path": "computed.hasDone"},
                "flow": {
                    "kind": "patch",
                    "op": "set",
                    "path": "todos",
                    "value": {
                        "kind": "filter",
                        "array": {"kind": "get", "path": "todos"},
                        "predicate": {"kind": "not", "arg": {"kind": "get", "path": "$item.done"}},
                    },
                },
            },
        },
    }
)
