#!/usr/bin/env python3
"""One device in double precision at 1,000 tokens: writes tests/golden/{llama,gpt2}_1000.{safetensors,json}.

    python3 tests/reference/make_long_golden.py tests/golden

The dense model of metp_reference.py (p = 1) over one sequence of 1,000 tokens, packed (two documents) and not. Same format
as the other golden vectors, without the AdamW steps.
"""
import json
import sys
from pathlib import Path

import numpy as np

import metp_reference as ref


def write(out, name, config):
    P = {n: w.astype(np.float32).astype(np.float64) for n, w in ref.init_params(config, seed=21).items()}
    tokens, targets, docs = ref.sample_batch(config, 1, 1000, seed=22)
    loss, grads, _ = ref.loss_and_grads(config, P, tokens, targets, None)
    loss_packed, grads_packed, _ = ref.loss_and_grads(config, P, tokens, targets, docs)
    ref.write_safetensors(out / f"{name}.safetensors",
                          {**{f"param.{n}": w.astype(np.float32) for n, w in P.items()},
                           **{f"grad.{n}": g for n, g in grads.items()},
                           **{f"grad_packed.{n}": g for n, g in grads_packed.items()},
                           "tokens": tokens.astype(np.int64), "targets": targets.astype(np.int64),
                           "docs": docs.astype(np.int64)})
    meta = {"config": config, "loss": loss, "loss_packed": loss_packed}
    (out / f"{name}.json").write_text(json.dumps(meta, indent=1) + "\n")
    print(name, "loss", loss, "packed", loss_packed)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(Path(sys.argv[1]), "llama_1000", ref.CONFIGS["llama"])
    write(Path(sys.argv[1]), "gpt2_1000", {**ref.CONFIGS["gpt2"], "s_max": 1000})
