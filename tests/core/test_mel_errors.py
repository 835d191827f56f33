"""Errors of MEL sources: their codes, places and hints, several in one run, and no traceback whatever is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from world.core import load_domain
from world.core.mel.compiling import compile_mel
from world.core.mel.loading import checked_mel
from world.errors import RefusedError
from world.sizes import MAX_MEL_BYTES

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "mel.json").read_text())["cases"]
HEAD = """domain D {
  type Row = { id: string, n: number }
  state { count: number = 0 name: string = "" rows: Array<Row> = [] bag: Record<string, number> = {} }
  computed total = len(rows)
"""


def errors(body: str) -> list[tuple[str, int, int]]:
    """Return code, line (of the body, from 1) and column of every error."""
    compiled = checked_mel(f"{HEAD}{body}\n}}", "d.mel")
    assert compiled.schema is None
    return [(one.code, one.line - 4, one.column) for one in compiled.errors]


def act(statement: str) -> str:
    return f"action act(id: string, n: number) {{ when true {{ {statement} }} }}"


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        ("computed c = coutn", "E_UNDEFINED", "coutn"),
        ("computed c = lenn(rows)", "E_UNKNOWN_FN", "lenn"),
        ("computed c = total(1)", "E_UNKNOWN_FN", "total"),
        ("computed c = reduce(rows, 1)", "E011", "reduce"),
        ("computed c = abs(1, 2)", "E_ARG_COUNT", "abs(1, 2)"),
        ("computed c = substring(name)", "E_ARG_COUNT", "substring(name)"),
        ("computed c = $runtime.random.uuid", "E001", "$runtime.random.uuid"),
        ("computed c = $item.x", "E003", "$item.x"),
        ("computed c = $context.tenant", "E003", "$context.tenant"),
        ("computed c = eq(rows, [])", "E_TYPE_MISMATCH", "eq(rows, [])"),
        ("computed c = name + 1", "E_TYPE_MISMATCH", "name + 1"),
        ("computed c = count ? 1 : 2", "E_TYPE_MISMATCH", "count ? 1 : 2"),
        ("computed c = { ...count }", "E_TYPE_MISMATCH", "...count"),
        ("computed c = sum(map(rows, $item.n))", "E010", "sum(map(rows, $item.n))"),
        ("computed c = clamp(count, 10, 0)", "E049", "clamp(count, 10, 0)"),
        ("computed c = match(name, 5, 0)", "E050", "5"),
        ('computed c = match(name, ["a", 1], ["a", 2], 0)', "E051", '["a", 2]'),
        ('computed c = argmax(["a", true, 1], "best")', "E052", '"best"'),
        ("computed c = 1 computed  c = 2", "E_DUPLICATE", "c = 2"),
        ("computed c = removeById(rows, name)", "E031", "removeById(rows, name)"),
        ("computed c = `n: ${count`", "MEL_LEXER", "`n: ${count`"),
        ("computed c = `n: ${count +}`", "MEL_PARSER", "count +}"),
        ("computed a1 = b1 computed b1 = a1", "E040", "a1 ="),
        ("computed c = 1e999", "E_LIMIT", "1e999"),
        ('computed c = "\\ud800"', "MEL_LEXER", '"\\ud800"'),
        (act('patch count = "x"'), "E_TYPE_MISMATCH", "count ="),
        (act("patch cuont = 1"), "E_UNDEFINED", "cuont"),
        (act("patch total = 1"), "E_UNDEFINED", "total"),
        (act("patch count.x = 1"), "E_UNDEFINED", "count.x"),
        (act("patch rows = removeById(filter(rows, $item.n > 1), id)"), "E033", "removeById(filter"),
        (act("patch rows[n] unset"), "E_TYPE_MISMATCH", "rows[n]"),
        (act("patch count = min(rows)"), "E009", "min(rows)"),
        (act("patch count = $input.m"), "E_UNDEFINED", "$input.m"),
        (act("when rows { stop }"), "E_TYPE_MISMATCH", "rows { stop"),
        (act('stop "waiting for Ann"'), "E008", '"waiting for Ann"'),
        (act('fail ""'), "E_TYPE_MISMATCH", 'fail ""'),
        (act("effect mail.send(5)"), "E_TYPE_MISMATCH", "5"),
        (act("@meta(\"x\")"), "E053", "@meta"),
        (act("include f()"), "E016", "include f()"),
        ("action act() { include g() } flow gg() {}", "E015", "g() }"),
        ("flow f() { include f() } action act() { include f() }", "E013", "f() } action"),
        ("flow f(a: number) { when a > 1 { stop } } action act() { include f() }", "E023", "f() }"),
        ("flow f() { when true { patch count = 1 } } action act() { include f() }", "E019", "patch count = 1"),
        ("flow f(count: number) { } action act() { include f(1) }", "E021", "count: number"),
        ("flow act() {} action act() { include act() }", "E022", "act() { include"),
        ("action act(x: number) available when x > 1 { }", "E005", "x > 1"),
        ("action act(x: number) available when $input.x > 1 { }", "E005", "$input.x"),
        ("action act(x: number) dispatchable when $input.x > 1 { }", "E047", "$input.x"),
        ("action act() dispatchable when true available when true { }", "MEL_PARSER", "available when"),
        ("action act(x: numbr) { }", "E_UNDEFINED", "numbr"),
        ("action act(x: number | string) { }", "E043", "number | string"),
        ("action act(x: number, x: string) { }", "E_DUPLICATE", "x: string"),
        ('action act(@meta("ui") x: number) { }', "E054", "@meta"),
        ('@meta("ui", { a: count }) action act() { }', "E055", "count }"),
        ('@meta("ui", { a: { b: { c: 1 } } }) action act() { }', "E056", "{ a: {"),
        ("type T = { t: T } action act(x: T) { }", "E044", "T) {"),
        ("context { tenant: string }", "E_UNSUPPORTED", "context {"),
        ("state { x: number = 1 }", "E_DUPLICATE", "state {"),
    ],
)  # fmt: skip
def test_an_error_has_its_code_and_its_place(body: str, code: str, word: str) -> None:
    assert (code, 1, body.index(word) + 1) in errors(body)


@pytest.mark.parametrize(
    ("field", "code", "word"),
    [
        ('x: number = "one"', "E_TYPE_MISMATCH", '"one"'),
        ("x: number = 1 + 1", "E042", "1 + 1"),
        ("x: string = $runtime.random.uuid", "E002", "$runtime"),
        ("x: { a: number } = { a: 1, b: 2 }", "E_TYPE_MISMATCH", "{ a: 1"),
        ("x: number = 1 x: number = 2", "E_DUPLICATE", "x: number = 2"),
        ("$x: number = 1", "E004", "$x"),
        ('"$x": number = 1', "E004", '"$x"'),
        ("x$y: number = 1", "E004", "$y"),
        ("x$: number = 1", "E004", "$"),
        ("__sys__x: number = 1", "E004", "__sys__x"),
    ],
)
def test_an_error_of_a_state_field_has_its_code_and_its_place(field: str, code: str, word: str) -> None:
    compiled = compile_mel(f"domain D {{ state {{ {field} }} }}")
    assert [(one.code, one.column) for one in compiled.errors] == [(code, 20 + field.index(word))]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("type $T = string", "$T"),
        ("computed $c = count", "$c"),
        ("flow $f() { }", "$f"),
        ("action $a() { }", "$a"),
        ("action a($p: number) { }", "$p"),
        ("action a() { patch $x = 1 }", "$x"),
        ("action a() { patch count.$x = 1 }", "$x"),
        ("action a() { when count$ > 1 { stop } }", "$"),
        ("computed c = co$unt + 1", "$unt"),
    ],
)
@pytest.mark.requirement("IC-mel")
def test_a_name_with_a_dollar_is_reported_as_such_and_as_nothing_else(body: str, word: str) -> None:
    assert errors(body) == [("E004", 1, body.index(word) + 1)]


@pytest.mark.requirement("IC-mel")
def test_what_the_reference_refuses_is_a_warning_and_the_source_compiles() -> None:
    text = "action a() {\n when count > 1 { stop } else { stop }\n effect x.y()\n}"
    compiled = checked_mel(f"{HEAD}{text}\n}}", "d.mel")
    assert compiled.schema is not None
    line = HEAD.count("\n") + 1
    found = [(one.code, one.line - line) for one in compiled.advice if one.code != "W012"]
    assert sorted(found) == [("E_UNGUARDED_EFFECT", 2), ("W_ELSE", 1)]


@pytest.mark.parametrize(
    "source",
    [
        "domain D { state { x: any = { a: 1, a: 2 } } }",
        'domain D { @meta("ui", { a: 1, a: 2 }) action go() {} }',
        '@schema({ id: "urn:a:b", "version": "1.0.0", version: "2.0.0" }) domain D { action go() {} }',
        "domain D { computed c = { a: 1, a: 2 } }",
    ],
)
def test_no_member_of_an_object_is_lost_to_a_later_one(source: str) -> None:
    (error,) = compile_mel(source).errors
    assert error.code == "E_DUPLICATE_FIELD"


def test_names_are_compared_for_the_errors_that_are_reported_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def count(word: str, _known: object) -> str:
        compared.append(word)
        return ""

    monkeypatch.setattr("world.core.mel.diagnostics.suggestion", count)
    many = "".join(f"computed c{n} = coutn{n}\n" for n in range(100))
    assert len(compile_mel(f"domain D {{ state {{ count: number = 0 }} {many} }}").errors) == 50
    assert len(compared) == 50
    fields = "".join(f"f{n}: number = 0 " for n in range(1_001))
    assert compile_mel(f"domain D {{ state {{ {fields} }} computed c = ff1 }}").errors[0].hint == ""
    assert len(compared) == 50


def test_every_error_of_a_source_is_reported_in_one_run() -> None:
    found = errors("computed a = coutn + lenn(rows)\ncomputed b = $item\n" + act("patch cuont = abs()"))
    assert [(code, line) for code, line, _ in found] == [
        ("E_UNDEFINED", 1),
        ("E_UNKNOWN_FN", 1),
        ("E003", 2),
        ("E_UNDEFINED", 3),
        ("E_ARG_COUNT", 3),
    ]


def test_every_syntax_error_of_a_source_is_reported_in_one_run_and_consequences_are_not() -> None:
    lines = [
        "action a() { count = 5 }",
        "comptued b = 3",
        "action c() { when count > { stop } }",
        "computed d = name.trim()",
    ]
    body = "\n".join(lines)
    assert errors(body) == [
        ("MEL_PARSER", 1, 14),
        ("MEL_PARSER", 2, 1),
        ("MEL_PARSER", 3, 34),
        ("MEL_PARSER", 4, 23),
    ]


def test_an_error_is_shown_with_its_line_a_caret_and_what_may_have_been_meant() -> None:
    compiled = compile_mel("domain D {\n  state { count: number = 0 }\n  computed double = coutn * 2\n}", "d.mel")
    assert compiled.show() == (
        "d.mel:3:21: error E_UNDEFINED: Undefined identifier 'coutn'\n"
        "  3 |   computed double = coutn * 2\n"
        "    |                     ^^^^^\n"
        "  Did you mean 'count'?"
    )


@pytest.mark.parametrize(
    ("line", "shown", "carets"),
    [
        ("\t\tcomputed b = coutn", "\t\tcomputed b = coutn", "\t\t             ^^^^^"),
        ('computed b = "計算" == coutn', 'computed b = "計算" == coutn', " " * 23 + "^" * 5),
        ("computed b = 計", "computed b = 計", " " * 13 + "^^"),
        ('computed b = "e\u0301" == coutn', 'computed b = "e\u0301" == coutn', " " * 20 + "^" * 5),
        ('computed b = "\u202e" == coutn', 'computed b = "\\u202e" == coutn', " " * 25 + "^" * 5),
        ("computed b = \x00", "computed b = \\u0000", " " * 13 + "^" * 6),
    ],
)
def test_the_caret_is_below_its_word_whatever_the_line_holds(line: str, shown: str, carets: str) -> None:
    compiled = compile_mel(f"domain D {{ state {{ count: number = 0 }}\n{line}\n}}", "d.mel")
    assert compiled.show().split("\n")[1:3] == [f"  2 | {shown}", f"    | {carets}"]


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("action a() { count = 5 }", "Write patch count = ..."),
        ("let x = 5", "MEL has no variables; write computed, or a field of the state."),
        ("comptued b = 3", "Did you mean 'computed'?"),
        ("computed b = name.trim()", "MEL has no methods; write trim(...) with the value as its first argument."),
        ("computed b = effect x.y({})", "An effect is a statement; it is no expression."),
        ("action a(x: nubmer) {}", "Did you mean 'number'?"),
        ("action a(x: number) available when x > 1 {}", "Write dispatchable when."),
        ("computed b = lent(rows)", "Did you mean 'len'?"),
    ],
)
def test_an_error_says_what_to_write_instead(body: str, hint: str) -> None:
    assert hint in [one.hint for one in checked_mel(f"{HEAD}{body}\n}}", "d.mel").errors]


@pytest.mark.parametrize("rest", ["/* abc", "/* it's `not\n closed", "computed b = 1 /*/ computed c = coutn"])
def test_a_comment_that_is_not_closed_is_named_as_such(rest: str) -> None:
    at = rest.index("/*") + 1
    (error,) = compile_mel(f"domain D {{\n{rest}\n}}").errors
    assert (error.code, error.line, error.column) == ("MEL_LEXER", 2, at)
    assert error.message == f"Unterminated comment starting at line 2:{at}"
    assert error.hint == "Close it with */."


@pytest.mark.parametrize(
    ("source", "hint"),
    [("", ""), ("// nothing", ""), ('@meta("x")', ""), ("domain D {", "A brace or bracket is not closed.")],
)
def test_the_end_of_a_file_says_that_a_brace_is_open_where_one_is(source: str, hint: str) -> None:
    (error,) = compile_mel(source).errors
    assert (error.code, error.hint) == ("MEL_PARSER", hint)
    assert error.message.startswith("The file ends too early. Expected ")


def test_what_a_parser_expected_is_part_of_the_error() -> None:
    (error,) = compile_mel("domain D { computed b 3 }").errors
    assert error.message == "Unexpected '3'. Expected '.' or '='."


def test_a_fault_of_the_schema_is_reported_at_its_declaration(tmp_path: Path) -> None:
    (tmp_path / "d.mel").write_text(
        'domain D {\n  state { n: number = 0 }\n  action go() {\n    @schema({ kind: "call", flow: "other" })\n  }\n}\n'
    )
    with pytest.raises(RefusedError) as caught:
        load_domain(tmp_path / "d.mel")
    assert caught.value.code == "INVALID_MEL"
    (error,) = caught.value.details["errors"]
    assert (error["code"], error["line"], error["column"]) == ("V-004", 3, 10)
    assert "d.mel:3:10: error V-004" in caught.value.message


@pytest.mark.parametrize(
    "source",
    [
        "domain D { computed c = " + "(" * 5_000,
        "domain D { computed c = " + "!" * 5_000 + "true }",
        "domain D { computed c = " + "1 + " * 5_000 + "1 }",
        "domain D { computed c = " + "true ? 1 : " * 5_000 + "1 }",
        "domain D { state { x: " + "Array<" * 2_000 + "number" + ">" * 2_000 + " = [] } }",
        "domain D { action a() { " + "when true { " * 140 + "stop" + " }" * 140 + " } }",
        "domain D { action a() { " + "when true { stop } else " * 400 + "{ stop } } }",
        "domain D { state { x: any = " + "[" * 400 + "]" * 400 + " } }",
        "domain D { computed c = x" + ".x" * 5_000 + " }",
        "domain D { computed c = " + "9" * 5_000 + " }",
        "domain D { computed c = match(1, " + ", ".join(f"[{n}, 1]" for n in range(2_000)) + ", 0) }",
        "domain D { " + "@" * 3_000,
        "/" * 5_000,
        "x" * (MAX_MEL_BYTES + 1),
        "é" * (MAX_MEL_BYTES // 2 + 1),
    ],
    ids=lambda source: source[:40],
)
def test_a_source_that_is_too_large_or_too_deep_is_refused_with_an_error(source: str) -> None:
    compiled = checked_mel(source, "d.mel")
    assert compiled.schema is None
    assert compiled.errors
    assert compiled.show()


def test_flows_that_double_their_arguments_are_bounded() -> None:
    levels = "".join(f"flow f{n}(a: number) {{ include f{n + 1}({' + '.join(['a'] * 8)}) }} " for n in range(15))
    last = "flow f15(a: number) { when a > 1 { stop } } action go(n: number) { include f0(n) }"
    source = f"domain D {{ {levels} {last} }}"
    assert "E_LIMIT" in [one.code for one in compile_mel(source).errors]


WORDS = """domain D { } ( ) [ ] < > = : , . ? ! | @ $ + - * / % & ; " ' ` \\ ${ // /* */ state computed action type flow
when once onceIntent patch unset merge effect fail with stop include available dispatchable else true false null Array
Record number string x y 0 1.5 0x 1e9 "a" $item $input @schema @meta len filter match é 😀"""
ALPHABET = st.sampled_from([*WORDS.split(), "\n", "\x00", "\ud800"])


@settings(max_examples=150, deadline=None)
@given(st.lists(ALPHABET, max_size=40).map(" ".join) | st.text(max_size=60))
def test_any_text_gives_a_schema_or_errors(text: str) -> None:
    assert_answered(text)
    assert_answered(f"domain D {{ {text} }}")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([case["input"]["source"] for case in VECTORS]), st.data())
def test_any_mutation_of_a_source_gives_a_schema_or_errors(source: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(source)))
        source = source[:at] + data.draw(ALPHABET | st.just("")) + source[at + data.draw(st.integers(0, 12)) :]
    assert_answered(source)


def assert_answered(text: str) -> None:
    compiled = checked_mel(text, "d.mel")
    assert (compiled.schema is None) is bool(compiled.errors)
    for one in [*compiled.errors, *compiled.warnings, *compiled.advice]:
        assert compiled.source.position(one.start) == (one.line, one.column)
        assert compiled.source.show(one)
