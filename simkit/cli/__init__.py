"""The one command, `simkit`. Each subcommand is a module here, imported when it is called.

What they share is in `options`, `places` (files to write), `progress` and `running` (of models).
"""

from __future__ import annotations

import builtins
import errno
import gc
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from traces import stores
from traces.allocator import own_process
from traces.errors import SimkitWarning, UserError
from traces.messages import how_many, line, plain

_GROUPS = {
    "Record a trace": {
        "record": "Run a draft/target pair on prompts and write a trace.",
        "attach": "Run another drafter on a trace's outputs and add its drafts.",
        "detach": "Remove a drafter that was attached to a trace.",
        "import": "Import another program's logs or acceptance data.",
        "thin": "Write a smaller copy of a trace.",
        "info": "Show what is in a trace.",
        "validate": "Check a trace's files: hashes, keys and ranges of values.",
    },
    "Time models": {
        "latency": "Time single forward passes of models; replays use the times.",
        "calibrate": "Time passes and stopping rules while a pair decodes; replays use the times.",
        "live": "Decode with a pair of models under several policies and time it.",
        "fidelity": "Compare predicted speeds with live runs.",
    },
    "Replay policies": {
        "advise": "Recommend a drafter and a stopping rule for a trace.",
        "replay": "Replay stopping policies on a trace.",
        "sweep": "Replay policies on a trace with every combination of arguments.",
        "tune": "Choose policies' arguments by cross-validation.",
    },
    "Serve": {
        "serving": "Simulate a batched server that replays a trace.",
        "export": "Write a policy as a serving engine's configuration.",
        "convert": "Convert a model to a serving engine's format.",
    },
    "Analyse": {
        "figures": "Draw the papers' figures from a trace.",
        "claims": "Test the papers' claims on a trace.",
        "compare": "Compare traces, or the drafters of one trace.",
        "report": "Write a one-page HTML report about a trace.",
        "explore": "Explore policies interactively in a browser.",
    },
    "Learned heads": {
        "train": "Train a learned head on a trace.",
        "score": "Add a learned head's scores to a trace.",
        "spans": "Label output positions as thinking, code, tool call or answer.",
    },
    "List what is available": {
        "list": "List policies, drafters, costs, controllers, figures, claims, engines or traces.",
        "policies": "List policies, with their arguments.",
        "drafters": "List drafters that can be attached to a trace.",
        "costs": "List costs (time models), devices and presets.",
    },
}
_HELP = {name: says for group in _GROUPS.values() for name, says in group.items()}
_HELP_ALL = "--help-all"  # shows the options that --help leaves out
_IN_LIST = ("policies", "drafters", "costs")  # commands that lie in the module of `list`
_ONE = "drafter"  # an option of which most commands take one; replay and compare take several
_MEANT = {"attach": "--drafter", "serving": "--controller", "figures": "--only"} | dict.fromkeys(
    ("replay", "sweep", "tune", "export", "report"), "--policy"
)
"""The option that an argument too many was probably meant for, by command."""
_NEW_OBJECTS = 50_000  # before cyclic garbage is looked for, of which imports make none
_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EPIPE)
_LARGEST = 1e300  # of numbers
_LONG = ("seed", "memory", "kv_tokens")  # options that count further than 32 bits
_MODELS_NEED = ("torch", "transformers", "tokenizers", "safetensors")


class _Command(TyperCommand):
    """A subcommand: it refuses an option given twice, and its help is short unless asked."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        if _HELP_ALL in args:
            ctx.meta[_HELP_ALL] = True
            args = ["--help"]
        try:
            _, extra, given = self.make_parser(ctx).parse_args(args=list(args))
        except Exception as error:  # of typer's own click, or of click
            if meant := self._now(getattr(error, "option_name", None)):
                error.possibilities = [meant]  # type: ignore[attr-defined]
            raise
        if extra and self.name in _MEANT and not ctx.resilient_parsing and "--help" not in args:
            meant = f"{_MEANT[self.name]} {shlex.quote(extra[0])}"
            raise UserError(f"unexpected argument {extra[0]!r}: did you mean {meant}?")
        single = [option for option in given if not getattr(option, "multiple", False)]
        if sum(option.name == _ONE for option in single) > 1:
            raise UserError(f"--{_ONE} is given twice: {self.name} takes one")
        left = super().parse_args(ctx, args)
        for name, value in ctx.params.items():
            _check_number(name, value)
        return left

    def _now(self, option: str | None) -> str | None:
        """The name that an option of earlier versions has in this command, if it has one."""
        from simkit.cli.options import RENAMED

        now = RENAMED.get(option or "")
        return now if any(now in parameter.opts for parameter in self.params) else None

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:
        """See typer; options that are seldom used come last if all are asked for, else not."""
        from simkit.cli.options import MORE

        every = self.params
        seldom = [p for p in every if getattr(p, "rich_help_panel", None) == MORE]
        usual = [p for p in every if p not in seldom]
        asked = _HELP_ALL in ctx.meta
        self.params = [*usual, *seldom] if asked else usual
        if seldom and not asked:
            self.epilog = f"{_HELP_ALL} shows {how_many(len(seldom), 'more option')}."
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params, self.epilog = every, None

    def invoke(self, ctx: typer.Context) -> Any:
        """See typer; pandas is not imported for a command, and what stores bring is said."""
        _spare_pandas()
        stores.on_bring = _Brought()
        return super().invoke(ctx)


class _Lazy(TyperGroup):
    """A group that imports a subcommand only when it is called or asked for its help."""

    _named = False  # whether commands are asked for to be named alone

    def list_commands(self, ctx: typer.Context) -> list[str]:
        return list(_HELP)

    def get_command(self, ctx: typer.Context, cmd_name: str):
        if cmd_name not in _HELP:
            return None
        about = {"help": _HELP[cmd_name], "rich_help_panel": _group_of(cmd_name)}
        if self._named:
            return TyperCommand(cmd_name, **about)  # pyright: ignore[reportArgumentType]
        single = typer.Typer(add_completion=False)
        made = single.command(cmd_name, cls=_Command, **about)  # pyright: ignore[reportArgumentType]
        made(function_of(cmd_name))
        return typer.main.get_command(single)

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:
        """See typer; it asks for each command, of which the names are enough here."""
        self._named = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._named = False

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:
        """See typer; an unknown command is answered with the nearest one."""
        if args[0] not in _HELP and args[0][:1] != "-" and not ctx.resilient_parsing:
            from traces.registry import suggest

            raise UserError(f"no command {args[0]!r} ({suggest(args[0], _HELP)})")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[Any]:
        """See typer; it would import every command."""
        if incomplete[:1] == "-":
            return super().shell_complete(ctx, incomplete)
        from simkit.cli.complete import items

        return items(incomplete, _HELP)


def function_of(command: str) -> Any:
    """A command's function, in the module of its name; names that Python has get an underscore."""
    taken = iskeyword(command) or hasattr(builtins, command)
    name = f"{command}_" if taken else command
    home = "list_" if command in _IN_LIST else name
    return getattr(import_module(f"simkit.cli.{home}"), name)


