"""Mutation check: every fault below, put into a copy of the source, must fail its named test.

    python tests/mutants.py            (or `make mutants`)
    python tests/mutants.py guard clip  only the mutants whose name holds one of the words

Those of the engines need an engine, which has an environment of its own (`make mutants-trl`,
`make mutants-verl`); elsewhere they are left out, and that is said.

Each mutant replaces one piece of text that occurs exactly once in its file. It is killed when the
named test fails *by assertion*: an import error or a crash doesn't count. A no-op edit must
survive all the named tests, which also shows that they pass on the unchanged source. To add a
mutant, add a line to MUTANTS.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 120  # for one mutant


class Mutant(NamedTuple):
    """One fault: `old` becomes `new` in `file`, and `test` must notice."""

    name: str
    file: str  # under lens_ref/
    old: str
    new: str
    test: str  # under tests/

    @property
    def engine(self) -> str | None:
        """The package that the test needs beside the project's own."""
        return {"trl": "trl", "verl": "verl"}.get(self.name.partition(":")[0])


ADVANTAGES, ROWS, LOSS = "core/test_advantages.py", "core/test_rows.py", "core/test_loss.py"
GOLDEN, PROPERTIES = "core/test_golden.py", "core/test_properties.py"
THEOREMS, DIFFICULTY = "core/test_theorems.py", "core/test_difficulty.py"
WEIGHT, LIKELIHOOD = "core/test_weight.py", "core/test_likelihood.py"
BAD_INPUT, METHODS = "core/test_bad_input.py", "core/test_methods.py"
VALUES, STATE = "methods/test_values.py", "methods/test_state.py"
REPORT = "test_report.py"
GROUPS = "engines/test_groups.py"
TRL, VERL = "engines/test_trl.py", "engines/test_verl.py"
EVALUATE, ESTIMATES = "rlvr/test_evaluate.py", "rlvr/test_estimates.py"
DAMAGED = "rlvr/test_damaged_runs.py"

