"""What users say of errors: an application of its own, and distributions by their entry points."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from recovery import Recovery, Settings
from recovery.errors import InputError, SettingsError
from recovery.retry import Catalogue, Entry, ErrorCode, catalogues, classify, in_use, of_class, reason_of
from recovery.retry.reasons import HTTP_TOO_MANY_REQUESTS, UNKNOWN
from tests.cli.command import ROOT, command, environment

CATALOGUE = """
from recovery.retry import Catalogue, Entry, ErrorCode, reason_of
CATALOGUE = Catalogue("{name}", (Entry(ErrorCode({code}, "LOCKED", "It is locked"), reason_of("KV_LOCKED"),
                                       pattern="is locked"),))
"""

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a distribution with a module, whose entry point names something in it."""

    def installed(name: str, source: str, point: str = "CATALOGUE") -> Path:
        (tmp_path / f"{name}.py").write_text(source)
        told = tmp_path / f"{name}-1.2.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (told / "entry_points.txt").write_text(f"[recovery.catalogues]\n{name} = {name}:{point}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, name, raising=False)
        catalogues._installed.cache_clear()
        return tmp_path

    yield installed
    catalogues._installed.cache_clear()


def test_a_class_is_classified_by_a_decorator_with_its_subclasses() -> None:
    app = Recovery()

    @app.classifies(27001, "RESOURCE_BUSY")
    class LedgerClosed(Exception):
        """The ledger is being closed"""

    class ClosedForGood(LedgerClosed):
        pass

    found = classify(ClosedForGood(), app.catalogues.all)
    assert found.code == ErrorCode(27001, "LEDGER_CLOSED", "The ledger is being closed")
    assert (found.reason.name, found.is_retriable) == ("RESOURCE_BUSY", True)

    app.classifies(47001)(ClosedForGood)  # which says otherwise
    assert not classify(ClosedForGood(), app.catalogues.all).is_retriable
    assert classify(LedgerClosed(), app.catalogues.all).is_retriable
    assert classify(LedgerClosed(), Recovery().catalogues.all).reason is UNKNOWN, "another application's"


def test_a_catalogue_is_added_and_reaches_the_steps(settings: Settings) -> None:
    app = Recovery(settings)
    assert classify(RuntimeError("slow down"), app.resources.catalogues.all).reason is UNKNOWN
    app.catalogues.add(
        Catalogue("shop", (Entry(ErrorCode(27002, "SLOWER", "Slower"), HTTP_TOO_MANY_REQUESTS, pattern="slow down"),))
    )
    found = classify(RuntimeError("slow down"), app.resources.catalogues.all)
    assert (found.code.number, found.catalogue) == (27002, "shop")
    assert "mongodb" in {catalogue.name for catalogue in app.resources.catalogues.all}


class Closed(Exception):
    pass


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ((7,), Closed, "error code 7: must be from 10000 to 49999"),
        ((27001, "NO_SUCH"), Closed, "no reason is named 'NO_SUCH'"),
        ((22001, "KV_LOCKED"), Closed, "overlap: 22001 is MONGODB_AWAY in the one and CLOSED in the other"),
        ((27001, 5), Closed, "reason=5: must be a text"),
        (("27001",), Closed, "its code '27001' is not a number"),
        ((True,), Closed, "its code True is not a number"),
        ((27001,), 5, "5 is not a class of errors"),
        ((27001,), int, "is not a class of errors"),
    ],
)
def test_what_can_not_be_is_an_error_and_adds_nothing(given: tuple[object, ...], error: object, told: str) -> None:
    app = Recovery()
    before = list(app.catalogues.all)
    with pytest.raises(InputError, match=told):
        app.classifies(*given)(error)  # type: ignore[arg-type, type-var]
    assert app.catalogues.all == before


def test_the_same_class_twice_is_an_error() -> None:
    app = Recovery()
    app.classifies(27001, "RESOURCE_BUSY")(Closed)
    with pytest.raises(InputError, match=r"two catalogues are named 'tests.retry.test_extending.Closed'"):
        app.classifies(27002, "RESOURCE_BUSY")(Closed)


