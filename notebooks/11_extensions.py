# %% [markdown]
# # 11 · Beyond the paper: five extensions
#
# The likelihood framework says more than the algorithm uses. Five short walks: rewards between 0
# and 1, preferences among correct answers, samples from another policy, the weight of negative
# groups without tuning, and a difficulty that remembers. In each you will see a statement, a
# number that checks it, and where it ends; on the way, four sentences of the paper's appendix turn
# out to need a mend.
#
# **You need:** the reward model $p = \pi/D$ and the calibrated reward
# ([notebook 02](02_likelihood.ipynb), [03](03_value_function.ipynb)), the practical rule
# ([notebook 04](04_calibrated_reward.ipynb)). Words: [glossary](../docs/glossary.md). All
# functions with their proofs: [extensions](../docs/extensions.md).
#
# **After this notebook you can**
# - predict what LENS does with graded rewards, and why it is not reward maximisation;
# - choose a preference $\rho$ and compute its difficulty without the usual slip;
# - say when old samples move the optimum, and mend it;
# - set the size of a negative group by a rule instead of by $\alpha$.
#
# Unless said otherwise these are exact statements on a few answers. None of the five was shown to
# improve a language model; where a run exists it is named.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from classroom import line, results, slider, start

from lens_ref import LensConfig, Rollouts, lens_advantages, methods
from lens_ref.core import (
    length_preference_reward,
    mle_coefficient,
    true_difficulty,
    value,
    value_mle,
)
from lens_ref.extensions import (
    bounded_coefficient,
    data_preference,
    equivalent_alphas,
    inverse_sampling_weights,
    length_preference,
    likelihood_optimum,
    off_policy_coefficient,
    posterior_scale,
    practical_preference,
    preference_difficulty,
    preference_reward,
)

device = start(0.5)
torch.set_default_dtype(torch.float64)

# %% [markdown]
# ## 1 · Rewards between 0 and 1
#
# Let an answer be correct with probability $p^\star(o)$ strictly between 0 and 1: a partial
# credit, a noisy judge. The **difficulty** (eq. of the difficulty, Section 4.1) and the value of
# Theorem 2, in its closed form, are
#
# $$D = \Big\{\sum_o p^\star(o)\Big\}^{-1}, \qquad
#   J_{\rm MLE}(\pi) = 1 + D \sum_o (1 - p^\star(o)) \log\Big(1 - \frac{\pi(o)}{D}\Big)$$
#
# (MLE: maximum likelihood; [notebook 03](03_value_function.ipynb) derives this form.)
# Its maximum is $\pi^\star = D\,p^\star$: answers in *proportion* to how good they are. The
# **accuracy** is $J(\pi) = \sum_o \pi(o)\,p^\star(o)$, and *its* maximum puts everything on the
# best answer. Expect the two to differ. By hand, $p^\star = (.3, .2, .1)$: $D = 1/.6 = \tfrac53$,
# $\pi^\star = (\tfrac12, \tfrac13, \tfrac16)$.

# %%
p_star = torch.tensor([0.3, 0.2, 0.1])
d = true_difficulty(p_star)
optimum = likelihood_optimum(p_star)
print(f"D = {d:.4f},  π* = {optimum.numpy().round(4)},  accuracy {value(optimum, p_star):.4f}")
print(f"best possible accuracy: {p_star.max():.4f}")
assert torch.allclose(optimum, torch.tensor([1 / 2, 1 / 3, 1 / 6]))
greedy = torch.tensor([1.0, 0.0, 0.0])
assert value_mle(optimum, p_star, d) > value_mle(greedy, p_star, d)

# %% [markdown]
# So for graded rewards LENS is **probability matching**, not reward maximisation; the paper calls
# $\pi^\star$ "one optimal policy" of the accuracy, which holds for rewards that are certain.
#
# What if $D$ is not the true one? For any $D$ the maximum is a *water-filling*,
# $\pi(o) = \max\{0,\, D - \lambda(1 - p^\star(o))\}$ with $\lambda$ such that the sum is 1. Expect $D$ to
# act as an inverse temperature: small $D$, uniform; true $D$, matching; large $D$, only the best
# answer.

