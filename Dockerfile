# A machine on which the two commands pass:
#     docker build --tag parllel .
#     docker run --rm --init --shm-size=1g parllel make train
#     docker run --rm --init --shm-size=1g parllel make test
# Environments in worker processes share /dev/shm: Docker's default of 64 MB is too small for large batches.
FROM debian:bookworm-slim

# For the tests: Chromium, git, ps, and a library of the program that controls Chromium.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        ca-certificates chromium-headless-shell git libatomic1 make procps python3 python3-venv \
    && rm --recursive --force /var/lib/apt/lists/*

WORKDIR /parllel
COPY . .
RUN make install

CMD ["make", "train"]
