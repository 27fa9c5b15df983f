"""The changes that Cosmic Ray's operators can make in a module, each as a whole new source text.

Cosmic Ray's own runner writes each change into the working tree and starts the tests anew, three seconds apiece; mutmut
forks a process that has run the tests already, and RocksDB does not work in a fork of a process that has used it. So
only the operators are taken, and `forge` has a way of its own to run what they make.

Left out, because they say nothing: changes that do not compile, changes of annotations (nobody evaluates them for
their value), a change that another operator made already, and all but the nearest replacements of a comparison or an
arithmetic operator.
"""

import ast
import importlib.util
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

PACKAGE: Final = "telha_jobs"
OPERATORS: Final = (
    *("ReplaceComparisonOperator_Lt_LtE", "ReplaceComparisonOperator_Lt_GtE"),
    *("ReplaceComparisonOperator_LtE_Lt", "ReplaceComparisonOperator_LtE_Gt"),
    *("ReplaceComparisonOperator_Gt_GtE", "ReplaceComparisonOperator_Gt_LtE"),
    *("ReplaceComparisonOperator_GtE_Gt", "ReplaceComparisonOperator_GtE_Lt"),
    *("ReplaceComparisonOperator_Eq_NotEq", "ReplaceComparisonOperator_NotEq_Eq"),
    *("ReplaceComparisonOperator_Is_IsNot", "ReplaceComparisonOperator_IsNot_Is"),
    *("ReplaceBinaryOperator_Add_Sub", "ReplaceBinaryOperator_Sub_Add", "ReplaceBinaryOperator_Mul_FloorDiv"),
    *("ReplaceBinaryOperator_FloorDiv_Mul", "ReplaceBinaryOperator_Mod_Mul", "ReplaceBinaryOperator_Pow_Mul"),
    *("ReplaceBinaryOperator_LShift_RShift", "ReplaceBinaryOperator_RShift_LShift"),
    *("ReplaceBinaryOperator_BitOr_BitAnd", "ReplaceBinaryOperator_BitAnd_BitOr"),
    *("ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_USub_UAdd"),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ExceptionReplacer", "NumberReplacer"),
    *("RemoveDecorator", "ZeroIterationForLoop"),
)
RAISED_BY_NONE: Final = "CosmicRayTestingException"
"""What Cosmic Ray's ExceptionReplacer puts in an `except`; the module has no such name."""
_PAIRS: Final = ((ast.Is, ast.IsNot), (ast.Eq, ast.NotEq), (ast.Lt, ast.GtE), (ast.LtE, ast.Gt), (ast.In, ast.NotIn))
_INVERSE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    **dict(_PAIRS),
    **{second: first for first, second in _PAIRS},
}


class Change(NamedTuple):
    """One change of a module: where, what it does to which line, and the source with it made."""

    module: str
    function: str
    line: int
    operator: str
    before: str
    after: str
    nth: int
    source: str

    @property
    def key(self) -> str:
        """A name that outlives moved lines: module, function, the line before and after; `nth` of the same."""
        again = f" (#{self.nth})" if self.nth > 1 else ""
        return f"{self.module}.{self.function}: {self.before}  ->  {self.after}{again}"


def folder() -> Path:
    """Where the package is, without importing it: only a child may, with a change in place."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(PACKAGE)
    return Path(spec.origin).parent


def modules() -> list[str]:
    """What is changed: core, engine and the agenda."""
    root = folder()
    found = [root / "agenda.py", *sorted((root / "core").glob("*.py")), *sorted((root / "engine").glob("*.py"))]
    names = [".".join([PACKAGE, *path.relative_to(root).with_suffix("").parts]) for path in found]
    return [name for name in names if not name.endswith("__init__")]


def source_of(module: str) -> str:
    """A module's source."""
    return folder().parent.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")


def changes(module: str) -> Iterator[Change]:
    """Every change of a module, in the order of its lines."""
    return iter(made(module, source_of(module)))


def made(module: str, source: str) -> list[Change]:
    """Every change of a source, in the order of its lines."""
    return sorted(_changes(module, source), key=lambda change: change.line)


def _changes(module: str, source: str) -> Iterator[Change]:
    plain = _meaning(source)
    seen = {plain}
    keys: Counter[str] = Counter()
    for operator in OPERATORS:
        for text in _made(source, operator):
            changed = text.replace(RAISED_BY_NONE, "ZeroDivisionError")
            meaning = _meaning(changed)
            if meaning is None or meaning in seen:
                continue
            seen.add(meaning)
            change = _described(module, source, changed, operator)
            keys[change.key] += 1
            yield change._replace(nth=keys[change.key])


def _made(source: str, operator: str) -> Iterator[str]:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    kind: Any = OperatorProvider()[operator]
    occurrence = 0
    while (changed := mutate_code(source, kind(), occurrence)) is not None:
        yield changed
        occurrence += 1


def _meaning(source: str) -> str | None:
    """The program without its annotations; None for one that does not compile."""
    try:
        tree = ast.parse(source)
        compile(source, "changed", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(_Straight().visit(tree))


class _Straight(ast.NodeTransformer):
    """`not a < b` as `a >= b`, and the like, so that two ways to say one change are one."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(ops=[op]) as compared) if type(op) in _INVERSE:
                compared.ops = [_INVERSE[type(op)]()]
                return compared
            case ast.UnaryOp(op=ast.Not(), operand=ast.UnaryOp(op=ast.Not(), operand=inner)):
                return inner
            case _:
                return node


def _described(module: str, source: str, changed: str, operator: str) -> Change:
    old, new = source.splitlines(), changed.splitlines()
    at = next((number for number, (was, now) in enumerate(zip(old, new, strict=False)) if was != now), len(old) - 1)
    after = "(removed)" if operator == "RemoveDecorator" else new[at].strip()
    return Change(module, _function(source, at + 1), at + 1, operator, old[at].strip(), after, 1, changed)


def _function(source: str, line: int) -> str:
    """The qualified name of what a line stands in."""
    names: list[str] = []
    nodes: list[Any] = ast.parse(source).body
    while True:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                if first <= line <= (node.end_lineno or first):
                    names.append(node.name)
                    nodes = node.body
                    break
        else:
            return ".".join(names) or "module"
