"""llama.cpp through its package llama-cpp-python, where that is installed: k-quants, and a second reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from core.training.export.verify import failed

FILE_TYPES = {
    "q6_k": "LLAMA_FTYPE_MOSTLY_Q6_K",
    "q5_k_m": "LLAMA_FTYPE_MOSTLY_Q5_K_M",
    "q5_k_s": "LLAMA_FTYPE_MOSTLY_Q5_K_S",
    "q4_k_m": "LLAMA_FTYPE_MOSTLY_Q4_K_M",
    "q4_k_s": "LLAMA_FTYPE_MOSTLY_Q4_K_S",
    "q3_k_m": "LLAMA_FTYPE_MOSTLY_Q3_K_M",
    "q2_k": "LLAMA_FTYPE_MOSTLY_Q2_K",
}


def quantise(source: Path, target: Path, quant: str) -> None:
    """Make a k-quant of an f16 file. Raises FactoryError when llama.cpp does not."""
    import llama_cpp

    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = getattr(llama_cpp, FILE_TYPES[quant])
    settings.nthread = 0
    code = llama_cpp.llama_model_quantize(
        str(source).encode(), str(target).encode(), llama_cpp.ctypes.byref(settings)
    )
    if code != 0 or not target.is_file():
        raise failed(f"llama.cpp could not make {quant} (code {code}; its words are in the export's log)")


def logits_and_ids(
    path: Path, sequences: list[list[int]], texts: list[str]
) -> tuple[list[np.ndarray[Any, Any]], list[list[int]]]:
    """llama.cpp's logits of each sequence, (tokens, vocabulary), and its token ids of each text without marks."""
    import llama_cpp

    longest = max(len(one) for one in sequences)
    model = llama_cpp.Llama(
        str(path), n_ctx=max(64, longest + 8), n_batch=512, n_threads=1, logits_all=True, verbose=False
    )
    try:
        answers = []
        for ids in sequences:
            model.reset()
            model.eval(ids)
            answers.append(np.array(model.scores[: len(ids)], dtype=np.float32))
        found = [model.tokenize(text.encode(), add_bos=False, special=False) for text in texts]
        return answers, [list(ids) for ids in found]
    finally:
        model.close()
