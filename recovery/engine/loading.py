"""Find the application that `RECOVERY_APP` or `--app` names: `package.module:name`."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from recovery.engine.app import Recovery
from recovery.errors import RecoveryError, SettingsError
from recovery.installed import advice


def load_app(path: str | None) -> Recovery:
    """The `Recovery` object at `path`. Raises SettingsError that says which part of the path is wrong."""
    if not path:
        raise SettingsError("no application: set RECOVERY_APP (or --app) to 'package.module:name'")
    module_name, colon, name = path.partition(":")
    if not (colon and name.isidentifier() and all(part.isidentifier() for part in module_name.split("."))):
        raise SettingsError(f"RECOVERY_APP={path}: must be 'package.module:name', for example 'shop.orders:app'")
    here = str(Path.cwd())
    if here not in sys.path:  # as `celery -A` and `python -m` do
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise SettingsError(
                f"RECOVERY_APP={path}: no module {missing!r} in {here} or on PYTHONPATH; "
                "run from the folder that holds it"
            ) from None
        raise SettingsError(f"RECOVERY_APP={path}: {module_name} imports {missing!r}, which is not there") from error
    except RecoveryError:
        raise  # of ours, and says itself what is wrong
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        shadows = advice(Path(here))
        raise SettingsError(
            f"RECOVERY_APP={path}: {_place(error)} while {module_name} was imported: {type(error).__name__}: {error}"
            f"{f'. {shadows}' if shadows else ''}"
        ) from error
    app = getattr(module, name, None)
    if isinstance(app, Recovery):
        return app
    if app is None:
        there = [key for key, value in vars(module).items() if isinstance(value, Recovery)]
        hint = f"; it has {there[0]!r}" if there else "; it has no Recovery object"
        raise SettingsError(f"RECOVERY_APP={path}: {module_name} has nothing named {name!r}{hint}")
    raise SettingsError(f"RECOVERY_APP={path}: {name!r} is a {type(app).__name__}, not a recovery.Recovery")


def _place(error: BaseException) -> str:
    """Where an error comes from: what a stack would tell last."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "somewhere"
