"""Pin images by digest: `python deploy/pin_images.py Dockerfile docker-compose.yml`, or `make pin-images`.

A tag such as `mongo:8.0` names whatever was pushed last; with a digest behind it, `mongo:8.0@sha256:…`, always what it
named today. Run it again to take up newer ones. Asks the registry through `docker buildx imagetools`. All digests are
known before a file is written; images that are built here (`build:`) have none. Standard library only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

IMAGE = re.compile(
    r"^(?P<before>\s*image: |ARG PYTHON_IMAGE=)(?P<tag>[\w./-]+:[\w.-]+)(?:@sha256:[0-9a-f]{64})?$", re.M
)
"""Of a compose file and of the Dockerfile; one without a tag is made here."""
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def tags(texts: Iterator[str]) -> list[str]:
    """The images that these texts name, each once."""
    return sorted({found["tag"] for text in texts for found in IMAGE.finditer(text)})


def digest(tag: str) -> str:
    """What a tag names now. Raises SystemExit, naming the image."""
    command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", tag]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.strip()
    except FileNotFoundError:
        sys.exit(f"{tag}: docker is not here, and nothing else is asked; run this where it is")
    except subprocess.SubprocessError as error:
        why = getattr(error, "stderr", None) or error
        sys.exit(f"{tag}: could not be looked up: {' '.join(str(why).split())[:300]}")
    if not DIGEST.fullmatch(said):
        sys.exit(f"{tag}: docker gave no digest, but {said[:100]!r}")
    return said


def main(names: list[str]) -> None:
    texts = {Path(name): Path(name).read_text() for name in names}
    digests = {tag: digest(tag) for tag in tags(iter(texts.values()))}
    for path, text in texts.items():
        path.write_text(IMAGE.sub(lambda found: f"{found['before']}{found['tag']}@{digests[found['tag']]}", text))
    for tag, found in digests.items():
        print(f"{tag}@{found}")


if __name__ == "__main__":
    main(sys.argv[1:])
