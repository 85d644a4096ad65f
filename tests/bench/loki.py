#!/usr/bin/env python3
"""Loki's own program beside `weir place`, on the profiles of Loki's authors: the table of docs/placement.md.

    loki.py --data FOLDER [--weir target/release/weir] [--limit 10]

The program of the paper (section 4.1, equations 1 to 12), written here from its equations and solved by HiGHS (`pip install scipy`):
of each variant a number of servers x and one size of batch y, which becomes linear with one binary for each size; of each path
a share c and a binary I, and where I is 1 the batches along it take half of the deadline. First the fewest servers with the most
accurate variants; where all do not carry the demand, the most accurate mixture. In a tree with several leaves the shares of each
leaf's paths are those of the first stage's variants, and the accuracy is the mean over the leaves. FOLDER holds loki/*.csv. Each case goes to
`weir place --problem` as well. Exits with 1 if ours is below by more than 0.01 points anywhere, or the two differ in what fits.
"""

import argparse
import csv
import itertools
import json
import pathlib
import subprocess
import sys
import time

import numpy
from scipy.optimize import Bounds, LinearConstraint, milp

BATCHES = [1, 2, 4, 8, 16, 32, 64]
DETECT = ["yolov5n", "yolov5m", "yolov5l", "yolov5x"]
CARS = [f"efficientnet-b{i}" for i in range(7)]
FACES = ["genderNet_11", "genderNet_13", "genderNet_16", "genderNet", "genderNet_19"]
CAPTION = ["clip-vit-base-patch32", "clip-vit-base-patch16"]
PIPELINES = {
    "cars": [("object_detection", None, DETECT), ("car_classification", 0, CARS)],
    "traffic": [("object_detection", None, DETECT), ("car_classification", 0, CARS), ("facial_recognition", 0, FACES)],
    "social": [("source", None, ["source"]), ("object_detection", 0, DETECT), ("image_captioning", 0, CAPTION)],
}
RATIO = {"car_classification": "car_ratio", "facial_recognition": "face_ratio"}


def read(folder, name):
    return list(csv.DictReader(open(folder / "loki" / name)))


