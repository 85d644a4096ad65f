#!/usr/bin/env python3
"""The manifests of docs/cluster.md held against the models of KServe's and Kubernetes' Python packages: each field is known there, and of
its type. Whether one is missing they do not say.

    python3 tests/manifests.py docs/cluster.md

Needs `kserve` from PyPI.
"""
import re
import sys
from importlib.metadata import version

import kserve
import kubernetes.client
import yaml

KINDS = {
    ("v1", "ConfigMap"): kubernetes.client.V1ConfigMap,
    ("serving.kserve.io/v1alpha1", "ServingRuntime"): kserve.V1alpha1ServingRuntime,
    ("serving.kserve.io/v1beta1", "InferenceService"): kserve.V1beta1InferenceService,
}
PLAIN = {"str": str, "int": int, "float": (int, float), "bool": bool, "object": object}


def of(name):
    """A model by the name that others have for it."""
    return getattr(kserve, name, None) or getattr(kubernetes.client, name)


def check(path, value, kind):
    """All that is wrong with a value that should be of this kind."""
    if of_list := re.fullmatch(r"list\[(.*)\]", kind, re.I):
        if not isinstance(value, list):
            return [f"{path}: must be a list"]
        return [wrong for i, one in enumerate(value) for wrong in check(f"{path}[{i}]", one, of_list[1])]
    if of_map := re.fullmatch(r"dict\(str, (.*)\)|dict\[str, (.*)\]", kind, re.I):
        if not isinstance(value, dict):
            return [f"{path}: must be a table"]
        inner = of_map[1] or of_map[2]
        return [wrong for name, one in value.items() for wrong in check(f"{path}.{name}", one, inner)]
    if kind in PLAIN:
        return [] if isinstance(value, PLAIN[kind]) else [f"{path}: must be {kind}, not {value!r}"]
    if kind in ("ResourceQuantity", "IntOrString"):
        return [] if isinstance(value, (str, int)) else [f"{path}: must be {kind}, not {value!r}"]
    return model(path, value, of(kind))


def model(path, value, kind):
    if not isinstance(value, dict):
        return [f"{path}: must be a table"]
    fields = {written: kind.openapi_types[name] for name, written in kind.attribute_map.items()}
    wrong = [f"{path}.{name}: no such field of {kind.__name__}" for name in value if name not in fields]
    known = {name: one for name, one in value.items() if name in fields}
    wrong += [told for name, one in known.items() for told in check(f"{path}.{name}", one, fields[name])]
    return wrong


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        blocks = re.findall(r"^```yaml\n(.*?)^```", file.read(), re.M | re.S)
    seen, wrong = [], []
    for document in (document for block in blocks for document in yaml.safe_load_all(block)):
        kind = (document["apiVersion"], document["kind"])
        seen.append(document["kind"])
        wrong += model(document["kind"], document, KINDS[kind])
    assert set(seen) == {kind for _, kind in KINDS}, seen
    versions = ", ".join(f"{name} {version(name)}" for name in ("kserve", "kubernetes"))
    print("\n".join(wrong) or f"{', '.join(seen)}: each field is known to {versions}, and of its type")
    sys.exit(bool(wrong))


main()
