"""For hatchling: a wheel holds the programs `weir` and `weir-lab` too, if WEIR_PROGRAMS names the folder they are in."""

import os
import pathlib
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Programs(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = os.environ.get("WEIR_PROGRAMS")
        if folder is None:
            return
        programs = [pathlib.Path(folder, name) for name in ("weir", "weir-lab")]
        build_data["shared_scripts"] = {str(program): program.name for program in programs}
        build_data["pure_python"] = False
        # Any Python 3 of this kind of machine; packaging/wheel.sh makes the C library of it.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
