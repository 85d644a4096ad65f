# One target a check; `make test` is all of them, `make demo` the main job.
CARGO ?= cargo
WEIR := target/release/weir
PREFIX := /usr/local
DEB_FOLDER := target
BARE := thumbv7em-none-eabihf
ARM := aarch64-unknown-linux-gnu
TARGETS := $(shell rustc --print sysroot)/lib/rustlib
# The oldest Rust that Cargo.toml promises.
OLDEST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

.PHONY: all demo test forget-unchecked test-gpu deps fetched format lint licences proof unit search models doc bare arm oldest configs foreign python oip oip-proto servers bench profile-example experiments fuzz soak install uninstall deb wheel clean

all: $(WEIR)

## demo: serve the shipped models under a computed promise, overload them, recover, read scenes as a whole; less than a minute
# As the tests are built, where the engine is optimised too: that compiles in less time, and `make test` has it then.
demo: deps
	$(CARGO) build --bin weir --bin weir-lab
	target/debug/weir demo

# Where each check that could not be made leaves a line, for the end of `make test`; one that was made and has shown
# nothing, because the machine was disturbed and the daemon said so, as well. A number says how often.
export WEIR_NOT_CHECKED := $(CURDIR)/target/not-checked.txt

# What `make proof` builds; tests that use the checker look for it here.
PROOF := $(CURDIR)/target/proof

## test: everything that must hold on every machine
test: forget-unchecked deps fetched format lint licences proof unit models doc bare arm oldest configs foreign python oip
	@if [ -s "$(WEIR_NOT_CHECKED)" ]; then \
	    echo "all other checks passed; NOT CHECKED:"; sort "$(WEIR_NOT_CHECKED)" | uniq -c; \
	else \
	    echo "all checks passed"; \
	fi

forget-unchecked:
	@mkdir -p target && rm -f "$(WEIR_NOT_CHECKED)"

## test-gpu: the engines that need an NVIDIA GPU, on a machine that has one (docs/engines.md)
test-gpu: fetched
	./tests/gpu.sh

# A Rust toolchain is given; a linker for build scripts and Python for the foreign client may not be.
deps:
	@./tests/deps.sh

# ONNX Runtime and models to try the engines on, from PyPI.
fetched:
	@./tests/deps.sh fetch
	@./tests/fetch.sh

format:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/targets/Cargo.toml --check
	$(CARGO) fmt --manifest-path tests/models/Cargo.toml --check

# Among its lints: nothing of the standard library that is younger than the oldest Rust.
lint:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# By deny.toml. What has become known of a library since is told, and fails nothing: it is no matter of the change.
licences:
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	    $(CARGO) deny check licenses bans sources && \
	    { $(CARGO) deny check advisories || echo "known faults of libraries: see cargo deny check advisories" \
	        | tee -a "$(WEIR_NOT_CHECKED)"; }; \
	else \
	    echo "licences and sources of libraries: cargo-deny is not installed (cargo install cargo-deny)" \
	        | tee -a "$(WEIR_NOT_CHECKED)"; \
	fi

## proof: the theorems of docs/guarantee.md, checked by Coq, and the checker that is extracted from them; less than a minute
proof:
	@if command -v coqc >/dev/null && command -v ocamlopt >/dev/null; then \
	    $(MAKE) --no-print-directory -C proof OUT=$(PROOF); \
	else \
	    mkdir -p target; \
	    echo "the proof: Coq is not installed (apt-get install --no-install-recommends coq ocaml-nox)" \
	        | tee -a "$(WEIR_NOT_CHECKED)"; \
	fi

# End-to-end tests mostly wait for a clock: of as many as share the machine, and of those that wait to have it to themselves.
unit: export RUST_TEST_THREADS ?= $(shell echo $$((6 * $$(nproc))))
unit:
	$(CARGO) test --workspace

## search: the searches of `make unit` for broken promises, of SEARCH (10) times as many systems
SEARCH ?= 10
search: deps
	WEIR_EXHAUSTIVE=$(SEARCH) $(CARGO) test -p rt-core -p planner

