"""Load the application that `RECOVERY_APP` or `--app` names, as `package.module:name`."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from recovery.engine.app import Recovery
from recovery.errors import RecoveryError, SettingsError
from recovery.installed import advice


def load_app(path: str | None) -> Recovery:
    """Return the `Recovery` object at a path such as `shop.orders:app`.

    The working directory is put into `sys.path`, as `celery -A` and `python -m` do.

    Raises:
        SettingsError: The path is missing or has another form, its module cannot be imported, or it does not name a
            `Recovery` object. The message says which part of the path is wrong.
    """
    if not path:
        raise SettingsError("no application: set RECOVERY_APP (or --app) to 'package.module:name'")
    module_name, colon, name = path.partition(":")
    if not (colon and name.isidentifier() and all(part.isidentifier() for part in module_name.split("."))):
        raise SettingsError(f"RECOVERY_APP={path}: must be 'package.module:name', for example 'shop.orders:app'")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise SettingsError(
                f"RECOVERY_APP={path}: no module {missing!r} in {folder} or on PYTHONPATH; "
                "run from the folder that holds it"
            ) from None
        raise SettingsError(f"RECOVERY_APP={path}: {module_name} imports {missing!r}, which cannot be found") from error
    except RecoveryError:
        raise  # our own error: its message says what is wrong
    except (Exception, SystemExit) as error:  # a module may raise anything when it is imported
        shadows = advice(Path(folder))
        raise SettingsError(
            f"RECOVERY_APP={path}: {_place(error)} while {module_name} was imported: {type(error).__name__}: {error}"
            f"{f'. {shadows}' if shadows else ''}"
        ) from error
    app = getattr(module, name, None)
    if isinstance(app, Recovery):
        return app
    if app is None:
        app_names = [key for key, value in vars(module).items() if isinstance(value, Recovery)]
        hint = f"; it has {app_names[0]!r}" if app_names else "; it has no Recovery object"
        raise SettingsError(f"RECOVERY_APP={path}: {module_name} has nothing named {name!r}{hint}")
    raise SettingsError(f"RECOVERY_APP={path}: {name!r} is a {type(app).__name__}, not a recovery.Recovery")


def _place(error: BaseException) -> str:
    """Return where an error was raised: the last file and line of its traceback, or those of a syntax error."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "somewhere"
