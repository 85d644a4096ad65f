#!/bin/sh
# Four floods beside three promises for ten minutes: what the flooded services still answer, and what the promised missed.
# It is the test of that name, longer.
set -eu
WEIR_FLOOD_SECONDS=${SECONDS_EACH:-600} cargo test -p weir -p weir-lab --test e2e promise::floods -- --nocapture