# %%
ds = torch.logspace(math.log10(0.34), math.log10(20), 120)
optima = likelihood_optimum(p_star, ds)

fig, ax = plt.subplots()
for i, (path, p) in enumerate(zip(optima.T, p_star, strict=True)):
    ax.plot(ds, path, label=f"$p^\\star$ = {p:g}", markevery=(4 * i, 15), **line(i))
ax.axvline(d, color="0.4", linewidth=1)
ax.text(d * 1.05, 0.95, "true D", fontsize=12)
ax.set(xscale="log", xlabel="difficulty D", ylabel="probability at the maximum", ylim=(-0.02, 1.05))
ax.legend(loc="center left", fontsize=12)
plt.show()
twice = likelihood_optimum(p_star, 2 * d)
assert torch.allclose(twice, torch.tensor([31 / 45, 14 / 45, 0.0]))
assert likelihood_optimum(p_star, 8.1)[0] == 1

# %% [markdown]
# That is the likelihood. The *practical rule* is another matter: as printed, with the std and with
# verdicts drawn from $p^\star$, it ends near the answer that is most often right, as reward
# maximisation would (enumerated for two cases in `lens_ref/extensions/fractional.py`).
#
# ## 2 · Preferences among correct answers
#
# The appendix "A Preference-Aware Framework" weighs answers by $\rho(o) \ge 0$ (shorter, more
# natural, …). The reward model $p_\theta$, the policy's own guess of how likely an answer is right,
# becomes
#
# $$p_\theta = \frac{\pi_\theta}{D\,\rho}, \qquad
#   D = \Big\{\sum_o p^\star(o)\,\rho(o)\Big\}^{-1}, \qquad
#   \text{a wrong answer earns } -\frac{\pi}{D\rho - \pi} .$$
#
# **2a · $\rho = \mu$, the distribution that drew the data.** Then $D = 1/\mathbb E_\mu[r]$, one
# over the success rate. The appendix writes an average over the *set* of observed answers. Three
# answers with $\mu = (.6, .3, .1)$, only the first correct: expect $1/.6 = 1.667$ over samples,
# and 3 over the set.

# %%
mu, correct = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([1.0, 0.0, 0.0])
drawn = torch.repeat_interleave(torch.arange(3), (10 * mu).round().int())  # ten samples
log_mu = mu[drawn].log()
over_samples = preference_difficulty(correct[drawn], log_mu, data_preference(log_mu)).exp()
over_set = 1 / correct.mean()
print(
    f"truth {1 / (mu @ correct):.4f}, over samples {over_samples:.4f}, over the set {over_set:.0f}"
)
assert abs(over_samples - 1 / 0.6) < 1e-12

# %% [markdown]
# **2b · $\rho$ = the policy itself (frozen).** Then $D = 1/\text{acc}$, and every wrong answer
# weighs $1/(D - 1)$. The appendix calls that "exactly the correction rate". Expect it to be the
# *odds* of the accuracy, $\text{acc}/(1 - \text{acc})$, which has no upper bound: 4 at .8, 19 at
# .95.

# %%
accuracy = torch.linspace(0.02, 0.95, 60)
weight = 1 / (1 / accuracy - 1)
assert torch.allclose(1 / (1 / torch.tensor([0.8, 0.95]) - 1), torch.tensor([4.0, 19.0]))

fig, ax = plt.subplots()
ax.plot(accuracy, weight, label="weight of a wrong answer: odds", markevery=8, **line(0))
ax.plot(accuracy, accuracy, label='"correction rate": accuracy', markevery=8, **line(1))
ax.set(xlabel="accuracy on the question", ylabel="weight", ylim=(0, 10))
ax.legend(fontsize=12)
plt.show()