MUTANTS = [
    Mutant(
        "engines: every row into the first column",
        "engines/groups.py",
        "column.append(sizes[g])",
        "column.append(0)",
        f"{GROUPS}::test_rows_of_a_question_form_a_group_in_their_order",
    ),
    Mutant(
        "engines: padding counts",
        "engines/groups.py",
        ".masked_fill(~mask, 0.0)",
        ".nan_to_num(-1.0)",
        f"{GROUPS}::test_rows_of_a_question_form_a_group_in_their_order",
    ),
    Mutant(
        "engines: the scale of the kept rows upside down",
        "engines/groups.py",
        "keep.numel() / kept",
        "kept / keep.numel()",
        f"{GROUPS}::test_scale_of_the_kept_rows",
    ),
    Mutant(
        "calibrated reward: sign of the penalty flipped",
        "core/reward.py",
        "(rewards - (1 - rewards) * scale",
        "(rewards + (1 - rewards) * scale",
        f"{ADVANTAGES}::test_negative_group",
    ),
    Mutant(
        "calibrated reward: 1/G dropped",
        "core/advantage.py",
        "return 1.0 / count if",
        "return torch.ones_like(count) if",
        f"{PROPERTIES}::test_sign_invariance_in_twenty_thousand_groups",
    ),
    Mutant(
        "calibrated reward: clamped at the pole",
        "core/reward.py",
        "(log_confidence - log_difficulty).to(dtype)",
        "(log_confidence - log_difficulty).to(dtype).clamp(max=-1e-6)",
        f"{BAD_INPUT}::test_calibrated_reward_beyond_the_pole",
    ),
    Mutant(
        "calibrated reward: not detached",
        "core/reward.py",
        "@torch.no_grad()\n",
        "",
        f"{PROPERTIES}::test_reward_side_functions_carry_no_gradient",
    ),
    Mutant(
        "calibrated reward: confidence over D instead of the odds",
        "core/weight.py",
        "return log_z.exp() / -torch.expm1(log_z)",
        "return log_z.exp()",
        f"{ADVANTAGES}::test_calibrated_reward_literals",
    ),
    Mutant(
        "guard: 2 to 1.5",
        "core/advantage.py",
        "guard: float = 2.0",
        "guard: float = 1.5",
        f"{GOLDEN}::test_groups",
    ),
    Mutant(
        "guard: mean of the confidences instead of the maximum",
        "core/difficulty.py",
        "log_confidence.masked_fill(~valid, -math.inf).amax(-1)",
        "log_confidence.mean(-1)",
        f"{DIFFICULTY}::test_guard_multiplies_the_most_confident_response",
    ),
    Mutant(
        "guard: one maximum for the whole batch",
        "core/difficulty.py",
        ".amax(-1) + math.log(guard)",
        ".amax() + math.log(guard)",
        f"{DIFFICULTY}::test_guard_multiplies_the_most_confident_response",
    ),
    Mutant(
        "difficulty: smaller of D_imp and the guard",
        "core/difficulty.py",
        "torch.maximum(log_importance, log_floor)",
        "torch.minimum(log_importance, log_floor)",
        f"{DIFFICULTY}::test_difficulty_literals",
    ),
    Mutant(
        "D_imp: 1/G dropped",
        "core/difficulty.py",
        "return log_count - log_sum",
        "return -log_sum",
        f"{DIFFICULTY}::test_one_over_d_imp_is_unbiased",
    ),
    Mutant(
        "D_imp: always on the length-normalised confidence",
        "core/advantage.py",
        "readings[config.difficulty_confidence] - top",
        'readings["length_normalized"] - top',
        f"{GOLDEN}::test_groups",
    ),
    Mutant(
        "confidence: not divided by the length",
        "core/confidence.py",
        "return logprobs.to(dtype).clamp(max=0.0) / lengths.to(logprobs.device, dtype)",
        "return logprobs.to(dtype).clamp(max=0.0)",
        f"{DIFFICULTY}::test_confidence_literals",
    ),
    Mutant(
        "confidence: above 1 where a sampler rounds",
        "core/confidence.py",
        ".clamp(max=0.0)",
        "",
        f"{BAD_INPUT}::test_logprobs_that_samplers_round_above_zero",
    ),
    Mutant(
        "mean: over G - 1",
        "core/groups.py",
        "count = valid.sum(-1, keepdim=True).clamp(min=1)\n    return x",
        "count = (valid.sum(-1, keepdim=True) - 1).clamp(min=1)\n    return x",
        f"{PROPERTIES}::test_zero_mean",
    ),
    Mutant(
        "mean: rows that are not valid count",
        "core/groups.py",
        ".sum(-1, keepdim=True) / count\n",
        ".sum(-1, keepdim=True) / x.shape[-1]\n",
        f"{ROWS}::test_a_batch_equals_each_group_alone",
    ),
    Mutant(
        "mean: leave-one-out as the group's",
        "core/groups.py",
        "difference * count / (count - 1).clamp(min=1)",
        "difference",
        f"{ADVANTAGES}::test_leave_one_out_changes_the_mean_alone",
    ),
    Mutant(
        "std: unbiased",
        "core/advantage.py",
        "ddof: int = 0",
        "ddof: int = 1",
        f"{PROPERTIES}::test_mixed_variance_is_one",
    ),
    Mutant(
        "std: eps ignored",
        "core/groups.py",
        "group_std(x, valid, ddof) + eps",
        "group_std(x, valid, ddof)",
        f"{ADVANTAGES}::test_ddof_and_eps",
    ),
    Mutant(
        "std: equal numbers not recognised",
        "core/groups.py",
        "masked_fill(~valid | all_equal(x, valid), 0.0)",
        "masked_fill(~valid, 0.0)",
        f"{PROPERTIES}::test_identical_groups_are_exactly_zero",
    ),
    Mutant(
        "advantages: alpha dropped",
        "core/advantage.py",
        "negative_part = config.alpha * _normalize(",
        "negative_part = _normalize(",
        f"{ADVANTAGES}::test_alpha_multiplies_negative_groups_alone",
    ),
    Mutant(
        "advantages: correct groups known by their std alone",
        "core/advantage.py",
        "advantages.masked_fill(correct, 0.0)",
        "advantages",
        f"{ADVANTAGES}::test_correct_group_is_exactly_zero",
    ),
    Mutant(
        "advantages: negative groups standardised",
        "core/advantage.py",
        'negative_norm: NegativeNorm = "demean"',
        'negative_norm: NegativeNorm = "demean_std"',
        f"{ADVANTAGES}::test_negative_group",
    ),
    Mutant(
        "advantages: equal fractions standardised",
        "core/advantage.py",
        "(kind == NEGATIVE).unsqueeze(-1) | (all_equal(rewards, valid) & ~correct)",
        "(kind == NEGATIVE).unsqueeze(-1)",
        f"{ADVANTAGES}::test_equal_fractions_take_the_negative_path",
    ),
    Mutant(
        "advantages: confidences parted by rounding standardised",
        "core/advantage.py",
        "masked_fill(equal & valid, 0.0)",
        "masked_fill(equal & ~valid, 0.0)",
        f"{ADVANTAGES}::test_confidences_that_rounding_has_parted_are_equal",
    ),
    Mutant(
        "likelihood: one difficulty a question taken for one a column",
        "core/likelihood.py",
        "if x.numel() != 1 and x.ndim != like.ndim:",
        "if False:",
        "core/test_bad_shapes_and_types.py::test_shapes_that_do_not_broadcast",
    ),
    Mutant(
        "advantages: computed in float32",
        "core/_checks.py",
        'device.type == "mps" else torch.float64',
        'device.type == "mps" else torch.float32',
        f"{GOLDEN}::test_groups",
    ),
    Mutant(
        "advantages: rows that are not valid are kept",
        "core/advantage.py",
        "keep=valid,",
        "keep=torch.ones_like(valid),",
        f"{ROWS}::test_no_valid_row",
    ),
    Mutant(
        "truncated: excluded from the maximum, not capped",
        "core/advantage.py",
        "torch.where(truncated, torch.minimum(log_confidence, cap), log_confidence)",
        "log_confidence",
        f"{ROWS}::test_truncation_rules_by_hand",
    ),
    Mutant(
        "group kind: any reward counts as correct",
        "core/groups.py",
        "((rewards == 1) | ~valid)",
        "((rewards > 0) | ~valid)",
        f"{ADVANTAGES}::test_group_kind",
    ),
    Mutant(
        "clip: the optimistic branch",
        "core/loss.py",
        "torch.minimum(unclipped, clipped)",
        "torch.maximum(unclipped, clipped)",
        f"{LOSS}::test_four_quadrants_of_the_clip",
    ),
    Mutant(
        "clip: low and high swapped",
        "core/loss.py",
        "1 - clip_low, 1 + clip_high)",
        "1 - clip_high, 1 + clip_low)",
        f"{LOSS}::test_asymmetric_clip",
    ),
    Mutant(
        "loss: sum over tokens instead of their mean",
        "core/loss.py",
        "(per_token.sum(-1) / mask.sum(-1).clamp(min=1)).sum()",
        "per_token.sum()",
        f"{LOSS}::test_gradient_on_policy_is_the_advantage_over_n_and_length",
    ),
    Mutant(
        "loss: denominator of the micro-batch",
        "core/loss.py",
        "if denominator is None:\n",
        'if denominator is None or aggregation == "token_mean":\n',
        f"{LOSS}::test_micro_batch_denominator_by_hand",
    ),
    Mutant(
        "loss: masked rows in the denominator",
        "core/loss.py",
        "counted = mask.any(-1).sum()",
        "counted = torch.tensor(mask.shape[0])",
        f"{LOSS}::test_what_counts_in_the_denominator",
    ),
    Mutant(
        "loss: masked by multiplication",
        "core/loss.py",
        "return torch.where(mask, x.to(dtype), 0.0)",
        "return x.to(dtype) * mask",
        f"{LOSS}::test_masked_garbage_without_validation",
    ),
    Mutant(
        "loss: gradient into the old policy",
        "core/loss.py",
        "masked(old.detach())",
        "masked(old)",
        f"{LOSS}::test_gradient_flows_into_the_new_policy_alone",
    ),
    Mutant(
        "weight: series cut short",
        "core/weight.py",
        "_TERMS = 0.25, 32",
        "_TERMS = 0.25, 12",
        f"{WEIGHT}::test_accuracy",
    ),
    Mutant(
        "weight: slope of the series without its k",
        "core/weight.py",
        "series * z + k / (k + 1)",
        "series * z + 1 / (k + 1)",
        f"{WEIGHT}::test_odds_are_w_plus_z_times_slope",
    ),
    Mutant(
        "likelihood: D not per question",
        "core/likelihood.py",
        'log_pi, "difficulty", dtype).log()',
        'log_pi, "difficulty", dtype).log().mean()',
        f"{THEOREMS}::test_theorem_1",
    ),
    Mutant(
        "report: every row of a table of its own setting",
        "reporting/tables.py",
        "key=_merits, default={}",
        "key=lambda rows: sum(map(len, rows.values())), default={}",
        "test_report.py::test_the_rows_of_a_model_are_of_one_setting",
    ),
    Mutant(
        "likelihood: D not detached",
        "core/likelihood.py",
        'd = as_float(difficulty, "difficulty").detach()',
        'd = as_float(difficulty, "difficulty")',
        f"{THEOREMS}::test_difficulty_and_preference_are_held_fixed",
    ),
    Mutant(
        "likelihood: sign of the wrong answers' term",
        "core/likelihood.py",
        "-(positive + (1 - rewards) * log1mexp(log_z)).mean()",
        "-(positive - (1 - rewards) * log1mexp(log_z)).mean()",
        f"{THEOREMS}::test_theorem_2_as_a_semi_gradient",
    ),
    Mutant(
        "likelihood: J- weighted with the odds instead of w",
        "core/likelihood.py",
        "pi * weight(z) * (1 - p_star)",
        "pi * z / (1 - z) * (1 - p_star)",
        f"{LIKELIHOOD}::test_closed_form_equals_the_definition",
    ),
    Mutant(
        "log-probabilities: temperature left out",
        "rlvr/logprobs.py",
        "    scores = logits / temperature",
        "    scores = logits",
        "rlvr/test_logprobs.py::test_the_logits_are_divided_by_the_temperature",
    ),
    Mutant(
        "head: sign of the gradient's softmax flipped",
        "rlvr/logprobs.py",
        "(hit.float() - p)",
        "(hit.float() + p)",
        "rlvr/test_packing.py::test_the_head_by_hand",
    ),
    Mutant(
        "checkpoint: not before an evaluation",
        "rlvr/trainer.py",
        "if saves:  # an evaluation",
        "if False:  # an evaluation",
        "rlvr/test_resume.py::test_killed_within_the_last_evaluation",
    ),
    Mutant(
        "packing: boundaries between rows ignored",
        "rlvr/attention.py",
        "zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)",
        "[(0, len(q))]",
        "rlvr/test_packing.py::test_rows_do_not_see_each_other",
    ),
    Mutant(
        "packing: a row alone sees later tokens",
        "rlvr/attention.py",
        "(q, k, v, is_causal=True, scale",
        "(q, k, v, is_causal=False, scale",
        "rlvr/test_packing.py::test_a_row_alone_is_as_exact_as_beside_another",
    ),
    Mutant(
        "packing: a row alone hands on its gradient as it comes",
        "rlvr/attention.py",
        "return grad.contiguous()",
        "return grad",
        "rlvr/test_packing.py::test_a_row_alone_always_lies_the_same_in_memory",
    ),
    Mutant(
        "head: under a frozen one the loss has no say in the gradient",
        "rlvr/logprobs.py",
        "(grad.unsqueeze(-1) * slopes)",
        "slopes",
        "rlvr/test_packing.py::test_the_gradient_of_the_head_is_that_of_finite_differences",
    ),
    Mutant(
        "packing: never tried",
        "rlvr/logprobs.py",
        "bool(close and torch.equal(behind, behind_other))",
        "True",
        "rlvr/test_packing.py::test_a_leak_between_rows_is_noticed",
    ),
    Mutant(
        "micro-batches: packed rows counted as padded",
        "rlvr/update.py",
        "(tokens if packed else longest_yet)",
        "longest_yet",
        "rlvr/test_packing.py::test_packing_leaves_out_the_padding",
    ),
    Mutant(
        "adapter: alpha / r left out",
        "rlvr/lora.py",
        " * self.scaling[ADAPTER]",
        "",
        "rlvr/test_packing.py::test_the_fused_adapter_is_w_plus_s_b_a",
    ),
    Mutant(
        "correction: cap left out",
        "rlvr/update.py",
        "likelier.exp().clamp(max=self.loss.correction_cap)",
        "likelier.exp()",
        "rlvr/test_packing.py::test_the_correction_by_hand",
    ),
    Mutant(
        "probe: not taken out",
        "rlvr/probe.py",
        "            _fill(matrix, kept[name])",
        "            _fill(matrix, kept[name] + 1)",
        "rlvr/test_vllm_sampler.py::test_the_probe_is_taken_out_whatever_happens",
    ),
    Mutant(
        "vLLM: what the engine holds is not compared",
        "rlvr/vllm_sampler.py",
        "        if different:\n",
        "        if False:\n",
        "rlvr/test_vllm_sampler.py::test_what_the_engine_holds_is_read_back",
    ),
    Mutant(
        "bad numbers: infinity let through",
        "rlvr/bad_numbers.py",
        "return x.isfinite() & (x <= ROUNDING)",
        "return ~x.isnan()",
        "rlvr/test_bad_numbers.py::test_only_the_asked_questions_are_looked_at",
    ),
    Mutant(
        "bad numbers: rounding not undone",
        "rlvr/bad_numbers.py",
        "torch.where((logprobs > 0) & (logprobs <= ROUNDING), 0.0, logprobs)",
        "logprobs.clone()",
        "rlvr/test_bad_numbers.py::test_rounding_above_zero_is_zero_and_more_is_a_fault",
    ),
    Mutant(
        "bad numbers: remembered by the method",
        "rlvr/bad_numbers.py",
        "        treatment.state = before  #",
        "        pass  #",
        "rlvr/test_bad_numbers.py::test_a_method_that_blows_up_remembers_nothing",
    ),
    Mutant(
        "bad numbers: pi >= D let through",
        "rlvr/bad_numbers.py",
        "        signal.advantages[i] = torch.nan\n",
        "",
        "rlvr/test_bad_numbers.py::test_a_refused_question_is_found_again",
    ),
    Mutant(
        "bad numbers: every update of the batch stops",
        "rlvr/trainer.py",
        "bad_numbers.find(batch, questions) | refused",
        "bad_numbers.find(batch) | refused",
        "rlvr/test_bad_numbers.py::test_it_stops_the_run_and_is_named[reward-nan]",
    ),
    Mutant(
        "bad numbers: skipped for ever",
        "rlvr/trainer.py",
        "if self.skipped[-SKIPPED_IN_A_ROW:] == list(in_a_row):",
        "if len(self.skipped) < 0:",
        "rlvr/test_bad_numbers.py::test_a_run_that_does_not_recover_is_stopped",
    ),
    Mutant(
        "bad numbers: a gradient that is not finite is applied",
        "rlvr/update.py",
        'if not norm < float("inf"):',
        "if norm < 0:",
        "rlvr/test_update.py::test_a_gradient_that_is_not_finite_changes_nothing",
    ),
    Mutant(
        "bad numbers: the gradient of the whole update blamed",
        "rlvr/update.py",
        'faults = {i: _gradient(n) for i, n in norms.items() if not n < float("inf")}',
        "faults = {i: _gradient(n) for i, n in norms.items()}",
        "rlvr/test_bad_numbers.py::test_it_stops_the_run_and_is_named[gradient-nan]",
    ),
    Mutant(
        "data: white space trained on",
        "rlvr/tasks.py",
        "letter.isprintable() and not letter.isspace()",
        "True",
        "rlvr/test_bad_data.py::test_a_problem_that_shows_nothing_is_not_trained_on",
    ),
    Mutant(
        "data: contradictions not told",
        "rlvr/tasks.py",
        'if v.reason == "wrong"]',
        'if v.reason == "correct"]',
        "rlvr/test_bad_data.py::test_repeated_problems_are_told_and_kept",
    ),
    Mutant(
        "data: bytes that are no UTF-8 guessed",
        "rlvr/sources.py",
        "    if foreign is not None:",
        "    if foreign is None and False:",
        "rlvr/test_bad_data.py::test_text_that_is_not_utf_8_is_named_by_its_line",
    ),
    Mutant(
        "data: what a limit cuts off is not counted",
        "rlvr/tasks.py",
        "    rows.close()",
        "    keep = rows  #",
        "rlvr/test_bad_data.py::test_what_a_limit_a_draw_and_a_filter_leave_out_is_told",
    ),
    Mutant(
        "tasks: more questions than asked for",
        "rlvr/sources.py",
        "islice(tasks.rows(task, split, count, seed), count)",
        "islice(tasks.rows(task, split, count, seed), count + 1)",
        "test_contributing.py::test_a_task_gives_no_more_than_it_is_asked_for",
    ),
    Mutant(
        "tasks: a taken name is overwritten",
        "tasks.py",
        "    if name in _TASKS:",
        "    if False:",
        "test_contributing.py::test_names_of_tasks_and_methods",
    ),
    Mutant(
        "own modules: forgotten by the command that resumes",
        "rlvr/session.py",
        "{shlex.quote(str(parent))}{again}",
        "{shlex.quote(str(parent))}",
        "test_contributing.py::test_a_stopped_run_says_what_to_import_again",
    ),
    Mutant(
        "packaging: recipes of what lies beside the package",
        "resources.py",
        "(_PACKAGE if inside else _PACKAGE.parent)",
        "_PACKAGE.parent",
        "test_packaging.py::test_what_others_call_configs_is_not_ours",
    ),
    Mutant(
        "packaging: missing packages are met after training",
        "extras.py",
        "    return [name for name in NEEDED if find_spec(name) is None]",
        "    return []",
        "rlvr/test_command.py::test_what_the_report_needs_is_missed_before_training",
    ),
    Mutant(
        "going on: an update without a row",
        "rlvr/logs.py",
        "if steps[n] != 1])",
        "if steps[n] > 1])",
        f"{DAMAGED}::test_a_log_that_lacks_rows_or_has_more_is_not_gone_on_with",
    ),
    Mutant(
        "going on: rows of a batch are missing",
        "rlvr/logs.py",
        "elif steps.total() != expected:",
        "elif steps.total() > expected:",
        f"{DAMAGED}::test_a_log_that_lacks_rows_or_has_more_is_not_gone_on_with",
    ),
    Mutant(
        "going on: with a state of another step",
        "rlvr/checkpoint.py",
        " and step != _step(path)):",
        " and step < 0):",
        "rlvr/test_going_on.py::test_a_forged_state_is_a_damaged_checkpoint",
    ),
    Mutant(
        "going on: beyond the end of the run",
        "rlvr/progress.py",
        "if progress.step > config.steps:",
        "if progress.step < 0:",
        "rlvr/test_going_on.py::test_settings_that_a_checkpoint_does_not_fit_are_one_line",
    ),
    Mutant(
        "going on: changed settings are not told",
        "rlvr/progress.py",
        "if old.get(key) != new.get(key)",
        "if key not in new",
        "rlvr/test_going_on.py::test_changed_settings_are_told_and_kept",
    ),
    Mutant(
        "going on: over another base",
        "rlvr/manifest.py",
        "if then[name] != now[name]:",
        "if False:",
        "rlvr/test_resume.py::test_an_adapter_goes_on_over_its_own_base_alone",
    ),
    Mutant(
        "going on: other questions are not told",
        "rlvr/trainer.py",
        "if then and questions is not None and then != questions.sha256:",
        "if False:",
        "rlvr/test_going_on.py::test_other_weights_are_refused_and_other_questions_told",
    ),
    Mutant(
        "checkpoint: forgets what ends a response",
        "rlvr/policy.py",
        "GenerationConfig(eos_token_id=list(stop_ids))",
        "GenerationConfig()",
        "rlvr/test_checkpoint.py::test_a_checkpoint_ends_its_answers_as_the_policy_did",
    ),
    Mutant(
        "loading: weights without a place are left out",
        "rlvr/policy.py",
        'if loading["unexpected_keys"]:',
        "if False:",
        "rlvr/test_policy.py::test_a_folder_that_is_no_model_is_one_line",
    ),
    Mutant(
        "loading: 4-bit weights taken for whole ones",
        "rlvr/policy.py",
        'if getattr(part, "quantization_config", None) is not None:',
        "if False:",
        "rlvr/test_policy.py::test_weights_that_are_quantised_already_are_refused",
    ),
    Mutant(
        "collect: half a run",
        "rlvr/collect.py",
        'if run.metrics["step"].tolist() != list(range(1, (steps or 0) + 1)):',
        "if False:",
        "rlvr/test_run_report.py::test_collect_takes_no_half_run",
    ),
    Mutant(
        "report: runs of other weights in one setting",
        "rlvr/report_data.py",
        "if None not in (one, theirs[what])\n        and one != theirs[what]",
        "if False",
        "rlvr/test_run_report.py::test_runs_of_other_weights_or_questions_do_not_stand_together",
    ),
    Mutant(
        "stopped by an error and still running",
        "rlvr/trainer.py",
        'self._write_manifest(f"stopped: {in_one_line(error)}")',
        "pass",
        "rlvr/test_going_on.py::test_the_manifest_tells_of_every_error",
    ),
    Mutant(
        "drift: bound ignored",
        "rlvr/trainer.py",
        "if drift is not None and not drift <= self.config.rollout.max_drift:",
        "if drift is not None and drift < 0:",
        "rlvr/test_vllm_training.py::test_drift_beyond_the_bound_stops_the_run",
    ),
    Mutant(
        "memory limit: what sleeps counts",
        "rlvr/vllm_sampler.py",
        "self._limit(vllm_engine.asleep_bytes())",
        "self._limit(0)",
        "rlvr/test_vllm_sampler.py::test_the_limit_leaves_out_what_sleeps",
    ),
    Mutant(
        "memory plan: an engine that sleeps takes nothing awake",
        "rlvr/memory.py",
        "self.cache + self.sampler.sampling)",
        "self.cache)",
        "rlvr/test_memory.py::test_what_sleeps_counts_while_it_is_awake",
    ),
    Mutant(
        "drift: of answers that the sampler did not score",
        "rlvr/metrics.py",
        "mask = batch.samples.scored_mask",
        "mask = batch.samples.mask",
        "rlvr/test_metrics.py::test_the_drift_counts_what_the_sampler_told",
    ),
    Mutant(
        "log-probabilities: one a question though the loss uses all",
        "rlvr/config.py",
        'return needed or self.rollout.vllm.logprobs == "all"',
        'return self.rollout.vllm.logprobs == "all"',
        "rlvr/test_vllm_sampler.py::test_log_probabilities_of_every_answer_where_they_are_needed",
    ),
    Mutant(
        "response length: end-of-sequence token dropped",
        "rlvr/sampler.py",
        "first = stops.int().argmax(-1) + 1",
        "first = stops.int().argmax(-1).clamp(min=1)",
        "rlvr/test_sampler.py::test_response_lengths",
    ),
    Mutant(
        "pass@k: with replacement",
        "core/pass_at_k.py",
        "(total - correct - j).clamp(min=0) / (total - j).clamp(min=1).double()",
        "(total - correct) / total.double()",
        f"{LIKELIHOOD}::test_pass_at_k_literals",
    ),
    Mutant(
        "Dr. GRPO: divided by the std",
        "methods/grpo.py",
        "return p.signal(centred(p.rewards, p.valid))",
        "return p.signal(standardized(p.rewards, p.valid))",
        f"{METHODS}::test_grpo_divides_by_the_std_and_dr_grpo_does_not",
    ),
    Mutant(
        "DAPO: uniform groups kept",
        "methods/grpo.py",
        "keep=~uniform & p.valid",
        "keep=p.valid",
        f"{VALUES}::test_kept_rows",
    ),
    Mutant(
        "NSR: right answers kept",
        "methods/polarity.py",
        "keep=p.rewards < 1",
        "keep=p.rewards < 2",
        f"{VALUES}::test_kept_rows",
    ),
    Mutant(
        "NGRPO: virtual rewards of 0",
        "methods/virtual.py",
        "virtual = p.rewards.new_ones(",
        "virtual = p.rewards.new_zeros(",
        f"{VALUES}::test_table",
    ),
    Mutant(
        "AVSPO: no gate",
        "methods/virtual.py",
        "else rate > tau",
        "else rate > -tau",
        f"{VALUES}::test_avspo_gate_and_count",
    ),
    Mutant(
        "AVSPO: the count rounds down",
        "methods/virtual.py",
        "k = torch.ceil(size * rate.sqrt() - 1e-9)",
        "k = torch.floor(size * rate.sqrt() - 1e-9)",
        f"{VALUES}::test_table",
    ),
    Mutant(
        "RL-ZVP: the maximum over the group",
        "methods/entropy.py",
        "entropy.amax(-1, keepdim=True)",
        "entropy.amax((-2, -1), keepdim=True)",
        f"{VALUES}::test_rl_zvp",
    ),
    Mutant(
        "RL-ZVP: padding counts",
        "methods/entropy.py",
        ".add_(mixed).masked_fill_(other, 0.0)",
        ".add_(mixed)",
        f"{VALUES}::test_rl_zvp",
    ),
    Mutant(
        "REINFORCE++: token weights ignored",
        "methods/reinforce_pp.py",
        'rollouts.lengths if weighting == "token" else None',
        "None",
        f"{VALUES}::test_reinforce_pp_leaks_a_constant_where_wrong_answers_are_longer",
    ),
    Mutant(
        "AsymRE: the sign of the shift",
        "methods/asymre.py",
        "centred(p.rewards, p.valid) - delta_v",
        "centred(p.rewards, p.valid) + delta_v",
        f"{VALUES}::test_table",
    ),
    Mutant(
        "pass@k training: with replacement",
        "methods/passk.py",
        "(a.unsqueeze(-1) - i).clamp(min=0.0)",
        "a.unsqueeze(-1).clamp(min=0.0)",
        f"{VALUES}::test_table",
    ),
    Mutant(
        "EBPO: the shrinkage turned round",
        "methods/prior.py",
        "own + strength * (p.rewards - prior)",
        "own + (1 - strength) * (p.rewards - prior)",
        f"{VALUES}::test_table",
    ),
    Mutant(
        "SPO: no forgetting",
        "methods/prior.py",
        'state["rho"] * a + s',
        "a + s",
        f"{STATE}::test_spo",
    ),
    Mutant(
        "pooled D: wrong answers are not counted",
        "methods/lens.py",
        "[before_n + n, before + term]",
        "[before_n + (n if term else 0), before + term]",
        f"{STATE}::test_a_question_never_solved_fades_as_one_over_n",
    ),
    Mutant(
        "pooled D: no guard on top",
        "core/advantage.py",
        "log_difficulty = torch.maximum(estimate, floor)",
        "log_difficulty = estimate.clamp(min=1e-6)",
        f"{VALUES}::test_lens_pooled",
    ),
    Mutant(
        "pooled D: updated in place",
        "methods/lens.py",
        'seen = dict(state["questions"])',
        'seen = state["questions"]',
        f"{STATE}::test_update_is_pure_and_json_holds_the_state",
    ),
    Mutant(
        "report: runs of any length fill the paper's tables",
        "reporting/paper.py",
        "return None if run.step >= STEPS else",
        "return None if run.step >= 1 else",
        f"{REPORT}::test_a_run_off_the_protocol_fills_no_cell_and_says_why",
    ),
    Mutant(
        "report: every reading of LENS is the paper's",
        "reporting/paper.py",
        'return _LENS.get(LensConfig.preset(given.pop("preset", "paper"), **given))',
        'return "lens"',
        f"{REPORT}::test_another_reading_of_lens_is_not_the_papers",
    ),
    Mutant(
        "report: differences not paired by seed",
        "reporting/tables.py",
        "if run.seed == base.seed and same_setting(run, base)",
        "if same_setting(run, base)",
        f"{REPORT}::test_runs_stand_in_their_rows_whatever_their_folders_are_called",
    ),
    Mutant(
        "report: what was not run is 0",
        "reporting/settings.py",
        "    if array.size == 0:\n        return None",
        '    if array.size == 0:\n        return Estimate(0.0, None, None, 0, "")',
        f"{REPORT}::test_what_was_not_run_is_never_a_number",
    ),
    Mutant(
        "report: a run copied half is counted",
        "reporting/find.py",
        "if run.finished and run.step != (steps",
        "if run.finished and run.step > (steps",
        f"{REPORT}::test_bad_input_is_one_clear_line",
    ),
    Mutant(
        "evaluate: blocks share their random numbers",
        "evaluating/sampling.py",
        "target.seed, len(done) // plan.block)",
        "target.seed, 0)",
        f"{EVALUATE}::test_blocks_differ_in_their_random_numbers",
    ),
    Mutant(
        "evaluate: half a block is kept after a kill",
        "evaluating/sampling.py",
        "kept = begun[: len(begun) - len(begun) % plan.block]",
        "kept = begun",
        f"{EVALUATE}::test_a_killed_evaluation_goes_on_to_the_same_counts",
    ),
    Mutant(
        "evaluate: other settings are mixed in",
        "evaluating/sampling.py",
        "if theirs.get(key) != value and not",
        "if key not in theirs and not",
        f"{EVALUATE}::test_other_settings_do_not_mix",
    ),
    Mutant(
        "evaluate: not at temperature 1",
        "evaluating/policies.py",
        '"rollout.temperature": 1.0',
        '"rollout.temperature": 0.6',
        f"{EVALUATE}::test_the_bundled_policy_without_a_name",
    ),
    Mutant(
        "evaluate: the adapter is left out",
        "evaluating/policies.py",
        "if target.adapter is not None:",
        "if target.adapter == Path():",
        f"{EVALUATE}::test_an_adapter_as_run_and_as_checkpoint",
    ),
    Mutant(
        "evaluate: runs of different seeds are paired",
        "evaluating/estimates.py",
        "return ours == theirs",
        "return True",
        f"{ESTIMATES}::test_runs_are_compared_with_those_of_their_seed",
    ),
    Mutant(
        "evaluate: the questions trained on are taken for the others",
        "evaluating/estimates.py",
        "if counts[i].id not in overlap.ids]",
        "if counts[i].id in overlap.ids]",
        f"{ESTIMATES}::test_overlapping_questions_stand_apart",
    ),
    Mutant(
        "evaluate: a 90 % interval",
        "evaluating/resampling.py",
        "[2.5, 97.5]",
        "[5.0, 95.0]",
        f"{ESTIMATES}::test_many_different_rows_take_another_road_to_the_same_interval",
    ),
    Mutant(
        "evaluate: one-sided sign flips",
        "evaluating/resampling.py",
        "(np.abs(signs @ moving) >= bound).mean(",
        "(signs @ moving >= bound).mean(",
        f"{ESTIMATES}::test_sign_flips_by_enumeration",
    ),
    Mutant(
        "evaluate: a p-value of 0",
        "evaluating/resampling.py",
        "(1 + extreme) / (1 + resamples)",
        "extreme / resamples",
        f"{ESTIMATES}::test_sign_flips_at_random",
    ),
    Mutant(
        "evaluate: runs of other settings are seeds of one method",
        "evaluating/estimates.py",
        "different = trained_apart(run, other)",
        "different = list[str]()",
        f"{EVALUATE}::test_runs_of_other_settings_are_no_seeds_of_one_method",
    ),
    Mutant(
        "evaluate: seeds that all agree have an interval",
        "rlvr/statistics.py",
        "np.ptp(array) > SAME else None",
        "True else None",
        f"{ESTIMATES}::test_seeds_that_all_agree_have_no_interval_over_seeds",
    ),
    Mutant(
        "collect: a run over itself",
        "rlvr/collect.py",
        "if out.resolve() in (run.path.resolve(), run.path.resolve().parent):",
        "if False:",
        "rlvr/test_run_report.py::test_a_run_is_not_collected_over_itself",
    ),
    Mutant(
        "verifier: the parser's mixed numbers",
        "verifier/parser.py",
        "if first == len(factors) - 1 or not isinstance(factor, (sympy.Expr, sympy.MatrixBase)):\n"
        "            return factor",
        "if True:\n            return super().convert_postfix_list(factors, first)",
        "test_verifier.py::test_verdicts_by_kind_of_answer",
    ),
    Mutant(
        "verifier: a line is proportional to infinity",
        "verifier/algebra.py",
        "any(x == 0 or y == 0 or x.is_infinite or y.is_infinite for x, y in pairs)",
        "any(x == 0 or y == 0 for x, y in pairs)",
        "test_verifier.py::test_verdicts_by_kind_of_answer[bounds and infinity]",
    ),
    Mutant(
        "verifier: the index of a number is dropped",
        "verifier/parser.py",
        "if atom.number_subexpr() and atom.number_subexpr().subexpr():",
        "if False:",
        "test_verifier.py::test_verdicts_by_kind_of_answer[what would be dropped]",
    ),
    Mutant(
        "verifier: bars without sides",
        "verifier/algebra.py",
        "latex = _sided_bars(latex)",
        "pass",
        "test_verifier.py::test_verdicts_by_kind_of_answer[absolute values]",
    ),
    Mutant(
        "verifier: a function takes all behind it",
        "verifier/parser.py",
        "operand = _operands(arg.mp_nofunc())[0]",
        "operand = arg.mp_nofunc()",
        "test_verifier.py::test_verdicts_by_kind_of_answer[functions without brackets]",
    ),
    Mutant(
        "verifier: letters hide a difference behind 20 digits",
        "verifier/algebra.py",
        "return len(pairs) >= needed and not _differ_slightly(a, b)",
        "return len(pairs) >= needed and (needed > 1 or not _differ_slightly(a, b))",
        "test_verifier.py::test_verdicts_by_kind_of_answer[near coincidences]",
    ),
    Mutant(
        "verifier: bounds with commas are a union",
        "verifier/line.py",
        "return _listed(parts)",
        "return frozenset().union(*parts)",
        "test_verifier.py::test_verdicts_by_kind_of_answer[bounds and infinity]",
    ),
    Mutant(
        "verifier: the index behind an exponent is dropped",
        "verifier/parser.py",
        "if base and exp.subexpr():",
        "if False:",
        "test_verifier.py::test_verdicts_by_kind_of_answer[what would be dropped]",
    ),
    Mutant(
        "report: one seed beside several is a verdict",
        "rlvr/report_verdict.py",
        "elif len(seeds) > 1:",
        "elif False:",
        "test_report.py::test_one_seed_beside_several_tells_no_method_from_another",
    ),
    Mutant(
        "report: where the questions lay makes another setting",
        "rlvr/report_data.py",
        "if one is not None and one == theirs[what]}",
        "if False}",
        "test_report.py::test_the_same_questions_from_another_place_are_the_same",
    ),
    Mutant(
        "figures: a single run makes means into single runs",
        "rlvr/report_figures.py",
        "(several if len(several) > 1 else seeds.values())",
        "seeds.values()",
        "test_report_figures.py::test_means_are_of_the_seeds_that_methods_of_several_share",
    ),
    Mutant(
        "figures: what lies far off stretches the frame",
        "reporting/run_figures.py",
        "            return set(ordered[i:])",
        "            return set()",
        "test_report_figures.py::test_what_lies_far_off_is_written_and_not_drawn",
    ),
    Mutant(
        "study: a seed that waits begins after a signal",
        "tiny/study.py",
        "if trainings.ending:\n        return",
        "if False:\n        return",
        "test_study.py::test_a_seed_that_waits_is_not_begun_after_a_signal",
    ),
    Mutant(
        "console: what was not written comes with the next line",
        "rlvr/console.py",
        "self.begin_capture()  # else it would be tried again with the next line\n"
        "            self.end_capture()",
        "pass",
        "test_full_console.py::test_what_was_not_written_does_not_come_with_the_next_line",
    ),
    Mutant(
        "evaluate: the first evaluation of a run's log",
        "evaluating/counts.py",
        "last = max((step",
        "last = min((step",
        f"{ESTIMATES}::test_a_runs_own_log_gives_its_last_evaluation",
    ),
    Mutant(
        "evaluate: an adapter over another base",
        "evaluating/policies.py",
        "if what := other_weights(base, policy_entry(policy)):",
        'if what := "":',
        f"{EVALUATE}::test_a_runs_adapter_over_another_base_is_refused",
    ),
    Mutant(
        "evaluate: other test questions of a run are not seen",
        "evaluating/session.py",
        'data=tested.get("sha256") or None,',
        "data=None,",
        f"{EVALUATE}::test_runs_that_were_tested_on_other_questions_are_not_compared",
    ),
    Mutant(
        "evaluate: another training set is not told",
        "evaluating/session.py",
        "if then and then != sets[key].sha256:",
        "if False:",
        f"{EVALUATE}::test_a_training_set_that_is_another_one_now_is_told",
    ),
    Mutant(
        "evaluate: half a last number is believed",
        "rlvr/files.py",
        "if complete and text and text[-1] not in",
        "if not complete and text and text[-1] not in",
        f"{EVALUATE}::test_an_evaluation_that_stopped_half_way_is_told",
    ),
    Mutant(
        "evaluate: comparisons of an earlier table stay",
        "evaluating/session.py",
        "path.unlink(missing_ok=True)",
        "pass",
        f"{EVALUATE}::test_comparisons_of_an_earlier_table_do_not_stay",
    ),
    Mutant(
        "overlap: 1/23 is a copy of 12/3",
        "rlvr/sources.py",
        '_BOUNDARY.sub("\\0", ',
        '_BOUNDARY.sub("", ',
        "rlvr/test_sources.py::test_copies_of_a_problem_differ_in_spacing",
    ),
    Mutant(
        "evaluate: copies in capitals are missed",
        "evaluating/overlap.py",
        "sources.bare(problem).casefold()",
        "sources.bare(problem)",
        f"{ESTIMATES}::test_what_normalisation_makes_equal",
    ),
    Mutant(
        "trl: an evaluation teaches the state",
        "engines/trl.py",
        "questions[::size], learn=training)",
        "questions[::size], learn=True)",
        f"{TRL}::test_an_evaluation_leaves_the_state_alone",
    ),
    Mutant(
        "trl: every process takes the first rows",
        "engines/trl.py",
        "start = self.accelerator.process_index * rows",
        "start = 0 * rows",
        "engines/test_trl_runs.py::test_two_processes_share_their_groups",
    ),
    Mutant(
        "trl: the loss divides by rows left out",
        "engines/trl.py",
        "advantages.float() * kept_scale(keep)",
        "advantages.float()",
        f"{TRL}::test_a_response_that_nobody_scored_is_left_out",
    ),
    Mutant(
        "trl: the sampler's log-probabilities are passed over",
        "engines/trl.py",
        'logprobs = output.get("sampling_per_token_logps")',
        "logprobs = None",
        f"{TRL}::test_confidence_is_of_the_sampler_where_it_reports_log_probabilities",
    ),
    Mutant(
        "trl: a token without a score is certain",
        "engines/trl.py",
        "logprobs.where(scored, computed)",
        "logprobs.nan_to_num(0.0)",
        f"{TRL}::test_a_token_that_the_sampler_could_not_score_is_scored_by_the_trainer",
    ),
    Mutant(
        "trl: weights of reward functions are lost",
        "engines/trl.py",
        "(scores * self.reward_weights.double().cpu()).nansum(-1)",
        "scores.nanmean(-1)",
        f"{TRL}::test_several_reward_functions_are_summed_with_their_weights",
    ),
    Mutant(
        "trl: TRL's own advantages stay in its table",
        "engines/trl.py",
        "        self._rewrite_table(advantages)\n",
        "        pass\n",
        f"{TRL}::test_trls_table_holds_these_advantages",
    ),
    Mutant(
        "trl: a resumed state is forgotten",
        "engines/trl.py",
        "            read_state(Path(checkpoint), self.treatment)\n",
        "",
        "engines/test_trl_runs.py::test_a_resumed_run_is_the_straight_run",
    ),
    Mutant(
        "trl: a later epoch is resumed in the first one's order",
        "engines/trl.py",
        "for _ in range(epochs):",
        "for _ in range(0):",
        "engines/test_trl_runs.py::test_later_epochs_are_resumed_in_their_own_order",
    ),
    Mutant(
        "trl: a subclass's rewards are passed over",
        "engines/trl.py",
        "calculate, scores = self._calculate_rewards, []",
        "calculate, scores = super()._calculate_rewards, []",
        f"{TRL}::test_a_subclass_may_shape_the_rewards",
    ),
    Mutant(
        "verl: rejected rows count",
        "engines/verl_rows.py",
        "valid=mask.any(-1),",
        "valid=None,",
        f"{VERL}::test_rejected_rows_leave_their_group",
    ),
    Mutant(
        "verl: the loss divides by rows left out",
        "engines/verl_rows.py",
        "return kept_scale(keep[present])",
        "return 1.0",
        f"{VERL}::test_verls_loss_of_the_advantages_is_this_projects_loss",
    ),
    Mutant(
        "verl: the loss counts verl's padding",
        "engines/verl_rows.py",
        "return kept_scale(keep[present])",
        "return kept_scale(keep)",
        f"{VERL}::test_sums_over_tokens_count_rows_or_nothing",
    ),
    Mutant(
        "verl: a question is new at every visit",
        "engines/verl_rows.py",
        "[of_uid[uid] for uid in index.uids]",
        "[str(uid) for uid in index.uids]",
        f"{VERL}::test_a_method_with_state_remembers_questions_over_batches",
    ),
    Mutant(
        "verl: the last token's reward alone",
        "engines/verl_rows.py",
        "token_level_rewards.double().sum(-1)",
        "token_level_rewards.double()[:, -1]",
        f"{VERL}::test_verls_dispatcher_gives_the_advantages_of_lens",
    ),
    Mutant(
        "verl: advantages on padding",
        "engines/verl_rows.py",
        "by_row.masked_fill(~mask, 0.0)",
        "by_row.expand(mask.shape)",
        f"{VERL}::test_verls_dispatcher_gives_the_advantages_of_lens",
    ),
    Mutant(
        "verl: a response of the greatest length has ended",
        "engines/verl.py",
        "truncated=lengths >= self",
        "truncated=lengths > self",
        f"{VERL}::test_truncated_responses_are_those_at_the_length_limit",
    ),
    Mutant(
        "verl: the state stays out of the checkpoint",
        "engines/verl.py",
        "        write_state(self._folder(self.global_steps), self.treatment)\n",
        "",
        f"{VERL}::test_the_state_is_in_the_checkpoint",
    ),
    Mutant(
        "verl: any method goes on with any checkpoint",
        "engines/state.py",
        'if saved["method"] != treatment.label:',
        "if False:",
        f"{VERL}::test_the_baseline_does_not_go_on_with_the_methods_weights",
    ),
]
NO_OP = ("core/advantage.py", '"""The practical LENS algorithm:', '"""The same LENS algorithm:')


