"""The questions of a run as its policy meets them: in which order, and as which tokens."""

from __future__ import annotations

from typing import Any

import torch
from jinja2 import TemplateError

from lens_ref.rlvr.config import Config, PromptConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.policy import Policy
from lens_ref.rlvr.sampler import derive_seed
from lens_ref.rlvr.tasks import Questions

_TEMPLATE_ERRORS = (  # of a small language that comes with the model, and runs in a sandbox
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


def question_order(batch_index: int, batch_size: int, total: int, seed: int) -> list[int]:
    """Indices of the questions of a rollout batch: every epoch is a fresh permutation, laid end to
    end, so that the batch depends on its index alone."""
    wanted = range(batch_index * batch_size, (batch_index + 1) * batch_size)
    permutations: dict[int, list[int]] = {}
    for epoch in range(wanted[0] // total, wanted[-1] // total + 1):
        generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
        permutations[epoch] = torch.randperm(total, generator=generator).tolist()
    return [permutations[i // total][i % total] for i in wanted]


def encode_prompts(
    policy: Policy, config: Config, questions: Questions | None
) -> list[tuple[int, ...]]:
    """Token ids of every question, before anything is trained.

    Raises:
        UserError: a prompt that can't be made, is empty, or leaves too little room for an answer.
    """
    if questions is None:
        return []
    prompts = [encode_prompt(policy.tokenizer, config.prompt, q.problem) for q in questions.items]
    rows = policy.model.get_input_embeddings().weight.shape[0]
    positions = getattr(policy.model.config, "max_position_embeddings", None)
    answer = config.rollout.max_new_tokens
    for i, prompt in enumerate(prompts):
        if not prompt:
            raise UserError(
                f"{questions.place(i)}: its prompt has no tokens; the tokenizer knows no part of it"
            )
        if max(prompt) >= rows:
            raise UserError(
                f"{questions.place(i)}: its token {max(prompt)} is beyond the model's {rows} "
                "embeddings: tokenizer and model do not belong together"
            )
        if positions is not None and len(prompt) + answer > positions:
            raise UserError(
                f"{questions.place(i)}: a prompt of {len(prompt)} tokens and an answer of up "
                f"to rollout.max_new_tokens = {answer} exceed the model's {positions} positions"
            )
    return prompts


def encode_prompt(tokenizer: Any, prompt: PromptConfig, problem: str) -> tuple[int, ...]:
    """Token ids of a question, with at most one beginning-of-sequence token; may be empty.

    Raises:
        UserError: "chat" with a tokenizer that has no chat template.
    """
    if prompt.template == "chat":
        if not tokenizer.chat_template:
            raise UserError(
                "this tokenizer has no chat template; set prompt.template to text with {problem}"
            )
        messages = [{"role": "system", "content": prompt.system}] if prompt.system else []
        messages.append({"role": "user", "content": problem})
        try:
            text = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False
            )
        except _TEMPLATE_ERRORS as error:
            raise UserError(
                f"the model's chat template refuses the messages: {error} (one without system "
                'messages needs prompt.system="")'
            ) from error
        # the template writes its own special tokens
        ids = tokenizer(text, add_special_tokens=False).input_ids
    else:
        ids = tokenizer(prompt.template.replace("{problem}", problem)).input_ids
        if ids and ids[-1] == tokenizer.eos_token_id:  # some tokenizers close the text
            ids = ids[:-1]
        bos = tokenizer.bos_token_id
        if bos is not None and ids[:2] == [bos, bos]:  # the template wrote one, the tokenizer too
            ids = ids[1:]
    return tuple(ids)