# %% [markdown]
# So this choice makes wrong answers *loud on easy questions* and quiet on hard ones: the opposite
# of what one wants from negative groups. ($\rho$ must be frozen: with the live policy
# $\pi/(D\rho)$ is constant in $\theta$, and nothing is learnt.)
#
# **2c · $\rho = \gamma^{\text{length}}$, a preference for short answers.** Let
# $\bar\pi = \pi^{1/L}$ be the length-normalised confidence of an answer of $L$ tokens. With
# $s = \log D + L \log\gamma - \log\pi$ a wrong answer earns exactly
#
# $$-\frac{\pi}{D\gamma^L - \pi} = -\frac{1}{e^s - 1},
#   \qquad\text{and the appendix closes with}\qquad
#   -\frac1L \cdot \frac{\bar\pi}{\gamma - \bar\pi} .$$
#
# Its chain of approximations expands $e^s$, which needs $s \ll 1$, and drops $\log D$, which needs
# $s \gg |\log D|$. Expect the two to agree only in between: for $D = \tfrac12$ they merely cross;
# for $D$ very near 1 there is a window.

# %%
L, gamma = 1000, 0.9
s = torch.logspace(-3, 2, 60)


def rewards_at(s: torch.Tensor, difficulty: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact and closing formula where s takes these values."""
    log_d = math.log(difficulty)
    log_pi = log_d + L * math.log(gamma) - s
    lengths = torch.full_like(s, L)
    exact = length_preference_reward(log_pi, lengths, log_d, gamma)
    closed = torch.full_like(s, torch.nan)  # needs π̄ < γ
    fits = log_pi / L < math.log(gamma)
    closed[fits] = length_preference_reward(log_pi[fits], lengths[fits], log_d, gamma, "practical")
    return exact, closed


# %%
fig, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
for ax, difficulty in zip(axes, (0.5, 0.9999), strict=True):
    exact, closed = rewards_at(s, difficulty)
    ax.plot(s, -exact, label="exact", markevery=8, **line(0))
    ax.plot(s, -closed, label="closing formula", markevery=(4, 8), **line(3))
    ax.set(xscale="log", yscale="log", xlabel="s", title=f"D = {difficulty:g}", ylim=(1e-4, 3e3))
axes[0].set_ylabel("penalty of a wrong answer")
axes[0].legend(fontsize=12)
plt.show()

exact, closed = rewards_at(torch.tensor([0.01, 50.0]), 0.5)
for s_at, a, b in zip((0.01, 50), exact.tolist(), closed.tolist(), strict=True):
    print(f"D = 1/2, s = {s_at:g}: exact {a:.3g}, closing formula {b:.3g}")
assert abs(exact[0] + 99.5) < 0.01

# %% [markdown]
# $s$ is the difference of two large numbers: at 1000 tokens, 1 % of $\bar\pi$ moves it by 10. The
# exact form is as cheap and needs neither approximation.
#
# **2d · What $\rho$ has the practical rule?** It replaces $\pi$ by $\bar\pi = \pi^{1/L}$. Expect
# it to be *exactly* this framework with the frozen $\rho = \pi_{\rm old}^{\,1 - 1/L}$ (then
# $\pi/\rho = \bar\pi$), if $D_{\rm imp}$, the estimate of $D$ from a group, is taken on $\bar\pi$.
# That speaks for this reading of the printed formula, which has $\pi$ there.

# %%
torch.manual_seed(0)
lengths = torch.randint(5, 60, (1, 8))
log_pi = -0.3 * lengths * (0.5 + torch.rand(1, 8))
verdicts = torch.tensor([[1.0, 0, 0, 1, 0, 0, 0, 0]])

config = LensConfig.preset("normalized_difficulty", mixed_scale=1, negative_scale=1)
practical = lens_advantages(Rollouts(verdicts, log_pi, lengths), config).info
log_rho = practical_preference(log_pi, lengths)
log_d_imp = preference_difficulty(verdicts, log_pi, log_rho)
log_d = torch.maximum(log_d_imp, math.log(2) + (log_pi - log_rho).amax(-1))  # the guard on top
framework = preference_reward(log_pi, log_rho, verdicts, log_d)
gap = (framework - practical["calibrated_reward"]).abs().max()
assert gap < 1e-12
print(f"largest difference between the two on a group of 8: {gap:.1e}")
short, long = length_preference(torch.tensor([10, 1000]), gamma)
print(f"for comparison, log ρ = L log γ at 10 and 1000 tokens: {short:.2f}, {long:.1f} nats")

# %% [markdown]
# ## 3 · Samples from another policy
#
# Old samples come from $\mu$, not from the $\pi$ being trained: they are **off-policy**. Two
# different things can be done with them.
#
# *The on-policy objective, corrected.* By Theorem 2, for every $\mu$ that misses no answer,
# $\nabla J_{\rm MLE} = \mathbb E_\mu\big[\tfrac{\pi}{\mu}\,\tilde r\,\nabla \log \pi\big]$ with the
# calibrated reward $\tilde r$. Expect equality to rounding, and a bias where the ratio
# $\tfrac\pi\mu$ is capped, as in practice it often is.

# %%
mu = torch.tensor([0.4, 0.1, 0.2, 0.15, 0.1, 0.05])  # six options, A and B correct
certain = torch.tensor([1.0, 1, 0, 0, 0, 0])
logits = torch.tensor([0.1, -0.5, 0.4, 0.0, 0.3, -0.2], requires_grad=True)
(exact,) = torch.autograd.grad(value_mle(logits.softmax(0), certain, 1.0), logits)


def step(pi: torch.Tensor, coefficient: torch.Tensor) -> torch.Tensor:
    """E_μ[c ∇ log π] in the logits."""
    weighted = mu * coefficient
    return weighted - pi * weighted.sum()


pi = logits.detach().softmax(0)
for cap in (None, 2.0, 1.0):
    found = step(pi, off_policy_coefficient(pi.log(), mu.log(), certain, 1.0, cap=cap))
    print(f"cap {cap}: largest error {(found - exact).abs().max():.1e}")
uncapped = step(pi, off_policy_coefficient(pi.log(), mu.log(), certain, 1.0))
assert torch.allclose(uncapped, exact, atol=1e-14)

# %% [markdown]
# *The likelihood under $\mu$ itself* needs no ratio: just fit the reward model to the old samples.
# The appendix proves that $\pi^\star$ maximises it. Is that so? With certain verdicts and all mass
# on A and B it is $\mathcal L = \mu_A \log \pi_A + \mu_B \log \pi_B$, and
# $\pi^\star = (\tfrac12, \tfrac12)$. Here $\mu_A = .4$, $\mu_B = .1$. Expect the maximum at .8.

# %%
share = torch.linspace(0.05, 0.95, 91)
plain = mu[0] * share.log() + mu[1] * (1 - share).log()
w = inverse_sampling_weights(mu.log(), certain)  # 1/μ on correct answers
weighted = mu[0] * w[0] * share.log() + mu[1] * w[1] * (1 - share).log()
at = {x: float(mu[0] * math.log(x) + mu[1] * math.log(1 - x)) for x in (0.5, 0.8)}
print(f"log-likelihood at (.5, .5): {at[0.5]:.3f}; at (.8, .2): {at[0.8]:.3f}")
print(f"maximum at {share[plain.argmax()]:.2f}")
assert at[0.8] > at[0.5]
assert abs(share[weighted.argmax()] - 0.5) < 1e-9

# %%
fig, ax = plt.subplots()
curves = {"under μ, as it stands": plain, "correct answers weighed by 1/μ": weighted}
for i, (label, values) in zip((0, 3), curves.items(), strict=True):
    ax.plot(share, values - values.max(), label=label, markevery=10, **line(i))
ax.axvline(0.5, color="0.4", linewidth=1)
ax.text(0.51, -0.77, "π*", fontsize=13)
ax.set(xlabel="share of A among the correct answers", ylabel="log-likelihood, less its maximum")
ax.set_ylim(-0.8, 0.05)
fig.legend(fontsize=12, loc="outside lower center", ncols=2)
plt.show()

# %% [markdown]
# So the consistency claim fails off-policy for certain verdicts, unless $\mu$ is even on the
# correct answers: at $\pi = D$ the proof multiplies $1 - p^\star = 0$ by infinite odds. (For
# $0 < p^\star < 1$ it holds.) Two mends make $\pi^\star$ stationary again: the weights $1/\mu$ on
# correct answers, or pushing no correct answer beyond $\pi = D$. Checked at $\pi^\star$,
# $D = \tfrac12$:

# %%
best = torch.tensor([0.5, 0.5, 0, 0, 0, 0])
plain_c = mle_coefficient(best.log(), certain, 0.5)
for label, c in (
    ("as it stands", plain_c),
    ("weights 1/μ", w * plain_c),
    ("π ≤ D kept", bounded_coefficient(best.log(), certain, 0.5)),
):
    print(f"{label:13} slope at π* on A, B: {step(best, c)[:2].numpy().round(4) + 0.0}")
assert torch.allclose(step(best, plain_c)[:2], torch.tensor([0.15, -0.15]))

# %% [markdown]
# ## 4 · How loud should a negative group be?
#
# A mixed group with $k$ of $G$ answers right is divided by the standard deviation (std) of its
# rewards, $\sqrt{p(1-p)}$ at $p = k/G$.
# At $k = 0$ that is 0, so the paper leaves it out there and tunes a weight, $\alpha = .25$. Two
# answers without tuning:
#
# - **posterior scale:** put a uniform prior on the accuracy; after $k$ of $G$ its mean is
#   $\hat p = (k+1)/(G+2)$. Divide by $\sqrt{\hat p(1-\hat p)}$, in negative groups too;
# - **likelihood scale:** Theorem 1 has neither std nor 1/G nor $\alpha$; it fixes the ratio by
#   itself.
#
# Expect the posterior scale to follow the std and to stay positive at $k = 0$:
# $\sqrt{17}/18 = .229$ for $G = 16$.

# %%
k = torch.arange(17)
std = (k / 16 * (1 - k / 16)).sqrt()
fig, ax = plt.subplots()
ax.plot(k, std, label="std of the rewards (GRPO)", **line(0))
ax.plot(k, posterior_scale(k, 16), label="posterior scale", **line(3))
ax.set(xlabel="right answers k of G = 16", ylabel="what the group is divided by", ylim=(0, None))
ax.legend(fontsize=12, loc="lower center")
plt.show()
assert abs(posterior_scale(0, 16) - 17**0.5 / 18) < 1e-15

# %% [markdown]
# Both can be written as an *equivalent $\alpha$*: the size of a negative group's advantages next
# to a mixed one's, on a scale where the preset `negative_std` with $\alpha$ has exactly $\alpha$.
# For $G = 16$, one correct answer in the mixed group, confidences spread by .03 around .85. Expect
# both near the paper's .25, and the printed rule (with its 1/G) far below.

# %%
normal = torch.distributions.Normal(0.0, 1.0).icdf((torch.arange(16.0) + 0.5) / 16)
spread = 0.85 + 0.03 * normal / normal.square().mean().sqrt()
one_right = torch.zeros(2, 16)
one_right[1, 8] = 1.0
batch = Rollouts(one_right, spread.log().repeat(2, 1), torch.ones(2, 16))
alphas = equivalent_alphas(batch)
printed = lens_advantages(batch).advantages[0].square().mean().sqrt()  # root mean square
print({name: round(x, 3) for name, x in alphas.items()}, f" printed rule: {printed:.5f}")
needed = 0.25 * alphas["alpha_likelihood"] / printed
print(f"to be as loud as the likelihood, the printed rule needs α = {needed:.0f}")
assert abs(alphas["alpha_likelihood"] - 0.242) < 5e-4

# %% [markdown]
# So .25 is the right order of magnitude *without* the 1/G. With it, negative groups are hundreds
# of times quieter than the likelihood would have them. That does not mean that loud is better: on
# the toy the louder presets gain under SGD and harm where the verifier errs
# ([notebook 05](05_toy_dynamics.ipynb)), and on the bundled language model the preset `likelihood`
# was worse than GRPO in accuracy ([notebook 06](06_rivals.ipynb)). Move the spread: the nearer the
# confidences, the smaller the equivalent $\alpha$ (no kernel: .03).


# %%
def draw(width: float) -> None:
    u = spread.mean() + width * (spread - spread.mean()) / 0.03
    seen = Rollouts(one_right, u.clamp(max=0.999).log().repeat(2, 1), torch.ones(2, 16))
    found = equivalent_alphas(seen)
    bars = {"negative_std, α = .25": 0.25, "posterior scale": found["alpha_posterior"]}
    bars["likelihood scale"] = found["alpha_likelihood"]
    bars["printed rule"] = float(lens_advantages(seen).advantages[0].square().mean().sqrt())
    _, ax = plt.subplots(figsize=(8, 3))
    ax.barh(list(bars), list(bars.values()), color="0.4", edgecolor="black")
    ax.set(xscale="log", xlim=(1e-4, 1), xlabel=f"size next to a mixed group (spread {width:g})")
    ax.invert_yaxis()
    plt.show()


slider(draw, width=(0.005, 0.05, 0.005, 0.03))

# %% [markdown]
# ## 5 · A difficulty that remembers
#
# In a negative group $D_{\rm imp}$ is undefined, and the rule falls back to $D = 2 \max \bar\pi$,
# its *smallest* allowed value, on the hardest questions; the theory wants $D = \infty$ where
# nothing is correct. Hence a jump ([notebook 04](04_calibrated_reward.ipynb)). **Pooled $D$** takes
# the $n$ answers of the question's past into account, beside $c$ imaginary ones of difficulty
# $D_0$:
#
# $$\frac{1}{\hat D} = \frac{c/D_0 + \sum_{\text{past}} r_i/\bar\pi_i}{c + n} .$$
#
# Never solved in $n$ answers: $\hat D = D_0\,(1 + n/c)$, and the penalty fades as $1/n$. By hand,
# $c = 16$, $D_0 = 1$: after three groups of 16, $\hat D = 1 + 48/16 = 4$. Solved once, with
# $\bar\pi = .5$, in those 48: $1/\hat D = (16 + 2)/64$, $\hat D = 3.56$.

# %%
spec = methods.spec("lens_pooled")
confidence = torch.full((1, 16), 0.5)
for solved in (0, 1):
    state = spec.init_state()
    for visit in range(3):
        seen = torch.zeros(1, 16)
        seen[0, 0] = float(solved and visit == 0)
        past = Rollouts(seen, confidence.log(), torch.ones(1, 16))
        state = spec.update(state, past, ["question"])
    pooled = float(spec.prior(state, ["question"])[0])
    print(f"solved {solved} times in 48 answers: D = {pooled:.3f}")
    assert abs(pooled - (4.0, 64 / 18)[solved]) < 1e-12

# %% [markdown]
# Here is the whole picture for sixteen equal confidences of .85, over the number $k$ of right
# answers in the group. Expect: by the group alone, the odds of a wrong answer fall with $k$ down
# to one right answer, and jump to 1 at none; with a past of ten unsolved groups they are small at
# $k = 0$ too; a new question has no past, so the guard decides and the odds are 1.

# %%
confidence = torch.full((1, 16), 0.85).log()


def group(k: int, prior: torch.Tensor | None = None) -> Rollouts:
    """16 answers, k of them right; `prior`: the pooled D."""
    rewards = (torch.arange(16) < k).double()[None]
    return Rollouts(rewards, confidence, torch.ones(1, 16), prior=prior)


def wrong_odds(k: int, past: int | None) -> float:
    """Odds π̄/(D−π̄) of a wrong answer, k of 16 right; `past`: unsolved groups before, or None."""
    if past is None:
        signal = lens_advantages(group(k), LensConfig.preset("normalized_difficulty"))
    else:
        state = spec.init_state()
        for _ in range(past):
            state = spec.update(state, group(0), ["q"])
        signal = methods.get("lens_pooled")(group(k, spec.prior(state, ["q"])))
    return float(signal.info["odds"][0, -1])


print([round(wrong_odds(k, None), 3) for k in (4, 2, 1, 0)])
assert np.allclose([wrong_odds(k, None) for k in (4, 2, 1, 0)], [1 / 3, 1 / 7, 1 / 15, 1.0])

# %%
counts = range(9)
pasts = {"the group alone (D_imp on π̄)": None, "pooled, new question": 0}
pasts["pooled, 10 unsolved groups"] = 10
fig, ax = plt.subplots()
for i, (label, past) in enumerate(pasts.items()):
    ax.plot(counts, [wrong_odds(k, past) for k in counts], label=label, **line(i))
ax.set(xlabel="right answers k of 16", ylabel="odds of a wrong answer", ylim=(-0.03, 1.1))
fig.legend(fontsize=12, loc="outside lower center", ncols=2)
plt.show()

# %% [markdown]
# The pooled rule looks at the past alone, so its line is flat in $k$: it gives up what the group
# says in order to have no jump. What did it buy in the long runs? From `results/compare` (20
# seeds): true accuracy kept on questions that the verifier always marks wrong, and accuracy on the
# others, after 800 updates.

# %%
kept = pd.read_csv(results("compare", "summary_harms.csv"))
kept = kept[(kept["experiment"] == "mislabelled") & (kept["step"] == 800)]
kept = kept[kept["method"].isin(["grpo", "lens_paper", "lens_neg_unscaled", "lens_pooled"])]
kept["value"] = [f"{m:.2f} ± {c:.2f}" for m, c in zip(kept["mean"], kept["ci95"], strict=True)]
names = {"accuracy": "mislabelled", "other_accuracy": "others"}
kept = kept[kept["quantity"].isin(list(names))].replace({"quantity": names})
table = kept.pivot(index="method", columns=["optimizer", "quantity"], values="value")
table[[(o, q) for o in ("sgd", "adam") for q in names.values()]]

# %% [markdown]
# Against `neg_unscaled`, the same rule without a memory, pooled $D$ saves the mislabelled questions
# under SGD and most of their accuracy under Adam, at a lower mean accuracy on the others.
# Against GRPO it gains little or nothing on the others under SGD, and under Adam it is behind on
# both. On the bundled language model it had no
# past to pool (every question is seen at most once), so nothing is known there.
#
# ## What you have seen
#
# - Graded rewards: the likelihood matches probabilities, $\pi^\star = D p^\star$, and $D$ is an
#   inverse temperature.
# - Preferences: average over samples, not over the set; odds, not the rate; the exact length form
#   instead of the closing formula. The practical rule is the framework with
#   $\rho = \pi_{\rm old}^{1-1/L}$ and $D_{\rm imp}$ on $\bar\pi$.
# - Other policies' samples: the ratio is exact, a cap biases, and plain likelihood moves the
#   optimum unless mended.
# - In the example the likelihood itself asks for $\alpha \approx .24$ without 1/G; pooled $D$ removes
#   the jump and fades on hopeless questions. Neither was shown to improve a language model.
#
# ## Questions for the class
#
# 1. A judge gives .9 to one answer and .8 to another. What does LENS do with them, and what would
#    you want?
# 2. Why does $\rho$ = live policy teach nothing? Where does the gradient go?
# 3. In practice ratios are capped. On which answers does the cap bias, and is that the worst
#    place?
# 4. Pooled $D$ fades on questions never solved. When is that a mistake?
#
# Back to the start: [01 · Wasted groups](01_wasted_groups.ipynb). All statements with their tests:
# [extensions](../docs/extensions.md). Exercises: [exercises](exercises/).
