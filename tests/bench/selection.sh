#!/bin/sh
# What selecting variants is worth: Poisson arrivals at parts of the rate promised by config/selection.toml, answered by
# the selected variants, by those that planned tables select, by each model alone, and by the selected variants where
# one miss in ten is allowed.
# Everyone sees the same arrivals and declares the promised rate, or its own one where that is lower. Takes some seven
# minutes; SECONDS_EACH, SEED, LOADS and SAMPLES change what is run, WEIR names another binary.
set -eu
weir=${WEIR:-target/release/weir}
seconds=${SECONDS_EACH:-20}
seed=${SEED:-1}
loads=${LOADS:-0.3 0.6 0.9}
samples=${SAMPLES:-500}
folder=$(mktemp -d)
daemon=""
trap 'kill $daemon 2>/dev/null || true; rm -rf "$folder"' EXIT
[ -n "${WEIR:-}" ] || cargo build --release --quiet --bin weir --bin weir-lab

# One profile for all: nobody is judged by another measurement of the same model.
sed -e "s|\.\./target/|$folder/|; s|\.\./models|$PWD/models|" config/selection.toml >"$folder/selected.toml"
"$weir" profile "$folder/selected.toml" --quick --samples "${samples}0" --longest --margin 1 >/dev/null 2>&1
sed -e 's|^constraints = .*|constraints = [{ any-miss = { m = 1, k = 10 } }]|' "$folder/selected.toml" >"$folder/spending.toml"
# What tables select, made by `weir plan`, which says what to expect of them.
"$weir" plan "$folder/selected.toml" --select "digits=$folder/planned.json" --json >"$folder/expected"
sed -e '/^select/d' -e "s|^variants = .*|&\\nselect = { table = \"$folder/planned.json\" }|" "$folder/selected.toml" >"$folder/planned.toml"
models=$(sed -n 's/^\(model\|variants\) = //p' config/selection.toml | tr -d '[]",')
for model in $models; do
    sed -e "/^variants/d; /^select/d; s|^model = .*|model = \"$model\"|" "$folder/selected.toml" >"$folder/$model.toml"
done
for name in selected planned spending $models; do
    "$weir" plan --json "$folder/$name.toml" >"$folder/$name.plan"
done
# The rate that a configuration promises to a stream of its own constraints.
rate_of() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["services"][0]["rate"]["per_s"])' "$folder/$1.plan"; }
promised=$(rate_of selected)

"$weir" plan "$folder/selected.toml" | sed 's/^/    /'
echo
echo "| load | answered by | promises /s | missed | worst window | right of answers | right of all | latency p50, p99 | answers by variant | safe mode |"
echo "|---|---|---:|---:|---|---:|---:|---:|---|---|"
for load in $loads; do
    for name in selected planned $models spending; do
        "$weir" serve --quiet "$folder/$name.toml" 2>"$folder/log" &
        daemon=$!
        until [ -S "$folder/weir.sock" ]; do sleep 0.1; done
        own=$(rate_of "$name")
        rate=$(python3 -c "print($load * $promised)")
        declared=$(python3 -c "print(min($promised, $own))")
        "$weir" load --socket "$folder/weir.sock" digits --arrivals poisson --seed "$seed" --rate "$rate" --declare "$declared" \
            --input models/heldout-images.idx3-ubyte --labels models/heldout-labels.idx1-ubyte \
            --duration "${seconds}s" --json >"$folder/load" || true
        kill "$daemon"
        wait "$daemon" || true
        daemon=""
        python3 - "$load" "$name" "$own" "$folder" "$models" <<'PY'
import json, sys
part, name, own, folder, models = sys.argv[1:]
load = json.load(open(folder + "/load"))
planned = json.load(open(folder + "/expected"))["services"][0]["selection"]["loads"]
near = min(planned, key=lambda one: abs(one["part"] - float(part)))["expected"]
expected = f" ({100 * near['accuracy']:.2f} % expected)" if name == "planned" else ""
who = {"selected": "**selected**", "planned": "**selected by tables**", "spending": "selected, 1 miss in 10 allowed"}.get(name, f"{name} alone")
windows = ", ".join(f"{c['worst']} of {c['k']}" + ("" if c["held"] else " VIOLATED") for c in load["constraints"])
shares = "" if name in models.split() else ", ".join(
    f"{model.removeprefix('digits-')} {100 * count / load['answered']:.1f} %"
    for model, count in zip(models.split(), load["by_variant"]))
entered = [e["cause"] for e in load["safe_mode"] if e["entered"]]
# A cause that comes again in safe mode is not announced again, but keeps it up.
inside, since = 0, None
for e in load["safe_mode"]:
    if e["entered"] and since is None:
        since = e["at_s"]
    elif not e["entered"] and since is not None:
        inside, since = inside + e["at_s"] - since, None
inside += max(load["seconds"] - since, 0) if since is not None else 0
safe = f"{inside:.1f} s: " + ", ".join(f"{entered.count(cause)} × {cause}" for cause in sorted(set(entered))) if entered else "never"
suspended = sum(e["entered"] for e in load["suspension"])
safe += f"; {suspended} × suspended" if suspended else ""
right = load["accuracy"] or 0
latency = ", ".join(f"{load['latency_ns'][q] / 1e6:.1f}" for q in ("p50", "p99")) + " ms" if load["latency_ns"] else ""
print(f"| {part} ({load['rate']:.0f}/s) | {who} | {float(own):.0f} | {100 * load['miss_ratio']:.2f} % | {windows} | "
      f"{100 * right:.2f} %{expected} | {100 * right * load['answered'] / load['scheduled']:.2f} % | {latency} | {shares} | {safe} |",
      flush=True)
PY
    done
done