def _check_number(name: str, value: Any) -> None:
    """Refuse what no option means: a float that is not finite, a count beyond 32 or 64 bits."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, float) and not abs(value) < _LARGEST:
        raise UserError(f"{option} must be a finite number, not {value}")
    bits = 64 if name in _LONG else 32
    if isinstance(value, int) and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise UserError(f"{option} must fit in {bits} bits, not {value}")
    for one in value if isinstance(value, list | tuple) else ():
        _check_number(name, one)


def _spare_pandas() -> None:
    """Have Arrow not import pandas, where it is installed: that takes a third of a second.

    Arrow looks for it once, when it makes its first array, to know a pandas object by sight; no
    command gives it one. What asks for pandas by name, as `to_pandas` does, gets it all the same.
    """
    if "pandas" in sys.modules:
        return
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(absent)


class _Brought:
    """Says once of each URL that a trace's files are brought from there."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, url: str, folder: Path) -> None:
        if url not in self._told:
            self._told.add(url)
            print(f"note: {url} is read through a copy in {folder}", file=sys.stderr)


class _Absent(MetaPathFinder):
    """A finder by which pandas is not installed."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """See `importlib.abc.MetaPathFinder`."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def _group_of(command: str) -> str:
    return next(group for group, commands in _GROUPS.items() if command in commands)


app = typer.Typer(cls=_Lazy)


def _say_version(asked: bool) -> None:
    if asked:
        from traces.versions import installed_version

        print(f"simkit {installed_version('draft-simkit')}")
        raise typer.Exit


@app.callback()
def _app(
    ctx: typer.Context,
    study: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TOML file of a study. It supplies values for options that you leave out.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Record a speculative-decoding pair once, then replay any draft-length policy offline."""
    if study is not None and ctx.invoked_subcommand is not None:
        from simkit.cli.study import defaults

        command = ctx.invoked_subcommand
        ctx.default_map = {command: defaults(ctx.command, ctx, study, command)}


def main(arguments: list[str] | None = None) -> None:
    """Run the command; bad input is one line on stderr and exit status 2.

    Ctrl-C ends it with status 130, a termination with 143; open logs are finished first.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with own_process(), _unwinding(), _plain_warnings(), _few_collections():
            status = app(arguments or ["--help"], standalone_mode=False, prog_name="simkit")
            sys.stdout.flush()
    except UserError as e:
        _refuse(str(e))
    except OSError as e:
        _refuse(_refused_by_system(e))
    except (typer.Abort, KeyboardInterrupt) as e:
        # Typer makes an Abort of an EOFError too, which nobody at the keyboard has asked for.
        if isinstance(e.__context__, EOFError) or isinstance(e.__cause__, EOFError):
            raise
        sys.exit(130)
    except MemoryError:
        _refuse("out of memory")
    except ModuleNotFoundError as e:
        if e.name not in _MODELS_NEED:
            raise
        _refuse(f"running models needs {e.name}: pip install 'draft-simkit[record]'")
    except Exception as e:
        if not hasattr(e, "format_message"):  # what typer raises for a wrong option has it
            raise
        _refuse(e.format_message().replace("Value error, ", ""))  # type: ignore[attr-defined]
    else:
        sys.exit(status or 0)


@contextmanager
def _unwinding() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that files are closed; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():  # where no handler may be set
        yield
        return

    def stop(number: int, frame: Any) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Look for cyclic garbage less often: at Python's threshold that is 3 to 10% of all imports."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _NEW_OBJECTS) if before[0] else 0, *before[1:])  # 0 is off
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """A warning of our own is a line; the place in the code that gave it helps nobody."""
    before = warnings.showwarning

    def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, SimkitWarning):
            print(f"simkit: {plain(str(message))}", file=sys.stderr)
        else:
            before(message, category, *where, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def _refused_by_system(error: OSError) -> str:
    """What the system says, of a file that was to be read or to be written."""
    if not error.strerror:
        return str(error)
    if error.filename:
        return f"{error.filename}: {error.strerror}"
    verb = "write" if error.errno in _OF_WRITING else "read or write"
    return f"cannot {verb}: {error.strerror}"


def _refuse(message: str) -> NoReturn:
    print(f"simkit: {line(message)}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
