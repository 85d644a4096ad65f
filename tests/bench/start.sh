#!/bin/sh
# From starting `weir serve` with five models to its first answer to a client, ten times for each engine.
set -eu
weir=${WEIR:-target/release/weir}
folder=$(mktemp -d)
trap 'kill "$daemon" 2>/dev/null || true; rm -rf "$folder"' EXIT
daemon=""
for engine in tract ort-cpu; do
    {
        printf '[daemon]\nsocket = "s"\nmodels = "%s/models/manifest.toml"\nprofile = "profile.json"\n' "$PWD"
        for model in digits-s digits-m digits-l digits-xl digits-xxl; do
            printf '[[service]]\nname = "%s"\nmodel = "%s"\nengine = "%s"\ndeadline = "1s"\n' $model $model $engine
        done
    } >"$folder/weir.toml"
    "$weir" profile --quick "$folder/weir.toml" >/dev/null 2>&1
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        rm -f "$folder/s"
        started=$(date +%s%N)
        "$weir" serve --quiet "$folder/weir.toml" 2>"$folder/log" &
        daemon=$!
        until "$weir" status --socket "$folder/s" >/dev/null 2>&1; do sleep 0.005; done
        echo $((($(date +%s%N) - started) / 1000000))
        kill "$daemon"
        wait "$daemon" || true
    done | sort -n | sed -n -e "1s/.*/$engine: five models answer & ms after the start at best,/p" -e '10s/.*/& ms at worst/p'
done