def test_a_retriable_code_without_a_reason_is_an_error() -> None:
    with pytest.raises(
        InputError, match="CLOSED: its code 27502 is retriable, but its reason is UNKNOWN, which is never"
    ):
        Recovery().classifies(27502)(Closed)
    Recovery().classifies(47502)(Closed)  # is not retried, and needs none


def test_an_installed_distribution_is_asked(install: Install) -> None:
    install("ledger", CATALOGUE.format(name="ledger", code=27010))
    found = classify(RuntimeError("it is locked"), Recovery().catalogues.all)
    assert (found.code.number, found.reason, found.catalogue) == (27010, reason_of("KV_LOCKED"), "ledger")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("OTHER = 1", "AttributeError"),
        ("CATALOGUE = 1", "it is 1; it has to be a recovery.retry.Catalogue"),
        (CATALOGUE.format(name="broken", code=7), "InputError: error code 7"),
        (CATALOGUE.format(name="mongodb", code=27010), "two catalogues are named 'mongodb'"),
        (CATALOGUE.format(name="broken", code=22001), "22001 is MONGODB_AWAY in the one and LOCKED in the other"),
    ],
    ids=["import", "attribute", "none", "range", "name", "overlap"],
)
def test_a_broken_distribution_is_named(install: Install, settings: Settings, source: str, told: str) -> None:
    install("broken", source)
    with pytest.raises(
        SettingsError, match=r"distribution broken 1\.2: its entry point broken = broken:CATALOGUE"
    ) as its:
        _ = Recovery(settings).resources  # before anything runs, and not at the first error
    assert told in str(its.value) and "uninstall the distribution" in str(its.value)


def test_an_entry_point_without_a_distribution_is_named_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("ledger", "no_such_module:CATALOGUE", catalogues.GROUP)
    monkeypatch.setattr(catalogues, "entry_points", lambda group: [point] if group == catalogues.GROUP else [])
    catalogues._installed.cache_clear()
    with pytest.raises(SettingsError) as raised:
        in_use()
    assert str(raised.value) == (
        "distribution an unknown distribution: its entry point ledger = no_such_module:CATALOGUE "
        "(recovery.catalogues) can't be used: ModuleNotFoundError: No module named 'no_such_module'. Correct it, or "
        "uninstall the distribution"
    )


class Documented(Exception):
    """The first line.

    Another line.
    """


def test_the_text_of_a_class_is_what_is_given_else_its_first_line_else_its_name() -> None:
    def text_of(catalogue: Catalogue) -> str:
        return catalogue.entries[0].code.text

    assert text_of(of_class(Documented, 47001, text="Given")) == "Given"
    assert text_of(of_class(Documented, 47001)) == "The first line."
    assert text_of(of_class(Closed, 47001)) == "a Closed"


SHOP = """
from recovery import Recovery
app = Recovery()

@app.classifies(27020, "RESOURCE_BUSY")
class Closed(Exception):
    "The shop is closed"
"""


@pytest.mark.thorough
def test_recovery_retry_explain_asks_them(install: Install) -> None:
    path = str(install("ledger", CATALOGUE.format(name="ledger", code=27010)))
    (Path(path) / "shop.py").write_text(SHOP)

    def explain(*options: str, **settings: str) -> tuple[int, str]:
        env = environment({"PYTHONPATH": f"{ROOT}:{path}", **settings})
        done = subprocess.run(
            command("retry", "explain", *options), env=env, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    code, told = explain("--error", "RuntimeError", "--text", "it is locked")
    assert code == 0 and "27010, retriable" in told and "catalogue ledger" in told
    code, told = explain("--error", "shop.Closed", RECOVERY_APP="shop:app")
    assert code == 0 and "27020, retriable" in told and "The shop is closed" in told
    assert "27020" in explain("--code", "27020", "--app", "shop:app")[1]
    code, told = explain("--error", "TimeoutError", RECOVERY_APP="none:app")
    assert code == 0 and "without what the application says of its errors" in told and "no module 'none'" in told
    assert explain("--error", "TimeoutError", "--app", "none:app")[0] == 2
