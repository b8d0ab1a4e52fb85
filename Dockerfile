# docker build .                  workers and beat: no compiler, no server, no Java
# docker build --target spark .   the same with Java and PySpark, for a worker of the queue `spark`
#
# Versions are those of constraints.txt. Bookworm by name, since a newer Debian has no openjdk-17.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=/src/versions.txt
COPY constraints.txt ./
# The lock has hashes of every wheel, and pip then wants a hash for our own folder too. So the versions alone.
RUN grep -oE '^[A-Za-z0-9._-]+==[^ ;]+' constraints.txt > versions.txt && python -m venv /opt/recovery
COPY pyproject.toml README.md LICENSE ./
COPY recovery recovery
COPY workers workers
# `packaging` by name: Celery's Redis transport imports it.
RUN /opt/recovery/bin/pip install . packaging

FROM build AS build-spark
RUN /opt/recovery/bin/pip install '.[spark]'

FROM python:3.11-slim-bookworm AS base
RUN useradd --create-home --uid 1000 recovery
ENV PATH=/opt/recovery/bin:$PATH PYTHONUNBUFFERED=1
# Your application goes here, or anywhere on PYTHONPATH.
WORKDIR /app
# Told to end, a worker gives back what it runs; the default signal, but by name since it matters.
STOPSIGNAL SIGTERM
CMD ["recovery", "worker"]

FROM base AS spark
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-spark /opt/recovery /opt/recovery
USER recovery
CMD ["recovery", "worker", "--queues", "spark", "--concurrency", "1", "--pool", "threads"]

# The last stage is what is built by default.
FROM base AS worker
COPY --from=build /opt/recovery /opt/recovery
USER recovery