# In every order of threads by loom; and by Miri, which sees undefined behaviour, where a nightly Rust has it.
models:
	$(CARGO) test --manifest-path tests/models/Cargo.toml --target-dir target/models
	@if $(CARGO) +nightly miri --version >/dev/null 2>&1; then \
	    $(CARGO) +nightly miri test --manifest-path tests/models/Cargo.toml --target-dir target/miri; \
	else \
	    echo "undefined behaviour: Miri is not installed (rustup +nightly component add miri)" \
	        | tee -a "$(WEIR_NOT_CHECKED)"; \
	fi

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

# The proof that the core is pure: it builds where there is no operating system.
bare:
	@if [ -d "$(TARGETS)/$(BARE)" ]; then \
	    $(CARGO) build -p rt-core --target $(BARE); \
	else \
	    echo "rt-core for bare metal: target $(BARE) is not installed (rustup target add $(BARE))" \
	        | tee -a "$(WEIR_NOT_CHECKED)"; \
	fi

# The other machine that Weir is for. Some libraries have assembler or C in them.
arm:
	@if [ -d "$(TARGETS)/$(ARM)" ] && command -v aarch64-linux-gnu-gcc >/dev/null; then \
	    $(CARGO) check --workspace --target $(ARM); \
	else \
	    echo "a build for $(ARM): the target or its C compiler is not installed (rustup target add $(ARM);" \
	        "apt-get install gcc-aarch64-linux-gnu)" | tee -a "$(WEIR_NOT_CHECKED)"; \
	fi

# An older one than promised refuses by itself; with a younger one it is checked where rustup has it.
oldest:
	@if rustc --version | grep -q "^rustc $(OLDEST)\."; then \
	    echo "all of it was built with Rust $(OLDEST)"; \
	elif rustup toolchain list 2>/dev/null | grep -q "^$(OLDEST)"; then \
	    $(CARGO) +$(OLDEST) check --workspace --all-targets --target-dir target/oldest; \
	else \
	    echo "a build with Rust $(OLDEST), the oldest: it is not installed (rustup toolchain install $(OLDEST))" \
	        | tee -a "$(WEIR_NOT_CHECKED)"; \
	fi

