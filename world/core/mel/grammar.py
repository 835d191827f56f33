"""The grammar of MEL for Lark's LALR(1) parser; docs/reference/mel.md explains it.

All keywords are contextual: the lexer takes a word for a keyword only where the grammar expects a keyword, so a value
may be called ``type`` or ``state``. Where a field and a declaration may follow, the grammar takes keywords as names.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CLOSERS", "GRAMMAR", "TOKEN_TEXTS"]

GRAMMAR: Final = r"""
start: annotation* DOMAIN NAME _LBRACE member* RBRACE

member: annotation* _declaration
_declaration: type_decl | state_decl | computed_decl | action_decl | flow_decl | context_decl
type_decl: TYPE NAME "=" _type
state_decl: STATE _LBRACE field* RBRACE
context_decl: CONTEXT _LBRACE field* RBRACE
computed_decl: COMPUTED _dotted "=" _expr
action_decl: ACTION _dotted "(" params ")" clause* block
flow_decl: FLOW NAME "(" params ")" block
_dotted: dotted
dotted: NAME ("." NAME)* | STRING
clause: AVAILABLE WHEN _expr | DISPATCHABLE WHEN _expr
params: [param ("," param)* [","]]
param: annotation* _field_name [OPTIONAL] ":" _type
field: annotation* _field_name [OPTIONAL] ":" _type ["=" _expr] [","]
_field_name: NAME | STRING | TYPE | STATE | CONTEXT | COMPUTED | ACTION | FLOW | AVAILABLE | DISPATCHABLE | WHEN | ELSE
           | ONCE | ONCE_INTENT | PATCH | UNSET | MERGE | EFFECT | FAIL | WITH | STOP | INCLUDE

expression: _expr

block: _LBRACE statement* RBRACE
statement: when | once | once_intent | patch_set | patch_unset | patch_merge | effect | fail | stop | include
         | block | annotation
when: WHEN _expr block [ELSE (block | when)]
once: ONCE "(" _path ")" [WHEN _expr] block
once_intent: ONCE_INTENT [WHEN _expr] block
patch_set: PATCH _path "=" _expr
patch_unset: PATCH _path UNSET
patch_merge: PATCH _path MERGE _expr
effect: EFFECT dotted "(" [_expr] ")"
fail: FAIL STRING [WITH _expr]
stop: STOP [STRING]
include: INCLUDE NAME "(" arguments ")"
_path: path
path: NAME (path_member | path_index)*
path_member: "." NAME
path_index: "[" _expr "]"

annotation: "@" NAME "(" arguments ")"

_type: union | optional
optional: union OPTIONAL
union: _single_type ("|" _single_type)*
_single_type: named_type | literal_type | array_type | record_type | object_type | annotation
named_type: NAME
literal_type: STRING | NUMBER | MINUS NUMBER | TRUE | FALSE | NULL
array_type: ARRAY "<" _type ">"
record_type: RECORD "<" _type "," _type ">"
object_type: _LBRACE field* RBRACE

_expr: ternary | _nullish
ternary: _nullish OPTIONAL _expr ":" _expr
_nullish: nullish | _or
nullish: _nullish "??" _or
_or: or_ | _and
or_: _or "||" _and
_and: and_ | _equality
and_: _and "&&" _equality
_equality: equality | _comparison
equality: _equality (EQ | NE) _comparison
_comparison: comparison | _sum
comparison: _comparison (LE | GE | LT | GT) _sum
_sum: sum | _product
sum: _sum (PLUS | MINUS) _product
_product: product | _unary
product: _product (STAR | SLASH | PERCENT) _unary
_unary: not_ | negative | _postfix
not_: BANG _unary
negative: MINUS _unary
_postfix: member_access | index | _primary
member_access: _postfix "." NAME
index: _postfix "[" _expr "]"
_primary: literal | template | name | system | call | "(" _expr ")" | object | array | annotation
literal: NUMBER | STRING | TRUE | FALSE | NULL
template: TEMPLATE
name: NAME
system: SYSTEM
call: NAME "(" arguments ")"
object: _LBRACE [_entry ("," _entry)* [","]] RBRACE
_entry: pair | spread
pair: (NAME | STRING) ":" _expr
spread: "..." _expr
array: "[" [_expr ("," _expr)* [","]] "]"
arguments: [_expr ("," _expr)* [","]]

_LBRACE: "{"
RBRACE: "}"
OPTIONAL: "?"
EQ: "=="
NE: "!="
LE: "<="
GE: ">="
LT: "<"
GT: ">"
PLUS: "+"
MINUS: "-"
STAR: "*"
SLASH: "/"
PERCENT: "%"
BANG: "!"

DOMAIN.2: /domain\b/
TYPE.2: /type\b/
STATE.2: /state\b/
CONTEXT.2: /context\b/
COMPUTED.2: /computed\b/
ACTION.2: /action\b/
FLOW.2: /flow\b/
AVAILABLE.2: /available\b/
DISPATCHABLE.2: /dispatchable\b/
WHEN.2: /when\b/
ELSE.2: /else\b/
ONCE.2: /once\b/
ONCE_INTENT.2: /onceIntent\b/
PATCH.2: /patch\b/
UNSET.2: /unset\b/
MERGE.2: /merge\b/
EFFECT.2: /effect\b/
FAIL.2: /fail\b/
WITH.2: /with\b/
STOP.2: /stop\b/
INCLUDE.2: /include\b/
ARRAY.2: /Array(?=(\s|\/\/[^\n]*\n|\/\*([^*]|\*(?!\/))*\*\/)*<)/
RECORD.2: /Record(?=(\s|\/\/[^\n]*\n|\/\*([^*]|\*(?!\/))*\*\/)*<)/
TRUE.2: /true\b/
FALSE.2: /false\b/
NULL.2: /null\b/
NAME.1: /[^\W\d]\w*/
SYSTEM: /\$[^\W\d]\w*/
NUMBER: /0[xX][0-9a-fA-F]+\b|[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?(?!\w)/
STRING: /"([^"\\\n]|\\.)*"|'([^'\\\n]|\\.)*'/
TEMPLATE: /`([^`\\]|\\(.|\n))*`/
COMMENT: /\/\/[^\n]*|\/\*([^*]|\*(?!\/))*\*\//
SPACE: /[ \t\r\n\f\ufeff]+/
%ignore COMMENT
%ignore SPACE
"""

TOKEN_TEXTS: Final = {
    "_LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "COLON": "':'",
    "COMMA": "','",
    "DOT": "'.'",
    "EQUAL": "'='",
    "VBAR": "'|'",
    "AT": "'@'",
    "OPTIONAL": "'?'",
    "NAME": "a name",
    "STRING": "a text in quotes",
    "NUMBER": "a number",
    "$END": "the end of the file",
    "ONCE_INTENT": "'onceIntent'",
    "LESSTHAN": "'<'",
    "MORETHAN": "'>'",
    "LT": "'<'",
    "GT": "'>'",
}
"""How messages name a terminal; keywords are named by themselves."""

CLOSERS: Final = {"(": ")", "[": "]", "{": "}"}
