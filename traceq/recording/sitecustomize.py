"""Records a training script that knows nothing of traceq; `traceq record` puts it on the path.

Python imports this at start-up. When torch's optimizers are loaded, a hook is set on their steps:
at the first one a recording begins, and every further step of that optimizer is a training step.
"""

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

_OPTIMIZER = "torch.optim.optimizer"


def _record_steps(optimizers: ModuleType) -> None:
    options = json.loads(os.environ["TRACEQ_RECORD"])
    stack = ExitStack()
    recorders: dict[int, Any] = {}  # by the optimizer whose steps are training steps: one or none

    def after_step(optimizer: object, *_: object) -> None:
        if not recorders:
            from traceq.recorder import record  # noqa: PLC0415  # torch is being loaded until now

            recorders[id(optimizer)] = stack.enter_context(record(**options))
        elif id(optimizer) in recorders:
            recorders[id(optimizer)].step()

    atexit.register(stack.close)
    optimizers.register_optimizer_step_post_hook(after_step)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module of optimizers once, and sees to it that the hook follows its loading."""

    def find_spec(
        self,
        name: str,
        path: object = None,  # noqa: ARG002  # the protocol's
        target: object = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns: where the module is, with a loader that sets the hook; None for others."""
        if name != _OPTIMIZER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_hook(module: ModuleType) -> None:
                load(module)
                _record_steps(module)

            spec.loader.exec_module = load_and_hook  # type: ignore[method-assign]
        return spec


def _run_the_hidden_one() -> None:
    """Runs the sitecustomize that this one hides, if there is one."""
    here = Path(__file__).resolve().parent
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if "TRACEQ_RECORD" in os.environ:
    sys.meta_path.insert(0, _Finder())
_run_the_hidden_one()