class Recorder:
    """A pytest plugin that keeps how each test ended."""

    def __init__(self) -> None:
        self.passed = 0
        self.assertions = 0
        self.other: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: Any) -> Any:
        report = yield
        if call.excinfo is not None and not report.skipped:
            by_assertion = call.excinfo.errisinstance((AssertionError, pytest.fail.Exception))
            if report.when == "call" and by_assertion:
                self.assertions += 1
            else:
                self.other.append(f"{report.when}: {call.excinfo.typename}")
        elif report.when == "call" and report.passed:
            self.passed += 1
        return report


def run_tests(copy: Path, tests: list[str], results: Connection) -> None:
    """In a process of its own: the named tests, against the package in `copy`."""
    sys.dont_write_bytecode = True  # an edit may keep a file's size and second
    sys.path.insert(0, str(copy))
    os.chdir(copy)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    recorder = Recorder()
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=no_shrinking"]
    code = int(pytest.main([*options, *(f"tests/{test}" for test in tests)], plugins=[recorder]))
    package = sys.modules.get("lens_ref")
    if package is None or not str(package.__file__).startswith(f"{copy}{os.sep}"):
        recorder.other.append(f"imported {package}")
    results.send((code, recorder.passed, recorder.assertions, recorder.other))


def outcome(copy: Path, tests: list[str]) -> str:
    """ "killed", "survived", or what went wrong."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "pytest", "hypothesis.strategies", "mpmath"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run_tests, args=(copy, tests, sender))
    process.start()
    sender.close()
    try:
        if not receiver.poll(SECONDS):
            return f"no answer in {SECONDS} s"
        code, passed, assertions, other = receiver.recv()
    except EOFError:
        return "crashed"
    finally:
        process.kill()
        process.join()
    if other:
        return f"broken ({'; '.join(other)})"
    if assertions:
        return "killed"
    return "survived" if code == 0 and passed else f"no test ran (pytest exit {code})"


def mutated(copy: Path, file: str, old: str, new: str, tests: list[str]) -> str:
    """The outcome with the edit in place; the file is restored afterwards."""
    path = copy / "lens_ref" / file
    source = path.read_text(encoding="utf-8")
    if source.count(old) != 1:
        return f"stale: the old text occurs {source.count(old)} times"
    path.write_text(source.replace(old, new), encoding="utf-8")
    try:
        return outcome(copy, tests)
    finally:
        path.write_text(source, encoding="utf-8")


def main(words: list[str]) -> int:
    named = [m for m in MUTANTS if not words or any(w in m.name for w in words)]
    chosen = [m for m in named if m.engine is None or importlib.util.find_spec(m.engine)]
    if not chosen:
        print(f"no mutant's name holds {' or '.join(words)}, or its engine is not installed")
        return 2
    if left_out := len(named) - len(chosen):
        print(f"{left_out} left out, whose engine is not here: make mutants-trl, make mutants-verl")
    start = time.monotonic()
    os.environ["OMP_NUM_THREADS"] = "1"
    killed, width = 0, max(len(m.name) for m in chosen)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder).resolve()
        for name in ("lens_ref", "recipes", "tests", "toy"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        for name in ("pyproject.toml", "CONTRIBUTING.md"):
            shutil.copy(ROOT / name, copy)
        for mutant in chosen:
            result = mutated(copy, mutant.file, mutant.old, mutant.new, [mutant.test])
            killed += result == "killed"
            print(f"{mutant.name:<{width}}  {result:<8}  {mutant.test}", flush=True)
        no_op = mutated(copy, *NO_OP, list(dict.fromkeys(m.test for m in chosen)))
        print(f"{'no-op':<{width}}  {no_op:<8}  all of the tests above")
    print(f"killed {killed}/{len(chosen)}, no-op {no_op}, {time.monotonic() - start:.0f} s")
    return 0 if killed == len(chosen) and no_op == "survived" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
