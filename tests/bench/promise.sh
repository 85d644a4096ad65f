#!/bin/sh
# The promise under load: the shipped models at 0.95 of their promised rate for a minute each, deadline 100 ms.
# Prints violations, what of the guard and handover was needed, and every safe mode with its cause.
set -eu
weir=${WEIR:-target/release/weir}
seconds=${SECONDS_EACH:-60}
folder=$(mktemp -d)
trap 'kill "$daemon" 2>/dev/null || true; rm -rf "$folder"' EXIT
daemon=""
echo "| model | rate /s | sent | missed | worst window | guard δ seen | handover seen | safe mode |"
echo "|---|---|---|---|---|---|---|---|"
for model in digits-m digits-xl digits-xxl; do
    sed -e "s|digits-l|$model|; s|\.\./target/|$folder/|; s|\.\./models|$PWD/models|" config/digits.toml >"$folder/$model.toml"
    "$weir" profile "$folder/$model.toml" --quick --samples 5000 --longest --margin 0.5 >/dev/null 2>&1
    "$weir" serve --quiet "$folder/$model.toml" 2>"$folder/log" &
    daemon=$!
    until [ -S "$folder/weir.sock" ]; do sleep 0.1; done
    "$weir" load --socket "$folder/weir.sock" digits --rate 0.95x --duration "${seconds}s" --json >"$folder/load" || true
    "$weir" status --socket "$folder/weir.sock" --json >"$folder/status"
    kill "$daemon"
    wait "$daemon" || true
    python3 - "$model" "$folder" <<'PY'
import json, sys
model, folder = sys.argv[1:]
load, status = json.load(open(folder + "/load")), json.load(open(folder + "/status"))
service = status["services"][0]
windows = ", ".join(f"{c['worst']} of {c['k']}, {c['m']} allowed" + ("" if c["held"] else " VIOLATED") for c in load["constraints"])
safe = ", ".join(sorted({e["cause"] for e in load["safe_mode"] + load["suspension"] if e["entered"]})) or "never"
ms = lambda ns: f"{ns / 1e6:.2f} ms"
print(f"| {model} | {0.95 * load['promised_per_s']:.0f} | {load['sent']} | {load['missed']} | {windows} | "
      f"{ms(service['guard_seen_ns'])} of {ms(service['guard_ns'])} | "
      f"{ms(service['handover_seen_ns'])} of {ms(service['handover_ns'])} | {safe} |")
PY
done