class Case:
    """A pipeline with the numbers of its authors."""

    def __init__(self, data, name, profiled=False):
        self.stages, self.slo = PIPELINES[name], 250.0
        self.time, self.accuracy = {}, {}
        for row in read(data, "profile_simulator.csv"):
            if int(row["batch_size"]) in BATCHES:
                self.time[row["variant"], int(row["batch_size"])] = float(row["latency_p50_ms"])
                self.accuracy[row["variant"]] = float(row["accuracy_normalized"])
        means = {row["variant"]: row for row in read(data, "mult_factors_hardcoded_in_ilp.csv")}

        def mean(variant, task):
            return float(means[variant]["mult_factor"]) * float(means[variant][RATIO[task]]) if task in RATIO else 1.0

        self.mean = mean
        self.profiled = None
        if profiled:
            rows = read(data, "path_accuracy.csv")
            self.profiled = {(row["first"], row["second"]): float(row["scaled70_100"]) for row in rows}

    def problem(self, demand, servers):
        stages, mult = [], {}
        for task, parent, variants in self.stages:
            times = lambda v: {str(b): self.time[v, b] for b in BATCHES if (v, b) in self.time}
            stage = {"name": task, "variants": [{"name": v, "accuracy": self.accuracy[v], "time": {"gpu": times(v)}} for v in variants]}
            if parent is not None:
                above, _, its = self.stages[parent]
                stage["parent"] = above
                for v in its:
                    mult.setdefault(above, {}).setdefault(v, {})[task] = self.mean(v, task)
            stages.append(stage)
        pipeline = {"name": "p", "slo": self.slo, "demand": demand, "stages": stages, "mult": mult}
        if self.profiled:
            pipeline["path_accuracy"] = {f"{a}|{b}": value for (a, b), value in self.profiled.items()}
        return {"devices": {"gpu": servers}, "pipelines": [pipeline]}

    def loki(self, demand, servers, limit):
        """Accuracy, servers, seconds and gap; accuracy None if nothing fits."""
        best = [max(variants, key=lambda v: self.accuracy[v]) for _, _, variants in self.stages]
        began, seen = time.time(), None
        fewest = self.solve(demand, servers, limit, [[v] for v in best], True)
        if fewest is None:
            seen = self.solve(demand, servers, limit, [variants for _, _, variants in self.stages], False)
        accuracy, used, gap = fewest or seen or (None, None, 0.0)
        return accuracy, used, time.time() - began, gap

    def solve(self, demand, servers, limit, variants, fewest):
        stages = range(len(self.stages))
        leaves = [s for s in stages if all(parent != s for _, parent, _ in self.stages)]
        names, integer, upper = {}, [], []

        def var(key, whole, most):
            names[key] = len(integer)
            integer.append(1 if whole else 0)
            upper.append(most)

        posts = [(s, v, b) for s in stages for v in variants[s] for b in BATCHES if (v, b) in self.time]
        for post in posts:
            var(("x", *post), True, servers)
            var(("z", *post), True, 1)
        paths = [(leaf, self.above(leaf), choice) for leaf in leaves
                 for choice in itertools.product(*[variants[s] for s in self.above(leaf)])]
        paths = [path for path in paths if not self.profiled or path[2] in self.profiled]
        for i, _ in enumerate(paths):
            var(("c", i), False, 1)
            var(("I", i), True, 1)
        rows, low, high = [], [], []

        def row(terms, least, most):
            line = numpy.zeros(len(integer))
            for key, value in terms:
                line[names[key]] += value
            rows.append(line), low.append(least), high.append(most)

        for s in stages:
            for v in variants[s]:
                mine = [p for p in posts if p[:2] == (s, v)]
                # One size of batch for each variant.
                row([(("z", *p), 1) for p in mine], -numpy.inf, 1)
                for p in mine:
                    row([(("x", *p), 1), (("z", *p), -servers)], -numpy.inf, 0)
                # The first leaf whose paths go through a stage counts for it: shares are the same in all.
                leaf = next(leaf for leaf in leaves if s in self.above(leaf))
                work = []
                for i, (of, line, choice) in enumerate(paths):
                    if of == leaf and choice[line.index(s)] == v:
                        work.append((("c", i), demand * self.requests(line[: line.index(s) + 1], choice)))
                row(work + [(("x", *p), -p[2] / self.time[v, p[2]] * 1e3) for p in mine], -numpy.inf, 0)
        row([(("x", *p), 1) for p in posts], 0, servers)
        big = sum(max(self.time[v, b] for b in BATCHES if (v, b) in self.time) for s in stages for v in variants[s])
        for i, (_, line, choice) in enumerate(paths):
            row([(("c", i), 1), (("I", i), -1)], -numpy.inf, 0)
            times = [(("z", *p), self.time[p[1], p[2]]) for p in posts if (p[0], p[1]) in list(zip(line, choice))]
            row(times + [(("I", i), big)], -numpy.inf, self.slo / 2 + big)
            # A path that is used has a batch for each of its variants: c needs x, which needs z.
        for leaf in leaves:
            row([(("c", i), 1) for i, path in enumerate(paths) if path[0] == leaf], 1, 1)
        shared = [s for s in stages if sum(s in self.above(leaf) for leaf in leaves) > 1]
        for s, other in itertools.product(shared, leaves[1:]):
            for v in variants[s]:
                share = lambda leaf, sign: [(("c", i), sign) for i, (of, line, choice) in enumerate(paths)
                                            if of == leaf and s in line and choice[line.index(s)] == v]
                if s in self.above(leaves[0]) and s in self.above(other):
                    row(share(leaves[0], 1) + share(other, -1), 0, 0)
        cost = numpy.zeros(len(integer))
        worth = lambda choice: self.profiled[choice] if self.profiled else 100 * numpy.prod([self.accuracy[v] / 100 for v in choice])
        for i, (_, _, choice) in enumerate(paths):
            if not fewest:
                cost[names["c", i]] = -worth(choice) / len(leaves)
        if fewest:
            for p in posts:
                cost[names[("x", *p)]] = 1
        options = {"time_limit": limit, "mip_rel_gap": 1e-7}
        found = milp(cost, constraints=LinearConstraint(numpy.array(rows), low, high), integrality=integer,
                     bounds=Bounds(numpy.zeros(len(integer)), upper), options=options)
        if found.x is None:
            if found.status == 2:
                return None
            sys.exit(f"HiGHS: {found.message}")
        accuracy = sum(found.x[names["c", i]] * worth(path[2]) for i, path in enumerate(paths)) / len(leaves)
        used = round(sum(found.x[names[("x", *p)]] for p in posts))
        return accuracy, used, 0.0 if fewest else abs(found.mip_dual_bound - found.fun)

    def above(self, stage):
        line = [stage]
        while self.stages[line[0]][1] is not None:
            line.insert(0, self.stages[line[0]][1])
        return line

    def requests(self, line, choice):
        """Of one source at the last stage of `line`."""
        return numpy.prod([self.mean(choice[k - 1], self.stages[line[k]][0]) for k in range(1, len(line))] or [1.0])


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--data", type=pathlib.Path, required=True)
    arguments.add_argument("--weir", default="target/release/weir")
    arguments.add_argument("--limit", type=float, default=10)
    given = arguments.parse_args()
    cases = [("cars", False, demand) for demand in (100, 200, 260, 340, 600, 1200, 2000)]
    cases += [("cars", True, demand) for demand in (150, 260, 340, 800)]
    cases += [("traffic", False, demand) for demand in (100, 200, 300, 600, 1200)]
    cases += [("social", False, demand) for demand in (100, 150, 200, 250, 300)]
    print("| pipeline | servers | sources a second | Loki's program | its servers | s | `weir place` | s | ours less Loki's, points |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    worst = 0.0
    for name, profiled, demand in cases:
        case = Case(given.data, name, profiled)
        for servers in (20, 18) if name == "cars" and not profiled else (20,):
            loki, used, seconds, gap = case.loki(demand, servers, given.limit)
            command = [given.weir, "place", "--problem", "-", "--json", "--limit", f"{given.limit}s"]
            answer = json.loads(subprocess.run(command, input=json.dumps(case.problem(demand, servers)), capture_output=True, text=True).stdout)
            ours = answer["accuracy"] if answer["feasible"] else None
            if (loki is None) != (ours is None):
                difference, worst = f"only one fits ({answer.get('reason')})", -1.0
            elif loki is None:
                difference = ""
            else:
                worst = min(worst, ours - loki)
                difference = f"{ours - loki:+.4f}"
            number = lambda value: "does not fit" if value is None else f"{value:.4f}"
            open_ = f" (gap {gap:.4f})" if gap > 1e-3 else ""
            mine = f" (gap {answer['gap']:.4f})" if ours is not None and answer["gap"] > 1e-3 else ""
            print(f"| {name}{', paths as profiled' if profiled else ''} | {servers} | {demand} | {number(loki)}{open_} | {used or ''} | "
                  f"{seconds:.2f} | {number(ours)}{mine} | {answer['seconds']:.2f} | {difference} |", flush=True)
    sys.exit(1 if worst < -0.01 else 0)


if __name__ == "__main__":
    main()
