# docker build .                  workers and beat: no compiler, no server, no Java
# docker build --target spark .   the same with Java and PySpark, for a worker of the queue `spark`
#
# All packages are of the versions and hashes in deploy/locks, which `make lock` makes. Bookworm by name, since a newer
# Debian has no openjdk-17. A tag names another image tomorrow: `make pin-images` adds the digest of today's.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_DEPS=1
COPY deploy/locks deploy/locks
RUN python -m venv /opt/build && /opt/build/bin/pip install --require-hashes -r deploy/locks/build.txt \
    && python -m venv /opt/recovery && /opt/recovery/bin/pip install --require-hashes -r deploy/locks/worker.txt
COPY pyproject.toml README.md LICENSE ./
COPY recovery recovery
# Of our own files, by tools that are in the lock: nothing is fetched.
RUN /opt/build/bin/pip wheel --no-build-isolation --wheel-dir /opt/wheels . \
    && /opt/recovery/bin/pip install --no-index /opt/wheels/*.whl
# What is deployed, which is not in the wheel. A `workers` of your own, in /app or on PYTHONPATH, comes before it.
COPY workers workers
RUN cp -r workers "$(/opt/recovery/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

FROM build AS build-spark
# PySpark comes as source.
RUN /opt/build/bin/pip wheel --no-build-isolation --wheel-dir /opt/spark --require-hashes -r deploy/locks/spark.txt \
    && /opt/recovery/bin/pip install --no-index /opt/spark/py4j-*.whl /opt/spark/pyspark-*.whl

FROM ${PYTHON_IMAGE} AS base
RUN useradd --create-home --uid 1000 --user-group recovery
ENV PATH=/opt/recovery/bin:$PATH PYTHONUNBUFFERED=1
# Your application goes here, or anywhere on PYTHONPATH.
WORKDIR /app
# Told to end, a worker gives back what it runs; the default signal, but by name since it matters.
STOPSIGNAL SIGTERM
CMD ["python", "-m", "workers.app"]

FROM base AS spark
# Debian mends Java in the release that is named above; a version of it is soon not to be had any more.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-spark /opt/recovery /opt/recovery
USER 1000:1000
CMD ["python", "-m", "workers.sweep"]

# The last stage is what is built by default.
FROM base AS worker
COPY --from=build /opt/recovery /opt/recovery
USER 1000:1000