configs: target/debug/weir
	target/debug/weir check config/*.toml

# A client that shares no line with ours, written from docs/protocol.md alone.
foreign: target/debug/weir
	python3 tests/protocol_client.py --weir target/debug/weir

# The Python client against the daemon; NumPy comes from PyPI into a virtual environment.
PYTHON := target/python
python: target/debug/weir
	@if ./tests/deps.sh python $(PYTHON); then \
	    cd client/python && ../../$(PYTHON)/bin/mypy && \
	    PYTHONPATH=src ../../$(PYTHON)/bin/python -m unittest discover -s tests; \
	else \
	    echo "the Python client: NumPy cannot be fetched" | tee -a "$(WEIR_NOT_CHECKED)"; \
	fi

# Triton's own clients against the daemon; they come from PyPI into a virtual environment.
OIP := target/oip
oip: target/debug/weir
	@if ./tests/deps.sh oip $(OIP); then \
	    $(OIP)/bin/python tests/oip_clients.py --weir target/debug/weir; \
	else \
	    echo "Triton's clients: tritonclient cannot be fetched" | tee -a "$(WEIR_NOT_CHECKED)"; \
	fi

# Not part of `make test`: they are large.
## servers: the daemon's workers on servers of others, from PyPI: Triton, MLServer and KServe's own; KServe's clients; and the manifests of docs/cluster.md
SERVERS := target/servers
servers: target/debug/weir
	@mkdir -p $(SERVERS)
	@for server in nvidia-pytriton mlserver kserve; do \
	    ./tests/deps.sh $$server $(SERVERS)/$$server || rm -rf $(SERVERS)/$$server; \
	done
	python3 tests/oip_servers.py --weir target/debug/weir --servers $(SERVERS)
	@if [ -d $(SERVERS)/kserve ]; then \
	    $(SERVERS)/kserve/bin/python tests/kserve_clients.py --weir target/debug/weir && \
	    $(SERVERS)/kserve/bin/python tests/manifests.py docs/cluster.md; \
	fi

## oip-proto: generate the messages of the Open Inference Protocol anew from daemon/oip/proto
oip-proto:
	$(CARGO) run --manifest-path daemon/oip/generate/Cargo.toml --target-dir target/generate

# As `cargo test` builds it: another choice of features would compile the engine once more.
target/debug/weir: FORCE
	$(CARGO) test --workspace --no-run

$(WEIR): FORCE
	$(CARGO) build --release --bin weir --bin weir-lab

## bench: the figures of docs/validation.md, as ratios in one run or counted instructions
bench: fetched
	$(CARGO) build --release --bin weir --bin weir-lab
	$(CARGO) bench -p weir --bench round_trip
	$(CARGO) bench -p weir --bench doors
	$(CARGO) bench -p weir --bench hold
	$(CARGO) bench -p weir --bench isolation
	$(CARGO) bench -p weir --bench notifications
	$(CARGO) bench -p weir --bench stages
	$(CARGO) bench -p rt-core --bench scheduler
	$(CARGO) bench -p sim --bench simulate
	$(CARGO) bench -p sim --bench clusters
	$(CARGO) bench -p placement
	./tests/bench/growth.py --last
	$(CARGO) test --release -p planner --bench certify -- --nocapture
	./tests/bench/instructions.sh
	./tests/bench/promise.sh
	./tests/bench/engines.py --weir $(WEIR)
	./tests/deps.sh bench target/bench-python
	target/bench-python/bin/python tests/bench/batches.py --weir $(WEIR)
	target/bench-python/bin/python tests/bench/rows.py --weir $(WEIR)
	target/bench-python/bin/python tests/bench/sharing.py --weir $(WEIR)
	$(CARGO) test -p weir-engine overhead -- --ignored --nocapture
	./tests/bench/start.sh

## profile-example: the profile that docs/validation.md shows, and its figure
profile-example: deps
	$(CARGO) build --release --bin weir --bin weir-lab
	FIGURE=docs/profile.svg ./tests/bench/profile.sh

## experiments: the tables and figures of docs/experiments.md; WEIR_DATA names the folder of others' measurements
experiments: deps
	$(CARGO) build --release --bin weir --bin weir-lab
	mkdir -p docs/experiments
	$(WEIR) simulate $(if $(WEIR_DATA),sim/experiments/*.toml,$(shell grep -L 'file = ' sim/experiments/*.toml)) \
	    -o docs/experiments --into docs/experiments.md >/dev/null

## fuzz: made-up problems, certificates, frames, recordings, policies and experiments: the seeds on any machine, then each target for FUZZ_SECONDS (60)
fuzz: deps
	$(CARGO) test -p weir-fuzz
	./fuzz/run.sh

## soak: a daemon among bad clients for WEIR_SOAK_SECONDS (600): it keeps its promises and does not grow
soak: deps
	WEIR_SOAK_SECONDS=$${WEIR_SOAK_SECONDS:-600} $(CARGO) test -p weir --test e2e -- --nocapture promise::soak

## install: what `make` has built, below PREFIX (/usr/local); DESTDIR stands before all paths
install:
	@WEIR="$(WEIR)" PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" ./packaging/install.sh

uninstall:
	@WEIR="$(WEIR)" PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" ./packaging/install.sh --remove

## deb: a Debian package of what `make` has built, in target/
deb:
	@WEIR="$(WEIR)" ./packaging/deb.sh $(DEB_FOLDER)

## wheel: a Python wheel of the programs and the Python client, in target/, tried in an empty environment
wheel: deps $(WEIR)
	@WEIR="$(WEIR)" ./packaging/wheel.sh target
	@./tests/wheel.py target/weir-*.whl

clean:
	$(CARGO) clean

FORCE:
