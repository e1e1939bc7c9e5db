# Phalanx for pods: Python, PyTorch for CPUs, Phalanx; for a user who is not root.
#   docker build -t registry.example/phalanx:1 .
# The compiler stays: native code is compiled for the CPU that it runs on, at first use. What is compiled here is used
# where the CPU is the same as the building machine's.
FROM python:3.13-slim

RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev libjpeg62-turbo-dev \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /usr/src/phalanx
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# torch and torchvision from one index: they are built together
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch torchvision \
 && pip install --no-cache-dir . \
 && ln -sf "$(command -v python3)" /usr/bin/python3

RUN useradd --uid 1000 --create-home phalanx && mkdir /phalanx && chown phalanx /phalanx
USER 1000
ENV XDG_CACHE_HOME=/home/phalanx/.cache
RUN phalanx doctor > /dev/null || true
WORKDIR /phalanx
CMD ["phalanx", "--help"]
