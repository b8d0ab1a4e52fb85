"""Pin images by digest: `python deploy/pin_images.py Dockerfile docker-compose.yml`, or `make pin-images`.

A tag such as `mongo:8.0` names the image that was pushed last. With a digest, `mongo:8.0@sha256:…`, it always names
today's image. Run the script again to pin newer images.

The script asks the registry through `docker buildx imagetools`, and knows all digests before it writes a file. Images
that are built here (`build:`) have no digest. Uses the standard library only.
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
"""Lines with an image in a compose file or the Dockerfile. An image without a tag is built here."""
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def tags(texts: Iterator[str]) -> list[str]:
    """Return the images that these texts name, without duplicates."""
    return sorted({match["tag"] for text in texts for match in IMAGE.finditer(text)})


def digest(tag: str) -> str:
    """Return the digest that a tag has now. Exits with an error that names the image if the registry can't be asked."""
    command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", tag]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.strip()
    except FileNotFoundError:
        sys.exit(f"{tag}: docker is not installed on this machine, and is needed to ask the registry")
    except subprocess.SubprocessError as error:
        reason = getattr(error, "stderr", None) or error
        sys.exit(f"{tag}: could not be looked up: {' '.join(str(reason).split())[:300]}")
    if not DIGEST.fullmatch(output):
        sys.exit(f"{tag}: docker did not return a digest, but {output[:100]!r}")
    return output


def main(names: list[str]) -> None:
    """Pin the images in these files."""
    texts = {Path(name): Path(name).read_text() for name in names}
    digests = {tag: digest(tag) for tag in tags(iter(texts.values()))}
    for path, text in texts.items():
        path.write_text(IMAGE.sub(lambda match: f"{match['before']}{match['tag']}@{digests[match['tag']]}", text))
    for tag, image_digest in digests.items():
        print(f"{tag}@{image_digest}")


if __name__ == "__main__":
    main(sys.argv[1:])
