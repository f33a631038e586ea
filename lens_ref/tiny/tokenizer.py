"""The tiny policy's tokenizer: one token for each number, operation, step label and box bracket."""

from __future__ import annotations

from tokenizers import AddedToken
from transformers import Qwen2Tokenizer

from lens_ref.tiny.task import LABELS, MODULUS, OPERATIONS, PROMPT_END

PAD, EOS = "<pad>", "<eos>"
BOX = " \\boxed{"


def vocabulary() -> list[str]:
    """All tokens in the order of their ids; padding and end of sequence are two of them."""
    numbers = [str(value) for value in range(MODULUS)]
    labels = [f" ({label}) " for label in LABELS]
    return [PAD, EOS, *numbers, *OPERATIONS, "=", *labels, PROMPT_END, BOX, "}"]


def build_tokenizer() -> Qwen2Tokenizer:
    """A tokenizer without chat template or BOS that decodes to exactly the text it encoded.

    Text outside the vocabulary is dropped. The class is Qwen2's because `AutoTokenizer` takes that
    one for every Qwen2 model, whatever the folder says; its rules split all numbers into digits,
    and only added tokens (of which the longest match wins) are exempt from them.
    """
    tokenizer = Qwen2Tokenizer(
        vocab={PAD: 0, EOS: 1},
        merges=[],
        unk_token=None,
        eos_token=EOS,
        pad_token=PAD,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in vocabulary()[2:]])
    return tokenizer
