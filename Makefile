# One target a check; `make test` is all of them, `make demo` the main job.
CARGO ?= cargo
WEIR := target/release/weir
BARE := thumbv7em-none-eabihf
BARE_SYSROOT := $(shell rustc --print sysroot)/lib/rustlib/$(BARE)

.PHONY: all demo test deps format lint unit bare configs foreign bench profile-example experiments fuzz doc clean

all: $(WEIR)

## demo: serve the shipped models under a computed promise, overload them, recover; about a minute
demo: deps
	$(CARGO) build --release --bin weir
	$(WEIR) demo

## test: everything that must hold on every machine
test: deps format lint unit bare configs foreign
	@echo "all checks passed"

# A Rust toolchain is given; a linker for build scripts and Python for the foreign client may not be.
deps:
	@./tests/deps.sh

format:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check

lint:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

unit:
	$(CARGO) test --workspace
	$(CARGO) test --manifest-path fuzz/Cargo.toml --target-dir target/fuzz

# The proof that the core is pure: it builds where there is no operating system.
bare:
	@if [ -d "$(BARE_SYSROOT)" ]; then \
	    $(CARGO) build -p rt-core --target $(BARE); \
	else \
	    echo "rt-core for bare metal: NOT CHECKED, target $(BARE) is not installed (rustup target add $(BARE))"; \
	fi

configs: target/debug/weir
	target/debug/weir check config/*.toml

# A client that shares no line with ours, written from docs/protocol.md alone.
foreign: target/debug/weir
	python3 tests/protocol_client.py --weir target/debug/weir

target/debug/weir: FORCE
	$(CARGO) build --bin weir

$(WEIR): FORCE
	$(CARGO) build --release --bin weir

## bench: measured figures, as ratios in one run or counted instructions
bench: deps
	$(CARGO) build --release --bin weir
	$(CARGO) bench -p weir --bench round_trip
	$(CARGO) bench -p weir --bench isolation
	$(CARGO) bench -p weir --bench doors
	$(CARGO) bench -p rt-core --bench scheduler
	$(CARGO) bench -p sim --bench simulate
	./tests/bench/growth.py --last
	$(CARGO) test --release -p planner --bench certify -- --nocapture
	./tests/bench/instructions.sh
	./tests/bench/promise.sh

## profile-example: the tables and the figure of docs/profiles.md
profile-example: deps
	$(CARGO) build --release --bin weir
	FIGURE=docs/profile.svg ./tests/bench/profile.sh

## experiments: the tables and figures of docs/experiments.md; WEIR_DATA names the folder of others' measurements
experiments: deps
	$(CARGO) build --release --bin weir
	mkdir -p docs/experiments
	$(WEIR) simulate $(if $(WEIR_DATA),sim/experiments/*.toml,$(shell grep -L 'file = ' sim/experiments/*.toml)) \
	    -o docs/experiments --into docs/experiments.md >/dev/null

## fuzz: made-up problems and certificates: the seeds on any machine, then each target for FUZZ_SECONDS (60)
fuzz: deps
	$(CARGO) test --manifest-path fuzz/Cargo.toml --target-dir target/fuzz
	./fuzz/run.sh

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

clean:
	$(CARGO) clean

FORCE:
